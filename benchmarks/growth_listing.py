"""Listing very many documents by the library's own code: of a folder, of a bucket; time, memory, the first document.

Each step is a process of its own, as in plans.py, which does what comes after: cutting, planning again, status.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import plans
from growth_requests import BUCKET, CREDENTIALS, listing

from llm_ocr.documents.remote.urls import RemoteOptions
from llm_ocr.documents.sources import find_documents
from llm_ocr.storage import StoreOptions

#: Bytes of memory that a step may take, at most, whatever the number of documents, and for each of them.
ALLOWED = 64 << 20
ALLOWED_EACH = {"list_folder": 16, "list_flat_folder": 32, "list_bucket": 16, "assemble_start": 160}
ALLOWED_EACH_OTHERWISE = 64
_IN_A_FOLDER = 10_000


def name_of(number: int) -> str:
    """Its key in the bucket, and its path in the folder."""
    return f"{number // _IN_A_FOLDER:05d}/{number:09d}-some-report.pdf"


def make_folder(folder: Path, count: int, *, flat: bool = False) -> None:
    """So many names of one small PDF: to list them each is opened, and they need not differ."""
    folder.mkdir(parents=True)
    content = folder.parent / f"{folder.name}.one"
    content.write_bytes(b"%PDF-1.4\n%%EOF\n")
    for number in range(count):
        path = folder / (Path(name_of(number)).name if flat else name_of(number))
        if not number % _IN_A_FOLDER:
            path.parent.mkdir(exist_ok=True)
        os.link(content, path)
    content.unlink()


def measured(count: int, scratch: Path) -> dict[str, Any]:
    """All ways to list so many documents, then all that is done with a plan of them."""
    found: dict[str, Any] = {"documents": count}
    for name, flat in (("list_folder", False), ("list_flat_folder", True)):
        make_folder(scratch / name, count, flat=flat)
        found[name] = _in_process(_listed, [str(scratch / name)], None)
        _remove(scratch / name)
        _say(count, name, found[name])
    with listing(count, name_of) as url:
        found["list_bucket"] = _in_process(_listed, [f"s3://{BUCKET}/"], url)
        _say(count, "list_bucket", found["list_bucket"])
    found |= plans.measured(count, scratch / "planned")
    found["bounded"] = {name: _bounded(name, step, count) for name, step in found.items() if isinstance(step, dict)}
    found["wrong"] = sorted(name for name, fits in found["bounded"].items() if not fits)
    return found


def _bounded(name: str, step: dict[str, Any], count: int) -> bool:
    allowed = ALLOWED + count * ALLOWED_EACH.get(name, ALLOWED_EACH_OTHERWISE)
    return bool(step["peak_growth_mib"] * 2**20 <= allowed)


def _listed(sources: list[str], endpoint: str | None, answer: Any) -> None:
    """In a process of its own: every document, once."""
    with mock.patch.dict(os.environ, CREDENTIALS):
        next(iter(plans.documents(1)))
        options = RemoteOptions(StoreOptions(endpoint=endpoint))
        before, began, cpu = plans._peak(), time.perf_counter(), time.process_time()
        found = find_documents(sources, remote=options)
        first = time.perf_counter() - began
        count = sum(1 for _ in found.documents)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    growth = plans._peak() - before
    answer.send(
        {
            "documents": count,
            "to_first_s": round(first, 2),
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "peak_growth_mib": round(growth / 2**20, 1),
            "peak_growth_bytes_per_document": round(growth / count),
        }
    )


def _in_process(step: Any, *arguments: Any) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")  # its memory is its own
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=step, args=(*arguments, theirs))
    process.start()
    theirs.close()
    answer: dict[str, Any] = ours.recv()
    process.join()
    return answer


def _remove(folder: Path) -> None:
    for below in _folders(folder):
        for entry in os.scandir(below):
            if not entry.is_dir():
                Path(entry.path).unlink()
        below.rmdir()


def _folders(folder: Path) -> Iterable[Path]:
    yield from sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()
    yield folder


def _say(count: int, name: str, step: dict[str, Any]) -> None:
    print(f"{count:>9,} {name:<17} {json.dumps(step)}", file=sys.stderr, flush=True)
