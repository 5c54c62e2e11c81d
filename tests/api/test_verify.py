"""`--verify`: which evidence the text of a page is compared with. The answers are those of a model on a server."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from running import cli, said

import llm_ocr
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import EngineOptions
from llm_ocr.errors import MissingExtra
from llm_ocr.models.registry import find_profile
from llm_ocr.plugins import ENGINES
from llm_ocr.stages.verifying import Verifier
from llm_ocr.types import Box, OcrText, Page, PageRecord, Reason, Status
from llm_ocr_cpu.reader import EmbeddedReader
from llm_ocr_simulator import running

OWN_WORKERS = True  # one test kills an OCR process
ROTA = """\
# Rota of the Readers

Each week has a reader and a deputy. The reader takes the level at seven in the morning and at seven in the evening,
works out the forecast, and chalks it on the board. The deputy steps in when the reader is ill or away, and keeps the
second key of the rain gauge. Anyone who cannot take a week should find a replacement before the first of the month.

| Week | Reader | Deputy | Telephone | Remarks |
| --- | --- | --- | --- | --- |
| 1 | Agnes Tolland | Piers Marlowe | 555 0114 | New paint, check the zero |
| 2 | Rosa Kettle | Agnes Tolland | 555 0127 | School holidays |
| 3 | Piers Marlowe | Jonas Field | 555 0133 |  |
| 4 | Jonas Field | Rosa Kettle | 555 0148 | Market on Saturday |
| 5 | Edith Sorrel | Teodor Vik | 555 0156 | Clocks go back on Sunday |

If the forecast exceeds 1.80 m, telephone the three farms before anything else, and then the school. The numbers are on
the inside of the cupboard door. A reading that was missed is left blank; please do not guess it afterwards.

## What to bring

- The notebook and two pencils.
- A torch, from November to February.
- The key of the rain gauge.
"""
DROPPED = "\n".join(line for line in ROTA.splitlines() if not line.startswith("works out the forecast"))
INVENTED = ROTA.replace("month.", "month. All of them received a bronze medal from the mayor in the old town hall.")
CHANGED = ROTA.replace("555 0133", "555 0183")
ONE_EACH = {"render_workers": 1, "ocr_workers": 1, "fallback": "none", "model": "olmocr-2"}
OLMOCR = find_profile("olmocr-2").model


def read(folder: Path, examples: Path, answer: str, **settings: object) -> PageRecord:
    """The third page of the scan as a model without boxes answers it."""
    file = folder / "said.json"
    file.write_text(json.dumps({"*": answer}))

    async def page(url: str) -> PageRecord:
        async with llm_ocr.Session(server_url=url, server_model=OLMOCR, **ONE_EACH, **settings) as session:
            return await session.read_page(examples / "scan.pdf", 3)

    with running(said=file, model=OLMOCR, speed=100, max_model_len=65_536) as server:
        return asyncio.run(page(server.url))


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (ROTA, None, ""),
        (INVENTED, Reason.UNSUPPORTED, "text that nothing on the page supports"),
        (CHANGED, Reason.UNSUPPORTED, "1 number that OCR of the page lacks, the first is 0183"),
        (DROPPED, Reason.UNREAD, "text on the page that was not read"),
    ],
    ids=["good", "invented sentence", "changed number", "dropped line"],
)
def test_ocr_finds_what_a_model_does_to_a_scan(examples, tmp_path, answer, reason, detail):
    row = read(tmp_path, examples, answer, verify="ocr")
    assert (row.ledger.verified_by, row.reason) == ("ocr", reason)
    assert detail in row.detail


def test_without_ocr_a_scan_is_compared_with_its_ink_only(examples, tmp_path):
    row = read(tmp_path, examples, CHANGED)
    assert (row.ledger.verified_by, row.status) == ("ink", Status.OK)


def test_limits_climb_the_ladder_by_the_evidence_of_ocr(examples, tmp_path):
    row = read(tmp_path, examples, INVENTED, verify="ocr", max_unsupported=0.0)
    assert len(row.attempts) > 1  # the server gives the same answer each time
    assert (row.reason, row.ledger.verified_by) == (Reason.UNSUPPORTED, "ocr")


def test_failed_ocr_is_no_fault_of_the_page(examples, tmp_path, monkeypatch):
    ocr_text = EmbeddedReader.ocr_text

    async def late(reader: EmbeddedReader, page: Page) -> OcrText:
        reader._options = replace(reader._options, timeout=0.001)
        return await ocr_text(reader, page)

    monkeypatch.setattr(EmbeddedReader, "ocr_text", late)
    row = read(tmp_path, examples, INVENTED, verify="ocr")
    assert (row.status, row.ledger.verified_by) == (Status.OK, "ink")
    assert "the text was not compared with OCR: killed after" in row.detail


def test_ink_alone_ignores_a_true_text_layer(examples, tmp_path):
    found = {}
    for verify in ("ink", "layer"):
        run = llm_ocr.extract(
            examples / "paper.pdf",
            workspace=tmp_path / verify,
            engine="embedded",
            pages="1",
            verify=verify,
            render_workers=1,
            ocr_workers=1,
        )
        (found[verify],) = run.pages(images=False)
    assert {verify: row.ledger.verified_by for verify, row in found.items()} == {"ink": "ink", "layer": "layer"}
    assert found["ink"].markdown == found["layer"].markdown


def test_ocr_cannot_verify_its_own_text(examples, tmp_path):
    run = cli("run", examples / "scan.pdf", "-w", "out", "--engine", "embedded", "--verify", "ocr", cwd=tmp_path)
    assert run.returncode == 2
    assert "--verify ocr has no effect with the CPU engine" in said(run)
    assert "Remove it, or read with a model" in said(run)


def test_missing_ocr_is_an_error_before_the_plan(examples, tmp_path, monkeypatch):
    monkeypatch.setattr(type(ENGINES.get("embedded")), "missing", lambda engine: MissingExtra("x", install="embedded"))
    served = "--server-url", "http://127.0.0.1:9", "--verify", "ocr"
    run = cli("run", examples / "scan.pdf", "-w", "out", *served, cwd=tmp_path)
    assert run.returncode == 2
    assert "--verify ocr needs OCR" in said(run)
    assert "pip install" in said(run)
    assert not (tmp_path / "out").exists()


# The verifier by itself.


def verifying(examples: Path, use, *, timeout: float = 300.0, **options):
    """Run `use(verifier, page)` with a page of the scan and the real CPU engine."""

    async def run():
        async with Renderer(RenderOptions(workers=1, image_size=900)) as renderer:
            page = await renderer.page(str(examples / "scan.pdf"), "", 3, page_id="p", document_id="d")
            reader = ENGINES.get("embedded").page_reader(EngineOptions(workers=1, timeout=timeout, background=True))
            verifier = Verifier(reader, renderer, **options)
            try:
                return await use(verifier, page)
            finally:
                await verifier.close()

    return asyncio.run(run())


def test_requests_wait_for_ocr_only_at_the_bound(examples):
    async def use(verifier, page):
        await asyncio.wait_for(verifier.wait_for_room(), 0.1)
        verifier.begin(page)
        full = verifier.waiting
        room = asyncio.create_task(verifier.wait_for_room())
        await asyncio.sleep(0)
        waited = not room.done()
        text = (await verifier.verified(page))[0].evidence.ocr
        await room
        return waited, full == len(page.image.data), verifier.waiting, len(text.lines) > 20

    assert verifying(examples, use, most_waiting=1) == (True, True, 0, True)
    assert verifying(examples, use, most_waiting=1 << 30)[0] is False


def test_a_killed_ocr_process_is_replaced(examples):
    async def use(verifier, page):
        verifier.begin(page)
        pool = verifier._reader._pool
        async with asyncio.timeout(60):
            while not pool._all:  # noqa: ASYNC110  # the pool tells nobody that it starts a process
                await asyncio.sleep(0.01)
        next(iter(pool._all)).process.kill()
        found, why_not = await verifier.verified(page)
        return why_not, found.evidence.ocr is not None

    assert verifying(examples, use) == ("", True)


def test_a_page_that_failed_frees_its_place(examples):
    async def use(verifier, page):
        verifier.begin(page)
        verifier.forget(page)
        await asyncio.wait_for(verifier.wait_for_room(), 60)
        return verifier.waiting, await verifier.verified(page) == (page, "")

    assert verifying(examples, use, most_waiting=1) == (0, True)


def test_pages_with_a_true_layer_are_not_read_by_ocr(examples):
    async def use(verifier, page):
        layer = tuple((line, Box(0.1, 0.1, 0.9, 0.12)) for line in ROTA.splitlines())
        verifier.begin(replace(page, evidence=replace(page.evidence, lines=layer, pictured=0.0)))
        return verifier.waiting

    assert verifying(examples, use) == 0
