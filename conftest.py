"""Fixtures that many tests share."""

import asyncio
import fcntl
import gc
import inspect
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import running
from bad_documents import good_pages, text_pdf
from botocore.loaders import JSONFileLoader
from hypothesis import settings
from PIL import Image, ImageDraw, ImageFont
from shared_workers import THREAD as SHARED_WORKERS
from shared_workers import SharedWorkers

# Wall-clock times are never asserted: the machine may be busy. `make check` uses `--hypothesis-profile many`.
settings.register_profile("few", deadline=None, max_examples=25)
settings.register_profile("many", deadline=None, max_examples=300)
settings.load_profile("few")

# Every process of a session imports all test files: a third of the time with a cache, PYTHONDONTWRITEBYTECODE or not.
sys.dont_write_bytecode = False

#: Marks of tests that may take a long time.
_SLOW = ("slow", "long", "vllm")
#: Property of a test that took too long for `make test`: its processor time, in loops of `_loop_seconds`.
_TOO_SLOW = "too slow"
#: Seconds of a test that is a coroutine.
_LONGEST = 500.0

_REPOSITORY = Path(__file__).resolve().parent

#: Command of the vLLM that `make test-vllm` installs; LLM_OCR_TEST_VLLM names another such environment.
VLLM = Path(_REPOSITORY, os.environ.get("LLM_OCR_TEST_VLLM") or ".venv-vllm/bin/vllm")

#: Tools that some tests need and some machines lack, with the check for each.
_TOOLS: dict[str, Callable[[], bool]] = {
    "poppler": lambda: all(map(shutil.which, ("pdftoppm", "pdfinfo"))),
    "pdftotext": lambda: shutil.which("pdftotext") is not None,
    "chromium": lambda: any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    "vllm": VLLM.is_file,
    "azurite": lambda: shutil.which("azurite-blob") is not None,
}


@pytest.fixture(scope="session", autouse=True)
def shared_workers() -> Generator[SharedWorkers, None, None]:
    """Share worker processes among the tests of the session."""
    shared = SharedWorkers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # no test loses power, and a disk takes milliseconds
        # A client of AWS reads descriptions of up to a megabyte, and most tests open several sessions.
        description = cache(JSONFileLoader().load_file)
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: description(path))
        shared.install(patch.setattr)
        yield shared
        shared.end()


@pytest.fixture(scope="module", autouse=True)
def own_workers(request: pytest.FixtureRequest, shared_workers: SharedWorkers) -> Generator[None, None, None]:
    """Give the module's tests separate worker processes if the module sets OWN_WORKERS."""
    shared_workers.active = not getattr(request.module, "OWN_WORKERS", False)
    yield
    shared_workers.active = True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, and leave the million objects of it out of later ones."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Add the mark of tests whose packages take long to import, and let tests interrupt programs that they start."""
    config.addinivalue_line("markers", "needs(package, ...): skipped where one of the packages is not installed")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in background jobs of shells, and inherited by programs
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test without a package that it needs."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            pytest.importorskip(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that keeps `make test` quick."""
    words = "list tests without a mark that use more processor time than this number of calibration loops"
    parser.addoption("--most-loops", type=float, default=0.0, help=words)


@cache
def _loop_seconds() -> float:
    """Return the processor time of a loop that takes 0.1 s on the machine on which tests were marked.

    Limits are multiples of it, so that they mean the same on a machine half as fast. The minimum of three, because
    another process on the same core makes a loop slower, never faster.
    """

    def seconds() -> float:
        start, total = time.process_time(), 0
        for number in range(1_800_000):
            total += number * number & 7
        return time.process_time() - start

    return min(seconds() for _ in range(3))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run tests that are coroutines, and note a test that is too slow for `make test`, without failing it."""
    if inspect.iscoroutinefunction(test := pyfuncitem.obj):
        pyfuncitem.obj = lambda **named: asyncio.run(asyncio.wait_for(test(**named), _LONGEST))
    most = pyfuncitem.config.getoption("--most-loops")
    if not most or any(pyfuncitem.get_closest_marker(mark) for mark in _SLOW):
        return (yield)
    loop = _loop_seconds()
    shared = pyfuncitem.funcargs["shared_workers"]
    ending, ended = shared.ending, shared.ended
    before = _processor_seconds()
    result = yield
    loops = (_processor_seconds() - before) / loop
    if loops > most and not ending and shared.ended == ended:  # the time of a shared worker counts at its end
        pyfuncitem.user_properties.append((_TOO_SLOW, round(loops)))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that are too slow for `make test`."""
    found = [
        (loops, report.nodeid)
        for report in terminalreporter.getreports("passed")
        for name, loops in report.user_properties
        if name == _TOO_SLOW
    ]
    if found:
        terminalreporter.section("tests to make cheaper, or to mark slow")
        for loops, test in sorted(found, reverse=True):
            terminalreporter.write_line(f"{test}: {loops} loops of processor time")


def _processor_seconds() -> float:
    """Return the processor time of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Kill the processes that a failed test has started; servers and workers end with their client."""
    begun: list[subprocess.Popen[bytes]] = []
    older = multiprocessing.active_children()
    real = subprocess.Popen.__init__

    def noted(process: "subprocess.Popen[bytes]", *args: Any, **options: Any) -> None:
        real(process, *args, **options)
        if threading.current_thread().name != SHARED_WORKERS:  # other tests use those, too
            begun.append(process)

    try:
        with mock.patch.object(subprocess.Popen, "__init__", noted):
            return (yield)
    except BaseException:
        for process in begun:
            if process.poll() is None:
                process.kill()
        for child in multiprocessing.active_children():
            if child not in older:
                child.kill()
        raise


@pytest.fixture(scope="module", autouse=True)
def fresh_aws() -> None:
    """Reset moto, whose servers in one process share one state, after tests of other files."""
    if "moto" in sys.modules:
        from moto.moto_api._internal import moto_api_backend

        moto_api_backend.reset()


def need(name: str, required: str) -> None:
    """Skip the test without the tool `name`; fail the test if `required`, names with commas, contains the name."""
    if _TOOLS[name]():
        return
    if name in {tool.strip() for tool in required.split(",")}:
        pytest.fail(f"{name} is not installed, and LLM_OCR_REQUIRE names it", pytrace=False)
    pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def require() -> Callable[[str], None]:
    """Return `require`: `require("poppler")` skips without the tool; LLM_OCR_REQUIRE=poppler makes this a failure."""
    return lambda name: need(name, os.environ.get("LLM_OCR_REQUIRE", ""))


@pytest.fixture(scope="session")
def browser(require, tmp_path_factory) -> Generator[Any, None, None]:
    """Yield Chromium, a `Browser` of viewer_browser.py, which loads pages of this machine."""
    from viewer_browser import Browser

    require("chromium")
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="session")
def vllm(require) -> Path:
    """Return the command of a vLLM that runs on the CPU; skip without one."""
    require("vllm")
    return VLLM


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the checkout."""
    return _REPOSITORY


@pytest.fixture(scope="session")
def golden(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Return `golden(name, make)`: the folder that `make(folder)` filled, once for all processes of the session.

    Tests that change it work on a copy.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "golden"
    root.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # from a test in another process that failed in the middle
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def paper_workspace(golden, examples: Path) -> Path:
    """Return a finished workspace of the paper; tests copy it before a change."""

    def make(folder: Path) -> None:
        command = ["run", str(examples / "paper.pdf"), "-w", "out", *running.FRUGAL]
        assert running.cli(*command, cwd=folder).returncode == 0

    return golden("paper", make) / "out"


@pytest.fixture(scope="session")
def small_examples(golden) -> Path:
    """Return small documents with the names of the examples, for tests that need any documents."""

    def make_them(folder: Path) -> None:
        (folder / "paper.pdf").write_bytes(text_pdf(*good_pages("the paper", 3)))
        for name, text in (("invoice.png", "Invoice of Quarrel"), ("fax.tiff", "This is a fax message")):
            image = Image.new("L", (400, 120), 255)
            ImageDraw.Draw(image).text((20, 40), text, fill=0, font=ImageFont.load_default(32))
            image.save(folder / name)

    return golden("small examples", make_them)


@pytest.fixture(scope="session")
def digital(golden) -> Path:
    """Return `one.pdf` and `two.pdf`, with as many pages: their text layer is read without the seconds of OCR."""

    def make_them(folder: Path) -> None:
        for count, name in ((1, "one"), (2, "two")):
            (folder / f"{name}.pdf").write_bytes(text_pdf(*good_pages(name, count)))

    return golden("digital", make_them)


@pytest.fixture(scope="session")
def examples() -> Path:
    """Return the documents that the project ships."""
    return _REPOSITORY / "examples"


@pytest.fixture(scope="session")
def shared_pdfs() -> Path:
    """Return real documents that exist next to the checkout on some machines, but are never part of the project."""
    folder = _REPOSITORY.parent / "shared" / "data" / "pdfs"
    if not folder.is_dir():
        pytest.skip("no folder shared/data/pdfs beside the checkout")
    return folder
