"""What every store promises, whatever it stands on."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError

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
    assert after.modified > 1_500_000_000


def test_the_same_size_still_gives_another_version(store):
    store.put("k", b"one")
    before = store.stat("k")
    store.put("k", b"two")
    assert store.stat("k").version != before.version


def test_a_missing_object_is_a_missing_file(store, tmp_path):
    store.put("folder/name", b"1")
    for missing in ("nothing", "folder", "folder/name/below", "folder/other"):
        assert store.stat(missing) is None
        for read in (
            lambda key=missing: store.get(key),
            lambda key=missing: store.read_range(key, 0, 1),
            lambda key=missing: store.download(key, tmp_path / "copy"),
        ):
            with pytest.raises(ObjectNotFound):
                read()
            with pytest.raises(FileNotFoundError):
                read()
    assert not (tmp_path / "copy").exists()


def test_create_succeeds_once_and_never_changes_what_is_there(store):
    store.create("k", b"first")
    with pytest.raises(ObjectExists):
        store.create("k", b"second")
    with pytest.raises(FileExistsError):
        store.create("k", b"second")
    assert store.get("k") == b"first"


def test_create_loses_against_put_and_wins_after_delete(store):
    store.put("k", b"put")
    with pytest.raises(ObjectExists):
        store.create("k", b"created")
    store.delete("k")
    store.create("k", b"created")
    assert store.get("k") == b"created"


@pytest.mark.parametrize("race", range(5))
def test_of_24_creators_one_wins_and_its_bytes_are_those_that_stand(store, race):
    begin = threading.Barrier(24)

    def create(number: int) -> int | None:
        begin.wait()
        try:
            store.create(f"race/{race}", b"%d" % number * 1000)
        except ObjectExists:
            return None
        return number

    with ThreadPoolExecutor(24) as pool:
        winners = [number for number in pool.map(create, range(24)) if number is not None]
    assert len(winners) == 1
    assert store.get(f"race/{race}") == b"%d" % winners[0] * 1000


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
        for letter in b"abcdefghij" * 5:
            store.put("k", bytes([letter]) * 100_000)
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


def test_the_list_is_in_key_order_and_holds_every_object(store):
    assert list(store.list()) == []
    for key in reversed(KEYS):
        store.put(key, key.encode())
    listed = list(store.list())
    assert [info.key for info in listed] == sorted(KEYS)
    assert all(info == store.stat(info.key) for info in listed)


def test_the_list_keeps_to_prefix_and_start(store):
    for key in KEYS:
        store.put(key, b"")
    prefixes = ["", "a", "a/", "a/b/", "a/b/c", "extract/1/u", "extract/", "é/", "zzz", "zzz/y/"]
    starts = ["", "a.done", "a/b/c d", "ab", "extract/1/u.done", "extract/1/", "é", "\U0010ffff"]
    for prefix, after in itertools.product(prefixes, starts):
        expected = [key for key in sorted(KEYS) if key.startswith(prefix) and key > after]
        assert [info.key for info in store.list(prefix, start_after=after)] == expected, (prefix, after)


def test_a_list_of_more_than_a_thousand_is_complete(store):
    keys = {f"many/{number % 16:x}/{number:05d}" for number in range(1100)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    assert [info.key for info in store.list("many/")] == sorted(keys)


def test_delete_takes_one_object_away_and_may_be_repeated(store):
    store.put("a/b", b"1")
    store.put("a/c", b"2")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")
    assert [info.key for info in store.list()] == ["a/c"]


def test_files_go_up_and_come_down_unchanged(store, tmp_path):
    data = bytes(range(256)) * 5000
    (tmp_path / "up").write_bytes(data)
    store.upload(tmp_path / "up", "folder/file")
    assert store.get("folder/file") == data
    (tmp_path / "down").write_bytes(b"older")
    store.download("folder/file", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == data


@pytest.mark.parametrize(
    "key",
    [
        *("", "/a", "a/", "a//b"),
        *("..", "../a", "a/../b", "a/..", "./a", "a/./b"),
        *("a\0b", "a\nb", "a\x7f", "\ud800"),
        *(".tmp-1", "a/.tmp-1", "x" * 1025),
    ],
)
def test_what_is_no_key_is_refused_by_every_method(store, key, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for call in (
        lambda: store.get(key),
        lambda: store.read_range(key, 0, 1),
        lambda: store.put(key, b""),
        lambda: store.create(key, b""),
        lambda: store.upload(tmp_path / "file", key),
        lambda: store.download(key, tmp_path / "down"),
        lambda: store.stat(key),
    ):
        with pytest.raises(StorageError, match="cannot be the name"):
            call()
    if ".tmp-" not in key:  # what is unfinished may be removed
        with pytest.raises(StorageError, match="cannot be the name"):
            store.delete(key)


def test_a_prefix_cannot_lead_out_of_the_store(store):
    with pytest.raises(StorageError):
        list(store.list("../"))


def test_checking_leaves_nothing_behind(store):
    store.check()
    store.check()
    assert list(store.list()) == []
    assert list(store.unfinished()) == []
