"""How far `llm-ocr estimate --calibrate` is off: estimates, then the same documents for real, on the same machine.

    python benchmarks/estimate_error.py ../shared/data/pdfs --output benchmarks/results/estimate_error.json

Each set of documents is estimated from a sample and then read by `llm-ocr extract`: with the embedded engine, and by a
model on the simulated server, whose time is that of a modelled GPU. Ratios are predicted over real.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page_lists import find_pdfs
from proctree import Usage, measure
from reporting import keep
from served import corpus

from llm_ocr.simulator import running

PROGRAM = Path(sys.executable).with_name("llm-ocr")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@dataclass(frozen=True, slots=True)
class Case:
    """One set of documents for one engine. `simulator`: the server's settings, None for the embedded engine."""

    name: str
    source: Path
    seconds: float  # of the calibration
    pages: int  # of the calibration, at most
    simulator: dict[str, Any] | None = None
    flags: tuple[str, ...] = ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[EXAMPLES], help="real PDFs")
    parser.add_argument("--served-pages", type=int, default=1500, help="pages of the sets for the simulator")
    parser.add_argument("--embedded-pages", type=int, default=500, help="pages of the largest set for the CPU")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="estimate-error-") as folder:
        for case in cases(options, Path(folder)):
            if options.only in case.name:
                results.append(result(case, Path(folder)))
                print(json.dumps(results[-1]), flush=True)
    report = {
        "command": f"python benchmarks/estimate_error.py {' '.join(sys.argv[1:])}".strip(),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "load_at_the_end": os.getloadavg()[0],
        "cases": results,
        "in_range": {what: _share(results, what) for what in ("time", "tokens_in", "tokens_out", "bytes")},
    }
    keep(report, options.output)
    return 0


def cases(options: argparse.Namespace, folder: Path) -> Iterator[Case]:
    """Sets of documents, and many copies, by the embedded engine; then two GPUs behind the simulator."""
    yield Case("examples, embedded", EXAMPLES, 30, 2000)
    for name, pdfs in sets(find_pdfs(options.folders), folder):
        yield Case(f"{name}, embedded, 40 pages", pdfs, 60, 40)
    made = folder / "many"
    many = corpus(options.folders, options.embedded_pages, made)
    yield Case("copies of all, embedded", many, 20, 2000)
    yield Case("copies of all, embedded, 40 pages", many, 60, 40)
    made = folder / "served"
    served = corpus(options.folders, options.served_pages, made)
    small = ("--image-size", "256", "--image-format", "jpeg", "--fallback", "none")  # the CPU here is no part of it
    for preset, seconds in (("l4", 30), ("h100", 20)):
        server = {"preset": preset, "speed": 4, "mean_tokens": 800, "sigma": 0.6}
        yield Case(f"copies of all, {preset} simulated", served, seconds, 2000, server, small)
    server = {"preset": "l4", "speed": 4, "mean_tokens": 800, "sigma": 0.6}
    yield Case("copies of all, l4 simulated, 100 pages", served, 60, 100, server, small)


def sets(pdfs: Sequence[Path], folder: Path) -> Iterator[tuple[str, Path]]:
    """Every second document, the others, and all, in folders of their own."""
    named = (("every second document", pdfs[::2]), ("the other documents", pdfs[1::2]), ("all documents", list(pdfs)))
    for name, some in named:
        if some:
            made = folder / name.replace(" ", "-")
            made.mkdir()
            for number, pdf in enumerate(some):
                shutil.copy(pdf, made / f"{number:03d}-{pdf.name}")
            yield name, made


def result(case: Case, folder: Path) -> dict[str, Any]:
    """Estimate, then read."""
    if case.simulator is None:
        return compared(case, ("--model", "embedded"), ("--engine", "embedded"), folder)
    with running(**case.simulator) as server:
        reach = ("--server-url", server.url)
        return compared(case, reach, reach, folder)


def compared(case: Case, estimating: Sequence[str], reading: Sequence[str], folder: Path) -> dict[str, Any]:
    limits = ("--calibrate-seconds", str(case.seconds), "--calibrate-pages", str(case.pages))
    asked = [str(PROGRAM), "estimate", str(case.source), "--calibrate", *limits, *case.flags, *estimating]
    said, calibration = finished([*asked, "--json", "--quiet"], folder)
    found = json.loads(said)
    workspace = folder / "workspace"
    read = [str(PROGRAM), "extract", str(case.source), "-w", str(workspace), "--quiet", *case.flags, *reading]
    _, run = finished(read, folder)
    status = json.loads(finished([str(PROGRAM), "status", "-w", str(workspace), "--json"], folder)[0])
    stored = sum(file.stat().st_size for file in (workspace / "extract").rglob("*.parquet"))
    shutil.rmtree(workspace)
    here = found["options"][0]
    hours = {name: 3600 * value for name, value in here["estimate"]["hours"].items()}
    tokens = found["tokens"]
    return {
        "case": case.name,
        "pages": found["pages"],
        "sampled": next(line for line in found["assumptions"] if line.startswith("here: measured")),
        "calibration_s": round(calibration.wall, 1),
        "elsewhere_cores": [round(calibration.elsewhere, 2), round(run.elsewhere, 2)],
        "time": ratio(hours, run.wall),
        "tokens_in": ratio(tokens["in"], status["tokens"]["in"]) if tokens else None,
        "tokens_out": ratio(tokens["out"], status["tokens"]["out"]) if tokens else None,
        "bytes": ratio(found["stored"]["bytes"], stored),
    }


def ratio(span: dict[str, float], real: float) -> dict[str, Any]:
    """Predicted over real, the range relative to the likely value, and whether the real value lay in it."""
    return {
        "real": round(real, 1),
        "predicted": round(span["likely"], 1),
        "ratio": round(span["likely"] / real, 3),
        "range": [round(span["low"] / span["likely"], 3), round(span["high"] / span["likely"], 3)],
        "in_range": span["low"] <= real <= span["high"],
    }


def finished(command: Sequence[str], folder: Path) -> tuple[str, Usage]:
    """What it said, and what it took. Raises SystemExit when the command could not be carried out."""
    log = folder / "log"
    usage = measure(command, folder=folder, environment=os.environ, timeout=3600.0, log=log)
    if usage.code not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: {usage.code}\n{usage.tail}")
    return log.read_text(), usage


def _share(results: Sequence[dict[str, Any]], what: str) -> str:
    known = [one[what]["in_range"] for one in results if one[what]]
    return f"{sum(known)} of {len(known)}"


if __name__ == "__main__":
    raise SystemExit(main())
