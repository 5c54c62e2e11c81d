"""The example documents through all three stages, once: all that `examples/expected.json` says holds for the result."""

import io
import json
from pathlib import Path
from typing import Any

import markdown_reading as reading
import pytest
from PIL import Image
from running import COLUMNS, REPOSITORY, cli, said, status_of

import llm_ocr
from llm_ocr.results.images import LONGEST_SIDE
from llm_ocr.types import PageRecord, Status

pytestmark = pytest.mark.slow

EXPECTED: dict[str, Any] = json.loads((REPOSITORY / "examples" / "expected.json").read_text(encoding="utf-8"))["files"]
PAGES = [(name, page["number"]) for name, entry in EXPECTED.items() for page in entry["pages"]]


class Examples:
    """The finished workspace, its pages and its documents."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        run = llm_ocr.open(str(workspace))
        self.rows: dict[tuple[str, int], PageRecord] = {
            (Path(page.source).name, page.page_number or 0): page for page in run.pages()
        }
        texts = {Path(one.source).name: one.markdown for one in run.documents()}
        self.markdown = {(name, number): text for name in texts for number, text in reading.pages(texts[name]).items()}


@pytest.fixture(scope="module")
def examples_read(golden) -> Examples:
    def make(folder: Path) -> None:
        files = [REPOSITORY / "examples" / name for name in EXPECTED]
        run = cli("run", *files, "-w", "out", cwd=folder)
        assert run.returncode == 0, said(run)

    return Examples(golden("pipeline", make) / "out")


def expected(page: tuple[str, int]) -> dict[str, Any]:
    name, number = page
    return EXPECTED[name]["pages"][number - 1]


def is_exact(page: tuple[str, int]) -> bool:
    """A true text layer is taken as it is; OCR may err in a letter."""
    return bool(EXPECTED[page[0]]["text_layer"])


def lacking(examples_read: Examples, page: tuple[str, int], wanted: list[str]) -> list[str]:
    """Those that the page's Markdown does not hold."""
    text = examples_read.markdown[page]
    return [words for words in wanted if reading.place_of(words, text, exact=is_exact(page)) < 0]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_read_the_way_it_should_be(examples_read, page):
    row = examples_read.rows[page]
    source = "text-layer" if is_exact(page) else "ocr"
    assert (row.status, row.text_source, row.rotation) == (Status.OK, source, expected(page)["rotation"])


@pytest.mark.parametrize("page", PAGES)
def test_markdown_holds_printed_text_without_running_headers(examples_read, page):
    wanted = expected(page)
    items = [item for one in wanted["lists"] for item in one["items"]]
    captions = [one["caption"] for one in (*wanted["figures"], *wanted["tables"]) if one["caption"]]
    assert lacking(examples_read, page, [*wanted["present"], *wanted["headings"], *items, *captions]) == []
    text = examples_read.rows[page].markdown
    assert [words for words in wanted["absent"] if reading.place_of(words, text, exact=False) >= 0] == []
    assert [words for words in wanted["absent_lines"] if reading.plain(words) in reading.lines(text)] == []


def test_running_headers_are_at_most_once_in_a_document(examples_read):
    heads = {(page[0], words) for page in PAGES for words in expected(page)["absent"]}
    found = {
        (name, words): sum(
            reading.place_of(words, text, exact=False) >= 0
            for page, text in examples_read.markdown.items()
            if page[0] == name
        )
        for name, words in heads
    }
    assert 1 in found.values()
    assert max(found.values()) == 1


@pytest.mark.parametrize("page", PAGES)
def test_text_stands_in_reading_order(examples_read, page):
    text, exact = examples_read.markdown[page], is_exact(page)
    for first, second in expected(page)["order"]:
        before, after = (reading.place_of(words, text, exact=exact) for words in (first, second))
        assert 0 <= before < after, (first, second)


@pytest.mark.parametrize("page", [page for page in PAGES if is_exact(page)])
def test_headings_of_digital_pages_are_headings(examples_read, page):
    assert set(expected(page)["headings"]) - set(reading.headings(examples_read.markdown[page])) == set()


@pytest.mark.parametrize("page", [page for page in PAGES if not is_exact(page)])
def test_headings_of_scans_stand_apart_from_the_text(examples_read, page):
    found = {
        cell
        for line in examples_read.markdown[page].splitlines()
        for cell in reading.lines("\n".join(line.split("   ")))
    }
    assert set(expected(page)["headings"]) - found == set()


def test_most_headings_of_scans_are_told_from_the_text(examples_read):
    pages = [page for page in PAGES if not is_exact(page)]
    wanted = {(page, heading) for page in pages for heading in expected(page)["headings"]}
    found = {(page, heading) for page in pages for heading in reading.headings(examples_read.markdown[page])}
    assert len(found & wanted) >= 0.5 * len(wanted)


@pytest.mark.parametrize("page", PAGES)
def test_lists_are_lists(examples_read, page):
    text = examples_read.markdown[page]
    for one in expected(page)["lists"]:
        for item in one["items"]:
            (line,) = [line for line in text.splitlines() if reading.place_of(item, line, exact=is_exact(page)) >= 0]
            assert line[0].isdigit() if one["numbered"] else line.startswith("- "), line


@pytest.mark.parametrize("page", [page for page in PAGES if expected(page)["tables"]])
def test_tables_have_their_rows_and_cells(examples_read, page):
    rows = [row for table in reading.tables(examples_read.markdown[page]) for row in table]
    for table in expected(page)["tables"]:
        wanted = [[reading.plain(cell) for cell in row] for row in table["rows"]]
        assert [row for row in wanted if row not in rows] == []
        places = [rows.index(row) for row in wanted]
        assert places == sorted(places)


@pytest.mark.parametrize("page", PAGES)
def test_figures_are_cropped_with_captions_and_inside_text(examples_read, page):
    row, wanted = examples_read.rows[page], expected(page)["figures"]
    assert [figure.caption.startswith(one["caption"]) for figure, one in zip(row.figures, wanted, strict=True)] == [
        True
    ] * len(wanted)
    for figure, one in zip(row.figures, wanted, strict=True):
        inside = reading.plain(figure.inside)
        assert [words for words in one["text"] if words not in inside] == []
        with Image.open(io.BytesIO(figure.image.data)) as crop:
            assert crop.size == (figure.image.width, figure.image.height)


def test_figures_stand_beside_the_markdown_where_its_links_lead(examples_read):
    figures = [figure for row in examples_read.rows.values() for figure in row.figures]
    for figure in figures:
        (file,) = (examples_read.workspace / "documents").rglob(f"{figure.id}.*")
        assert file.read_bytes() == figure.image.data
        document = file.parent.with_suffix(".md")
        assert f"]({document.stem}.figures/{file.name})" in document.read_text()


def test_the_page_that_lay_on_its_side_is_stored_upright(examples_read):
    image = examples_read.rows["scan.pdf", 3].image
    assert image.width > image.height
    with Image.open(io.BytesIO(image.data)) as picture:
        assert picture.size == (image.width, image.height)


def test_status_tells_the_numbers_of_the_run(examples_read):
    status = status_of(examples_read.workspace)
    count = sum(len(row.figures) for row in examples_read.rows.values())
    assert status["pages"] == {"expected": 9, "ok": 9, "degraded": 0, "failed": 0}
    assert status["figures"] == {"expected": count, "ok": count, "degraded": 0, "failed": 0, "undescribed": count}
    assert (status["documents"], status["generations"], status["reasons"]) == (4, 1, {})
    assert all(stage["done"] == stage["total"] for stage in status["units"].values())


def assert_same_shape(size: tuple[int, int], smaller: tuple[int, int]) -> None:
    """The image with boxes may be smaller than a large scan."""
    assert max(smaller) == min(max(size), LONGEST_SIDE)
    assert smaller[0] / smaller[1] == pytest.approx(size[0] / size[1], rel=0.01)


def test_dataset_opens_with_all_columns_and_decodable_images(examples_read, tmp_path):
    from datasets import Image as ImageFeature
    from datasets import load_dataset

    dataset = load_dataset(
        str(examples_read.workspace / "dataset"), split="train", cache_dir=str(tmp_path), keep_in_memory=True
    )
    assert dataset.column_names == COLUMNS
    assert isinstance(dataset.features["source_image"], ImageFeature)
    assert len(dataset) == len(PAGES)
    for row in dataset:
        page = (Path(row["source"]).name, row["page_number"])
        record = examples_read.rows[page]
        assert (row["sample_id"], row["document_id"]) == (record.page_id, record.document_id)
        assert_same_shape(row["source_image"].size, row["document_with_boxes_image"].size)
        assert len(row["extracted_figures"]) == len(row["extracted_figures_metadata"]) == len(record.figures)
        assert [crop.size for crop in row["extracted_figures"]] == [
            (figure.image.width, figure.image.height) for figure in record.figures
        ]
        assert len(row["blocks"]) == len(record.blocks)
        assert record.markdown.strip() in row["document_markdown"]  # which may have running headers as well
        for figure in record.figures:
            assert figure.id in row["document_final_markdown"]


def test_images_of_the_dataset_are_the_bytes_that_extract_stored(examples_read):
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(examples_read.workspace / "dataset").to_table(columns=["sample_id", "source_image"])
    stored = {row.page_id: row.image.data for row in examples_read.rows.values()}
    assert {row["sample_id"]: row["source_image"]["bytes"] for row in table.to_pylist()} == stored
