"""The Hub that ships for tests, asked by the real huggingface_hub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfFileSystem, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

from tests.fakes.hub import Account, Fault, running

WORK = """
import sys
from llm_ocr.storage import open_store
store = open_store("hf://buckets/tester/shared/run")
for number in range(10):
    store.put(f"{sys.argv[1]}/{number}", sys.argv[1].encode() * 1000)
    assert store.get(f"{sys.argv[1]}/{number}") == sys.argv[1].encode() * 1000
"""


def program(code: str, *arguments: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    every = {**{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}, **environment}
    return subprocess.Popen(command, env=every, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_many_programs_write_to_one_bucket_at_the_same_time(making):
    with running() as (hub, environment):
        api = making.HfApi(endpoint=hub.url, token=making.TOKEN)
        api.create_bucket("tester/shared", private=True)
        working = [program(WORK, name, environment=environment) for name in ("a", "b", "c")]
        ended = [(one.communicate(timeout=120)[1], one.returncode) for one in working]
        assert ended == [("", 0)] * 3
        assert api.bucket_info("tester/shared").total_files == 30


def test_what_is_private_is_seen_by_its_owner_alone(making):
    making.hub().state.accounts.by_token["hf_other"] = Account("other")
    closed, public = making.new_place("dataset"), making.new_place("dataset", private=False)
    for token in ("hf_other", False):
        with pytest.raises(RepositoryNotFoundError):
            making.api(token).dataset_info(closed.id)
        assert not making.api(token).dataset_info(public.id).private


def test_every_client_method_lists_reads_and_downloads_files(making, tmp_path):
    api, place = making.api(), making.new_place("dataset")
    for name in ("a/small.json", "a/large.parquet"):
        api.upload_file(path_or_fileobj=b"0123456789", path_in_repo=name, repo_id=place.id, repo_type="dataset")
    files = HfFileSystem(endpoint=making.hub().url, token=making.TOKEN)
    root = f"datasets/{place.id}"
    assert files.glob(f"{root}/a/*") == [f"{root}/a/large.parquet", f"{root}/a/small.json"]
    for name in ("a/small.json", "a/large.parquet"):
        with files.open(f"{root}/{name}") as file:
            file.seek(3)
            assert file.read(4) == b"3456"
        path = hf_hub_download(
            place.id,
            name,
            repo_type="dataset",
            endpoint=making.hub().url,
            token=making.TOKEN,
            cache_dir=tmp_path / "cache",
        )
        assert Path(path).read_bytes() == b"0123456789"


def test_files_of_buckets_are_read_by_every_way_of_the_client(making, tmp_path):
    api, place = making.api(), making.new_place("bucket")
    api.batch_bucket_files(place.id, add=[(b"0123456789" * 20_000, "a/b c"), (b"", "empty")])
    files = HfFileSystem(endpoint=making.hub().url, token=making.TOKEN)
    assert files.cat(f"buckets/{place.id}/a/b c") == b"0123456789" * 20_000
    api.download_bucket_files(place.id, [("a/b c", tmp_path / "b"), ("empty", tmp_path / "e")])
    assert (tmp_path / "b").read_bytes() == b"0123456789" * 20_000
    assert (tmp_path / "e").read_bytes() == b""
    assert {file.path for file in api.list_bucket_tree(place.id, recursive=True)} == {"a/b c", "empty"}
    assert [file.path for file in api.get_bucket_paths_info(place.id, ["nothing", "empty"])] == ["empty"]


def test_a_fault_leaves_the_first_requests_alone_and_ends(making):
    api, place = making.api(), making.new_place("dataset")
    making.hub().faults.add(Fault("info", place.id, status=404, after=1, times=2))
    answers = []
    for _ in range(4):
        try:
            answers.append(bool(api.dataset_info(place.id)))
        except HfHubHTTPError as error:
            answers.append(error.response.status_code)
    assert answers == [True, 404, 404, True]
