"""What Assemble writes and how its options change it; what is done is not done twice."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from running import FRUGAL, REPOSITORY, Finished, cli, dataset_rows, published, said, status_of

import llm_ocr
from llm_ocr.storage.local.locks import LOCKS

PAPER = REPOSITORY / "examples" / "paper.pdf"


@pytest.fixture
def copy(paper_workspace, tmp_path) -> Path:
    return Path(shutil.copytree(paper_workspace, tmp_path / "out"))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of change of every file but locks, by its path."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != LOCKS]
    return {path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def done(*words: str | Path, cwd: Path) -> Finished:
    """Run a command that must succeed."""
    run = cli(*words, cwd=cwd)
    assert run.returncode == 0, said(run)
    return run


def test_the_same_commands_again_change_no_file(copy, tmp_path):
    before = files(copy)
    run = done("run", PAPER, "-w", copy, *FRUGAL, cwd=tmp_path)
    assert "3 already done" in run.stderr
    assert run.stdout.splitlines()[-1] == "3 ok"
    for stage in ("extract", "describe", "assemble"):
        done(stage, "-w", copy, *(() if stage == "assemble" else FRUGAL[:2]), cwd=tmp_path)
    assert files(copy) == before


def test_describing_and_assembling_again_give_the_same_bytes(copy, tmp_path):
    texts, rows = contents(copy / "documents"), dataset_rows(copy)
    for stage in ("describe", "assemble"):
        for marker in (copy / stage).rglob("*.done"):
            marker.unlink()
    shutil.rmtree(copy / "documents")
    done("describe", "-w", copy, "--engine", "embedded", cwd=tmp_path)
    done("assemble", "-w", copy, cwd=tmp_path)
    assert contents(copy / "documents") == texts
    assert dataset_rows(copy) == rows


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(file: Path) -> bytes:
    """Change a bit of the file; return what it was."""
    whole = file.read_bytes()
    file.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    return whole


@pytest.mark.parametrize("form", ["", "dataset", "markdown"], ids=["assemble", "export dataset", "export markdown"])
def test_a_flipped_bit_in_the_dataset_is_repaired(copy, tmp_path, form):
    (file,) = (copy / "dataset").glob("*.parquet")
    whole = flip(file)
    if not form:
        done("assemble", "-w", copy, cwd=tmp_path)
    else:
        words = ("--output", tmp_path / "export", "--format", form, "--source-paths", "absolute")
        run = done("export", "-w", copy, *words, cwd=tmp_path)
        assert f"{file.relative_to(copy)} was damaged: rebuilt from the results of the stages" in run.stderr
    assert file.read_bytes() == whole
    if form == "dataset":
        import pyarrow.dataset

        assert pyarrow.dataset.dataset(tmp_path / "export" / "data").to_table().to_pylist() == dataset_rows(copy)


def test_export_refuses_a_damaged_dataset_of_another_version(copy, tmp_path):
    flip(next((copy / "dataset").glob("*.parquet")))
    (key,) = (copy / "assemble").glob("*/settings.json")
    made = json.loads(key.read_text())
    key.write_text(json.dumps(made | {"settings": made["settings"] | {"result_version": 1}}))
    run = cli("export", "-w", copy, "--output", tmp_path / "export", cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "damaged" in run.stderr
    assert f"llm-ocr assemble -w {copy}" in run.stderr


def test_views_of_an_older_version_without_a_hash_stay(copy, tmp_path):
    (note,) = (copy / "assemble" / "views").glob("*.json")
    note.write_text(json.dumps({name: one for name, one in json.loads(note.read_text()).items() if name != "sha256"}))
    before = files(copy)
    assert cli("assemble", "-w", copy, cwd=tmp_path).returncode == 0
    assert files(copy) == before


@pytest.mark.parametrize("folder", ["dataset", "documents"])
def test_results_that_were_removed_are_made_again(copy, tmp_path, folder):
    before = contents(copy / folder)
    shutil.rmtree(copy / folder)
    done("assemble", "-w", copy, cwd=tmp_path)
    assert contents(copy / folder) == before


def test_rows_without_images_keep_columns_and_documents_figures(copy, tmp_path):
    full = dataset_rows(copy)
    before = published(copy / "extract")
    done("assemble", "-w", copy, "--dataset-images", "none", cwd=tmp_path)
    for bare, row in zip(dataset_rows(copy), full, strict=True):
        assert list(bare) == list(row)
        assert (bare["source_image"], bare["document_with_boxes_image"]) == (None, None)
        assert not any(image and image["bytes"] for image in bare["extracted_figures"])
        assert bare["document_final_markdown"] == row["document_final_markdown"]
        assert bare["extracted_figures_metadata"] == row["extracted_figures_metadata"]
    assert list((copy / "documents" / "paper.pdf.figures").iterdir())
    assert published(copy / "extract") == before
    done("assemble", "-w", copy, "--dataset-images", "figures", cwd=tmp_path)
    rows = dataset_rows(copy)
    assert all(row["source_image"] is None for row in rows)
    assert [row["extracted_figures"] for row in rows] == [row["extracted_figures"] for row in full]


def test_page_markers_can_be_turned_off_and_on_again(copy, tmp_path):
    file = copy / "documents" / "paper.pdf.md"
    first = file.read_text()
    assert first.startswith("<!-- page 1 -->\n")
    done("assemble", "-w", copy, "--no-page-markers", cwd=tmp_path)
    without = file.read_text()
    assert "<!-- page" not in without
    assert without.split() == "\n".join(line for line in first.splitlines() if "<!-- page" not in line).split()
    done("assemble", "-w", copy, cwd=tmp_path)
    assert file.read_text() == first


def test_markdown_goes_to_stdout_and_everything_else_to_stderr(copy, tmp_path):
    run = done("run", PAPER, "-w", copy, "--stdout", *FRUGAL, cwd=tmp_path)
    text = (copy / "documents" / "paper.pdf.md").read_text()
    assert run.stdout == text.replace("](paper.pdf.figures/", "](out/documents/paper.pdf.figures/")
    assert run.stderr.splitlines()[-1] == "3 ok"


def test_the_figures_are_images_beside_the_markdown(paper_workspace):
    text = (paper_workspace / "documents" / "paper.pdf.md").read_text()
    figures = sorted((paper_workspace / "documents" / "paper.pdf.figures").iterdir())
    assert len(figures) == 4
    for figure in figures:
        assert text.count(f"(paper.pdf.figures/{figure.name})") == 1
        with Image.open(figure) as picture:
            picture.load()


def test_rows_have_decoded_images_and_metadata_of_figures(paper_workspace):
    rows = llm_ocr.open(str(paper_workspace)).to_dataset()
    assert [(row["page_number"], row["dataset_index"]) for row in rows] == [(1, 0), (2, 1), (3, 2)]
    assert all(max(row["source_image"].size) == 1540 for row in rows)
    values = [(row, json.loads(text)) for row in rows for text in row["extracted_figures_metadata"]]
    assert len(values) == 4
    assert all(value["figure_id"].rpartition("-f")[0] == row["sample_id"] for row, value in values)


def test_status_for_machines_tells_the_same_as_the_api(paper_workspace):
    shown = status_of(paper_workspace)
    assert shown.pop("advice") is None  # the command line's own
    assert shown.pop("spent") == {"total": {}, "unknown": 0, "jobs": []}  # no jobs were launched
    status = llm_ocr.open(str(paper_workspace)).status
    assert shown == json.loads(json.dumps(status.to_json()))
    assert shown["pages"] == {"expected": 3, "ok": 3, "degraded": 0, "failed": 0}
    assert shown["figures"] == {"expected": 4, "ok": 4, "degraded": 0, "failed": 0, "undescribed": 4}
    assert status.finished


def swapped(workspace: Path, stage: str) -> None:
    """Exchange the data that the markers of two units name."""
    first, second = sorted((workspace / stage).rglob("*.done"))[:2]
    values = [json.loads(path.read_text()) for path in (first, second)]
    told = ("object", "sha256", "size")
    for path, value, other in ((first, *values), (second, *reversed(values))):
        path.write_text(json.dumps(value | {name: other[name] for name in told}))


@pytest.fixture
def four_pages(numbered_pages, tmp_path) -> Path:
    """Return a workspace of four pages in four units, without Assemble."""
    done("extract", numbered_pages(4), "-w", "out", "--pages-per-unit", "1", *FRUGAL, cwd=tmp_path)
    done("describe", "-w", "out", "--engine", "embedded", cwd=tmp_path)
    return tmp_path / "out"


def test_results_of_another_unit_or_size_are_an_error(four_pages, tmp_path):
    first, second = sorted((four_pages / "extract").rglob("*.done"))[:2]
    whole = first.read_bytes(), second.read_bytes()

    def refused(message: str) -> None:
        run = cli("assemble", "-w", four_pages, cwd=tmp_path)
        assert (run.returncode, message in run.stderr) == (1, True), said(run)
        first.write_bytes(whole[0])
        second.write_bytes(whole[1])

    swapped(four_pages, "extract")
    with pytest.raises(llm_ocr.errors.StorageError, match="of another unit"):
        list(llm_ocr.open(four_pages).pages())
    refused("of another unit")
    first.write_bytes(whole[1])
    refused("it is of unit")
    value = json.loads(whole[0])
    value["counts"] |= {"expected": 2, "ok": 2}
    first.write_text(json.dumps(value))
    refused("1 rows for 2 pages")


def test_a_foreign_dataset_file_is_refused_and_not_read(copy, tmp_path):
    shutil.copy(next((copy / "dataset").glob("*.parquet")), copy / "dataset" / "train-foreign.parquet")
    run = cli("assemble", "-w", copy, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "dataset/train-foreign.parquet is no file of this run" in run.stderr
    assert len(llm_ocr.open(copy).to_dataset()) == 3
