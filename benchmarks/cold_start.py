"""From `llm-ocr extract` to the first request at the server and the first published unit: what waits for what.

    python benchmarks/cold_start.py [--documents 10000] [--load 20] [--repeats 3] [--output FILE]

The server is the simulator: one that runs already, and one that llm-ocr starts and that needs a while to load. Each
command is ended when its first unit is published. See README.md.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import proctree
from growth import PAGES_EACH, SMALL, make_documents
from reporting import keep

from llm_ocr_simulator import running

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])
SERVER: dict[str, Any] = {"speed": 50, "mean_tokens": 300, "seed": 0}
_LONGEST = 300.0

#: What must be so: the earlier event, the later one.
ORDER = (
    ("server wanted", "plan begun"),
    ("server's process begun", "plan done"),
    ("first page rendered", "server ready"),
)


def main() -> int:
    arguments = parse()
    report: dict[str, Any] = {
        "command": "python benchmarks/cold_start.py " + " ".join(sys.argv[1:]),
        "machine": proctree.machine(),
        "load_s": arguments.load,
        "timelines": {},
    }
    with tempfile.TemporaryDirectory(prefix="llm-ocr-cold-", dir=arguments.scratch) as scratch:
        report["commands"] = commands(Path(scratch), arguments.repeats)
        many = Path(scratch) / "documents"
        make_documents(many, arguments.documents * PAGES_EACH)
        for name, documents in (("examples", EXAMPLES), (f"{arguments.documents} documents", many)):
            for server in ("running", "own"):
                taken = [timelines(documents, server, arguments.load, Path(scratch)) for _ in range(arguments.repeats)]
                for which in taken[0]:
                    key = f"{name}, {server} server{which}"
                    report["timelines"][key] = middle([one[which] for one in taken])
                    print(f"{key}\n{drawn(report['timelines'][key])}", flush=True)
    print(json.dumps(report["commands"], indent=1))
    keep(report, arguments.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--documents", type=int, default=10_000, metavar="N", help="of 16 pages, for the longer plan (default 10000)")
    add("--load", type=float, default=20.0, metavar="S", help="seconds until our own server listens (default 20)")
    add("--repeats", type=int, default=3, metavar="N", help="medians are shown (default 3)")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def timelines(documents: Path, server: str, load: float, scratch: Path) -> dict[str, dict[str, Any]]:
    """A first start, and the same command again in the workspace that the first one left."""
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    try:
        command = ["extract", str(documents), "-w", str(folder / "workspace"), "--quiet", *SMALL, "--pages-per-unit=4"]
        if server == "own":
            flags = [f"--{name.replace('_', '-')}={value}" for name, value in SERVER.items()]
            own = [f"--vllm-arg={flag}" for flag in (*flags, f"--startup-seconds={load}")]
            words = [*command, "--engine=vllm", f"--vllm-command={SIMULATOR}", "--offline", *own]
            return both(words, folder, documents)
        with running(**SERVER) as simulated:
            words = [*command, "--server-url", simulated.url]
            return both(words, folder, documents)
    finally:
        shutil.rmtree(folder)


def both(words: Sequence[str], folder: Path, documents: Path) -> dict[str, dict[str, Any]]:
    """Of the examples everything is read; then there is nothing to go on with."""
    if documents == EXAMPLES:
        return {"": timeline(words, folder / "first", stop=False)}
    return {name: timeline(words, folder / file) for name, file in (("", "first"), (", again", "second"))}


def timeline(words: Sequence[str], events: Path, *, stop: bool = True) -> dict[str, Any]:
    """Seconds from the process's start to each event; with `stop` it is stopped when its first unit is published."""
    traced = str(Path(__file__).with_name("cold_start_traced.py"))
    events.touch()
    log = events.with_suffix(".log")
    began = time.monotonic()
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, traced, str(events), *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    stopper = threading.Timer(_LONGEST, process.kill)
    stopper.start()
    told = None
    while process.poll() is None:
        if stop and told is None and "first unit published" in events.read_text():
            told = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.02)
    stopper.cancel()
    ended = time.monotonic()
    found = [json.loads(line) for line in events.read_text().splitlines()]
    if process.returncode not in (0, 4) or not found:
        raise SystemExit(f"llm-ocr ended with {process.returncode}: {log.read_text()[-1000:]}")
    at = {one["event"]: round(one["at"] - began, 3) for one in found}
    rendered = {one["event"]: one["rendered"] for one in found}
    if told is not None and process.returncode == 4:
        at["ended after SIGTERM"] = round(ended - told, 3)
    return {"at": at, "rendered_when_ready": rendered.get("server ready", 0)}


def middle(taken: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the times, and whether what must be early was early in all runs."""
    names = [name for name in taken[0]["at"] if all(name in one["at"] for one in taken)]
    at = {name: round(statistics.median(one["at"][name] for one in taken), 2) for name in names}
    in_order = {
        f"{early} before {late}": all(one["at"][early] <= one["at"][late] for one in taken)
        for early, late in ORDER
        if early in at and late in at
    }
    rendered = statistics.median(one["rendered_when_ready"] for one in taken)
    return {"at": at, "rendered_when_ready": rendered, "in_order": in_order}


def drawn(shown: dict[str, Any]) -> str:
    stopped = shown["at"].get("ended after SIGTERM")
    times = sorted((when, name) for name, when in shown["at"].items() if name != "ended after SIGTERM")
    lines = [f"  {when:>8.2f} s  {name}" for when, name in times]
    lines.append(f"  {shown['rendered_when_ready']} pages rendered when the server was ready; {shown['in_order']}")
    return "\n".join([*lines, f"  SIGTERM to exit {stopped} s" if stopped is not None else ""])


def commands(scratch: Path, repeats: int) -> dict[str, dict[str, float]]:
    """What small commands take: help, a status, an import."""
    workspace = scratch / "small"
    run = ["run", str(EXAMPLES), "-w", str(workspace), "--engine", "embedded", "--quiet"]
    subprocess.run([sys.executable, "-m", "llm_ocr", *run], check=True)
    asked = {
        "--help": ["--help"],
        "extract --help": ["extract", "--help"],
        "status": ["status", "-w", str(workspace)],
        "run, nothing left": run,
    }
    found = {name: _median([timed(*words) for _ in range(repeats)]) for name, words in asked.items()}
    for module in ("llm_ocr", "llm_ocr.runs", "llm_ocr.stages.execute"):
        found[f"import {module}"] = _median([_imported(module) for _ in range(repeats)])
    shutil.rmtree(workspace)
    return found


def timed(*arguments: str) -> dict[str, float]:
    """Return the seconds of the clock and of the CPU of a command."""
    before, began = os.times(), time.monotonic()
    subprocess.run([sys.executable, "-m", "llm_ocr", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall_s": round(time.monotonic() - began, 2), "cpu_s": round(cpu, 2)}


def _imported(module: str) -> dict[str, float]:
    code = f"import time; b, c = time.monotonic(), time.process_time(); import {module}; "
    code += "print(time.monotonic() - b, time.process_time() - c)"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    return {"wall_s": float(said[0]), "cpu_s": float(said[1])}


def _median(taken: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in taken), 3) for name in taken[0]}


if __name__ == "__main__":
    sys.exit(main())
