"""A small run on any store, in this process or in one that dies at a write; and workers whose waits are short."""

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

from fault_engine import quick_engine
from fault_places import Place

import llm_ocr
from llm_ocr.scheduling.leases import Leases
from llm_ocr.stages import sharing
from llm_ocr.storage import ObjectStore
from tests.fakes.crash import KILLED, CrashPoint, When, crashing, die_by_exit

#: So much faster the clock of the leases runs: their 300 seconds are 0.15.
_BRISK = 2000

#: What a process of a run imports, once for all of them.
_PRELOAD = [
    *("llm_ocr.api", "llm_ocr.stages.assemble", "tests.fakes.crash", "llm_ocr.storage.s3"),
    *("llm_ocr.storage.gcs.store", "llm_ocr.storage.hf.dataset", "boto3", "botocore.handlers"),
    *("huggingface_hub.hf_api", "pyarrow.parquet", "PIL.PngImagePlugin", "PIL.ImageDraw", "PIL.ImageFont"),
    *("aiohttp", "datasets", "_strptime"),
]

Wrap = Callable[[ObjectStore], ObjectStore]


def same(store: ObjectStore) -> ObjectStore:
    """The store as it is."""
    return store


def pipeline(place: Place, documents: Path, wrap: Wrap = same) -> None:
    """Plan, extract, describe, assemble, each as the command of that name does it. One page a unit."""
    with plan_and_extract(place, documents, wrap) as extract:
        extract()
        llm_ocr.describe(engine="embedded", **place.keywords, **place.sharing)
        llm_ocr.assemble(**place.keywords)


@contextlib.contextmanager
def plan_and_extract(place: Place, documents: Path, wrap: Wrap = same) -> Iterator[Callable[[], object]]:
    """Plan; then inside the block, where engine and leases are quick, the function that extracts."""
    with (
        place.entered(),
        quick_engine(),
        brisk_leases(),
        mock.patch("llm_ocr.workspace.open_store", _opener(place, wrap)),
    ):
        llm_ocr.plan(documents, pages_per_unit=1, engine="embedded", **place.keywords)
        yield lambda: llm_ocr.extract(engine="embedded", **place.keywords, **place.sharing)


def _opener(place: Place, wrap: Wrap) -> Callable[..., ObjectStore]:
    """Opens the workspace's store, the same for all stages: what it costs to connect is not what is tested."""
    store = wrap(place.store())
    return lambda url, options: store


@contextlib.contextmanager
def brisk_leases() -> Iterator[None]:
    """Leases run out, and pauses end, after a fraction of their time."""
    made, followed = Leases.__init__, sharing.followed

    def init(self, *args, clock=lambda: time.monotonic() * _BRISK, **other):
        made(self, *args, clock=clock, **other)

    def brisk(taking, ready, pauses, wait, grown):
        return followed(taking, ready, pauses, lambda seconds: wait(seconds / _BRISK), grown)

    with mock.patch.object(Leases, "__init__", init), mock.patch.object(sharing, "followed", brisk):
        yield


def boundaries(place: Place, documents: Path, wrap: Wrap = same) -> list[str]:
    """The writes of a run that nobody disturbs, in their order."""
    point = CrashPoint()
    pipeline(place, documents, lambda store: wrap(crashing(store, point)))
    return point.seen


def dies_at(place: Place, documents: Path, at: int, when: When, wrap: Wrap = same) -> bool:
    """Whether a process of its own was killed at that write; False when it came to its end before."""
    code = ended(started(_run_until, place, documents, at, when, wrap))
    assert code in (0, KILLED), f"the worker ended with {code}, not at write {at}"
    return code == KILLED


def _run_until(place: Place, documents: Path, at: int, when: When, wrap: Wrap) -> None:
    point = CrashPoint(at, when, die_by_exit)
    pipeline(place, documents, lambda store: wrap(crashing(store, point)))


def context() -> ForkServerContext:
    """Where processes come from, and what they share with the test's: `context().Event()`."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(_PRELOAD)
    return found


def started(target: Callable[..., object], *args: object) -> BaseProcess:
    """A process that calls `target`, which must be importable, and exits with what it returns if that is a number.

    It is forked from one that has imported everything and does nothing, so it begins in some milliseconds.
    """
    process = context().Process(target=_called, args=(target, *args), daemon=True)
    process.start()
    return process


def _called(target: Callable[..., object], *args: object) -> None:
    code = target(*args)
    if isinstance(code, int):
        sys.exit(code)


def ended(process: BaseProcess, seconds: float = 120.0) -> int | None:
    """Its exit code, as `multiprocessing` gives it; one that does not end is killed."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode
