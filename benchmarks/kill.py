"""kill -9 at random moments, then the same command, until it is done: what is lost, doubled or done again.

    python benchmarks/kill.py ../shared/data/pdfs --kills 20 [--seed 0] [--output benchmarks/results/kill.json]

Each workspace is killed until it completes; a new one is begun until there were enough kills. After every kill the
finished units must be those of before and more, of the same attempts; at the end every expected page has one row.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from reporting import keep

import llm_ocr
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import STAGES, newest_key
from llm_ocr.workspace.publish import markers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=25.0, help="seconds until a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    runs: list[dict[str, Any]] = []
    while sum(run["kills"] for run in runs) < arguments.kills:
        left = arguments.kills - sum(run["kills"] for run in runs)
        runs.append(one_workspace(arguments.corpus, chance, left, arguments.longest))
        print(json.dumps(runs[-1]), flush=True)
    report = {"command": " ".join(sys.argv), "seed": arguments.seed, "workspaces": runs}
    report["sound"] = all(run["sound"] for run in runs)
    keep(report, arguments.output)
    print("sound" if report["sound"] else "NOT SOUND")
    return 0 if report["sound"] else 1


def one_workspace(corpus: Path, chance: random.Random, most_kills: int, longest: float) -> dict[str, Any]:
    """Kill one workspace's run at most so often, let it complete, and look at what stands there."""
    folder = Path(tempfile.mkdtemp(prefix="llm-ocr-kill-"))
    workspace = folder / "w"
    run = [sys.executable, "-m", "llm_ocr", "run", str(corpus), "-w", str(workspace), "--engine", "embedded", "--quiet"]
    kills, redone, before = 0, 0, dict[tuple[str, str], str]()
    try:
        while True:
            process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            code = wait(process, chance.uniform(0.2, longest) if kills < most_kills else None)
            kills += code == -signal.SIGKILL
            after = attempts(workspace)
            redone += sum(after.get(unit) != attempt for unit, attempt in before.items())
            before = after
            if code != -signal.SIGKILL:
                return {"kills": kills, "exit": code, "redone": redone, **account(workspace, redone)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait(process: subprocess.Popen[bytes], seconds: float | None) -> int:
    """The exit code, -9 when the process was killed after so many seconds."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while process.poll() is None:
        if deadline is not None and time.monotonic() > deadline:
            process.kill()
            return process.wait()
        time.sleep(0.02)
    return process.returncode


def attempts(workspace: Path) -> dict[tuple[str, str], str]:
    """The attempt of each finished unit of each stage."""
    if not (workspace / "run.json").exists():
        return {}
    with Workspace.open(str(workspace)) as opened:
        keys = {stage: newest_key(opened, stage) for stage in STAGES}
        return {
            (stage, unit): marker.attempt
            for stage, key in keys.items()
            if key
            for unit, marker in markers(opened, stage, key).items()
        }


def account(workspace: Path, redone: int) -> dict[str, Any]:
    """Conservation, pages that are there twice or not at all, and whether the dataset holds the same pages."""
    run = llm_ocr.open(str(workspace))
    pages = run.status.pages
    ids = Counter(page.page_id for page in run.pages(images=False))
    dataset = Counter(run.to_dataset()["sample_id"])
    counts = {"expected": pages.expected, "ok": pages.ok, "degraded": pages.degraded, "failed": pages.failed}
    sound = (
        not redone
        and pages.expected == pages.ok + pages.degraded + pages.failed == len(ids) == ids.total()
        and dataset == ids
    )
    return {
        **counts,
        "rows": ids.total(),
        "doubled": ids.total() - len(ids),
        "dataset": dataset.total(),
        "sound": sound,
    }


if __name__ == "__main__":
    raise SystemExit(main())
