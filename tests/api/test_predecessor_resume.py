"""Taking over a dataset of the predecessor, interrupted anywhere: the same command goes on, each page comes once."""

import functools
from pathlib import Path

import predecessor_datasets as made
import pytest
from running import side_by_side

import llm_ocr
from llm_ocr import workspace as workspaces
from llm_ocr.compat import importing
from llm_ocr.storage import ObjectStore, StoreOptions, open_store
from tests.fakes.crash import Crash, CrashPoint, crashing

PAGES = 4


@pytest.fixture(autouse=True)
def units_of_two_pages(monkeypatch) -> None:
    monkeypatch.setattr(importing, "PAGES_PER_UNIT", 2)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    rows = [made.row(number, f"Number {number}.") for number in range(PAGES)]
    return made.saved(rows, tmp_path_factory.mktemp("run") / "dataset", shards=3)


def assembled(workspace: Path, source: Path) -> dict[str, str]:
    return made.documents(llm_ocr.assemble(workspace=workspace, input=source))


def dying(monkeypatch: pytest.MonkeyPatch, point: CrashPoint) -> None:
    def opened(url: str, options: StoreOptions) -> ObjectStore:
        return crashing(open_store(url, options), point)

    monkeypatch.setattr(workspaces, "open_store", opened)


@pytest.mark.slow
def test_killed_at_any_write_it_goes_on(source, tmp_path, monkeypatch):
    counting = CrashPoint()
    with monkeypatch.context() as patched:
        dying(patched, counting)
        undisturbed = assembled(tmp_path / "undisturbed", source)
    first = next(at for at, what in enumerate(counting.seen) if " assemble/" in what)
    taken_over = [what for what in counting.seen[:first] if what.startswith("create extract/")]
    assert sum(what.endswith(".done") for what in taken_over) == 2
    for at in range(first):
        workspace = tmp_path / f"killed at {at}"
        with monkeypatch.context() as patched, pytest.raises(Crash):
            dying(patched, CrashPoint(at))
            assembled(workspace, source)
        assert assembled(workspace, source) == undisturbed, counting.seen[at]
        status = llm_ocr.open(str(workspace)).status
        assert (status.pages.ok, status.pages.expected, status.figures.ok) == (PAGES, PAGES, PAGES)
        assert status.generations == 1


def test_what_is_done_is_not_read_again(source, tmp_path, monkeypatch):
    reads: list[str] = []
    read = importing.InputRows.rows

    def counted(self, file, start, stop):
        reads.append(f"{file.key} {start}-{stop}")
        if len(reads) == 3:
            raise Crash
        return read(self, file, start, stop)

    monkeypatch.setattr(importing.InputRows, "rows", counted)
    with pytest.raises(Crash):
        assembled(tmp_path / "w", source)
    begun = list(reads)
    assembled(tmp_path / "w", source)
    assert reads[len(begun) :] == begun[1:]  # the first unit is one read, the second two
    again = len(reads)
    assembled(tmp_path / "w", source)
    assert len(reads) == again


@pytest.mark.slow
def test_workers_that_begin_together_publish_each_page_once(source, tmp_path):
    with made.on_s3(tmp_path) as put:
        place = put(source)
        where = {"workspace": place.workspace, "input": place.input, "shard_count": 3, **place.settings}
        side_by_side(*(functools.partial(llm_ocr.assemble, shard_index=index, **where) for index in range(3)))
        status = llm_ocr.open(place.workspace, endpoint=place.settings["workspace_endpoint"]).status
        assert (status.pages.ok, status.pages.expected, status.generations) == (PAGES, PAGES, 1)
        store = open_store(place.workspace, StoreOptions(endpoint=place.settings["workspace_endpoint"]))
        keys = [info.key for info in store.list("extract/")]
        assert [sum(key.endswith(end) for key in keys) for end in (".parquet", ".done")] == [2, 2]
