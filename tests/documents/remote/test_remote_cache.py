"""Local copies are fetched once, stay during use, keep the limit of bytes, and are removed at the end."""

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from store_doubles import Buckets, Passing, copies, opened, used, version_of
from web_servers import PDF, failing, remote, sending, serving

from llm_ocr.documents.remote.cache import DiskError, store_version
from llm_ocr.errors import PageFailure, StorageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Reason

MEGABYTE = 1 << 20


@pytest.fixture
def buckets(tmp_path):
    return Buckets(tmp_path / "buckets")


async def test_concurrent_pages_share_a_fetch(buckets, tmp_path):
    url = buckets.put("s3://bucket/a/b.pdf")

    async def page(documents, version):
        async with documents.open(url, version) as copy:
            await asyncio.sleep(0.01)
            return copy.path, copy.path.read_bytes()

    async with opened(buckets, tmp_path) as planning:
        version = await version_of(planning, url)
    before = buckets.opened["s3://bucket"].calls["read"]
    async with opened(buckets, tmp_path) as documents:
        results = await asyncio.gather(*(page(documents, version) for _ in range(50)))
        results.append(await page(documents, version))  # and the next one finds it there
    assert len(set(results)) == 1
    assert results[0][1] == b"%PDF-1.5 x"
    assert buckets.opened["s3://bucket"].calls["read"] == before + 1


async def test_document_fetched_by_planning_is_not_fetched_again(buckets, tmp_path):
    url = buckets.put("s3://bucket/a.pdf")

    async with opened(buckets, tmp_path) as documents:
        version = await version_of(documents, url)
        async with documents.open(url, version) as copy:
            assert copy.version == version
    assert buckets.opened["s3://bucket"].calls["read"] == 1


async def test_the_least_recently_used_goes_when_the_bytes_are_spent(buckets, tmp_path):
    urls = [buckets.put(f"s3://bucket/{name}.pdf", bytes(MEGABYTE)) for name in "abcd"]

    async with opened(buckets, tmp_path, cache_bytes=3 * MEGABYTE) as documents:
        versions = {url: await version_of(documents, url) for url in urls[:3]}
        async with documents.open(urls[0], versions[urls[0]]):
            pass  # opening it makes it the newest, and b the oldest
        await version_of(documents, urls[3])
        assert used(documents) == 3 * MEGABYTE
        assert sum(path.stat().st_size for path in copies(tmp_path)) == 3 * MEGABYTE
        calls = buckets.opened["s3://bucket"].calls
        before = calls["read"]
        for url in (urls[0], urls[2]):
            async with documents.open(url, versions[url]):
                pass
        assert calls["read"] == before
        async with documents.open(urls[1], versions[urls[1]]) as copy:
            assert copy.path.stat().st_size == MEGABYTE
        assert calls["read"] == before + 1


async def test_many_readers_stay_within_limit_and_get_their_documents(buckets, tmp_path):
    urls = {buckets.put(f"s3://bucket/{n}.pdf", bytes([n]) * 100_000): bytes([n]) * 100_000 for n in range(40)}
    most = []

    async def reader(documents, url):
        async with documents.open(url) as copy:
            await asyncio.sleep(0.001)
            most.append(sum(path.stat().st_size for path in copies(tmp_path)))
            return copy.path.read_bytes() == urls[url]

    async with opened(buckets, tmp_path, cache_bytes=500_000) as documents:
        wanted = [url for url in urls for _ in range(3)]
        results = await asyncio.gather(*(reader(documents, url) for url in wanted))
        assert used(documents) <= 500_000
    assert all(results)
    assert max(most) <= 500_000


async def test_a_document_in_use_is_not_evicted_and_others_wait_for_it(buckets, tmp_path):
    one, two = (buckets.put(f"s3://bucket/{name}.pdf", bytes(MEGABYTE)) for name in "ab")

    async with opened(buckets, tmp_path, cache_bytes=MEGABYTE) as documents:
        async with documents.open(one) as copy:
            waiting = asyncio.create_task(version_of(documents, two))
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
            assert copy.path.exists()
        assert await waiting
        assert len(copies(tmp_path)) == 1


async def test_a_document_larger_than_the_limit_is_read_alone(buckets, tmp_path):
    small, large = buckets.put("s3://bucket/a.pdf", bytes(10)), buckets.put("s3://bucket/b.pdf", bytes(MEGABYTE))

    async with opened(buckets, tmp_path, cache_bytes=1000) as documents:
        await version_of(documents, small)
        async with documents.open(large) as copy:
            assert copy.path.stat().st_size == MEGABYTE
            assert len(copies(tmp_path)) == 1
        assert await version_of(documents, small)
        assert used(documents) == 10


async def test_canceled_reader_does_not_end_the_fetch_of_another(tmp_path):
    reading, go_on = threading.Event(), threading.Event()

    def held(call, key):
        if call == "read":
            reading.set()
            go_on.wait(30)

    buckets = Buckets(tmp_path / "buckets", held)
    url = buckets.put("s3://bucket/a.pdf")

    async with opened(buckets, tmp_path) as documents:
        first, second = (asyncio.create_task(version_of(documents, url)) for _ in range(2))
        assert await asyncio.to_thread(reading.wait, 30)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        go_on.set()
        assert await second
        assert buckets.opened["s3://bucket"].calls["read"] == 1


def test_nothing_is_left_at_the_end(buckets, tmp_path):
    async def run():
        async with opened(buckets, tmp_path) as documents:
            await version_of(documents, buckets.put("s3://bucket/a.pdf"))
            assert len(copies(tmp_path)) == 1
        assert list((tmp_path / "copies").iterdir()) == []

    async def forgotten():
        await version_of(opened(buckets, tmp_path), buckets.put("s3://bucket/a.pdf"))

    asyncio.run(run())
    asyncio.run(forgotten())
    for _ in range(100):  # the thread of the last download may hold the object for a moment
        gc.collect()
        if not list((tmp_path / "copies").iterdir()):
            break
        time.sleep(0.05)
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.slow
def test_download_that_hangs_does_not_delay_the_end(tmp_path):
    program = (
        "import os, pathlib, signal, sys, time\n"
        "from store_doubles import Buckets, opened, version_of\n"
        "from llm_ocr.stages.loop import run_blocking\n"
        "def hang(call, key):\n"
        "    if call == 'read':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(600)\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "buckets = Buckets(folder / 'buckets', hang)\n"
        "url = buckets.put('s3://bucket/a.pdf')\n"
        "async def run():\n"
        "    async with opened(buckets, folder) as documents:\n"
        "        await version_of(documents, url)\n"
        "run_blocking(run)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert "stopped by SIGINT" in ended.stderr
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.slow
def test_files_of_dead_processes_are_removed_and_live_ones_stay(tmp_path):
    program = (
        "import sys, pathlib\n"
        "from llm_ocr.documents.remote.cache import COPIES\n"
        "from llm_ocr.storage.own_folder import OwnFolder\n"
        "folder = OwnFolder(COPIES, pathlib.Path(sys.argv[1]))\n"
        "(folder.path / 'a.pdf').write_bytes(b'x')\n"
        "print(folder.path.name, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    names = [process.stdout.readline().strip() for process in processes]
    dead, ended, living = processes
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    ended.communicate()
    another = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = another.stdout.readline().strip()
    assert {path.name for path in tmp_path.iterdir()} == {names[2], name}
    living.communicate()
    another.communicate()
    assert list(tmp_path.iterdir()) == []


async def test_web_documents_count_by_their_actual_size(tmp_path):
    pages = {f"/{number}.pdf": sending(PDF + bytes(300_000)) for number in range(12)}

    async def one(documents, url):
        async with documents.open(url) as copy:
            return copy.path.stat().st_size

    async with serving(pages) as server, remote(tmp_path / "copies", cache_bytes=2 * MEGABYTE) as documents:
        sizes = await asyncio.gather(*(one(documents, server.url + page) for page in pages))
        assert len(set(sizes)) == 1
        assert used(documents) == sum(path.stat().st_size for path in copies(tmp_path)) <= 2 * MEGABYTE


@pytest.mark.parametrize("seed", range(4))
async def test_readers_failing_at_random_leave_no_count_or_file(tmp_path, seed):
    chance = random.Random(seed)

    def trouble(call, key):
        time.sleep(chance.random() * 0.002)
        if call == "read" and chance.random() < 0.1:
            raise Passing("no luck")

    buckets = Buckets(tmp_path / "buckets", trouble)
    data = {
        buckets.put(f"s3://bucket/{n}.pdf", bytes([n]) * (n * 10_000)): bytes([n]) * (n * 10_000) for n in range(15)
    }

    async def reader(documents, url):
        async with documents.open(url, versions.get(url, "")) as copy:
            versions[url] = copy.version
            await asyncio.sleep(chance.random() * 0.005)
            assert copy.path.read_bytes() == data[url]

    versions: dict[str, str] = {}
    async with opened(buckets, tmp_path, cache_bytes=300_000, fetches=3, pause=0.001) as documents:
        tasks = []
        for _ in range(150):
            tasks.append(asyncio.create_task(reader(documents, chance.choice(list(data)))))
            await asyncio.sleep(chance.random() * 0.003)
            if chance.random() < 0.4:
                chance.choice(tasks).cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [one for one in results if isinstance(one, Exception)]
        assert {type(one) for one in errors} <= {PageFailure}
        for _ in range(3000):  # abandoned copies end without a waiting reader
            if used(documents) == sum(path.stat().st_size for path in copies(tmp_path)):
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("bytes are counted that are not there, or the other way round")
        assert used(documents) <= 300_000


async def test_changed_object_is_source_changed_and_missing_not_found(buckets, tmp_path):
    url = buckets.put("s3://bucket/a.pdf")

    async def reason_for(version):
        async with opened(buckets, tmp_path) as documents:
            return (await failing(documents, url, version)).reason

    async with opened(buckets, tmp_path) as documents:
        version = await version_of(documents, url)
    buckets.put(url, b"%PDF-1.5 y and more")
    assert await reason_for(version) is Reason.SOURCE_CHANGED
    (tmp_path / "buckets/s3/bucket/a.pdf").unlink()
    assert await reason_for(version) is Reason.NOT_FOUND
    assert await reason_for("") is Reason.NOT_FOUND


@pytest.mark.parametrize("content", [b"%PDF-1.5 z", b"%PDF", b"%PDF-1.5 longer"])
@pytest.mark.parametrize("piece", [4, 1000])
async def test_object_that_changes_during_the_read_fails(tmp_path, monkeypatch, piece, content):
    monkeypatch.setattr("llm_ocr.documents.remote.listing._PIECE", piece)

    def change(call, key):
        if call == "read":
            buckets.put(url, content)

    buckets = Buckets(tmp_path / "buckets", change)
    url = buckets.put("s3://bucket/a.pdf")

    async with opened(buckets, tmp_path) as documents:
        assert (await failing(documents, url)).reason is Reason.SOURCE_CHANGED
        assert copies(tmp_path) == []
        assert used(documents) == 0


@pytest.mark.parametrize(
    ("error", "requests", "passes"), [(StorageError, 1, False), (Passing, 5, False), (Passing, 2, True)]
)
async def test_object_refused_alone_fails_and_transient_errors_retry(tmp_path, error, requests, passes):
    left, reads = [True] * (1 if passes else 99), []

    def refusing(call, key):
        if call == "read":
            reads.append(key)
            if key == "a.pdf" and left:
                left.pop()
                raise error("no luck")

    buckets = Buckets(tmp_path / "buckets", refusing)
    url = buckets.put("s3://bucket/a.pdf")
    buckets.put("s3://bucket/b.pdf")  # which can be read

    async with opened(buckets, tmp_path) as documents:
        if passes:
            assert await version_of(documents, url)
        else:
            for _ in range(3):  # all pages of the document; its server is asked for the first alone
                failure = await failing(documents, url)
                assert failure.reason is Reason.UNREADABLE
                assert "no luck" in failure.detail
        assert sum(read == "a.pdf" for read in reads) == requests


@pytest.mark.parametrize(("error", "requests"), [(StorageError, 1), (Passing, 4)])
@pytest.mark.parametrize("was_readable", [True, False])
async def test_store_that_serves_no_object_ends_the_run(tmp_path, was_readable, error, requests):
    reads = []

    def refusing(call, key):
        if call == "read" and error_now:
            reads.append(key)
            raise error("expired")

    buckets = Buckets(tmp_path / "buckets", refusing)
    urls = [buckets.put(f"s3://bucket/{name}.pdf") for name in "ab"]
    error_now = False
    async with opened(buckets, tmp_path) as documents:
        if was_readable:
            await version_of(documents, urls[0])
        error_now = True
        with pytest.raises(error, match="expired"):
            await version_of(documents, urls[1])
        assert reads.count("b.pdf") == requests


async def test_missing_objects_fail_alone_where_lists_are_refused(tmp_path, monkeypatch):
    def refusing(call, key):
        if call == "list" or key.startswith("gone"):
            raise StorageError("403")

    buckets = Buckets(tmp_path / "buckets", refusing)
    gone = [buckets.put(f"s3://bucket/gone-{number}.pdf") for number in range(5)]
    url = buckets.put("s3://bucket/a.pdf")
    async with opened(buckets, tmp_path) as documents:
        for missing in gone[:4]:
            assert (await failing(documents, missing)).reason is Reason.UNREADABLE
        with pytest.raises(StorageError, match="403"):
            await version_of(documents, gone[4])
        await version_of(documents, url)
        assert (await failing(documents, gone[4])).reason is Reason.UNREADABLE


async def test_a_url_that_names_no_object_fails_alone(buckets, tmp_path):
    buckets.put("s3://bucket/readable.pdf")
    async with opened(buckets, tmp_path) as documents:
        for url in ("s3://", "hf://owner/name/a.pdf", "s3://bucket/../a.pdf"):
            assert (await failing(documents, url)).reason is Reason.UNREADABLE


async def test_documents_are_read_in_pieces_that_are_joined_right(buckets, tmp_path, monkeypatch):
    monkeypatch.setattr("llm_ocr.documents.remote.listing._PIECE", 7)
    data = os.urandom(100)
    urls = [buckets.put("gs://bucket/a.pdf", data), buckets.put("hf://datasets/o/n@main/empty.pdf", b"")]

    documents = opened(buckets, tmp_path)
    async with documents, documents.open(urls[0]) as one, documents.open(urls[1]) as two:
        assert (one.path.read_bytes(), two.path.read_bytes()) == (data, b"")
    assert set(buckets.opened) == {"gs://bucket", "hf://datasets/o/n@main"}


async def test_a_full_disk_is_no_fault_of_the_document(buckets, tmp_path):
    url = buckets.put("s3://bucket/a.pdf")

    async with opened(buckets, tmp_path) as documents:
        await version_of(documents, buckets.put("s3://bucket/b.pdf"))
        (folder,) = (tmp_path / "copies").iterdir()
        moved = folder.rename(tmp_path / "copies" / "away")
        with pytest.raises(DiskError) as caught:
            await version_of(documents, url)
        assert str(folder) in str(caught.value)
        moved.rename(folder)
        assert await version_of(documents, url)


def test_equal_tokens_mean_copies_only_if_made_from_content():
    def versions(root):
        return {store_version(f"{root}/{key}", ObjectInfo(key, 5, "token")) for key in ("a.pdf", "b.pdf")}

    assert len(versions("s3://bucket")) == 1
    assert len(versions("gs://bucket")) == 2
