"""Pages as the lines of the dots.ocr batch pipeline: its fields, in its order, successes and failures apart."""

import json

from llm_ocr.types import Block, BlockKind, Box, EncodedImage, PageRecord, Reason, Status
from llm_ocr_platforms.modal.batch import as_line, dots_record

READ = PageRecord(
    "doc1-p00001",
    "doc1",
    "s3://bucket/doc.pdf",
    1,
    0,
    Status.OK,
    engine="dots-ocr",
    image=EncodedImage(b"", "image/png", 1000, 2000),
    markdown="# Quay",
    blocks=(
        Block(BlockKind.TITLE, Box(0.1, 0.1, 0.9, 0.2), "Quay", "Title"),
        Block(BlockKind.FIGURE, Box(0.0, 0.5, 1.0, 1.0), label="Picture"),
    ),
    tokens_in=1024,
    tokens_out=512,
    seconds=2.34,
)


def failed(detail: str = "no such object", page: int | None = 2) -> PageRecord:
    return PageRecord(
        "doc1-p00002", "doc1", "s3://bucket/doc.pdf", page, 1, Status.FAILED, Reason.NOT_FOUND, detail, seconds=1.23
    )


def test_record_of_a_read_page_has_the_pipeline_fields_in_order():
    line = dots_record(READ)
    assert line == {
        "document_id": "doc1",
        "page": 1,
        "page_index": 1,
        "pdf_path": "s3://bucket/doc.pdf",
        "model": "dots-ocr",
        "success": True,
        "latency": 2.34,
        "usage": {"prompt_tokens": 1024, "completion_tokens": 512, "total_tokens": 1536},
        "content": "# Quay",
        "error": None,
    }
    order = "document_id page page_index pdf_path model success latency usage content error"
    assert list(line) == order.split()


def test_a_page_that_failed_has_its_error_and_no_content():
    assert dots_record(failed(), model="dots-ocr") == {
        "document_id": "doc1",
        "page": 2,
        "page_index": 2,
        "pdf_path": "s3://bucket/doc.pdf",
        "model": "dots-ocr",
        "success": False,
        "latency": 1.23,
        "usage": {},
        "content": None,
        "error": "not_found: no such object",
    }
    assert dots_record(failed("", None))["error"] == "not_found"
    assert dots_record(failed(page=None))["page"] is None


def test_the_layout_is_written_as_the_model_writes_it():
    assert json.loads(dots_record(READ, "layout")["content"]) == [
        {"bbox": [100, 200, 900, 400], "category": "Title", "text": "Quay"},
        {"bbox": [0, 1000, 1000, 2000], "category": "Picture"},
    ]
    assert json.loads(dots_record(READ, "layout-only")["content"])[0] == {
        "bbox": [100, 200, 900, 400],
        "category": "Title",
    }


def test_a_line_is_one_line_of_json():
    text = as_line(dots_record(failed("two\nlines and a ä")))
    assert text.count("\n") == 1 and text.endswith("\n")
    assert json.loads(text)["error"] == "not_found: two\nlines and a ä"
    assert "ä" in text
