"""`export --format dataset`: shards and a card in a folder, on S3 and on GCS; the Hub has a file of its own."""

import json
import shutil
from itertools import count
from pathlib import Path

import pyarrow.dataset
import pytest
import yaml
from export_workspaces import exported_with, files_of, loaded, make, raw, retry, shards
from running import Told
from store_servers import gcs, s3

import llm_ocr
from llm_ocr.errors import DatasetDamaged, StageMissing, StorageError, UsageError, WorkspaceMismatch
from llm_ocr.stages import Silent
from llm_ocr.storage import ObjectStore, StoreOptions, open_store
from tests.fakes.crash import CrashPoint, When

#: Two files of 3 documents each.
SHARD = {"shard_size": 3, "source_paths": "absolute"}  # the rows are compared with those of the workspace


def test_load_dataset_gives_workspace_rows_in_order(standing, tmp_path, monkeypatch):
    import datasets

    done = llm_ocr.export(workspace=standing, output=tmp_path / "o", **SHARD)
    rows = loaded(tmp_path / "o")
    assert raw(rows) == raw(llm_ocr.open(standing).to_dataset())
    assert [row["page_number"] for row in raw(rows)] == [1, 2, 3] * 6
    assert rows[0]["source_image"].size == (400, 400)
    assert rows[0]["extracted_figures"][0].size == (40, 40)
    assert (done.rows, done.files, done.written) == (18, 2, 2)
    assert done.size == sum(path.stat().st_size for path in (tmp_path / "o/data").iterdir())
    streamed = list(loaded(tmp_path / "o", streaming=True))
    assert (len(streamed), streamed[-1]["source_image"].size) == (18, (400, 400))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    assert len(eval(done.load, {"load_dataset": datasets.load_dataset})) == 18


def test_a_copy_of_the_workspace_gives_the_same_names_and_bytes(standing, workspace, tmp_path):
    for source, name in ((standing, "a"), (workspace, "b")):
        llm_ocr.export(workspace=source, output=tmp_path / name / "o", **SHARD)
    assert files_of(tmp_path / "a/o") == files_of(tmp_path / "b/o")


def test_after_a_retry_only_what_changed_is_replaced(workspace, tmp_path):
    llm_ocr.export(workspace=workspace, output=tmp_path / "o", **SHARD)
    before = shards(tmp_path / "o")
    (tmp_path / "o/data/of-others.txt").write_text("stays")
    retry(str(workspace))
    done = llm_ocr.export(workspace=workspace, output=tmp_path / "o", **SHARD)
    (tmp_path / "o/data/of-others.txt").unlink()  # raises unless it stayed
    after = shards(tmp_path / "o")
    assert (done.files, done.written) == (2, 1)
    first, second = before
    assert after.keys() & before.keys() == {first}
    assert after[first] == before[first]
    assert second not in after
    assert raw(loaded(tmp_path / "o")) == raw(llm_ocr.open(workspace).to_dataset())
    assert "| Pages | 18 | 18 | 0 | 0 |" in (tmp_path / "o/README.md").read_text()


def test_load_dataset_gives_each_export_its_own_rows(workspace, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")  # the user's, of all exports
    other = make(str(tmp_path / "other"), 2)
    for source, name in ((workspace, "a"), (other, "b")):  # the folders have the same name
        done = llm_ocr.export(workspace=source, output=tmp_path / name / "o", **SHARD)
        rows = eval(done.load, {"load_dataset": datasets.load_dataset})
        assert raw(rows) == raw(llm_ocr.open(source).to_dataset())
    retry(str(workspace))
    done = llm_ocr.export(workspace=workspace, output=tmp_path / "a/o", **SHARD)
    rows = eval(done.load, {"load_dataset": datasets.load_dataset})
    assert raw(rows) == raw(llm_ocr.open(workspace).to_dataset())


@pytest.mark.parametrize("form", ["dataset", "jsonl"])
def test_folder_names_are_no_patterns(standing, workspace, tmp_path, form):
    import datasets

    named = Path(shutil.copytree(standing, tmp_path / 'w[1] "a"'))
    retry(str(workspace))
    shutil.copytree(workspace, tmp_path / 'w1 "a"')  # which the name matches as a pattern
    assert raw(llm_ocr.open(named).to_dataset()) == raw(llm_ocr.open(standing).to_dataset())
    done = llm_ocr.export(workspace=named, output=tmp_path / 'o[1] "b"', format=form)
    assert len(eval(done.load, {"load_dataset": datasets.load_dataset})) == {"dataset": 18, "jsonl": 15}[form]


def test_the_card_has_numbers_settings_model_and_no_secret(standing, tmp_path):
    llm_ocr.export(workspace=standing, output=tmp_path / "o")
    text = (tmp_path / "o/README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["size_categories"] == ["n<1K"]
    names = [f"data/{path.name}" for path in sorted((tmp_path / "o/data").iterdir())]
    assert front["configs"][0]["data_files"] == [{"split": "train", "path": names}]
    assert "# o\n" in text
    assert "6 documents" in text
    assert "| Pages | 18 | 15 | 0 | 3 |" in text
    assert "| Figures | 15 | 15 | 0 | 0 |" in text
    assert "| engine timeout | 3 |" in text
    assert "| Engine | vllm |" in text
    assert "| Model | deepseek-ai/DeepSeek-OCR at 0123abcd |" in text
    assert "| Licence of the model | MIT |" in text
    assert "| Figures described by | Qwen/Qwen3-VL-8B-Instruct (describe) |" in text
    assert "| Tokens | 1,500 in, 750 out |" in text
    assert json.loads(text.split("```")[1].removeprefix("json"))["pages_per_unit"] == 3
    assert "of nobody" in (standing / "plan/settings.json").read_text()
    assert not [word for word in ("of nobody", "password", str(tmp_path), str(standing)) if word in text]


def test_files_of_two_ways_to_assemble_are_not_mixed(workspace, tmp_path):
    note = sorted((workspace / "assemble/views").iterdir())[0]
    first = note.read_text()
    llm_ocr.assemble(workspace=workspace, dataset_images="none")
    llm_ocr.export(workspace=workspace, output=tmp_path / "o")
    assert raw(loaded(tmp_path / "o"))[0]["source_image"] is None
    note.write_text(first)
    with pytest.raises(StageMissing, match="1 of 6 items"):
        llm_ocr.export(workspace=workspace, output=tmp_path / "o")


def test_a_retry_that_is_not_read_yet_is_not_assembled(workspace, tmp_path):
    retry(str(workspace), read_again=False)
    with pytest.raises(StageMissing, match="1 of 6 items"):
        llm_ocr.export(workspace=workspace, output=tmp_path / "o")


def test_the_dataset_of_another_workspace_is_not_replaced(standing, tmp_path):
    other = make(str(tmp_path / "other"), 2)
    llm_ocr.export(workspace=standing, output=tmp_path / "o", **SHARD)
    before = shards(tmp_path / "o")
    with pytest.raises(WorkspaceMismatch, match="another workspace"):
        llm_ocr.export(workspace=other, output=tmp_path / "o")
    (tmp_path / "o/README.md").unlink()
    with pytest.raises(WorkspaceMismatch, match=r"an export without a README\.md"):
        llm_ocr.export(workspace=other, output=tmp_path / "o")
    assert shards(tmp_path / "o") == before


def test_a_readme_of_others_stays_and_the_card_is_beside_it(standing, tmp_path):
    (tmp_path / "o/data").mkdir(parents=True)
    (tmp_path / "o/README.md").write_text("# My own words\n")
    (tmp_path / "o/data/train-00000-of-00001.parquet").write_bytes(b"of others")
    said = Told()
    done = llm_ocr.export(workspace=standing, output=tmp_path / "o", progress=said)
    assert (tmp_path / "o/README.md").read_text() == "# My own words\n"
    assert "| Pages | 18 |" in (tmp_path / "o/llm-ocr-card.md").read_text()
    assert any("llm-ocr-card.md" in line for line in said.lines)
    assert f'data_files="{tmp_path}/o/data/train-*-????????????????.parquet"' in done.load
    assert len(loaded(tmp_path / "o", data_files="data/train-*-????????????????.parquet")) == 18
    assert (tmp_path / "o/data/train-00000-of-00001.parquet").read_bytes() == b"of others"


def test_front_matter_that_users_add_stays(standing, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o/README.md").write_text("---\nlicense: cc-by-4.0\ntags: [mine]\n---\n")
    for _ in range(2):
        llm_ocr.export(workspace=standing, output=tmp_path / "o")
        front = yaml.safe_load((tmp_path / "o/README.md").read_text().split("---")[1])
        assert front["license"] == "cc-by-4.0"
        assert front["tags"] == ["mine", "ocr", "llm-ocr"]


def test_the_workspace_itself_is_no_output(workspace):
    for output in (workspace, workspace / "dataset", f"{workspace}/documents/../x"):
        with pytest.raises(UsageError, match="is inside the workspace"):
            llm_ocr.export(workspace=workspace, output=output)


def test_public_is_for_the_hub(standing, tmp_path):
    with pytest.raises(UsageError, match="`public` has no effect"):
        llm_ocr.export(workspace=standing, output=tmp_path / "o", public=True)


def test_dataset_reassembled_during_export_is_not_exported_mixed(workspace, tmp_path):
    file = sorted((workspace / "dataset").iterdir())[0]

    class Meanwhile(Silent):
        def begin(self, *_):
            shutil.copy(file, file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)

    with pytest.raises(StorageError, match="changed during the export"):
        llm_ocr.export(workspace=workspace, output=tmp_path / "o", progress=Meanwhile())
    assert llm_ocr.export(workspace=workspace, output=tmp_path / "o").written == 2 - 1


@pytest.mark.parametrize("kind", [s3, gcs], ids=["s3", "gcs"])
def test_a_bucket_gets_the_same_files(kind, standing, tmp_path):
    with kind() as (url, settings):
        endpoint = settings["workspace_endpoint"]
        for written in (2, 0):
            done = llm_ocr.export(workspace=standing, output=url, output_endpoint=endpoint, **SHARD)
            assert (done.files, done.written) == (2, written)
        llm_ocr.export(workspace=standing, output=tmp_path / Path(url).name, **SHARD)
        store = open_store(url, StoreOptions(endpoint=endpoint))
        there = {info.key: store.get(info.key) for info in store.list()}
        if kind is s3:  # that of GCS asks Google for credentials
            assert eval(done.load, {"pyarrow": pyarrow}).count_rows() == 18
    server = endpoint.removeprefix("http://").replace(":", "%3A")
    assert done.load == (
        f'pyarrow.dataset.dataset("{url}/data?scheme=http&endpoint_override={server}", format="parquet")'
    )
    folder = tmp_path / Path(url).name
    assert there == files_of(folder)


def damage(url: str, settings: dict[str, str], number: int) -> tuple[ObjectStore, str]:
    """Change a bit of a dataset file in a bucket, which keeps its size; return the store and the file's key."""
    store = open_store(url, StoreOptions(endpoint=settings["workspace_endpoint"]))
    key = [info.key for info in store.list("dataset/")][number]
    whole = store.get(key)
    store.put(key, whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    return store, key


@pytest.mark.slow
@pytest.mark.parametrize("kind", [s3, pytest.param(gcs, marks=pytest.mark.slow)], ids=["s3", "gcs"])
def test_export_makes_a_damaged_file_of_a_bucket_again(kind, bucket_workspace, tmp_path):
    with kind() as (url, settings):
        bucket_workspace(url, settings)
        rows = raw(llm_ocr.open(url, endpoint=settings["workspace_endpoint"]).to_dataset())
        _, key = damage(url, settings, 2)
        told = Told()
        llm_ocr.export(workspace=url, output=tmp_path / "o", progress=told, **SHARD, **settings)
        assert [one for one in told.lines if "damaged" in one] == [
            f"{key} was damaged: rebuilt from the results of the stages"
        ]
        assert raw(loaded(tmp_path / "o")) == rows
        assert raw(llm_ocr.open(url, endpoint=settings["workspace_endpoint"]).to_dataset()) == rows


@pytest.mark.slow
@pytest.mark.parametrize("small", [1000, 1], ids=["alone", "one of many workers of a large plan"])
def test_damaged_bucket_file_is_refused_until_rebuilt(small, bucket_workspace, monkeypatch):
    monkeypatch.setattr("llm_ocr.stages.assemble.SMALL", small)
    with s3() as (url, settings):
        bucket_workspace(url, settings)
        run = llm_ocr.open(url, endpoint=settings["workspace_endpoint"])
        rows = raw(run.to_dataset())
        store, key = damage(url, settings, 1)
        for _ in range(2):
            with pytest.raises(DatasetDamaged, match=f"llm-ocr assemble -w {url}") as caught:
                run.to_dataset()
            assert caught.value.keys == (key,)
        before = {info.key: info.version for info in store.list("dataset/")}
        llm_ocr.assemble(workspace=url, **settings)
        after = {info.key: info.version for info in store.list("dataset/")}
        assert [name for name in after if after[name] != before[name]] == [key]
        assert raw(run.to_dataset()) == rows


@pytest.mark.slow
def test_truncated_bucket_file_is_noticed_without_reading_it(bucket_workspace):
    with s3() as (url, settings):
        bucket_workspace(url, settings)
        run = llm_ocr.open(url, endpoint=settings["workspace_endpoint"])
        rows = raw(run.to_dataset())
        store, key = damage(url, settings, 1)
        store.put(key, store.get(key)[:-1])
        llm_ocr.assemble(workspace=url, **settings)
        assert raw(run.to_dataset()) == rows


def test_missing_bucket_names_the_output_flags(standing):
    with s3() as (_, settings), pytest.raises(StorageError, match="nowhere") as caught:
        llm_ocr.export(workspace=standing, output="s3://nowhere/x", output_endpoint=settings["workspace_endpoint"])
    assert "`output_endpoint`" in str(caught.value) and "workspace_" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["the first export", "one after a retry"])
def test_rerun_completes_the_export_after_a_crash_at_any_write(first, workspace, tmp_path, monkeypatch):
    if not first:
        llm_ocr.export(workspace=workspace, output=tmp_path / "before/o", **SHARD)
        retry(str(workspace))
    llm_ocr.export(workspace=workspace, output=tmp_path / "undisturbed/o", **SHARD)
    for at in count():
        output = tmp_path / str(at) / "o"
        if not first:
            shutil.copytree(tmp_path / "before/o", output)
        point = CrashPoint(at, (When.BEFORE, When.AFTER)[at % 2])
        if not (ended := exported_with(point, monkeypatch, workspace, output, **SHARD)):
            llm_ocr.export(workspace=workspace, output=output, **SHARD)
        assert files_of(output) == files_of(tmp_path / "undisturbed/o")
        if ended:
            assert at > 3
            return


def test_what_a_dead_export_has_left_of_an_older_state_goes(workspace, tmp_path, monkeypatch):
    output = tmp_path / "o"
    assert not exported_with(CrashPoint(3, When.AFTER), monkeypatch, workspace, output, **SHARD)
    assert len(shards(output)) == 2
    assert "An export is in progress" in (output / "README.md").read_text()
    retry(str(workspace))
    assert llm_ocr.export(workspace=workspace, output=output, **SHARD).written == 1
    assert len(shards(output)) == 2
    assert raw(loaded(output)) == raw(llm_ocr.open(workspace).to_dataset())


def export(workspace, output, **more):
    return llm_ocr.export(workspace=workspace, output=output, **SHARD, **more)


def sources(folder: Path) -> set[str]:
    return {row["source"] for row in raw(loaded(folder))}


def test_bad_documents_are_left_out_listed_and_come_back(standing, tmp_path):
    export(standing, tmp_path / "o")
    whole = files_of(tmp_path / "o")
    done = export(standing, tmp_path / "o", drop_over_error_rate=True)
    assert (done.rows, done.dropped, done.written) == (15, 1, 1)
    rows = raw(loaded(tmp_path / "o"))
    assert rows == [row for row in raw(llm_ocr.open(standing).to_dataset()) if row["source"] != "/in/4.pdf"]
    (told,) = (json.loads(line) for line in (tmp_path / "o/dropped-documents.jsonl").open())
    assert (told["source"], told["pages"], told["failed"], told["error_rate"]) == ("/in/4.pdf", 3, 3, 1.0)
    assert told["reasons"] == ["engine timeout"]
    card = (tmp_path / "o/README.md").read_text()
    assert "5 documents, read page by page" in card
    assert "1 more document had too many bad pages" in card
    before = files_of(tmp_path / "o")
    assert len(before.items() & whole.items()) == 1  # the shard that loses no row
    assert export(standing, tmp_path / "o", drop_over_error_rate=True).written == 0
    assert files_of(tmp_path / "o") == before
    export(standing, tmp_path / "o")
    assert files_of(tmp_path / "o") == whole


def test_a_rate_that_is_not_passed_leaves_nothing_out(standing, tmp_path):
    done = export(standing, tmp_path / "o", drop_over_error_rate=True, max_page_error_rate=1.0)
    assert (done.rows, done.dropped) == (18, 0)
    assert not (tmp_path / "o/dropped-documents.jsonl").exists()


def test_a_document_that_was_read_later_comes_in(standing, tmp_path):
    workspace = shutil.copytree(standing, tmp_path / "w")
    export(workspace, tmp_path / "o", drop_over_error_rate=True)
    retry(str(workspace))
    done = export(workspace, tmp_path / "o", drop_over_error_rate=True)
    assert (done.rows, done.dropped, done.written) == (18, 0, 1)
    assert "/in/4.pdf" in sources(tmp_path / "o")
    assert not (tmp_path / "o/dropped-documents.jsonl").exists()


def test_when_all_documents_are_bad_no_shard_is_left(tmp_path):
    workspace = make(str(tmp_path / "w"), 2, fails=frozenset({"0.pdf", "1.pdf"}))
    done = export(workspace, tmp_path / "o", drop_over_error_rate=True)
    assert (done.rows, done.files, done.dropped) == (0, 0, 2)
    assert len((tmp_path / "o/dropped-documents.jsonl").read_text().splitlines()) == 2
