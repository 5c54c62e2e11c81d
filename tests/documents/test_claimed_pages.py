"""How many pages a PDF claims to have is believed only as far as they are there."""

import pypdfium2
import pytest
from making import pdf
from test_rendering import with_renderer

from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason


def opened(path) -> int:
    return with_renderer(lambda renderer: renderer.open(str(path)))


def claiming(pages: int) -> bytes:
    """A PDF of one page whose tree says another number."""
    tree = b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % pages
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", tree, b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>")


@pytest.mark.parametrize("pages", [100_000, 1_000_000])
def test_a_small_file_that_claims_very_many_pages_is_one_failed_document(tmp_path, pages):
    (tmp_path / "mad.pdf").write_bytes(claiming(pages))
    with pytest.raises(PageFailure, match=f"declares {pages:,} pages") as caught:
        opened(tmp_path / "mad.pdf")
    assert caught.value.reason is Reason.UNREADABLE


def test_a_document_that_has_many_pages_is_believed(tmp_path):
    document = pypdfium2.PdfDocument.new()
    for _ in range(1500):
        document.new_page(100, 100)
    document.save(tmp_path / "long.pdf")
    assert opened(tmp_path / "long.pdf") == 1500
