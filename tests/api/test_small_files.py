"""Small files are opened a few to a request when a plan is made, and each still ends in a way of its own."""

import asyncio
import gc
import shutil
import sys
from collections import Counter
from pathlib import Path

import bad_documents as bad
import pytest

import llm_ocr
from llm_ocr.documents.open_fd import version_of
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.documents.sources import find_documents
from llm_ocr.errors import WorkerDied
from llm_ocr.results.quality.worker import MODULE
from llm_ocr.sandbox.pool import WorkerPool, _Worker
from llm_ocr.stages import counting
from llm_ocr.stages.counting import PageCounter, in_order
from llm_ocr.types import Reason
from llm_ocr.workspace.planned import DiskDict

#: Open files and worker processes are counted here.
OWN_WORKERS = True


@pytest.fixture
def asked(monkeypatch) -> Counter[str]:
    """How many requests workers got, by operation; "dies": those of these operations end with their worker's death."""
    found: Counter[str] = Counter()
    call = WorkerPool.call

    async def counting(self, operation, payload, **options):
        found[operation] += 1
        if found["dies"] and operation == "open_all":
            raise WorkerDied("ended with code -11")
        return await call(self, operation, payload, **options)

    monkeypatch.setattr(WorkerPool, "call", counting)
    return found


@pytest.fixture
def folder(examples, tmp_path) -> Path:
    """Twelve documents of nine pages, a damaged one, an encrypted one, and one that is no document within."""
    data = (examples / "paper.pdf").read_bytes()
    for number in range(12):
        (tmp_path / f"{number:02d}.pdf").write_bytes(data + b"\n%% %d\n" % number)
    (tmp_path / "05-damaged.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    (tmp_path / "06-empty.pdf").write_bytes(b"")
    (tmp_path / "07-locked.pdf").write_bytes(bad.text_pdf(["closed"], password="secret"))
    shutil.copy(tmp_path / "00.pdf", tmp_path / "08-copy.pdf")
    return tmp_path


def planned(folder: Path, gone: str = "", **options):
    async def main():
        async with Renderer(RenderOptions(workers=1)) as renderer:
            counter = PageCounter(renderer, None, **options)
            documents = list(find_documents([str(folder)]).documents)
            if gone:
                (folder / gone).unlink()
            return [one async for one in in_order(documents, counter.one)]

    return {Path(one.source).name: one for one in asyncio.run(main())}


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


@pytest.mark.parametrize("dies", [False, True])
def test_each_of_them_has_its_own_end(folder, asked, dies):
    asked["dies"] = dies
    before = opened()
    found = planned(folder, gone="11.pdf")
    reasons = {name: one.reason for name, one in found.items() if one.reason}
    assert reasons == {
        "05-damaged.pdf": Reason.UNREADABLE,
        "06-empty.pdf": Reason.UNREADABLE,
        "07-locked.pdf": Reason.ENCRYPTED,
        "11.pdf": Reason.NOT_FOUND,
    }
    good = {name: one for name, one in found.items() if not one.reason}
    assert {one.page_total for one in good.values()} == {good["00.pdf"].page_total} and len(good) == 12
    assert all(one.version == version_of(folder / name) for name, one in found.items() if name != "11.pdf")
    assert opened() <= before  # fewer where another test's servers close theirs meanwhile
    if not dies:
        assert asked["open"] == 0
        assert asked["open_all"] <= len(found) / 2


def test_content_that_is_known_is_not_opened(folder, asked):
    totals = {version_of(file): 3 for file in folder.iterdir()}
    found = planned(folder, totals=totals)
    assert {one.page_total for one in found.values()} == {3}
    assert asked.total() == 0


def test_a_command_that_ends_prints_no_error_of_counting(folder):
    async def main() -> list[str]:
        messages: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(context["message"]))
        totals = DiskDict()
        async with Renderer(RenderOptions(workers=1)) as renderer:
            counter = PageCounter(renderer, None, totals=totals)
            count = asyncio.create_task(counter.one(next(find_documents([str(folder)]).documents)))
            await asyncio.sleep(0)
            totals.close()  # as at the end of planning
            count.cancel()
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
            del count
            gc.collect()
        return messages

    assert asyncio.run(main()) == []


def test_large_files_are_opened_one_by_one(folder, asked, monkeypatch):
    monkeypatch.setattr(counting, "_SMALL", 100)
    found = planned(folder)
    assert asked["open"] >= 12
    assert sum(not one.reason for one in found.values()) == 13


@pytest.mark.slow
def test_planning_and_reading_share_their_processes(digital, tmp_path, monkeypatch):
    modules, start = [], _Worker.start
    monkeypatch.setattr(_Worker, "start", lambda module, *others: modules.append(module) or start(module, *others))
    llm_ocr.extract(digital / "one.pdf", workspace=tmp_path / "w", engine="embedded")
    assert Counter(modules) == {MODULE: 1, "llm_ocr_cpu.worker": 1}
