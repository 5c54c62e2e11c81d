"""The whole pipeline for an hour, while servers, store and workers fail: nothing lost, nothing twice, memory flat.

    python benchmarks/soak.py [--seconds 3600] [--seed 0] [--output benchmarks/results/soak.json]

Three Extract workers, Describe and Assemble behind them (`--follow`), real commands over one S3 workspace, two
simulated model servers. First a calm round, then stormy ones: faults of both servers and of the store come and go, and
every minute or two a worker is killed, told to stop or put to sleep, and started again. Each round has a new workspace,
which is checked and removed at its end. See README.md.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import soak_checks
import soak_documents
from fault_injection import Server, Store
from reporting import keep
from soak_round import AWS, REPOSITORY, Round, Soak

from llm_ocr.errors import LlmOcrError

_ROUND = 900.0  # seconds that a stormy round should take at most
#: A storm's pages a second as a share of calm, until one was measured.
_FIRST_GUESS = 0.45
_TOO_MANY = 20  # problems of one round, after which there is no other


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of storms, after the calm round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm-pages", type=int, help="pages of the calm round (default: by the time there is)")
    parser.add_argument("--scratch", type=Path, help="folder to work in (default: the system's temporary folder)")
    parser.add_argument("--output", type=Path, help="write everything as JSON")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupted)
    folder = Path(tempfile.mkdtemp(prefix="llm-ocr-soak-", dir=arguments.scratch)).resolve()
    try:
        report = run(arguments, folder)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _keep(arguments, report)
    print(json.dumps({name: value for name, value in report.items() if name != "rounds"}, indent=1))
    return int(bool(report["problems"]))


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds; the report."""
    same_code()
    with mock.patch.dict(os.environ, AWS):
        store = Store(arguments.seed, AWS)
        servers = [Server(folder, number, arguments.seed) for number in range(2)]
        try:
            for server in servers:
                server.start()
            soak = Soak(arguments, folder, store, servers, random.Random(f"kills {arguments.seed}"))
            return _report(soak, _rounds(soak))
        finally:
            for server in servers:
                server.close()
            store.close()


def same_code() -> None:
    """Raises SystemExit unless the workers run the code that this process does."""
    program = "import llm_ocr; print(llm_ocr.__file__)"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    print(f"workers run {said.stdout.strip()}", file=sys.stderr, flush=True)
    if Path(said.stdout.strip()).resolve().parents[1] != REPOSITORY:
        raise SystemExit(f"the workers would run {said.stdout.strip()}, not what is in {REPOSITORY}")


def _rounds(soak: Soak) -> list[dict[str, Any]]:
    """One calm round, then stormy ones until the time is over."""
    seconds = float(soak.arguments.seconds)
    pages = soak.arguments.calm_pages or int(min(400, max(72, seconds / 6)))
    made = soak_documents.templates(pages, soak.arguments.seed)
    done: list[dict[str, Any]] = []
    calm: soak_checks.Read | None = None
    calm_asked: Counter[str] = Counter()
    rate = 0.0
    while len(done) < 2 or soak.left() > 0.1 * seconds:
        number, stormy = len(done), bool(done)
        wanted = int(rate * min(_ROUND, max(soak.left(), 40.0))) if stormy else 0
        corpus = soak_documents.copies(made, wanted, soak.folder / f"documents-{number}")
        try:
            told, result = Round(soak, number, corpus, stormy).run(calm, calm_asked)
        except LlmOcrError as error:
            soak.problems.append(f"round {number}: the workspace cannot be read: {error}")
            break
        shutil.rmtree(corpus.folder)
        if not stormy:
            calm, calm_asked = result, sum((server.asked() for server in soak.servers), Counter[str]())
        rate = told["pages_per_second"] * (1.0 if stormy else _FIRST_GUESS)
        soak.problems += [f"round {number}: {line}" for line in told["problems"]]
        soak.kills.update(told["events"])
        done.append(told)
        soak.say(f"round {number}: {told['pages_per_second']} pages/s, {len(told['problems'])} problems")
        for line in told["problems"]:
            soak.say(f"  {line}")
        _keep(soak.arguments, _report(soak, done))  # what is known so far, should the rest not come
        if len(told["problems"]) > _TOO_MANY:
            break
    return done


def _keep(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    keep(report, arguments.output)


def _report(soak: Soak, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    arguments, counted = soak.arguments, soak.store.set({})
    stormy = [one for one in rounds if one["stormy"]]
    faults = sum((server.events for server in soak.servers), Counter[str]())
    return {
        "command": f"make soak SOAK_SECONDS={arguments.seconds:g} SEED={arguments.seed}",
        "machine": soak.machine,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - soak.began, 1),
        "rounds_stormy": len(stormy),
        "pages": sum(one["pages"] for one in stormy),
        "pages_per_second": {
            "calm": rounds[0]["pages_per_second"],
            "storm": round(sum(one["pages"] for one in stormy) / max(sum(one["seconds"] for one in stormy), 1), 2),
        },
        "asked_again_share": round(
            sum(one["asked_again"] for one in stormy) / max(sum(one["pages"] for one in stormy), 1), 4
        ),
        "workers": dict(sorted(soak.kills.items())),
        "model_server_faults": dict(sorted(faults.items())),
        "store_faults": dict(sorted(counted["hit"].items())),
        "store_storms": dict(soak.store.storms),
        "store_requests": counted["requests"],
        "store_peak_mib": counted["peak_bytes"] >> 20,
        "memory": _longest(rounds),
        "rounds": rounds,
        "problems": soak.problems,
    }


def _longest(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each kind of worker, the longest life, and the highest of all lives."""
    lives = [life for one in rounds for life in one["lives"] if life["samples"]]
    names = sorted({_kind(life) for life in lives})
    return {name: _kind_of_worker([life for life in lives if _kind(life) == name]) for name in names}


def _kind_of_worker(lives: list[dict[str, Any]]) -> dict[str, Any]:
    highest = ("pss_max_mib", "tree_max_mib", "descriptors_max", "connections_max", "threads_max")
    return {
        "lives": len(lives),
        **{name: max(life[name] for life in lives) for name in highest},
        "longest": max(lives, key=lambda life: float(life["seconds"])),
    }


def _kind(life: dict[str, Any]) -> str:
    return str(life["worker"]).partition("-")[0]


if __name__ == "__main__":
    raise SystemExit(main())
