"""What the store promises when the service or the network fails."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import waiting
from llm_ocr.storage.gcs import store as store_module
from llm_ocr.storage.gcs.store import Content
from tests.fakes.gcs import Fault, How, When

LOST = [
    Fault(How.DROP, When.AFTER, "write", count=1),
    Fault(How.STATUS, When.AFTER, "write", count=1, status=503),
    Fault(How.CUT, When.AFTER, "write", count=1),
    Fault(How.STATUS, When.BEFORE, "write", count=1, status=429),
    Fault(How.DROP, When.BEFORE, "write", count=2),
]
TOO_LONG = [
    Fault(How.STATUS, When.AFTER, "write", status=503),
    Fault(How.DROP, When.AFTER, "write", count=1000),
]


def said(fault: Fault) -> str:
    return f"{fault.how} {fault.when} {fault.operation} {fault.status} {fault.count}"


def content(gcs, name="run/k") -> bytes:
    return gcs.objects.find("a-bucket", name).data


@pytest.mark.parametrize("fault", LOST, ids=said)
def test_a_write_whose_answer_was_lost_is_known_as_our_own(gcs, gcs_store, fault):
    gcs.faults.add(fault)
    version = gcs_store.create("k", b"mine")
    assert gcs_store.fetch("k") == (b"mine", version)
    gcs.faults.add(fault)
    version = gcs_store.swap("k", b"again", version)
    assert gcs_store.fetch("k") == (b"again", version)
    gcs.faults.add(fault)
    gcs_store.put("k", b"put")
    gcs.faults.add(fault)
    gcs_store.put("new", b"put")
    assert content(gcs) == content(gcs, "run/new") == b"put"


@pytest.mark.parametrize("fault", TOO_LONG, ids=said)
def test_a_write_is_read_back_when_no_answer_ever_came(gcs, open_gcs, fault):
    store = open_gcs(total=0.3)
    gcs.faults.add(fault)
    version = store.create("k", b"mine")
    assert store.stat("k").version == version
    assert store.swap("k", b"again", version) == store.stat("k").version
    store.put("other", b"put")
    assert content(gcs, "run/other") == b"put"


def test_write_that_failed_too_long_is_an_error_without_object(gcs, open_gcs):
    store = open_gcs(total=0.3)
    gcs.faults.add(Fault(operation="write", status=503))
    for write in (store.put, store.create):
        with pytest.raises(StorageError, match=r"gs://a-bucket/run/k.* failed \(503") as caught:
            write("k", b"data")
        assert caught.value.retryable
        assert "Run the same command again" in str(caught.value)
    gcs.faults.clear()
    assert store.stat("k") is None


def test_creator_without_answers_learns_that_it_lost(gcs, open_gcs):
    store = open_gcs(total=0.3)
    gcs.objects.write("a-bucket", "run/k", b"theirs")
    gcs.faults.add(Fault(operation="write", status=503))
    with pytest.raises(ObjectExists):
        store.create("k", b"mine")
    with pytest.raises(ObjectChanged):
        store.swap("k", b"mine", "1")
    assert content(gcs) == b"theirs"


def test_equal_bytes_do_not_make_two_winners(gcs_store):
    gcs_store.create("k", b"same")
    with pytest.raises(ObjectExists):
        gcs_store.create("k", b"same")


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["create", "swap"])
def test_of_24_racers_one_wins_also_when_answers_are_lost(gcs, gcs_store, race, operation):
    faults = [
        Fault(How.DROP, When.AFTER, rate=0.15),
        Fault(How.STATUS, When.AFTER, rate=0.15, status=500),
        Fault(How.DROP, When.BEFORE, rate=0.15),
        Fault(How.STATUS, When.BEFORE, rate=0.15, status=429, reason="rateLimitExceeded"),
    ]
    for round_ in range(4):
        key = f"race/{round_}"
        version = gcs_store.create(key, b"0") if operation == "swap" else ""
        for fault in faults:
            gcs.faults.add(fault)

        def write(number: int, key=key, version=version) -> str:
            data = b"%d" % number
            return gcs_store.swap(key, data, version) if version else gcs_store.create(key, data)

        ((winner, now),) = race(write)
        gcs.faults.clear()
        assert gcs_store.fetch(key) == (b"%d" % winner, now)


@pytest.mark.slow
def test_many_threads_work_through_failures_of_every_kind(gcs, gcs_store, tmp_path):
    for how in (How.STATUS, How.DROP, How.CUT):
        for when in When:
            gcs.faults.add(Fault(how, when, rate=0.08, status=503))

    def work(number: int) -> None:
        key, data = f"{number % 7}/{number}", b"%d" % number * 500
        gcs_store.put(key, b"older")
        gcs_store.put(key, data)
        assert gcs_store.get(key) == data
        assert gcs_store.read_range(key, 3, 10) == data[3:13]
        gcs_store.download(key, tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == data
        if number % 2:
            gcs_store.delete(key)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(32)))
    assert sorted(info.key for info in gcs_store.list()) == sorted(f"{n % 7}/{n}" for n in range(0, 32, 2))


def test_one_write_a_second_is_waited_for(gcs, gcs_store, monkeypatch):
    looks = itertools.count()
    clock = SimpleNamespace(time=time.time, monotonic=lambda: 0.4 * next(looks))
    monkeypatch.setattr("tests.fakes.gcs_objects.time", clock)
    gcs.objects.one_write_a_second = True
    version = gcs_store.create("k", b"1")
    version = gcs_store.swap("k", b"2", version)
    assert gcs_store.fetch("k") == (b"2", version)
    assert gcs.requests["write"] == 4  # the swap at 0.4, 0.8 and 1.2 seconds


def test_throttling_that_does_not_end_is_a_warning_then_an_error(gcs, open_gcs, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "_LONG", 0.3)
    monkeypatch.setattr(store_module, "NOTICES", waiting.Notices())
    gcs.faults.add(Fault(operation="write", status=429, reason="rateLimitExceeded", message="Slow down."))
    store = open_gcs(total=2.0)
    with pytest.raises(StorageError, match="too many requests after all retries") as caught:
        store.put("k", b"")
    assert caught.value.retryable
    assert "fewer workers" in caught.value.hint
    (warning,) = [record.getMessage() for record in caplog.records]
    assert store.url in warning and "Slow down" in warning and "trying again for 2 s at most" in warning


def test_a_repeated_delete_does_not_remove_what_came_after_it(gcs, gcs_store, monkeypatch):
    gcs_store.put("k", b"older")
    delete = gcs.objects.delete

    def delete_and_write(*args, **kwargs) -> None:
        monkeypatch.setattr(gcs.objects, "delete", delete)
        delete(*args, **kwargs)
        gcs.objects.write("a-bucket", "run/k", b"newer")

    monkeypatch.setattr(gcs.objects, "delete", delete_and_write)
    gcs.faults.add(Fault(How.DROP, When.AFTER, "delete", count=1))
    gcs_store.delete("k")
    assert content(gcs) == b"newer"
    assert gcs.requests["delete"] == 2


def test_a_delete_whose_answer_was_lost_is_done(gcs, gcs_store):
    gcs_store.put("k", b"1")
    gcs.faults.add(Fault(How.DROP, When.AFTER, "delete", count=1))
    gcs_store.delete("k")
    assert gcs_store.stat("k") is None


@pytest.mark.parametrize("how", [How.CUT, How.DROP, How.STATUS])
def test_a_read_that_was_cut_off_goes_on(gcs, gcs_store, tmp_path, how):
    data = bytes(range(256)) * 4000
    gcs_store.put("k", data)
    gcs.faults.add(Fault(how, operation="read", count=3))
    assert gcs_store.get("k") == data
    gcs.faults.add(Fault(how, operation="read", count=3))
    gcs_store.download("k", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == data
    gcs.faults.add(Fault(how, operation="read", count=3))
    assert gcs_store.read_range("k", 1000, 500_000) == data[1000:501_000]


@pytest.mark.parametrize("how", [How.CUT, How.DROP, How.STATUS])
def test_missing_object_is_recognized_despite_a_cut_off_answer(gcs, gcs_store, tmp_path, how):
    for read in (
        lambda: gcs_store.get("k"),
        lambda: gcs_store.read_range("k", 0, 5),
        lambda: gcs_store.download("k", tmp_path / "file"),
    ):
        gcs.faults.add(Fault(how, operation="read", count=3))
        with pytest.raises(ObjectNotFound):
            read()
    gcs.faults.add(Fault(how, operation="stat", count=3))
    assert gcs_store.stat("k") is None


@pytest.mark.parametrize("then", ["replaced", "removed"])
def test_read_is_of_one_version_though_the_object_changes(gcs, gcs_store, tmp_path, monkeypatch, then):
    older, newer = b"a" * 100_000, b"b" * 100_000
    find = gcs.objects.find

    def find_then_change(*args, **kwargs):
        found = find(*args, **kwargs)
        monkeypatch.setattr(gcs.objects, "find", find)
        if then == "replaced":
            gcs.objects.write("a-bucket", "run/k", newer)
        else:
            gcs.objects.delete("a-bucket", "run/k")
        return found

    for read in (lambda: gcs_store.get("k"), lambda: _downloaded(gcs_store, tmp_path)):
        gcs_store.put("k", older)
        gcs.faults.add(Fault(How.CUT, operation="read", count=1))
        monkeypatch.setattr(gcs.objects, "find", find_then_change)
        if then == "replaced":
            assert read() == newer
        else:
            with pytest.raises(ObjectNotFound):
                read()
        gcs_store.delete("k")


def _downloaded(store, folder) -> bytes:
    store.download("k", folder / "down")
    return (folder / "down").read_bytes()


def test_a_download_that_fails_leaves_the_file_as_it_was(gcs, open_gcs, tmp_path):
    store = open_gcs(total=0.2)
    store.put("k", b"x" * 100_000)
    (tmp_path / "file").write_bytes(b"older")
    gcs.faults.add(Fault(How.STATUS, operation="read", status=503))
    with pytest.raises(StorageError) as caught:
        store.download("k", tmp_path / "file")
    assert not isinstance(caught.value, ObjectNotFound)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"older"


def test_unwritable_disk_is_not_blamed_on_the_bucket(gcs_store, tmp_path):
    gcs_store.put("k", b"1")
    with pytest.raises(StorageError, match=r"copy gs://a-bucket/run/k to .*No such file"):
        gcs_store.download("k", tmp_path / "no folder" / "file")
    with pytest.raises(StorageError, match=r"cannot read .*missing"):
        gcs_store.upload(tmp_path / "missing", "k")


BIG = bytes(range(251)) * 40_000  # 10 MB: a resumable upload


@pytest.mark.parametrize(
    "fault",
    [
        Fault(How.DROP, When.BEFORE, "start", count=1),
        Fault(How.STATUS, When.AFTER, "start", count=1),
        Fault(How.DROP, When.AFTER, "chunk", count=2, skip=3),
        Fault(How.STATUS, When.BEFORE, "chunk", count=2, skip=3, status=502),
        Fault(How.DROP, When.AFTER, "chunk", count=1, skip=9),  # the last one: the object is there already
        Fault(How.SHORT, When.BEFORE, "chunk", count=1, skip=2),
        Fault(How.STATUS, When.BEFORE, "chunk", count=1, skip=4, status=410, reason="gone"),
        Fault(How.STATUS, When.BEFORE, "chunk", count=1, skip=4, status=404, message="No such upload session."),
        Fault(How.STATUS, When.BEFORE, "chunk", count=1, skip=9, status=400, message="CRC32C doesn't match"),
    ],
    ids=said,
)
def test_a_big_upload_survives(gcs, gcs_store, tmp_path, fault):
    (tmp_path / "file").write_bytes(BIG)
    gcs.faults.add(fault)
    gcs_store.upload(tmp_path / "file", "k")
    assert gcs.faults.listed()[0]["hit"] == fault.count
    assert content(gcs) == BIG
    gcs.faults.clear()
    gcs.faults.add(fault)
    assert gcs_store.create("big", BIG) == gcs_store.stat("big").version


def test_file_that_changes_during_a_chunked_upload_is_no_object(gcs_store, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"x" * len(BIG))
    of_file = Content.of_file

    def of_changing_file(path):
        before = of_file(path)
        path.write_bytes(b"y" * len(BIG))
        return before

    monkeypatch.setattr(Content, "of_file", staticmethod(of_changing_file))
    with pytest.raises(StorageError, match=r"file .*400"):
        gcs_store.upload(tmp_path / "file", "k")
    assert gcs_store.stat("k") is None


def test_an_upload_in_chunks_is_no_object_before_it_is_whole(gcs, open_gcs):
    store = open_gcs(total=0.2)
    gcs.faults.add(Fault(How.STATUS, When.BEFORE, "chunk", skip=5, status=503))
    with pytest.raises(StorageError):
        store.put("k", BIG)
    assert list(store.list()) == list(store.unfinished()) == []


def test_a_listing_goes_on_after_a_page_that_failed(gcs, gcs_store):
    for number in range(2500):
        gcs.objects.write("a-bucket", f"run/{number:04d}", b"")
    gcs.faults.add(Fault(How.STATUS, operation="list", count=2, skip=1, status=503))
    assert [info.key for info in gcs_store.list()] == [f"{number:04d}" for number in range(2500)]
    assert gcs.requests["list"] == 5
    with_start = list(gcs_store.list(start_after="1999"))
    assert [info.key for info in with_start] == [f"{number:04d}" for number in range(2000, 2500)]
    assert gcs.requests["list"] == 6  # none of the objects before was looked at


def test_a_server_that_is_gone_is_given_up_in_time(gcs, open_gcs):
    store = open_gcs(total=0.3)
    gcs.stop()
    for call in (lambda: store.get("k"), lambda: list(store.list()), lambda: store.create("k", b""), store.check):
        with pytest.raises(StorageError, match="is unreachable") as caught:
            call()
        assert caught.value.retryable
        assert "Check that a server runs at http://127.0.0.1" in caught.value.hint


def test_as_many_threads_as_a_worker_has_keep_their_connections(gcs_store, caplog):
    begin = threading.Barrier(40)

    def work(number: int) -> None:
        for turn in range(3):
            begin.wait()
            gcs_store.put(f"{number}/{turn}", b"1")

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(work, range(40)))
    assert caplog.records == []  # the client's own pool would say that it is full and throw connections away


def test_writes_and_reads_take_one_request_each(gcs, gcs_store):
    version = gcs_store.create("k", b"1")
    version = gcs_store.swap("k", b"2", version)
    gcs_store.put("new", b"3")
    gcs_store.fetch("k")
    gcs_store.stat("k")
    list(gcs_store.list())
    with pytest.raises(ObjectNotFound):
        gcs_store.get("missing")
    assert gcs.requests == {"write": 3, "read": 2, "stat": 1, "list": 1}
