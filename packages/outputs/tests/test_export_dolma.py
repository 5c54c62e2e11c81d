"""`export --format dolma`: what Dolma's own tools ask of documents, and the spans of their pages."""

import gzip
import json
from pathlib import Path

import pytest
from export_workspaces import make

import llm_ocr

#: Two documents of six in which each page fails.
FAILS = frozenset({"1.pdf", "4.pdf"})
#: The fields of `docs/data-format.md` of allenai/dolma: type, and whether it must be there.
SCHEMA = {
    "id": (str, True),
    "text": (str, True),
    "source": (str, True),
    "added": (str, False),
    "created": (str, False),
    "metadata": (dict, False),
    "attributes": (dict, False),
}
PAGE_LISTS = {"primary_language", "is_rotation_valid", "rotation_correction", "is_table", "is_diagram"}


@pytest.fixture(scope="module")
def made(golden) -> Path:
    return golden("made-dolma", lambda folder: make(str(folder / "w"), fails=FAILS)) / "w"


def export(workspace, output, **more):
    return llm_ocr.export(workspace=workspace, output=output, format="dolma", **more)


def documents(output: Path) -> list[dict]:
    paths = sorted((output / "documents").iterdir())
    assert all(path.name.endswith(".jsonl.gz") for path in paths)
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def check(document: dict) -> None:
    """What the format says, and olmOCR's attributes beside it."""
    assert document.keys() <= SCHEMA.keys()
    for name, (kind, needed) in SCHEMA.items():
        assert isinstance(document[name], kind) if name in document else not needed
    attributes, text = document["attributes"], document["text"]
    spans = attributes["pdf_page_numbers"]
    assert attributes.keys() <= {"pdf_page_numbers", *PAGE_LISTS}
    assert all(len(attributes[name]) == len(spans) for name in PAGE_LISTS & attributes.keys())
    assert all(any(value is not None for value in attributes[name]) for name in PAGE_LISTS & attributes.keys())
    assert all(isinstance(value, int) for span in spans for value in span)
    ends = [0, *(end for _, end, _ in spans)]
    assert all(before <= start <= end <= len(text) for before, (start, end, _) in zip(ends, spans, strict=False))


def test_documents_are_lines_that_follow_the_format(made, tmp_path):
    done = export(made, tmp_path / "o")
    found = documents(tmp_path / "o")
    assert (done.rows, done.unit, done.files) == (6, "documents", 1)
    assert len({document["id"] for document in found}) == 6
    for document in found:
        check(document)
    first = found[0]
    assert Path(first["metadata"]["Source-File"]).name == "0.pdf"
    assert first["metadata"]["model"] == "deepseek-ai/DeepSeek-OCR"
    assert (first["metadata"]["total-input-tokens"], first["metadata"]["pdf-total-pages"]) == (300, 3)
    assert first["text"].startswith("Page 1 of 0.pdf\n\na chart on ")
    assert "figure:" not in first["text"] and "<!--" not in first["text"]
    (settings,) = (json.loads(path.read_text()) for path in (made / "extract").glob("*/settings.json"))
    assert {(one["added"], one["created"]) for one in found} == {(settings["created"][:10],) * 2}


def test_spans_of_the_text_are_the_pages(real, tmp_path):
    export(real, tmp_path / "o")
    paper = next(one for one in documents(tmp_path / "o") if one["text"])
    spans = paper["attributes"]["pdf_page_numbers"]
    assert [page for _, _, page in spans] == [1, 2, 3]
    pages = {page: paper["text"][start:end] for start, end, page in spans}
    rows = [row for row in llm_ocr.open(real).pages() if row.document_id == paper["id"]]
    assert pages == {row.page_number: row.markdown for row in rows}
    assert paper["text"] == "\n\n".join(pages.values())


def test_pages_that_failed_have_empty_spans_and_are_counted(made, real, tmp_path):
    export(made, tmp_path / "o")
    failed = documents(tmp_path / "o")[1]
    assert (failed["text"], failed["attributes"]["pdf_page_numbers"]) == ("", [[0, 0, 1], [0, 0, 2], [0, 0, 3]])
    assert failed["metadata"]["total-failed-pages"] == 3
    export(real, tmp_path / "p")
    broken = next(one for one in documents(tmp_path / "p") if not one["text"])
    assert broken["attributes"]["pdf_page_numbers"] == []
    check(broken)


@pytest.mark.parametrize("which", ["made", "real"])
def test_the_line_that_is_told_opens_it_and_pandas_does(which, request, tmp_path, monkeypatch):
    import datasets
    import pandas

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    done = export(request.getfixturevalue(which), tmp_path / "o")
    rows = eval(done.load, {"load_dataset": datasets.load_dataset})
    wanted = [one["attributes"]["pdf_page_numbers"] for one in documents(tmp_path / "o")]
    assert [row["attributes"]["pdf_page_numbers"] for row in rows] == wanted
    (path,) = (tmp_path / "o/documents").iterdir()
    assert len(pandas.read_json(path, lines=True)) == len(rows) == done.rows
