"""How many pages a PDF claims to have is believed only as far as they are there."""

import asyncio

import pypdfium2
import pytest

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason


def opened(path) -> int:
    async def count() -> int:
        async with Renderer(RenderOptions(workers=1)) as renderer:
            return await renderer.open(str(path))

    return asyncio.run(count())


def claiming(pages: int) -> bytes:
    """A PDF of one page whose tree says another number."""
    tree = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % pages
    bodies = (b"<</Type/Catalog/Pages 2 0 R>>", tree, b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>")
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return data + b"xref\n0 4\n0000000000 65535 f \n%strailer<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(data),
    )


@pytest.mark.parametrize("pages", [100_000, 1_000_000])
def test_a_small_file_that_claims_very_many_pages_is_one_failed_document(tmp_path, pages):
    (tmp_path / "mad.pdf").write_bytes(claiming(pages))
    with pytest.raises(PageFailure, match=f"claims {pages:,} pages") as caught:
        opened(tmp_path / "mad.pdf")
    assert caught.value.reason is Reason.UNREADABLE


def test_a_document_that_has_many_pages_is_believed(tmp_path):
    document = pypdfium2.PdfDocument.new()
    for _ in range(1500):
        document.new_page(100, 100)
    document.save(tmp_path / "long.pdf")
    assert opened(tmp_path / "long.pdf") == 1500
