"""Rows of a Hugging Face dataset go through the three stages like any documents, whoever does which of them.

The server is the fake Hub; the datasets are written to it by `datasets` itself.
"""

import io
from pathlib import Path

import pytest
from PIL import Image
from running import FRUGAL, FRUGALLY, cli, said

import llm_ocr
from llm_ocr.documents.rows import row_address
from llm_ocr.errors import UsageError
from llm_ocr.types import Reason
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from tests.documents.rows import dataset_hub as parts

NAME = "tester/pages"
WORDS = ("ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO", "FOXTROT", "GOLF", "HOTEL", "INDIA", "JULIET", "KILO", "LIMA")


@pytest.fixture
def hub(tmp_path):
    """A server with a dataset of twelve images: two files of three row groups; one image is broken, one is missing."""
    with parts.dataset_hub(tmp_path / "hf home") as made:
        images = [parts.cell(parts.picture(word, size=(420, 120))) for word in WORDS]
        images[4] = parts.cell(b"\x89PNG\r\n\x1a\n that is all")
        images[7] = None
        made.add(NAME, dict(files(images)))
        yield made


def files(images):
    """Two files of six rows, by their paths."""
    for number in range(2):
        rows = slice(6 * number, 6 * number + 6)
        columns = {"page": images[rows], "name": [f"name {word}" for word in WORDS[rows]]}
        types = {"page": parts.IMAGE, "name": parts.pa.string()}
        yield f"data/train-{number:05d}-of-00002.parquet", parts.parquet(columns, types, rows=2)


def results(run):
    """What counts of each page, however it came about."""
    return [(page.page_id, page.dataset_index, page.status, page.reason, page.markdown) for page in run.pages()]


def test_only_selects_rows_by_id_or_place(hub, tmp_path):
    for number, (only, options) in enumerate([("name BRAVO", {"id_column": "name"}), ("*-00000-*/000001", {})]):
        planned = llm_ocr.plan(dataset=NAME, only=only, workspace=tmp_path / f"w{number}", **options)
        assert planned.status.documents == 1
    with pytest.raises(UsageError, match="the dataset: no document named none"):
        llm_ocr.plan(dataset=NAME, only="none", workspace=tmp_path / "w")


def test_each_row_is_a_document_and_fails_alone(hub, tmp_path):
    run = llm_ocr.run(dataset=NAME, workspace=tmp_path / "w", pages_per_unit=5, **FRUGALLY)
    pages = sorted(run.pages(), key=lambda page: page.dataset_index)
    assert [page.markdown.strip() for page in pages if page.status == "ok"] == [
        word for place, word in enumerate(WORDS) if place not in (4, 7)
    ]
    failed = {row_address(page.source).row: page.reason for page in pages if page.status == "failed"}
    assert failed == {4: Reason.UNREADABLE, 1: Reason.NOT_FOUND}
    counts = run.status.pages
    assert (counts.expected, counts.ok, counts.degraded, counts.failed) == (12, 10, 0, 2)
    assert run.status.documents == 12
    commit = hub.commit(NAME)
    place = f"hf://datasets/{NAME}@{commit}/data/train-00000-of-00002.parquet"
    assert pages[1].source == f"{place}#row=1&column=page"
    (markdown,) = (tmp_path / "w/documents/data/train-00001-of-00002.parquet").glob("000005*.md")
    assert "LIMA" in markdown.read_text()


@pytest.mark.slow
def test_the_same_rows_come_out_of_one_worker_and_of_three(hub, tmp_path):
    alone = llm_ocr.run(dataset=NAME, workspace=tmp_path / "one", pages_per_unit=2, **FRUGALLY)
    for shard in (2, 0, 1):  # the plan is made by the one that comes first
        llm_ocr.extract(
            dataset=NAME,
            workspace=tmp_path / "three",
            pages_per_unit=2,
            shard_index=shard,
            shard_count=3,
            **FRUGALLY,
        )
    shared = llm_ocr.run(workspace=tmp_path / "three", **FRUGALLY)
    assert sorted(results(shared)) == sorted(results(alone))
    assert shared.status.pages == alone.status.pages


def test_lists_of_images_are_pages_of_one_document(hub, tmp_path):
    pictures = [parts.cell(parts.picture(word, size=(420, 120))) for word in WORDS[:4]]
    rows = {"images": [pictures[:3], [], pictures[3:]]}
    file = parts.parquet(rows, {"images": parts.pa.list_(parts.IMAGE)})
    hub.add("tester/lists", {"data/train.parquet": file})
    run = llm_ocr.run(dataset="tester/lists", workspace=tmp_path / "w", pages_per_unit=2, **FRUGALLY)
    found = sorted((page.dataset_index, page.page_number, page.markdown.strip()) for page in run.pages())
    assert found == [(0, 1, "ALPHA"), (1, 2, "BRAVO"), (2, 3, "CHARLIE"), (3, None, ""), (4, 1, "DELTA")]
    assert (run.status.documents, run.status.pages.expected, run.status.pages.failed) == (3, 5, 1)
    first = next(document for document in run.documents() if document.path.endswith("000000.md"))
    assert [word in first.markdown for word in WORDS[:4]] == [True, True, True, False]


def test_row_with_a_tiff_of_three_pages_has_three_rows(hub, tmp_path):
    first, *others = [Image.open(io.BytesIO(parts.picture(word, size=(420, 120)))) for word in WORDS[:3]]
    file = io.BytesIO()
    first.save(file, "TIFF", save_all=True, append_images=others)
    cells = [parts.cell(file.getvalue(), "a.tif"), parts.cell(parts.picture("DELTA", size=(420, 120)), "b.png")]
    hub.add("tester/tiffs", {"train.parquet": parts.parquet({"page": cells}, {"page": parts.IMAGE})})
    run = llm_ocr.run(dataset="tester/tiffs", workspace=tmp_path / "w", **FRUGALLY)
    found = sorted((page.page_number, page.markdown.strip()) for page in run.pages())
    assert found == [(1, "ALPHA"), (1, "DELTA"), (2, "BRAVO"), (3, "CHARLIE")]
    assert run.status.pages.expected == 4


def test_rows_come_behind_files_and_ids_are_those_of_the_column(hub, tmp_path, examples):
    llm_ocr.plan(
        examples / "invoice.png", dataset=NAME, id_column="name", max_samples=3, workspace=tmp_path / "w", **FRUGALLY
    )
    planned = [part for unit in read_units(Workspace.open(str(tmp_path / "w"))) for part in unit.parts]
    assert Path(planned[0].source).name == "invoice.png"
    assert [part.document_id for part in planned[1:]] == ["name ALPHA", "name BRAVO"]


@pytest.mark.slow
def test_command_line_reads_a_dataset_and_names_errors(hub, tmp_path):
    env = hub.environment
    wrong = cli("run", "--dataset", NAME, "--image-column", "scan", "-w", "no", *FRUGAL, cwd=tmp_path, env=env)
    assert wrong.returncode == 2, said(wrong)
    assert "--image-column scan" in wrong.stderr and "Columns with images: page" in wrong.stderr
    gone = cli("run", "--dataset", "tester/nowhere", "-w", "no", *FRUGAL, cwd=tmp_path, env=env)
    assert gone.returncode == 1, said(gone)
    assert "tester/nowhere" in gone.stderr
    assert not (tmp_path / "no").exists()
    done = cli("run", "--dataset", NAME, "--max-samples", "2", "-w", "w", *FRUGAL, cwd=tmp_path, env=env)
    assert done.returncode == 0, said(done)
    assert "2 ok" in done.stdout


def test_dataset_on_this_machine_is_read_like_one_of_the_hub(tmp_path, monkeypatch):
    for path, data in files([parts.cell(parts.picture(word, size=(420, 120))) for word in WORDS]):
        (tmp_path / "pages" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pages" / path).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    run = llm_ocr.run(dataset="pages", workspace=tmp_path / "w", max_samples=8, **FRUGALLY)
    pages = sorted(run.pages(), key=lambda page: page.dataset_index)
    assert [page.markdown.strip() for page in pages] == list(WORDS[:8])
    assert len(list((tmp_path / "w/documents").rglob("train-00001-of-00002.parquet/000001*.md"))) == 1
    pattern = "pages/data/train-*.parquet"
    again = llm_ocr.plan(dataset=pattern, workspace=tmp_path / "by pattern", max_samples=8, engine="embedded")
    planned = [part for unit in read_units(Workspace.open(again.url)) for part in unit.parts]
    assert [part.source for part in planned] == [page.source for page in pages]


def test_changed_file_of_a_local_dataset_fails_its_rows(tmp_path):
    path = tmp_path / "one.parquet"
    path.write_bytes(parts.parquet({"page": [parts.cell(parts.picture("ALPHA"))]}, {"page": parts.IMAGE}))
    llm_ocr.plan(dataset=str(path), workspace=tmp_path / "w", engine="embedded")
    path.write_bytes(parts.parquet({"page": [parts.cell(parts.picture("BRAVO, longer"))]}, {"page": parts.IMAGE}))
    [failed] = llm_ocr.extract(workspace=tmp_path / "w", **FRUGALLY).failures()
    assert failed.reason is Reason.SOURCE_CHANGED


@pytest.mark.parametrize("named", ["./none", "none.parquet", "none-*.parquet"])
def test_missing_local_dataset_is_a_wrong_setting(tmp_path, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        llm_ocr.plan(dataset=named, workspace=tmp_path / "w", engine="embedded")
