"""The same pages read by N processes of T threads each: on the wall, and in processor time."""

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scanned_pages import Given


def measure(pages: Sequence[Given], scratch: Path, repeats: int = 2) -> list[dict[str, Any]]:
    """As many threads in all as there are cores, spread over more or fewer processes; the faster of the repeats."""
    given = scratch / "pages.pickle"
    given.write_bytes(pickle.dumps(list(pages)))  # read by our own processes only
    cores = os.cpu_count() or 1
    ways = [(n, cores // n) for n in range(cores, 0, -1) if cores % n == 0]
    runs = [(way, _run(given, *way)) for _ in range(repeats) for way in ways]
    rows = []
    for processes, threads in ways:
        wall, cpu = min(result for way, result in runs if way == (processes, threads))
        rows.append(
            {
                "processes": processes,
                "threads": threads,
                "pages_per_s": round(len(pages) / wall, 3),
                "cpu_s_per_page": round(cpu / len(pages), 3),
            }
        )
    return rows


def _run(given: Path, processes: int, threads: int) -> tuple[float, float]:
    """Wall and processor seconds for all pages; loading is over before the clock starts."""
    commands = [
        [sys.executable, __file__, str(given), str(index), str(processes), str(threads)] for index in range(processes)
    ]
    children = [subprocess.Popen(c, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for c in commands]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    began = time.monotonic()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    cpu = sum(json.loads(child.communicate()[0])["cpu"] for child in children)
    return time.monotonic() - began, cpu


def _child() -> None:
    """Every n-th page; the parent says when to begin."""
    import onnxruntime

    from llm_ocr.engines.embedded.ocr.page import PageReading

    path, index, processes, threads = sys.argv[1], *map(int, sys.argv[2:5])
    options = onnxruntime.SessionOptions

    class Threaded(options):
        """Keeps the number of threads, whatever is set later."""

        @property
        def intra_op_num_threads(self) -> int:
            return int(super().intra_op_num_threads)

        @intra_op_num_threads.setter
        def intra_op_num_threads(self, _: int) -> None:
            options.intra_op_num_threads.__set__(self, threads)

    onnxruntime.SessionOptions = Threaded
    pages: list[Given] = pickle.loads(Path(path).read_bytes())[index::processes]  # noqa: S301 - our parent's file
    reading = PageReading()
    reading.read(pages[0].pixels())
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    for page in pages:
        reading.read(page.pixels())
    print(json.dumps({"cpu": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    _child()
