"""`--verify`: which evidence the text of a page is compared with. The answers are those of a model on a server."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from running import cli, said

import llm_ocr
from llm_ocr.errors import MissingExtra
from llm_ocr.models.registry import find_profile
from llm_ocr.plugins import ENGINES
from llm_ocr.types import OcrText, Page, PageRecord, Reason, Status
from llm_ocr_cpu.reader import EmbeddedReader
from llm_ocr_simulator import running

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
        pytest.param(ROTA, None, "", marks=pytest.mark.slow),
        pytest.param(INVENTED, Reason.UNSUPPORTED, "text that nothing on the page supports", marks=pytest.mark.slow),
        (CHANGED, Reason.UNSUPPORTED, "1 number that OCR of the page lacks, the first is 0183"),
        pytest.param(DROPPED, Reason.UNREAD, "text on the page that was not read", marks=pytest.mark.slow),
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


@pytest.mark.slow
def test_limits_climb_the_ladder_by_the_evidence_of_ocr(examples, tmp_path):
    row = read(tmp_path, examples, INVENTED, verify="ocr", max_unsupported=0.0)
    assert len(row.attempts) > 1  # the server gives the same answer each time
    assert (row.reason, row.ledger.verified_by) == (Reason.UNSUPPORTED, "ocr")
    assert row.detail.count("text that nothing on the page supports") == 1


@pytest.mark.slow
def test_failed_ocr_is_no_fault_of_the_page(examples, tmp_path, monkeypatch):
    ocr_text = EmbeddedReader.ocr_text

    async def late(reader: EmbeddedReader, page: Page) -> OcrText:
        reader._options = replace(reader._options, timeout=0.001)
        return await ocr_text(reader, page)

    monkeypatch.setattr(EmbeddedReader, "ocr_text", late)
    row = read(tmp_path, examples, INVENTED, verify="ocr")
    assert (row.status, row.ledger.verified_by) == (Status.OK, "ink")
    assert "the text was not compared with OCR: killed after" in row.detail


@pytest.mark.parametrize(("flags", "message"), [((), "has no effect with"), (("--verify", "ocr"), "unknown language")])
def test_a_language_of_ocr_is_checked_before_the_plan(examples, tmp_path, flags, message):
    served = "--server-url", "http://127.0.0.1:9", "--ocr-language", "klingon"
    run = cli("run", examples / "scan.pdf", "-w", "out", *served, *flags, cwd=tmp_path)
    assert (run.returncode, (tmp_path / "out").exists()) == (2, False)
    assert message in said(run)
    assert flags or "With --verify ocr" in said(run)


@pytest.mark.slow
def test_text_of_a_script_that_ocr_cannot_read_is_not_verified(examples, tmp_path):
    """The recognizer reads no Cyrillic: it says nothing about such a text, and the row names the ink."""
    text = "Каждая река имеет читателя и заместителя, которые утром и вечером смотрят на уровень воды. " * 20
    row = read(tmp_path, examples, text, verify="ocr")
    assert row.ledger.verified_by == "ink"


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
