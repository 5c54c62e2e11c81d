"""Mutated documents through real renderer processes: a page, or a reason that is for people, and soon."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from fuzz_counts import COUNTS
from fuzz_folders import Pools, case
from fuzz_runs import fault_of_reason
from mutated_pdfs import plain_pdf

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure

TIMEOUT = 20.0  # seconds of one request


OPTIONS = RenderOptions(workers=2, image_size=300, timeout=TIMEOUT, memory=512 << 20)


@pytest.fixture(scope="module")
def pools(examples) -> Pools:
    pdfs = [plain_pdf(random.Random(seed), 2) for seed in range(3)]
    return Pools([*pdfs, (examples / "paper.pdf").read_bytes()], [(examples / "fax.tiff").read_bytes()])


async def faults_of(renderer: Renderer, path: Path) -> list[str]:
    """Opens the document and makes its first and last page."""
    start, faults = time.monotonic(), []
    try:
        total = await renderer.open(str(path))
        for number in {1, total}:
            page = await renderer.page(str(path), "", number, page_id="p", document_id="d")
            if not (page.image.data and 0 < max(page.image.width, page.image.height) <= OPTIONS.image_size):
                faults.append(f"an image of {page.image.width} x {page.image.height}")
    except PageFailure as failure:
        faults += filter(None, [fault_of_reason(failure.detail)])
    # A crash is tried once more; each of three requests may wait for another file's.
    if time.monotonic() - start > 12 * TIMEOUT:
        faults.append("too long")
    return faults


@pytest.mark.slow
def test_mutated_documents_give_pages_or_reasons(tmp_path, pools):
    cases = [case(1, number, pools) for number in range(COUNTS["documents"])]
    for one in cases:
        (tmp_path / f"{one.number}").write_bytes(one.data)

    async def every() -> list[list[str]]:
        async with Renderer(OPTIONS) as renderer:
            return await asyncio.gather(*(faults_of(renderer, tmp_path / f"{one.number}") for one in cases))

    found = asyncio.run(every())
    assert {one.number: (one.kind, faults) for one, faults in zip(cases, found, strict=True) if faults} == {}


def test_page_without_size_for_either_renderer_has_a_reason(tmp_path):
    """Poppler gives such a page 0 x 0 points: it was a division by zero."""
    whole = plain_pdf(random.Random(0))
    (tmp_path / "a.pdf").write_bytes(
        whole.replace(b"/Type /Page\n", b"/Type /Pagx\n").replace(b"/MediaBox", b"/MediaBoy")
    )
    (tmp_path / "b.pdf").write_bytes(
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[9 0 R 9 0 R]/Count 2>>endobj\n"
        b"trailer<</Root 1 0 R>>"
    )

    async def every() -> list[list[str]]:
        async with Renderer(OPTIONS) as renderer:
            return [await faults_of(renderer, tmp_path / name) for name in ("a.pdf", "b.pdf")]

    assert asyncio.run(every()) == [[], []]
