"""How long `status` and `report` take on a workspace of a million pages.

    python benchmarks/report_scale.py [--pages 1000000] [--workers 64] [--output benchmarks/results/report_scale.json]

The workspace is made up, in a folder: a plan, the markers of Extract and Describe with empty data, and the workers'
numbers. Each command is timed as a process of its own. See README.md.
"""

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reporting import keep

from llm_ocr.types import Counts, Unit, page_id
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, claim_key
from llm_ocr.workspace.metrics import MOST, Sample, Series, Spending, write_series, write_spending
from llm_ocr.workspace.plan import PlannedDocument, plan_documents
from llm_ocr.workspace.publish import Example, Summary, publish

PAGES_PER_UNIT = 64
BEGAN = 1_750_000_000.0
_READER = {"engine": "model", "model": "a-model", "revision": "0123abcd"}


def make(folder: Path, pages: int, workers: int, seed: int) -> None:
    """A workspace in which a page in a hundred failed and Describe is through."""
    with Workspace.open(str(folder), create=True) as workspace:
        chance = random.Random(seed)
        plan_documents(workspace, _documents(pages, chance), pages_per_unit=PAGES_PER_UNIT)
        extract = claim_key(workspace, EXTRACT, {"reader": _READER, "render": {}})
        describe = claim_key(workspace, DESCRIBE, {"extract": extract, "reader": _READER})

        def one(unit: Unit) -> None:
            summary = _summary(unit, random.Random(f"{seed} {unit.id}"))
            publish(workspace, EXTRACT, extract, unit.id, b"", summary)
            figures = summary.figures.expected
            publish(workspace, DESCRIBE, describe, unit.id, b"", Summary(figures=Counts(figures, figures)))

        with ThreadPoolExecutor(8) as threads:
            for _ in threads.map(one, read_units(workspace)):
                pass
        for number in range(workers):
            _worker(workspace, number, pages // workers, random.Random(f"{seed} {number}"))


def _documents(pages: int, chance: random.Random) -> Any:
    number = 0
    while pages > 0:
        count = min(pages, 1 + int(chance.lognormvariate(1.8, 1.0)))
        name = f"folder-{number % 1000:03d}/document-{number:07d}.pdf"
        yield PlannedDocument(f"/data/{name}", name, f"v{number}", None, tuple(range(1, count + 1)), count)
        pages, number = pages - count, number + 1


def _summary(unit: Unit, chance: random.Random) -> Summary:
    failed = sum(chance.random() < 0.01 for _ in range(unit.expected))
    part = unit.parts[0]
    example = Example(page_id(part.document_id, 1), part.source, 1, "repetition loop", "cut after 4,096 tokens")
    return Summary(
        counts=Counts(unit.expected, unit.expected - failed, 0, failed),
        figures=Counts(chance.randrange(40)),
        tokens_in=1800 * unit.expected,
        tokens_out=900 * unit.expected,
        seconds=20.0 * unit.expected,
        reasons={"repetition loop": failed} if failed else {},
        examples=(example,) if failed else (),
    )


def _worker(workspace: Workspace, number: int, pages: int, chance: random.Random) -> None:
    name = f"20250615T150640-machine-{number:03d}"
    each = pages // MOST
    samples = tuple(
        Sample(
            60.0, ok=each, tokens_in=1800 * each, tokens_out=900 * each, servers=1.0, window=140.0,
            in_flight=chance.uniform(110, 140), queued=20.0, running=chance.uniform(90, 124), waiting=12.0,
        )
        for _ in range(MOST)
    )  # fmt: skip
    write_series(workspace, Series(name, EXTRACT, "", BEGAN + number, 30.0, 95.0, samples))
    spending = Spending(name, EXTRACT, items=pages, seconds=60.0 * MOST, tokens_in=1800 * pages, price_in=0.1)
    write_spending(workspace, spending)


def timed(*arguments: str) -> dict[str, float]:
    """Seconds of the wall clock and of the CPU, and where Linux tells it the most memory."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, most = time.monotonic(), 0
    with subprocess.Popen([sys.executable, "-m", "llm_ocr", *arguments], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, _memory(process.pid))
            time.sleep(0.02)
    wall = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"llm-ocr {arguments[0]} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "most_memory_mb": round(most / 1024, 1)}


def _memory(process: int) -> int:
    """kB; 0 where it is not to be had."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1_000_000, metavar="N", help="default 1000000")
    parser.add_argument("--workers", type=int, default=64, metavar="N", help="default 64")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default 0")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="where the workspace is made (default: TMPDIR)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the figures as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        workspace, page = Path(folder, "w"), Path(folder, "report.html")
        make(workspace, given.pages, given.workers, given.seed)
        figures: dict[str, Any] = {
            "pages": given.pages,
            "workers": given.workers,
            "start_of_python": timed("--version"),
            "status": timed("status", "-w", str(workspace), "--json"),
            "report": timed("report", "-w", str(workspace), "--output", str(page)),
            "report_kb": round(page.stat().st_size / 1e3, 1),
        }
    print(json.dumps(figures, indent=1))
    command = "python benchmarks/report_scale.py " + " ".join(sys.argv[1:])
    keep({"command": command, **figures}, given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
