"""The suite must fail without the rule that it proves: data first, then one marker for ever."""

import contextlib
import sys
from unittest import mock

from fault_checking import attempts, problems
from fault_engine import make_documents
from fault_places import new_place
from fault_running import boundaries, dies_at, pipeline, same
from fault_wraps import is_marker, passing
from test_two_workers import publish_at_once, wrong

from llm_ocr.errors import LlmOcrError
from llm_ocr.workspace import publish
from tests.fakes.crash import When


def markers_replace(store):
    """The marker is put, not created."""

    def create(key, data):
        store.put(key, data)
        return store.stat(key).version

    return passing(store, create=lambda key, data: (create if is_marker(key) else store.create)(key, data))


def markers_first(store):
    """The data come after their marker."""
    waiting = []

    def put(key, data):
        if key.endswith(".parquet") and key.count("/") == 4:
            waiting.append((key, data))
        else:
            store.put(key, data)

    def create(key, data):
        version = store.create(key, data)
        while is_marker(key) and waiting:
            store.put(*waiting.pop())
        return version

    return passing(store, put=put, create=create)


@contextlib.contextmanager
def readers_without_markers():
    """A unit counts as done as soon as it has data."""

    def done_units(workspace, stage, key):
        keys = [info.key.split("/") for info in workspace.store.list(f"{stage}/{key}/")]
        return {parts[3] for parts in keys if len(parts) == 5}

    def is_done(workspace, stage, key, unit):
        return unit in done_units(workspace, stage, key)

    modules = [module for name, module in [*sys.modules.items()] if name.startswith("llm_ocr.")]
    with contextlib.ExitStack() as stack:
        for other in (done_units, is_done):
            original = getattr(publish, other.__name__)
            for module in modules:
                if vars(module).get(other.__name__) is original:
                    stack.enter_context(mock.patch.object(module, other.__name__, other))
        yield


def test_markers_that_replace_others_are_found(tmp_path):
    documents, place = make_documents(tmp_path / "documents", [1]), new_place("local", tmp_path)
    lines = wrong(place, publish_at_once(place, documents, markers_replace))
    assert [line for line in lines if line.startswith("published twice: ['extract'")]


def test_readers_that_need_no_marker_are_found(tmp_path):
    documents = make_documents(tmp_path / "documents", [1])
    place = killed_before("create extract/", ".done", documents, tmp_path)
    before = attempts(place.store())
    with readers_without_markers(), contextlib.suppress(LlmOcrError):
        pipeline(place, documents)
    assert "extract is not done: 0 of 1" in problems(place.store(), pages=1, before=before)


def test_markers_before_their_data_are_found(tmp_path):
    documents = make_documents(tmp_path / "documents", [1])
    place = killed_before("put extract/", ".parquet", documents, tmp_path, markers_first)
    before = attempts(place.store())
    with contextlib.suppress(LlmOcrError):
        pipeline(place, documents)
    (line,) = problems(place.store(), pages=1, before=before)
    assert line.startswith("cannot be read") and "is missing" in line


def killed_before(begins, ends, documents, folder, wrap=same):
    """A workspace whose worker was killed before the first write of such a name.

    Documents have one page: two units publish at the same time, in another order each time.
    """
    writes = boundaries(new_place("local", folder), documents, wrap)
    at = next(at for at, write in enumerate(writes) if write.startswith(begins) and write.endswith(ends))
    place = new_place("local", folder)
    assert dies_at(place, documents, at, When.BEFORE, wrap)
    return place
