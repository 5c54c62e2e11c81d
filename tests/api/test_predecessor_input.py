"""Describe and Assemble begin with what the predecessor wrote: nothing is lost, nothing is described twice."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import predecessor_datasets as made
import pytest
from predecessor_datasets import documents, folder_input
from running import finished, program, said

import llm_ocr
from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError, UsageError, WorkspaceMismatch

FRUGAL = {"engine": "embedded", "ocr_workers": 1}


@pytest.fixture
def put(request, tmp_path) -> Iterator[made.Put]:
    """Puts a folder where its kind of datasets stands."""
    kinds = {"folder": made.in_folder, "s3": made.on_s3, "gcs": made.on_gcs, "hub": made.on_hub}
    with kinds[request.param](tmp_path) as found:
        found.kind = request.param  # type: ignore[attr-defined]
        yield found


def written(put: made.Put, rows: list[dict[str, Any]], tmp_path: Path) -> made.Place:
    """The rows in the form that is usual there."""
    folder = tmp_path / "run" / "dataset"
    return put(made.parquet(rows, folder) if put.kind == "hub" else made.saved(rows, folder))  # type: ignore[attr-defined]


def taken(tmp_path: Path, *rows: dict[str, Any]) -> llm_ocr.Run:
    """Assemble the rows, saved in the folder of a run, in the workspace `w`."""
    return llm_ocr.assemble(workspace=tmp_path / "w", input=folder_input(tmp_path, list(rows)))


def descriptions(run: llm_ocr.Run) -> dict[str, str]:
    """Return each figure's description, otherwise its data, by id."""
    rows = run.to_dataset()
    return {
        about["figure_id"]: about["description"] or about["data"]
        for row in rows
        for about in map(json.loads, row[FIGURES])
    }


FIGURES = "extracted_figures_metadata"


@pytest.mark.parametrize(
    "put", ["folder", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("s3", "gcs", "hub"))], indirect=True
)
def test_its_extract_is_described_and_assembled_here(put, tmp_path):
    place = written(put, [made.row(number) for number in range(3)], tmp_path)
    llm_ocr.describe(workspace=place.workspace, input=place.input, **place.settings, **FRUGAL)
    run = llm_ocr.assemble(workspace=place.workspace, input=place.input, **place.settings)
    status = run.status
    assert status.finished
    assert (status.pages.ok, status.pages.expected, status.figures.ok) == (3, 3, 3)
    text = documents(run)["sample_00002"]
    link = text.index("(sample_00002.figures/sample_00002-p00001-f01.png)")
    assert text.index("# Page 2") < link < text.index("The end")
    assert "![Image](sample_00002.figures/" in text
    assert "2002" not in text  # two words of a chart are data
    rows = run.to_dataset()
    assert rows["sample_id"] == [f"sample_{number:05d}-p00001" for number in range(3)]
    assert rows[1]["source_image"].tobytes() == made.page_image(1).tobytes()
    about = json.loads(rows[1][FIGURES][0])
    assert about["bounding_box_pixels"] == dict(zip(("x1", "y1", "x2", "y2"), made.BOX, strict=True))
    assert about["label"] == "image"
    assert "2001" in json.loads(about["data"])["inside"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "put", ["folder", "hub", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("s3", "gcs"))], indirect=True
)
def test_its_descriptions_are_assembled_without_any_engine(put, tmp_path):
    rows = [made.row(number, f"A chart. Its number is {number}.") for number in range(3)]
    place = written(put, rows, tmp_path)
    run = llm_ocr.assemble(workspace=place.workspace, input=place.input, **place.settings)
    assert run.status.finished
    text = documents(run)["sample_00001"]
    assert "![A chart.]" in text
    assert "> **Figure description:** A chart. Its number is 1.\n" in text


def test_only_missing_descriptions_are_made_unless_all_requested(tmp_path):
    source = folder_input(tmp_path, [made.row(0, "Kept."), made.row(1), made.row(2, "Kept, too.")])
    llm_ocr.describe(workspace=tmp_path / "w", input=source, **FRUGAL)
    run = llm_ocr.assemble(workspace=tmp_path / "w")
    first, second, third = descriptions(run).values()
    assert (first, third) == ("Kept.", "Kept, too.")
    assert "2001" in second
    assert run.status.figures.ok == 3

    llm_ocr.describe(workspace=tmp_path / "w", **FRUGAL)
    again = descriptions(llm_ocr.assemble(workspace=tmp_path / "w"))
    assert len(again) == 3
    assert all(f"200{number}" in text for number, text in enumerate(again.values()))


def test_undescribed_figures_are_failed_and_pages_need_none(tmp_path):
    plain = made.row(2, document_markdown="Text.", extracted_figures=[], extracted_figures_metadata=[])
    run = taken(tmp_path, made.row(0, "Kept."), made.row(1), plain)
    figures = run.status.figures
    assert (figures.expected, figures.ok, figures.failed) == (2, 1, 1)
    assert run.status.pages.ok == 3
    assert "Text." in documents(run)["sample_00002"]


def test_without_descriptions_assemble_says_what_comes_first(tmp_path):
    with pytest.raises(LlmOcrError, match="describe has not started") as caught:
        taken(tmp_path, made.row(0))
    assert "llm-ocr describe" in caught.value.hint


def test_sharded_workers_need_not_wait_and_nothing_is_done_twice(tmp_path):
    source = folder_input(tmp_path, [made.row(number, "Known.") for number in range(4)])
    workspace = tmp_path / "w"
    for index in (1, 0):
        llm_ocr.assemble(workspace=workspace, input=source, shard_index=index, shard_count=2)
    assert llm_ocr.open(workspace).status.finished
    before = {path: path.stat().st_mtime_ns for path in workspace.rglob("*.*") if path.is_file()}
    llm_ocr.assemble(workspace=workspace, input=source)
    assert {path: path.stat().st_mtime_ns for path in workspace.rglob("*.*") if path.is_file()} == before


# Which input, which workspace


def test_another_or_changed_input_needs_another_workspace(tmp_path):
    taken(tmp_path, made.row(0, "One."))
    other = made.saved([made.row(0, "Other.")], tmp_path / "other")
    with pytest.raises(WorkspaceMismatch, match=r"another input: .*dataset, not .*other"):
        llm_ocr.assemble(workspace=tmp_path / "w", input=other)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(WorkspaceMismatch, match="has changed since"):
        taken(tmp_path, made.row(0, "Another one."))
    assert "One." in documents(llm_ocr.assemble(workspace=tmp_path / "w"))["sample_00000"]


def test_a_workspace_with_documents_takes_no_input(tmp_path, examples):
    llm_ocr.plan(examples / "invoice.png", workspace=tmp_path / "w")
    source = folder_input(tmp_path, [made.row(0, "One.")])
    with pytest.raises(WorkspaceMismatch, match="already has documents"):
        llm_ocr.assemble(workspace=tmp_path / "w", input=source)


def test_hub_branch_is_read_at_its_first_commit(tmp_path):
    with made.on_hub(tmp_path) as put:
        first = made.parquet([made.row(0, "One.")], tmp_path / "first")
        place = put(first)
        llm_ocr.assemble(workspace=place.workspace, input=place.input)
        from tests.storage.hub import making

        changed = made.parquet([made.row(0, "Other."), made.row(1, "More.")], tmp_path / "second")
        making.api().upload_folder(repo_id=place.input, folder_path=changed, path_in_repo="data", repo_type="dataset")
        with pytest.raises(WorkspaceMismatch, match="has changed since") as caught:
            llm_ocr.assemble(workspace=place.workspace, input=place.input)
        older = caught.value.hint.split("`input=")[-1].split("`)")[0]
        llm_ocr.assemble(workspace=place.workspace, input=older)
        assert llm_ocr.open(place.workspace).status.pages.expected == 1


def test_unknown_name_is_reported_as_neither_on_hub_nor_a_folder(tmp_path):
    with made.on_hub(tmp_path), pytest.raises(StorageError, match="tester/nothing does not exist") as caught:
        llm_ocr.assemble(workspace=tmp_path / "w", input="tester/nothing")
    assert "folder tester/nothing" in caught.value.hint


def test_the_folder_is_found_however_it_is_spelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_input(tmp_path, [made.row(0, "One.")])
    for spelled in ("run", "run/", "run/dataset/", "run/dataset"):
        llm_ocr.assemble(workspace="w", input=spelled)
    assert llm_ocr.open("w").status.pages.ok == 1


def test_parquet_in_a_folder_is_taken(tmp_path):
    made.parquet([made.row(number, f"Number {number}.") for number in range(5)], tmp_path / "run")
    run = llm_ocr.assemble(workspace=tmp_path / "w", input=tmp_path / "run")
    assert [row["dataset_index"] for row in run.to_dataset()] == list(range(5))
    assert "Number 4." in documents(run)["sample_00004"]


def test_several_splits_are_all_taken_and_kept_apart(tmp_path):
    splits = {"train": [made.row(0, "Train.")], "test": [made.row(0, "Test.")]}
    made.saved_splits(splits, tmp_path / "run")
    run = llm_ocr.assemble(workspace=tmp_path / "w", input=tmp_path / "run")
    texts = documents(run)
    assert "Train." in texts["train-sample_00000"]
    assert "Test." in texts["test-sample_00000"]
    assert (tmp_path / "w" / "documents" / "test" / "sample_00000.md").is_file()


def test_nothing_there_leaves_no_workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        with pytest.raises(ObjectNotFound, match=name):
            llm_ocr.assemble(workspace="w", input=name)
    with made.on_s3(tmp_path) as put:
        monkeypatch.setenv("AWS_ENDPOINT_URL", put(tmp_path).variables["AWS_ENDPOINT_URL"])
        with pytest.raises(StorageError, match="nowhere"):
            llm_ocr.assemble(workspace="w", input="s3://nowhere-at-all/run")
    assert not (tmp_path / "w").exists()


def test_a_dataset_of_something_else_is_refused(tmp_path):
    other = made.dataset([made.row(0)]).remove_columns(["document_markdown"])
    other.save_to_disk(tmp_path / "run")
    with pytest.raises(UsageError, match="lacks the column document_markdown"):
        llm_ocr.assemble(workspace=tmp_path / "w", input=tmp_path / "run")


def test_an_upload_that_was_cut_off_is_said(tmp_path):
    source = folder_input(tmp_path, [made.row(number, "Known.") for number in range(4)])
    last = sorted(source.glob("*.arrow"))[-1]
    last.write_bytes(last.read_bytes()[:2000])
    with pytest.raises(StorageError, match=f"{last.name} cannot be read"):
        llm_ocr.assemble(workspace=tmp_path / "w", input=source)
    last.unlink()
    with pytest.raises(StorageError, match=f"{last.name} is missing"):
        llm_ocr.assemble(workspace=tmp_path / "v", input=source)


# The predecessor's jobs, with the variables that they set


def test_an_input_in_the_workspace_is_the_workspace(tmp_path, paper_workspace):
    workspace = Path(shutil.copytree(paper_workspace, tmp_path / "run"))
    keys = sorted(path.name for path in (workspace / "extract").iterdir())
    llm_ocr.describe(workspace=workspace, input=workspace / "dataset", **FRUGAL)
    assert llm_ocr.assemble(workspace=workspace, input=workspace).status.documents == 1
    assert sorted(path.name for path in (workspace / "extract").iterdir()) == keys


def test_neither_its_own_place_nor_our_workspace_is_an_input(tmp_path):
    taken(tmp_path, made.row(0, "One."))
    with pytest.raises(UsageError, match="not a workspace of llm-ocr") as caught:
        llm_ocr.assemble(workspace=tmp_path / "run", input=tmp_path / "run" / "dataset")
    assert "S3_OUTPUT_URI" in caught.value.hint
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["dataset"]
    for spelled in ("w", "w/dataset"):
        with pytest.raises(UsageError, match="is part of the workspace") as caught:
            llm_ocr.assemble(workspace=tmp_path / "other", input=tmp_path / spelled)
        assert f"`workspace={tmp_path / 'w'}`" in caught.value.hint


@pytest.mark.slow
def test_its_variables_alone_are_enough(tmp_path):
    with made.on_s3(tmp_path) as put:
        place = put(folder_input(tmp_path, [made.row(number) for number in range(2)]))
        common = {**place.variables, "S3_OUTPUT_URI": place.workspace, "S3_INPUT_URI": place.input}
        for stage in ("describe", "assemble"):
            env = {**common, "PIPELINE_STAGE": stage, "LLM_OCR_ENGINE": "embedded", "DESCRIBE_BATCH_SIZE": "4"}
            run = finished(program(), cwd=tmp_path, env=env)
            assert run.returncode == 0, said(run)
        opened = llm_ocr.open(place.workspace, endpoint=place.settings["workspace_endpoint"])
        assert "2001" in descriptions(opened)["sample_00001-p00001-f01"]
        assert "2 ok" in run.stdout
        env = {**common, "HF_REPO_ID": "me/results", "PIPELINE_STAGE": "assemble"}
        run = finished(program(), cwd=tmp_path, env=env)
        assert run.returncode == 2, said(run)
        assert "S3_OUTPUT_URI" in run.stderr and "HF_REPO_ID" in run.stderr


BAD = {
    "no image": ({"source_image": None}, "degraded", "unreadable"),
    "an image that is none": ({"source_image": {"bytes": b"no image", "path": None}}, "degraded", "unreadable"),
    "no Markdown": ({"document_markdown": None}, "degraded", "empty answer"),
    "neither": ({"source_image": None, "document_markdown": ""}, "failed", "unreadable"),
    "damaged metadata": ({"extracted_figures_metadata": ['{"figure_id": ']}, "degraded", "malformed answer"),
    "no metadata": ({"extracted_figures_metadata": None}, "degraded", "malformed answer"),
    "more metadata than figures": ({"extracted_figures": []}, "degraded", "malformed answer"),
    "a figure that is none": ({"extracted_figures": [{"bytes": b"x", "path": None}]}, "degraded", "unreadable"),
    "no box": (
        {"extracted_figures_metadata": [made.metadata(1, bounding_box_pixels={"x1": "a"})]},
        "degraded",
        "malformed answer",
    ),
    "a box outside the page": (
        {
            "extracted_figures_metadata": [
                made.metadata(1, bounding_box_pixels={"x1": 900, "y1": -5, "x2": -10, "y2": 100})
            ]
        },
        "ok",
        None,
    ),
}


#: Those of which there is no figure to keep.
WITHOUT_FIGURE = {"more metadata than figures", "a figure that is none"}


@pytest.mark.parametrize("case", BAD)
def test_a_row_that_is_not_whole_is_counted_as_what_it_is(tmp_path, case):
    columns, status, reason = BAD[case]
    run = taken(tmp_path, made.row(0, "Known."), made.row(1, **columns), made.row(2, "Known, too."))
    found = {page.document_id: page for page in run.pages()}
    bad = found["sample_00001"]
    assert (bad.status, bad.reason) == (status, reason)
    assert bool(bad.detail) is (status != "ok")
    assert [found[name].status for name in ("sample_00000", "sample_00002")] == ["ok", "ok"]
    counts = run.status.pages
    assert counts.expected == counts.ok + counts.degraded + counts.failed == 3
    assert len(bad.figures) == (0 if case in WITHOUT_FIGURE else 1)
    for figure in bad.figures:
        assert 0 <= figure.box.x0 <= figure.box.x1 <= 1
        assert 0 <= figure.box.y0 <= figure.box.y1 <= 1
    assert len(run.to_dataset()) == 3


def test_a_file_that_a_row_only_names_is_not_opened(tmp_path):
    secret = tmp_path / "secret.png"
    made.page_image(7).save(secret)
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = made.parquet([made.row(0, "Known.")], tmp_path / "run")
    (file,) = source.iterdir()
    table = pq.read_table(file)
    column = pa.array([{"bytes": None, "path": str(secret)}], table.schema.field("source_image").type)
    pq.write_table(table.set_column(table.schema.get_field_index("source_image"), "source_image", column), file)
    (page,) = llm_ocr.assemble(workspace=tmp_path / "w", input=source).pages()
    assert (page.image, page.status) == (None, "degraded")


def test_equal_names_are_pages_and_older_links_lead_to_figures(tmp_path):
    name = made.figure_name(3)
    old = made.row(3, "A chart.", document_markdown=f"![Figure {name}](figures/{name}.png)\n\n![other](x.png)")
    texts = documents(
        taken(tmp_path, made.row(0, "First."), made.row(0, "Second."), made.row(1, "Third.", sample_id=None), old)
    )
    assert "First." in texts["sample_00000"]
    assert "Second." in texts["sample_00000-2"]
    assert "Third." in texts["row_00002"]
    assert "![A chart.](sample_00003.figures/sample_00003-p00001-f01.png)" in texts["sample_00003"]
    assert "![other](x.png)" in texts["sample_00003"]
