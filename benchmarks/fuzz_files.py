"""Thousands of mutated PDFs and images, a hundred at a time, through whole runs of `llm-ocr extract`.

    python benchmarks/fuzz_files.py [DOCUMENTS ...] [--files 10000] [--seconds 2400] [--seed 0] [--jobs 2] \
        [--output FILE.json]

Each run is a process of its own over a folder with bad files and three good ones. It must end by itself with exit code
0 or 3, account for every page, give the good files' text unchanged and a human reason for every failed page, and leave
no process, temporary file or change outside of the workspace. DOCUMENTS are folders or files to spoil beside those that
the project ships. A file follows from the seed, its number and DOCUMENTS; `--first` goes on from a number, `--only
NUMBER` makes one file again, runs over it alone and says what came of it.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "api"))
from fuzz_folders import Pools, case, put
from fuzz_runs import Ran, put_good, run_over
from mutated_pdfs import plain_pdf
from reporting import keep

_EXAMPLES = Path(__file__).parents[1] / "examples"
_LARGEST = 1_300_000  # bytes of a file that is spoiled: a thousand large ones would be a test of the disk
_FOLDER = 100  # files of one run
_GOOD = 3
#: What a page may take is set low, so that what takes much is found soon.
_LIMITS = ("--image-size", "400", "--render-memory", "512", "--render-timeout", "20", "--page-timeout", "60")
_PAGES = ("--pages", "1-3")
_MOST_SHOWN = 30


@dataclass(slots=True)
class Totals:
    files: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    pages: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, Any] = field(default_factory=lambda: {"seconds": 0.0, "first": -1})
    slowest_page: dict[str, Any] = field(default_factory=lambda: {"seconds": 0.0, "file": -1, "name": ""})
    faults: list[dict[str, Any]] = field(default_factory=list)

    def add(self, first: int, names: dict[str, int], kinds: Sequence[str], ran: Ran) -> None:
        self.files += len(names)
        self.kinds.update(kind.partition("+")[0] for kind in kinds)
        self.pages.update(ran.pages)
        self.reasons.update(ran.reasons)
        if ran.seconds > self.slowest["seconds"]:
            self.slowest = {"seconds": round(ran.seconds, 1), "first": first}
        if ran.slowest[0] > self.slowest_page["seconds"]:
            seconds, name = ran.slowest
            self.slowest_page = {"seconds": round(seconds, 1), "file": names.get(name, -1), "name": name}
        for fault in ran.faults:
            numbers = [number for name, number in names.items() if name in fault or repr(name)[1:-1] in fault]
            self.faults.append({"run from": first, "files": numbers[:5], "fault": fault[:600]})


def one_folder(seed: int, numbers: Sequence[int], pools: Pools) -> tuple[dict[str, int], list[str], Ran]:
    """One run over the files of these numbers."""
    with tempfile.TemporaryDirectory(prefix="llm-ocr-fuzz-") as name:
        folder = Path(name).resolve()
        documents = folder / "documents"
        documents.mkdir()
        good = put_good(documents, random.Random(f"good {seed} {numbers[0]}"), _GOOD)
        cases = [case(seed, number, pools) for number in numbers]
        names = put(cases, documents)
        return names, [one.kind for one in cases], run_over(folder, good, *_LIMITS, *_PAGES, timeout=1200)


def pools_of(given: Sequence[Path]) -> Pools:
    """The project's examples, some small documents, and what was named; in a fixed order."""
    paths = [path for one in given for path in (sorted(one.glob("*")) if one.is_dir() else [one])]
    paths = [path for path in paths if path.is_file() and path.stat().st_size <= _LARGEST]
    pdfs = [plain_pdf(random.Random(seed), 3) for seed in range(3)]
    pdfs += [(_EXAMPLES / name).read_bytes() for name in ("paper.pdf", "scan.pdf")]
    pdfs += [path.read_bytes() for path in paths if path.suffix.lower() == ".pdf"]
    images = [(_EXAMPLES / name).read_bytes() for name in ("fax.tiff", "invoice.png")]
    images += [path.read_bytes() for path in paths if path.suffix.lower() in (".png", ".jpg", ".tif", ".tiff", ".webp")]
    return Pools(pdfs, images)


def report(totals: Totals, arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seed": arguments.seed,
        "first": arguments.first,
        "files": totals.files,
        "files beside the project's examples": len(arguments.pools.pdfs) + len(arguments.pools.images) - 7,
        "runs": -(-totals.files // _FOLDER),
        "seconds": round(seconds, 1),
        "processor seconds": round(used.ru_utime + used.ru_stime, 1),
        "slowest run": totals.slowest,
        "slowest page": totals.slowest_page,
        "pages": dict(sorted(totals.pages.items())),
        "reasons": dict(totals.reasons.most_common()),
        "kinds": dict(sorted(totals.kinds.items())),
        "faults": len(totals.faults),
        "shown": totals.faults[:_MOST_SHOWN],
    }


def fuzz(arguments: argparse.Namespace) -> dict[str, Any]:
    """All runs, `jobs` at a time. Those that have begun when the time is over are waited for."""
    start = time.monotonic()
    end = arguments.first + arguments.files
    totals = Totals()

    def run(first: int) -> tuple[int, tuple[dict[str, int], list[str], Ran] | None]:
        if time.monotonic() - start > arguments.seconds:
            return first, None
        return first, one_folder(arguments.seed, range(first, min(first + _FOLDER, end)), arguments.pools)

    with ThreadPoolExecutor(arguments.jobs) as threads:
        for first, done in threads.map(run, range(arguments.first, end, _FOLDER)):
            if done is None:
                continue
            totals.add(first, *done)
            told = f"{totals.files} files, {time.monotonic() - start:.0f} s, {len(totals.faults)} faults"
            print(told, *(fault["fault"][:200] for fault in totals.faults[-1:] if done[2].faults), flush=True)
            keep(report(totals, arguments, time.monotonic() - start), arguments.output)
    return report(totals, arguments, time.monotonic() - start)


def only(arguments: argparse.Namespace) -> int:
    one = case(arguments.seed, arguments.only, arguments.pools)
    names, kinds, ran = one_folder(arguments.seed, [arguments.only], arguments.pools)
    print(json.dumps({"name": list(names), "kind": kinds, "bytes": len(one.data), "pages": ran.pages}, indent=1))
    print(json.dumps({"reasons": ran.reasons, "seconds": round(ran.seconds, 1), "faults": ran.faults}, indent=1))
    if arguments.output:
        arguments.output.write_bytes(one.data)
    return bool(ran.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, nargs="*")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first file, to go on")
    parser.add_argument("--only", type=int, help="one file; with --output its bytes are written there")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    arguments.pools = pools_of(arguments.documents)
    if arguments.only is not None:
        return only(arguments)
    found = fuzz(arguments)
    print(json.dumps({name: value for name, value in found.items() if name != "kinds"}, indent=1))
    return bool(found["faults"])


if __name__ == "__main__":
    sys.exit(main())
