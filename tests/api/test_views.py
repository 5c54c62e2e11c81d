"""What Assemble writes and how its options change it; what is done is not done twice."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from running import FRUGAL, REPOSITORY, cli, published, said, status_of

import llm_ocr

PAPER = REPOSITORY / "examples" / "paper.pdf"


@pytest.fixture
def copy(paper_workspace, tmp_path) -> Path:
    return Path(shutil.copytree(paper_workspace, tmp_path / "out"))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of change of every file, by its path."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def dataset(workspace: Path) -> list[dict]:
    import pyarrow.dataset

    return pyarrow.dataset.dataset(workspace / "dataset").to_table().to_pylist()


def test_the_same_command_again_changes_no_file(copy, tmp_path):
    before = files(copy)
    run = cli("run", PAPER, "-w", copy, *FRUGAL, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert "3 already done" in run.stderr
    assert files(copy) == before
    assert run.stdout.splitlines()[-1] == "3 ok"


def test_each_stage_alone_does_nothing_either(copy, tmp_path):
    before = files(copy)
    for stage in ("extract", "describe", "assemble"):
        engine = [] if stage == "assemble" else ["--engine", "embedded"]
        run = cli(stage, "-w", copy, *engine, cwd=tmp_path)
        assert run.returncode == 0, said(run)
    assert files(copy) == before


def test_describing_and_assembling_again_give_the_same_bytes(copy, tmp_path):
    texts = {path.name: path.read_bytes() for path in (copy / "documents").rglob("*") if path.is_file()}
    rows = dataset(copy)
    for stage in ("describe", "assemble"):
        for marker in (copy / stage).rglob("*.done"):
            marker.unlink()
    shutil.rmtree(copy / "documents")
    for stage in ("describe", "assemble"):
        run = cli(stage, "-w", copy, *(["--engine", "embedded"] if stage == "describe" else []), cwd=tmp_path)
        assert run.returncode == 0, said(run)
    assert {path.name: path.read_bytes() for path in (copy / "documents").rglob("*") if path.is_file()} == texts
    assert dataset(copy) == rows


def flip(file: Path) -> bytes:
    """Change a bit of the file; return what it was."""
    whole = file.read_bytes()
    file.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    return whole


def test_a_flipped_bit_in_the_dataset_is_repaired_by_assemble(copy, tmp_path):
    (file,) = (copy / "dataset").glob("*.parquet")
    whole = flip(file)
    run = cli("assemble", "-w", copy, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert file.read_bytes() == whole


@pytest.mark.parametrize("form", ["dataset", "markdown"])
def test_a_flipped_bit_in_the_dataset_is_repaired_by_export(copy, tmp_path, form):
    (file,) = (copy / "dataset").glob("*.parquet")
    whole = flip(file)
    words = ("--output", tmp_path / "export", "--format", form, "--source-paths", "absolute")
    run = cli("export", "-w", copy, *words, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert f"{file.relative_to(copy)} was damaged: rebuilt from the results of the stages" in run.stderr
    assert file.read_bytes() == whole
    if form == "dataset":
        import pyarrow.dataset

        assert pyarrow.dataset.dataset(tmp_path / "export" / "data").to_table().to_pylist() == dataset(copy)


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
    before = {path.name: path.read_bytes() for path in (copy / folder).rglob("*") if path.is_file()}
    shutil.rmtree(copy / folder)
    run = cli("assemble", "-w", copy, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert {path.name: path.read_bytes() for path in (copy / folder).rglob("*") if path.is_file()} == before


def test_without_images_columns_stay_and_documents_keep_figures(copy, tmp_path):
    full = dataset(copy)
    before = published(copy / "extract")
    run = cli("assemble", "-w", copy, "--dataset-images", "none", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    rows = dataset(copy)
    assert [list(row) for row in rows] == [list(row) for row in full]
    for bare, row in zip(rows, full, strict=True):
        assert (bare["source_image"], bare["document_with_boxes_image"]) == (None, None)
        assert not any(image and image["bytes"] for image in bare["extracted_figures"])
        assert bare["document_final_markdown"] == row["document_final_markdown"]
        assert bare["extracted_figures_metadata"] == row["extracted_figures_metadata"]
    assert list((copy / "documents" / "paper.pdf.figures").iterdir())
    assert published(copy / "extract") == before


def test_with_figures_alone_pages_have_no_image(copy, tmp_path):
    full = dataset(copy)
    run = cli("assemble", "-w", copy, "--dataset-images", "figures", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    rows = dataset(copy)
    assert all(row["source_image"] is None for row in rows)
    assert [row["extracted_figures"] for row in rows] == [row["extracted_figures"] for row in full]


def test_page_markers_can_be_turned_off(copy, tmp_path):
    file = copy / "documents" / "paper.pdf.md"
    with_markers = file.read_text()
    assert with_markers.startswith("<!-- page 1 -->\n")
    run = cli("assemble", "-w", copy, "--no-page-markers", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    without = file.read_text()
    assert "<!-- page" not in without
    kept = "\n".join(line for line in with_markers.splitlines() if not line.startswith("<!-- page"))
    assert without.split() == kept.split()


def test_options_that_come_back_give_the_first_result_again(copy, tmp_path):
    file = copy / "documents" / "paper.pdf.md"
    first = file.read_bytes()
    for flags in (["--no-page-markers"], []):
        run = cli("assemble", "-w", copy, *flags, cwd=tmp_path)
        assert run.returncode == 0, said(run)
    assert file.read_bytes() == first


def test_markdown_goes_to_stdout_and_everything_else_to_stderr(copy, tmp_path):
    run = cli("run", PAPER, "-w", copy, "--stdout", *FRUGAL, cwd=tmp_path)
    assert run.returncode == 0, said(run)
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


def test_to_dataset_gives_decoded_images(paper_workspace):
    rows = llm_ocr.open(str(paper_workspace)).to_dataset()
    assert [row["page_number"] for row in rows] == [1, 2, 3]
    assert all(max(row["source_image"].size) == 1540 for row in rows)
    assert [row["dataset_index"] for row in rows] == [0, 1, 2]


def test_metadata_of_figures_are_json_with_box_and_description(paper_workspace):
    values = [json.loads(text) for row in dataset(paper_workspace) for text in row["extracted_figures_metadata"]]
    assert len(values) == 4
    for value in values:
        assert value["figure_id"].rpartition("-f")[0] in {row["sample_id"] for row in dataset(paper_workspace)}


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
    given = (numbered_pages(4), "-w", "out", "--pages-per-unit", "1", "--engine", "embedded")
    run = cli("extract", *given, *FRUGAL, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    run = cli("describe", "-w", "out", "--engine", "embedded", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    return tmp_path / "out"


def test_rows_of_another_unit_are_an_error(four_pages, tmp_path):
    swapped(four_pages, "extract")
    run = cli("assemble", "-w", four_pages, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "of another unit" in run.stderr
    with pytest.raises(llm_ocr.errors.StorageError, match="of another unit"):
        list(llm_ocr.open(four_pages).pages())


def test_a_marker_of_another_unit_is_an_error(four_pages, tmp_path):
    first, second = sorted((four_pages / "extract").rglob("*.done"))[:2]
    first.write_bytes(second.read_bytes())
    run = cli("assemble", "-w", four_pages, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "it is of unit" in run.stderr


def test_fewer_rows_than_pages_are_an_error(four_pages, tmp_path):
    for path in sorted((four_pages / "extract").rglob("*.done"))[:1]:
        value = json.loads(path.read_text())
        value["counts"] |= {"expected": 2, "ok": 2}
        path.write_text(json.dumps(value))
    run = cli("assemble", "-w", four_pages, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "1 rows for 2 pages" in run.stderr


def test_a_foreign_dataset_file_is_refused_and_not_read(copy, tmp_path):
    shutil.copy(next((copy / "dataset").glob("*.parquet")), copy / "dataset" / "train-foreign.parquet")
    run = cli("assemble", "-w", copy, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "dataset/train-foreign.parquet is no file of this run" in run.stderr
    assert len(llm_ocr.open(copy).to_dataset()) == 3
