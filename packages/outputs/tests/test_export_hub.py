"""`export --format dataset` to a dataset repository, on the fake Hub through the real huggingface_hub."""

import io
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from export_workspaces import make, retry
from running import FRUGALLY, REPOSITORY, Told, cli, environment, program, when

import llm_ocr
from llm_ocr.cli.outcome import load_line
from llm_ocr.config.models import AssembleSettings
from llm_ocr.errors import StageMissing, StorageError, UsageError
from llm_ocr.exporting import Exported
from llm_ocr.storage.hf import commits as hub_commits
from llm_ocr.storage.hf.dataset import DatasetStore
from tests.fakes.hub import Account, Fault, How
from tests.storage.hub import making as stores_on_the_hub

#: Two files of 3 documents each.
SHARD = {"shard_size": 3}
PAPER, INVOICE = REPOSITORY / "examples/paper.pdf", REPOSITORY / "examples/invoice.png"
NAMES = (f"export-{number}" for number in itertools.count())


@pytest.fixture
def making(tmp_path, monkeypatch):
    """The server that the tests of the stores use, as at first; the pauses of retries are short."""
    hub = stores_on_the_hub.hub()
    with stores_on_the_hub.hub_environment(tmp_path):
        monkeypatch.setenv("HF_TOKEN", stores_on_the_hub.TOKEN)
        hub.state.repositories.large.clear()  # what other tests have sent would not be sent again
        monkeypatch.setattr("llm_ocr.storage.hf.client.random.uniform", lambda *_: 0.001)
        yield stores_on_the_hub
        hub.faults.clear()
        for queue in hub_commits._OPEN:
            queue.flush()  # else what a test has left would be committed when the process ends
        for token in set(hub.state.accounts.by_token) - {stores_on_the_hub.TOKEN}:
            del hub.state.accounts.by_token[token]


@pytest.fixture
def exported(making, standing):
    """`exported(name)`: export the workspace to that repository of the server."""

    def export(name: str, **settings) -> Exported:
        return llm_ocr.export(
            **{"workspace": standing, "output": f"hf://datasets/{name}", "output_endpoint": making.hub().url}
            | SHARD
            | settings
        )

    return export


def new_name() -> str:
    return f"tester/{next(NAMES)}"


def commits(making, name: str, branch: str = "main") -> int:
    return len(making.hub().state.repositories.get("dataset", name).log[branch])


def files(making, name: str, branch: str = "main") -> dict[str, bytes]:
    repositories = making.hub().state.repositories
    tree = repositories.get("dataset", name).tree(branch)
    return {path: repositories.content(entry) for path, entry in tree.items() if path != ".gitattributes"}


#: What each line that opens the dataset gives.
_LOAD = """
import json, sys
from datasets import load_dataset
def opened(load):
    rows = eval(load)
    streamed = list(eval(load[:-1] + ", streaming=True)"))
    raw = rows.with_format("arrow")[:].to_pylist()
    return [[row["sample_id"] for row in raw], rows[0]["source_image"].size, len(streamed),
        streamed[0]["source_image"].size, [row["document_final_markdown"] for row in raw]]
print(json.dumps([opened(load) for load in sys.argv[1:]]))
"""


def printed(making, home: Path, code: str, *arguments: str) -> list:
    """What a process with nothing but the server's address and a token prints."""
    env = environment(**making.hub().environment(home))
    run = subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
def test_repository_workspace_opens_by_name_and_printed_line(making, tmp_path, monkeypatch):
    quick = (stores_on_the_hub.QUICK_RETRIES, stores_on_the_hub.AT_ONCE)
    monkeypatch.setattr(DatasetStore.__init__, "__defaults__", quick)
    name = new_name()
    making.api().create_repo(name, repo_type="dataset", private=True)
    readme = "---\nlicense: mit\n---\n# My scans\n"
    making.api().upload_file(
        path_or_fileobj=readme.encode(), path_in_repo="README.md", repo_id=name, repo_type="dataset"
    )
    make(url := f"hf://datasets/{name}", workspace_endpoint=making.hub().url)
    settings = AssembleSettings(workspace=url)
    by_name, by_line = f'load_dataset("{name}", split="train")', load_line(settings)
    one, other = printed(making, tmp_path, _LOAD, by_name, by_line)
    assert one[0] == other[0] != []
    assert "# My scans" in files(making, name)["README.md"].decode()


#: What the predecessor's notebook shows of a repository.
_SHOW = """
import json, sys
from datasets import load_dataset
from llm_ocr.document import display_samples
HF_REPO_ID = sys.argv[1]
shown = display_samples(load_dataset(HF_REPO_ID, split="train"), num_samples=2)
rows = load_dataset(HF_REPO_ID, split="train")
raw = rows.with_format("arrow")[:].to_pylist()
print(json.dumps([rows.column_names, [row["document_markdown"] for row in raw],
    [row["document_final_markdown"] for row in raw], rows[0]["source_image"].size[0],
    [json.loads(text)["status"] for row in raw for text in row["extracted_figures_metadata"]], shown]))
"""


@pytest.mark.slow
def test_predecessor_notebook_cell_shows_pages_after_each_stage(making, tmp_path, monkeypatch):
    monkeypatch.setattr("llm_ocr.compat.stage_dataset._FILE_BYTES", 1)  # a file for each page
    name = new_name()
    making.api().create_repo(name, repo_type="dataset", private=True)
    readme = b"---\nlicense: mit\n---\n# My scans\n"
    making.api().upload_file(path_or_fileobj=readme, path_in_repo="README.md", repo_id=name, repo_type="dataset")
    place = {"workspace": f"hf://datasets/{name}", "workspace_endpoint": making.hub().url}
    found = {}
    for stage, call in {
        "half": lambda: llm_ocr.extract(PAPER, shard_count=2, shard_index=0, pages_per_unit=1, **place, **FRUGALLY),
        "extract": lambda: llm_ocr.extract(**place, **FRUGALLY),
        "describe": lambda: llm_ocr.describe(engine="embedded", **place),
        "assemble": lambda: llm_ocr.assemble(**place),
    }.items():
        call()
        there = files(making, name)
        assert "# My scans" in there["README.md"].decode()
        previews = [path for path in there if path.startswith("preview/")]
        if stage == "half":
            assert there["README.md"] == readme
            assert previews == []
            continue
        assert len(previews) == (0 if stage == "assemble" else 3)
        found[stage] = printed(making, tmp_path / stage, _SHOW, name)
        before = commits(making, name)
        if stage != "assemble":  # with nothing to do, nothing is written
            call()
            assert commits(making, name) == before
    columns, texts, finals, width, _, _ = found["assemble"]
    assert len(texts) == 3
    assert all(finals)
    for stage in ("extract", "describe"):
        assert found[stage][:4] == [columns, texts, [""] * 3, width]
    assert set(found["extract"][4]) == {None}
    assert None not in found["describe"][4] == found["assemble"][4]
    assert all("Sample 2" in one[5] and "data:image/" in one[5] for one in found.values())
    llm_ocr.extract(**place, **FRUGALLY)  # the dataset stays what is opened
    assert printed(making, tmp_path / "again", _SHOW, name)[2] == finals


@pytest.mark.slow
def test_last_of_several_workers_adds_the_dataset_to_the_card(making):
    url = f"hf://datasets/{(name := new_name())}"
    shared = {"workspace_endpoint": making.hub().url, "shard_count": 2}
    make(url, 2, shard_index=1, **shared)
    assert "README.md" not in files(making, name)
    llm_ocr.assemble(workspace=url, shard_index=0, **shared)
    assert b"path: dataset/*.parquet" in files(making, name)["README.md"]


@pytest.mark.slow
def test_card_with_user_configurations_is_kept_without_preview(making, tmp_path):
    name = new_name()
    making.api().create_repo(name, repo_type="dataset", private=True)
    readme = b"---\nconfigs:\n- config_name: mine\n  data_files: x.csv\n---\n"
    making.api().upload_file(path_or_fileobj=readme, path_in_repo="README.md", repo_id=name, repo_type="dataset")
    told = Told()
    place = {"workspace": f"hf://datasets/{name}", "workspace_endpoint": making.hub().url}
    llm_ocr.extract(INVOICE, progress=told, **place, **FRUGALLY)
    assert [line for line in told.lines if "README.md" in line] == [
        "README.md names other data files and remains unchanged: load_dataset has no preview"
    ]
    there = files(making, name)
    assert there["README.md"] == readme
    assert not any(path.startswith("preview/") for path in there)


@pytest.mark.slow
def test_the_line_that_is_told_opens_it_with_images_and_streamed(making, exported, standing, tmp_path):
    """The same holds for a branch; the main one stays as it was."""
    done = exported(name := new_name())
    assert done.load == f'load_dataset("{name}", split="train")'
    making.api().create_repo(other := new_name(), repo_type="dataset")
    making.api().create_branch(other, branch="second", repo_type="dataset")
    on_branch = exported(other + "@second")
    assert on_branch.load == f'load_dataset("{other}", split="train", revision="second")'
    assert files(making, other) == {}
    assert len(files(making, other, "second")) == 3
    (ids, size, streamed, streamed_size, texts), branch = printed(making, tmp_path, _LOAD, done.load, on_branch.load)
    assert len(branch[0]) == 18
    local = llm_ocr.open(standing).to_dataset()
    assert ids == list(local["sample_id"])
    assert texts == list(local["document_final_markdown"])
    assert size == streamed_size == [400, 400]
    assert streamed == 18


def test_it_is_private_and_made_of_few_commits(making, exported):
    exported(name := new_name())
    assert making.api().dataset_info(name).private
    assert commits(making, name) == 2  # that of the empty repository, and ours
    assert sorted(files(making, name))[0] == "README.md"
    assert len(files(making, name)) == 3
    before = making.hub().requests
    assert exported(name).written == 0
    sent = {"commit", "lfs_put", "preupload", "lfs_batch"}
    assert {key: making.hub().requests[key] for key in sent} == {key: before[key] for key in sent}
    assert commits(making, name) == 2


def test_public_is_for_a_new_repository_alone(making, exported):
    exported(name := new_name(), public=True)
    assert not making.api().dataset_info(name).private
    making.api().create_repo(name := new_name(), repo_type="dataset", private=True)
    exported(name, public=True)
    assert making.api().dataset_info(name).private


def test_a_later_export_replaces_what_changed_in_one_commit(making, exported, workspace):
    exported(name := new_name(), workspace=workspace)
    making.api().upload_file(
        path_or_fileobj=b"of the user", path_in_repo="data/notes.txt", repo_id=name, repo_type="dataset"
    )
    before = files(making, name)
    retry(str(workspace))
    done = exported(name, workspace=workspace)
    after = files(making, name)
    assert (done.files, done.written) == (2, 1)
    assert commits(making, name) == 4
    assert len([path for path in after if path.startswith("data/train-")]) == 2
    assert len(before.keys() & after.keys()) == 3
    assert after["data/notes.txt"] == b"of the user"
    assert b"| Pages | 18 | 18 | 0 | 0 |" in after["README.md"]
    rows = [pq.read_table(io.BytesIO(data)) for name, data in after.items() if name.startswith("data/train-")]
    assert sum(map(len, rows)) == 18


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        [Fault("commit", status=409)],
        [Fault("commit", status=429, headers={"Retry-After": "0"}, times=12)],
        [Fault("commit", how=How.LOSE, status=504)],
        [Fault("preupload", status=503, times=2), Fault("lfs_batch", status=502)],
        [Fault("tree", status=503), Fault("paths_info", status=500), Fault("auth_check", status=429)],
    ],
    ids=lambda faults: "+".join(f"{fault.operation}-{fault.how}-{fault.status}" for fault in faults),
)
def test_what_passes_costs_nothing_but_time(making, exported, faults):
    making.hub().faults.add(*faults)
    exported(name := new_name())
    assert making.hub().faults.listed() == []
    assert commits(making, name) == 2
    undisturbed = new_name()
    exported(undisturbed)
    assert {path for path in files(making, name)} == {path for path in files(making, undisturbed)}


def test_hub_outage_is_reported_and_the_same_command_continues(making, exported):
    making.hub().faults.add(Fault("commit", status=503, times=8))
    name = new_name()
    with pytest.raises(StorageError, match="the Hub failed with 503"):
        exported(name)
    making.hub().faults.clear()
    sent = making.hub().requests["lfs_put"]
    exported(name)
    assert making.hub().requests["lfs_put"] == sent
    assert len(files(making, name)) == 3


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("hf_nobody", "the token is not valid"),
        ("hf_reader", "this token lacks a permission"),
        ("hf_other", "does not exist, or this token may not read it"),
        ("", "no token"),
    ],
)
def test_who_may_not_write_is_told_before_any_work(making, exported, monkeypatch, token, said):
    accounts = making.hub().state.accounts.by_token
    accounts["hf_reader"] = Account("tester", "read")
    accounts["hf_other"] = Account("other")
    making.api().create_repo(name := new_name(), repo_type="dataset", private=True)
    monkeypatch.setenv("HF_TOKEN", token)
    sent = making.hub().requests.get("preupload", 0)
    with pytest.raises(StorageError, match=said):
        exported(name)
    assert making.hub().requests.get("preupload", 0) == sent


@pytest.mark.parametrize("public", [False, True])
def test_a_namespace_of_others_is_told(exported, public):
    with pytest.raises(StorageError, match="nobody/thing"):
        exported("nobody/thing", public=public)


def test_no_repository_is_made_for_what_is_not_assembled(making, exported, tmp_path):
    workspace = make(str(tmp_path / "w"), 2)
    next(Path(workspace, "assemble").rglob("*.done")).unlink()
    name = new_name()
    with pytest.raises(StageMissing, match="1 of 2 items"):
        exported(name, workspace=workspace)
    assert not making.api().repo_exists(name, repo_type="dataset")


def test_a_folder_of_a_repository_is_no_dataset(exported):
    with pytest.raises(UsageError, match="the folder some/prefix is not possible") as caught:
        exported("tester/x/some/prefix")
    assert "hf://datasets/tester/x@BRANCH" in caught.value.hint


@pytest.mark.slow
def test_killed_between_two_files_it_goes_on(making, tmp_path):
    """What was sent is not sent again, though no commit has named it."""
    hub, name = making.hub(), new_name()
    hub.faults.add(Fault("lfs_put", status=503, times=1_000_000, after=2))
    words = ["export", "-w", make(str(tmp_path / "w"), 8), "--output", f"hf://datasets/{name}", "--shard-size", "2"]
    words += ["--source-paths", "absolute"]  # the two commands have different current folders
    env = environment(**hub.environment(tmp_path))
    sent = hub.requests.get("lfs_put", 0)
    first = subprocess.Popen(program(*words), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    when(lambda: hub.requests.get("lfs_put", 0) >= sent + 3 and len(hub.state.repositories.large) >= 2)
    first.kill()
    first.wait()
    hub.faults.clear()
    assert len(hub.state.repositories.large) == 2
    sent = hub.requests["lfs_put"]
    again = cli(*words, cwd=tmp_path, env=hub.environment(tmp_path))
    assert again.returncode == 0, again.stderr
    assert hub.requests["lfs_put"] == sent + 2
    assert len(files(making, name)) == 1 + 4
    assert f'load_dataset("{name}", split="train")' in again.stdout
