"""What every store promises, whatever it stands on."""

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.stages.clean import store_time
from llm_ocr.storage import Capabilities
from llm_ocr.workspace import Workspace

# No key is the folder of another: not every store can have both.
KEYS = ["a.done", "a/b/c d", "ab", "extract/1/u.done", "extract/1/u/x.parquet", "é/日本.md", "[x],-y"]


def test_an_object_is_read_as_it_was_written(store):
    store.put("folder/name", b"\0data")
    assert store.get("folder/name") == b"\0data"
    store.put("folder/empty", b"")
    assert store.get("folder/empty") == b""


def test_put_replaces_the_whole_object_and_its_version(store):
    store.put("k", b"longer than the next")
    before = store.stat("k")
    store.put("k", b"short")
    after = store.stat("k")
    assert store.get("k") == b"short"
    assert (after.key, after.size) == ("k", 5)
    assert before.version != after.version
    assert after.modified == 0 or after.modified > 1_500_000_000  # 0: the store does not know


def test_the_same_size_still_gives_another_version(store):
    store.put("k", b"one")
    before = store.stat("k")
    store.put("k", b"two")
    assert store.stat("k").version != before.version


def test_fetch_gives_the_bytes_and_version_of_stat_and_list(store):
    store.put("k", b"one")
    data, version = store.fetch("k")
    assert data == b"one"
    assert version and version == store.stat("k").version == next(store.list()).version
    store.put("k", b"two")
    assert store.fetch("k")[0] == b"two"
    assert store.fetch("k")[1] not in ("", version)


def test_a_missing_object_is_a_missing_file(store, tmp_path):
    store.put("folder/name", b"1")
    for missing in ("nothing", "folder", "folder/name/below", "folder/other"):
        assert store.stat(missing) is None
        for read in (
            lambda key=missing: store.get(key),
            lambda key=missing: store.fetch(key),
            lambda key=missing: store.read_range(key, 0, 1),
            lambda key=missing: store.download(key, tmp_path / "copy"),
        ):
            with pytest.raises(ObjectNotFound):
                read()
            with pytest.raises(FileNotFoundError):
                read()
    assert not (tmp_path / "copy").exists()


def test_create_succeeds_once_and_never_changes_what_is_there(store):
    version = store.create("k", b"first")
    assert version == store.stat("k").version
    with pytest.raises(ObjectExists):
        store.create("k", b"second")
    with pytest.raises(FileExistsError):
        store.create("k", b"second")
    assert store.fetch("k") == (b"first", version)


def test_create_loses_against_put_and_wins_after_delete(store):
    store.put("k", b"put")
    with pytest.raises(ObjectExists):
        store.create("k", b"created")
    store.delete("k")
    store.create("k", b"created")
    assert store.get("k") == b"created"


def content(number: int) -> bytes:
    """Some bytes of each racer's own."""
    return b"%d " % number * 1000


@pytest.mark.usefixtures("creates")
def test_one_of_24_creators_wins_and_its_bytes_remain(store, race):
    for key in ("race/0", "race/1", "race/2"):
        ((number, version),) = race(lambda number, key=key: store.create(key, content(number)))
        assert store.fetch(key) == (content(number), version)


@pytest.mark.usefixtures("swaps")
def test_one_of_24_swaps_of_a_version_wins_and_its_bytes_remain(store, race):
    for key in ("race/0", "race/1", "race/2"):
        version = store.create(key, b"held")
        ((number, now),) = race(lambda number, key=key, version=version: store.swap(key, content(number), version))
        assert now != version
        assert store.fetch(key) == (content(number), now)


@pytest.mark.usefixtures("swaps")
def test_swaps_go_from_version_to_version_and_stale_ones_fail(store):
    versions = [store.create("k", b"0")]
    for number in range(1, 4):
        versions.append(store.swap("k", b"%d" % number, versions[-1]))
    assert len(set(versions)) == 4
    for stale in versions[:-1]:
        with pytest.raises(ObjectChanged):
            store.swap("k", b"stale", stale)
    assert store.fetch("k") == (b"3", versions[-1])


@pytest.mark.usefixtures("swaps")
def test_swap_takes_any_reported_version_and_loses_against_put(store):
    store.create("k", b"0")
    store.swap("k", b"1", store.stat("k").version)
    store.swap("k", b"2", next(store.list("k")).version)
    _, version = store.fetch("k")
    store.put("k", b"put")
    with pytest.raises(ObjectChanged) as caught:
        store.swap("k", b"3", version)
    assert isinstance(caught.value, OSError)
    assert not caught.value.retryable
    assert store.get("k") == b"put"


@pytest.mark.usefixtures("swaps")
def test_what_is_gone_or_never_was_cannot_be_swapped(store):
    version = store.create("k", b"0")
    store.delete("k")
    for key in ("k", "never/was"):
        with pytest.raises(ObjectChanged):
            store.swap(key, b"1", version)
    assert list(store.list()) == []
    again = store.create("k", b"0")
    if again != version:  # a store whose versions are hashes of the content may take it for the same
        with pytest.raises(ObjectChanged):
            store.swap("k", b"1", version)


def test_what_cannot_be_swapped_is_an_error_and_stays(store):
    if store.capabilities().swap:
        pytest.skip("this store swaps")
    store.put("k", b"0")
    with pytest.raises(StorageError) as caught:
        store.swap("k", b"1", store.stat("k").version)
    assert not isinstance(caught.value, ObjectChanged)
    assert store.get("k") == b"0"


def test_readers_never_see_a_part_of_an_object(store):
    store.put("k", b"a" * 100_000)
    stop = threading.Event()
    torn: list[bytes] = []

    def read() -> None:
        while not stop.is_set():
            data = store.get("k")
            if len(set(data)) != 1 or len(data) != 100_000:
                torn.append(data[:10])

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for letter in b"abcdefghij" * 2:
                store.put("k", bytes([letter]) * 100_000)
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    assert torn == []


def test_ranges_end_with_the_object(store):
    store.put("k", b"0123456789")
    assert store.read_range("k", 0, 4) == b"0123"
    assert store.read_range("k", 6, 4) == b"6789"
    assert store.read_range("k", 8, 100) == b"89"
    assert store.read_range("k", 10, 1) == b""
    assert store.read_range("k", 3, 0) == b""
    store.put("empty", b"")
    assert store.read_range("empty", 0, 1) == b""


def test_the_list_is_in_key_order_and_holds_every_object(store, fill):
    assert list(store.list()) == []
    fill({key: key.encode() for key in reversed(KEYS)})
    listed = list(store.list())
    assert [info.key for info in listed] == sorted(KEYS)
    for info in listed:
        alone = store.stat(info.key)
        assert (info.size, info.version) == (alone.size, alone.version) == (len(info.key.encode()), alone.version)
        assert abs(info.modified - alone.modified) < 2  # HTTP dates are whole seconds


def test_the_list_keeps_to_prefix_and_start(store, fill):
    fill(dict.fromkeys(KEYS, b""))
    prefixes = ["", "a", "a/", "a/b/", "a/b/c", "extract/1/u", "extract/", "é/", "zzz", "zzz/y/"]
    starts = ["", "a.done", "a/b/c d", "ab", "extract/1/u.done", "extract/1/", "é", "\U0010ffff"]
    for prefix, after in itertools.product(prefixes, starts):
        expected = [key for key in sorted(KEYS) if key.startswith(prefix) and key > after]
        assert [info.key for info in store.list(prefix, start_after=after)] == expected, (prefix, after)


def test_a_list_of_many_pages_is_complete_from_any_start(store, stores, fill):
    keys = sorted({f"many/{number % 16:x}/{number:05d}" for number in range(stores.many)})
    fill({**dict.fromkeys(keys, b""), "after": b"", "nothing": b""})
    assert [info.key for info in store.list("many/")] == keys
    for place in (0, len(keys) // 2, len(keys) - 2):
        assert [info.key for info in store.list("many/", start_after=keys[place])] == keys[place + 1 :]
    between = f"{keys[5]}!"
    assert [info.key for info in store.list("many/", start_after=between)] == keys[6:]
    assert next(store.list("many/", start_after=keys[-2])).key == keys[-1]


def test_delete_takes_one_object_away_and_may_be_repeated(store):
    store.put("a/b", b"1")
    store.put("a/c", b"2")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")
    assert [info.key for info in store.list()] == ["a/c"]
    assert store.stat("a/b") is None
    with pytest.raises(ObjectNotFound):
        store.get("a/b")


def test_files_go_up_and_come_down_unchanged(store, tmp_path):
    data = bytes(range(256)) * 5000
    (tmp_path / "up").write_bytes(data)
    store.upload(tmp_path / "up", "folder/file")
    assert store.get("folder/file") == data
    (tmp_path / "down").write_bytes(b"older")
    store.download("folder/file", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["down", "up"]


def test_big_objects_upload_from_file_or_bytes_and_return_whole(store, tmp_path):
    data = random.Random(4).randbytes(9_000_000)
    (tmp_path / "up").write_bytes(data)
    store.upload(tmp_path / "up", "big/file")
    store.put("big/bytes", data[::-1])
    store.download("big/file", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == data
    assert store.get("big/bytes") == data[::-1]
    assert store.read_range("big/file", 8_500_000, 1000) == data[8_500_000:8_501_000]
    assert [(info.key, info.size) for info in store.list()] == [("big/bytes", 9_000_000), ("big/file", 9_000_000)]
    assert list(store.unfinished()) == []


def test_an_upload_of_a_file_that_is_not_there_leaves_nothing(store, tmp_path):
    with pytest.raises(OSError):
        store.upload(tmp_path / "missing", "k")
    assert list(store.list()) == []


NO_KEYS = (
    *("", "/a", "a/", "a//b"),
    *("..", "../a", "a/../b", "a/..", "./a", "a/./b"),
    *("a\0b", "a\nb", "a\x7f", "\ud800"),
    *(".tmp-1", "a/.tmp-1", "x" * 1025),
)


def test_what_is_no_key_is_refused_by_every_method(store, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for call in (
        store.get,
        lambda key: store.read_range(key, 0, 1),
        lambda key: store.put(key, b""),
        lambda key: store.create(key, b""),
        store.fetch,
        lambda key: store.swap(key, b"", "1"),
        lambda key: store.upload(tmp_path / "file", key),
        lambda key: store.download(key, tmp_path / "down"),
        store.stat,
        store.delete,
    ):
        for key in NO_KEYS:
            if call == store.delete and ".tmp-" in key:  # what is unfinished may be removed
                continue
            with pytest.raises(StorageError, match="cannot be the name"):
                call(key)


def test_a_prefix_cannot_lead_out_of_the_store(store):
    with pytest.raises(StorageError):
        list(store.list("../"))


def test_checking_and_asking_what_it_can_leave_nothing_behind(store):
    store.check()
    store.check()
    found = store.capabilities()
    assert isinstance(found, Capabilities)
    assert store.capabilities() == found
    assert found.note or (found.create and found.swap)
    assert list(store.list()) == []
    assert list(store.unfinished()) == []


def test_probes_of_a_dead_worker_are_unfinished_and_removable(store, stores):
    if stores.name in ("local", "hub-dataset", "a user's own"):
        pytest.skip("this store tests itself without objects")
    store.put("k", b"1")
    store.put(".probe/left", b"1")
    assert [info.key for info in store.list()] == ["k"]
    assert [info.key for info in store.unfinished()] == [".probe/left"]
    store.delete(".probe/left")
    assert list(store.unfinished()) == []


def test_many_can_check_at_once_beside_those_that_work(store):
    with ThreadPoolExecutor(8) as pool:
        checks = [pool.submit(store.check) for _ in range(4)] + [pool.submit(store.capabilities) for _ in range(4)]
        store.put("k", b"1")
        assert store.get("k") == b"1"
        for check in checks:
            check.result()
    assert [info.key for info in store.list()] == ["k"]


def test_the_url_says_where_it_is(store):
    assert store.url
    assert "\n" not in store.url


def test_clean_reads_the_store_time_and_leaves_nothing_there(store):
    workspace = Workspace.on(store, create=True)
    before = [info.key for info in store.list()]
    dated = store.stat("run.json").modified
    began = time.time() - 2  # S3 has whole seconds, and kernels date files by ticks
    assert (began <= store_time(workspace) <= time.time() + 1) if dated else store_time(workspace) == 0
    assert [info.key for info in store.list()] == before
    assert list(store.unfinished()) == []
