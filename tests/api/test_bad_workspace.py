"""A workspace that cannot be used: exit 1 at once with what to do, and nothing half-published."""

import os
import shutil
import sys
from pathlib import Path

import bad_documents as bad
import pytest
from running import (
    FRUGAL,
    FRUGALLY,
    assert_nothing_half_published,
    cli,
    finished,
    in_own_mounts,
    program,
    published,
    said,
    status_of,
)

import llm_ocr
from llm_ocr.errors import WorkspaceError
from llm_ocr.stages import Silent

PAGES = 4


@pytest.fixture(scope="module")
def source(golden) -> Path:
    data = bad.text_pdf(*bad.good_pages("Report", PAGES))
    return golden("report-source", lambda folder: (folder / "report.pdf").write_bytes(data)) / "report.pdf"


@pytest.fixture(scope="module")
def made(golden, source) -> Path:
    """A finished workspace; tests that change it copy it."""

    def make(folder: Path) -> None:
        run = cli("run", source, "-w", "out", *FRUGAL, "--quiet", cwd=folder)
        assert run.returncode == 0, said(run)

    return golden("report", make) / "out"


@pytest.fixture
def copy(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def quoted(*arguments: str) -> str:
    """A shell's form of the command line that runs `llm-ocr`."""
    return " ".join(f"'{part}'" for part in program(*arguments))


@pytest.mark.slow
def test_run_ended_by_a_full_disk_continues_when_there_is_room(tmp_path, source):
    run = quoted("run", str(source), "-w", "disk/out", *FRUGAL, "--pages-per-unit", "1", "--quiet")
    script = f"""
        mkdir disk; mount -t tmpfs -o size=400k tmpfs disk
        {run} >first.out 2>first.err && echo 0 >first.rc || echo $? >first.rc
        cp -r disk/out after_first
        mount -o remount,size=100m disk
        {run} >second.out 2>second.err && echo 0 >second.rc || echo $? >second.rc
        cp -r disk/out out
    """
    done = in_own_mounts(script, cwd=tmp_path)
    assert done.returncode == 0, said(done)
    assert (tmp_path / "first.rc").read_text() == "1\n"
    message = (tmp_path / "first.err").read_text()
    assert "No space left on device" in message
    assert "run the same command again" in message
    assert_nothing_half_published(tmp_path / "after_first")
    before = published(tmp_path / "after_first")
    assert (tmp_path / "second.rc").read_text() == "0\n", (tmp_path / "second.err").read_text()
    assert before.items() <= published(tmp_path / "out").items()
    assert status_of(tmp_path / "out")["pages"] == {"expected": PAGES, "ok": PAGES, "degraded": 0, "failed": 0}


@pytest.mark.slow
def test_read_only_workspace_is_refused_before_reading(tmp_path, source, copy):
    (copy / "assemble").rename(tmp_path / "removed")
    before = published(copy)
    run = quoted("run", str(source), "-w", "out", *FRUGAL)
    script = f"mount --bind out out; mount -o remount,bind,ro out; {run}"
    done = in_own_mounts(script, cwd=tmp_path)
    assert done.returncode == 1, said(done)
    assert "read-only" in done.stderr.lower()
    assert "use a folder on another file system" in done.stderr
    assert "extract:" not in done.stderr
    assert published(copy) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path, source):
    (tmp_path / "closed").mkdir(mode=0o500)
    run = cli("run", source, "-w", "closed/out", *FRUGAL, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "Permission denied" in run.stderr


#: Answers links and locks as a mounted bucket does; the rest of the program is the real one.
_NO_LINKS = """
import errno, fcntl, os, sys
def refused(*_, **__):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
os.link = fcntl.flock = refused
from llm_ocr.cli import main
sys.exit(main())
"""


@pytest.mark.slow
def test_without_hard_links_one_worker_runs_and_flags_are_named(tmp_path, source):
    run = finished([sys.executable, "-c", _NO_LINKS, "run", str(source), "-w", "out", *FRUGAL], cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert "no hard links" in run.stderr
    assert "--shard-index and --shard-count" in run.stderr
    assert llm_ocr.open(tmp_path / "out").status.finished


def test_a_file_in_the_place_of_the_workspace_is_refused(tmp_path, source):
    (tmp_path / "out").write_text("mine")
    run = cli("run", source, "-w", "out", *FRUGAL, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    assert "out" in run.stderr
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.slow
def test_full_temporary_folder_is_named_with_a_fix(tmp_path, source):
    run = quoted("run", str(source), "-w", "out", *FRUGAL, "--quiet")
    done = in_own_mounts(f"mkdir small; mount -t tmpfs -o size=8k tmpfs small; TMPDIR=$PWD/small {run}", cwd=tmp_path)
    assert done.returncode == 1, said(done)
    assert f"a local disk is full, probably the disk of temporary files ({tmp_path}/small)" in done.stderr
    assert "set TMPDIR to a folder on a larger disk" in done.stderr


@pytest.mark.slow
def test_view_and_export_name_the_full_disk_and_the_way_out(made, tmp_path):
    site, table = quoted("view", "-w", str(made), "-o", "small/site"), quoted("export", "-w", str(made), "-o", "table")
    elsewhere = quoted("view", "-w", str(made), "-o", "site")
    script = f"""
        mkdir small; mount -t tmpfs -o size=64k tmpfs small; head -c 48k /dev/zero >small/filler
        {site} 2>site.err && exit 9
        TMPDIR=$PWD/small {elsewhere} 2>elsewhere.err && exit 9
        TMPDIR=$PWD/small {table} 2>table.err && exit 9
        true
    """
    done = in_own_mounts(script, cwd=tmp_path)
    assert done.returncode == 0, said(done)
    assert (
        "cannot write the site to small/site: No space left on device\nThe disk is full."
        in (tmp_path / "site.err").read_text()
    )
    for name in ("elsewhere.err", "table.err"):
        message = (tmp_path / name).read_text()
        assert str(tmp_path / "small") in message
        assert "set TMPDIR to a folder on a larger disk" in message


@pytest.mark.parametrize("during", ["extract", "assemble"])
def test_workspace_removed_during_use_ends_the_run_and_is_named(tmp_path, source, during):
    class Removing(Silent):
        def begin(self, stage, expected, done, estimated=False):
            if stage == during:
                shutil.rmtree(tmp_path / "w")

    with pytest.raises(WorkspaceError, match=r"/w was removed during use"):
        llm_ocr.run(source, workspace=tmp_path / "w", progress=Removing(), **FRUGALLY)
