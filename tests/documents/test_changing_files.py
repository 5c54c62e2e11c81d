"""A file that changes while its pages are made: no page is of another version than the one that was planned."""

import asyncio
import hashlib
import os
import resource
import time

import pytest
from pdf_writing import pages, text

from llm_ocr.documents.open_fd import Proofs, given_all
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure
from llm_ocr.stages.rendering import PartRenderer, Remote
from llm_ocr.types import DocumentPart, Reason


def _overwrite(path, other, _):
    path.write_bytes(other)


def _overwrite_and_set_the_time_back(path, other, about):
    path.write_bytes(other)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def _cut(path, other, _):
    os.truncate(path, len(other) // 2)


def _replace(path, other, _):
    beside = path.with_suffix(".new")
    beside.write_bytes(other)
    beside.replace(path)


def _pages(path, change, old):
    """Of page 1, made while the file changes, and of page 2 after that: the text, or why there is no page."""

    async def both():
        async with Renderer(RenderOptions(workers=1)) as renderer:
            ask, changes = renderer._pool.call, [change]

            async def changing(*arguments, **named):
                while changes:
                    changes.pop()()  # a worker has been handed the descriptor, and has not read yet
                return await ask(*arguments, **named)

            renderer._pool.call = changing
            maker = PartRenderer(renderer, Remote(None))
            part = DocumentPart("d", str(path), path.name, hashlib.sha256(old).hexdigest(), (1, 2), 2, 0)
            found = []
            for number in part.pages:
                try:
                    page = await maker.page(part, number)
                    found.append(" ".join(line.text for line in page.content.lines))
                except PageFailure as failure:
                    found.append(failure.reason)
            return found

    return asyncio.run(both())


CHANGES = [_overwrite, _overwrite_and_set_the_time_back, _cut]


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """A file for each change that was not written just now: proofs of new files are not kept."""
    folder = tmp_path_factory.mktemp("standing")
    for change in CHANGES:
        (folder / f"{change.__name__}.pdf").write_bytes(pages(text("older"), text("older")))
    time.sleep(2.1)  # the clock of a file system cannot be set
    return folder


@pytest.mark.parametrize("aged", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_file_gives_no_page_of_another_version(tmp_path, standing, change, aged):
    old, other = (pages(text(word), text(word)) for word in ("older", "newer"))
    assert len(old) == len(other)
    path = (standing if aged else tmp_path) / f"{change.__name__}.pdf"
    if not aged:
        path.write_bytes(old)
    about = path.stat()
    found = _pages(path, lambda: change(path, other, about), old)
    assert found == [Reason.SOURCE_CHANGED, Reason.SOURCE_CHANGED]


def test_page_is_made_of_verified_file_when_path_is_replaced(tmp_path):
    old, other = (pages(text(word), text(word)) for word in ("older", "newer"))
    path = tmp_path / "a.pdf"
    path.write_bytes(old)
    assert _pages(path, lambda: _replace(path, other, None), old) == ["older", Reason.SOURCE_CHANGED]


def test_a_file_that_is_only_touched_is_read(tmp_path):
    old = pages(text("older"), text("older"))
    path = tmp_path / "a.pdf"
    path.write_bytes(old)
    assert _pages(path, path.touch, old) == ["older", "older"]


@pytest.mark.parametrize("opens", [lambda path: Proofs().given(path), lambda path: given_all([path])])
async def test_limit_of_open_files_fails_no_document(tmp_path, opens):
    path = tmp_path / "a.pdf"
    path.write_bytes(b"%PDF-1.7")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(path, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            async with opens(str(path)):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
