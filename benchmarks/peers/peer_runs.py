"""One run of one client: against a server of its own, with faults or with a kill, measured and counted."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proctree
from peer_clients import Client, Job
from proctree import Usage, measure
from served import STEADY

from llm_ocr_simulator import running
from llm_ocr_simulator.process import Running

#: olmOCR takes a lock for dead after this long: `is_worker_lock_taken`, worker_lock_timeout_secs.
LOCK_SECONDS = 1800
#: Of the pages, those that were answered when a client is killed: what a server has not begun yet costs nothing.
KILL_AT = 0.6
#: Seconds between looks at processes and their memory: a renderer of olmOCR's lives for a third of a second.
LOOKS = 0.05
#: And between looks at the server's log.
LOG_LOOKS = 0.2
#: Ends of whole answers in that log.
WHOLE = ("stop", "length")
#: Fewer requests than this have no middle.
LEAST = 10


@dataclass(frozen=True, slots=True)
class Case:
    """What goes wrong. `faults` of requests and `answers` of the model are options of the simulator."""

    name: str
    faults: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, float] = field(default_factory=dict)
    kill: bool = False


def cases(share: float) -> dict[str, Case]:
    """`share` of the requests go wrong in `faults`, a fifth of that hang in `stalls`."""
    faults = {"500": 0.3, "reset": 0.2, "reset-within": 0.1, "truncated": 0.2}
    answers = {"loop_rate": 0.1, "malformed_rate": 0.1}
    found = (
        Case("clean"),
        Case("faults", {k: v * share for k, v in faults.items()}, {k: v * share for k, v in answers.items()}),
        Case("stalls", {"hang": share / 5}),
        Case("kill", kill=True),
    )
    return {case.name: case for case in found}


@dataclass(frozen=True, slots=True)
class Task:
    """What all runs share."""

    listed: Path
    prompt: Path
    documents: Mapping[str, int]
    simulator: Mapping[str, Any]
    slots: int
    stall: float
    limit: float

    @property
    def pages(self) -> int:
        return sum(self.documents.values())


def one_run(client: Client, case: Case, task: Task, seed: int, folder: Path) -> dict[str, Any]:
    """The record of a run; its folder is removed."""
    folder.mkdir()
    state = folder / "state"
    options = {**task.simulator, **case.answers, "fault": case.faults, "seed": seed, "state_file": state}
    with running(**options) as server:
        stall = task.stall if "hang" in case.faults else None
        job = Job(task.listed, folder, server.url, task.slots, stall, task.prompt)
        record = (killed if case.kill else whole)(client, job, task, server, state)
    shutil.rmtree(folder)
    return record


def whole(client: Client, job: Job, task: Task, server: Running, state: Path) -> dict[str, Any]:
    """A run to its end, or to the limit."""
    usage = measured(client, job, task.limit)
    log = server.log()
    return {
        **told(usage),
        **seen(log, usage.wall, task.pages),
        **client.found(job.output, task.documents).as_json(),
        "cpu_s_per_page": round(usage.cpu / task.pages, 4),
        "pss_mib": round(usage.pss / 2**20),
        "processes": usage.processes,
    }


def killed(client: Client, job: Job, task: Task, server: Running, state: Path) -> dict[str, Any]:
    """kill -9 when most pages were answered, the same command again, and once more when all locks are old."""
    began = time.monotonic()
    with (job.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            client.command(job), cwd=job.folder, env=server_env(client, job), stdout=log, stderr=log
        )
    until(lambda: answered(server.log()) >= KILL_AT * task.pages, process, task.limit)
    process.kill()
    process.wait()
    before = client.found(job.output, task.documents)
    usage = measured(client, job, task.limit)
    wall = time.monotonic() - began
    record = {
        **told(usage),
        **seen(server.log(), wall, task.pages),
        **client.found(job.output, task.documents).as_json(),
        "pages_before": before.text,
        "pages_asked_twice": asked_again(state),
    }
    record["wall_s"] = round(wall, 3)
    locks = list((job.output / "worker_locks").glob("*"))
    if record["lost"] and locks:
        for lock in locks:
            os.utime(lock, (time.time() - LOCK_SECONDS - 60,) * 2)
        usage = measured(client, job, task.limit)
        later = client.found(job.output, task.documents).as_json()
        log_now = server.log()
        record["when_locks_are_old"] = {
            **told(usage),
            **later,
            "pages_asked_twice": asked_again(state),
            "requests_per_page": round(len(log_now["requests"]) / task.pages, 4),
            "answers_per_page": round(answered(log_now) / task.pages, 4),
        }
    return record


def measured(client: Client, job: Job, limit: float) -> Usage:
    proctree.TREE_EVERY = proctree.PSS_EVERY = LOOKS
    return measure(
        client.command(job),
        folder=job.folder,
        environment=server_env(client, job),
        timeout=limit,
        log=job.folder / "log",
    )


def server_env(client: Client, job: Job) -> dict[str, str]:
    """The environment of a client: no settings of this user's."""
    home = {"HOME": str(job.folder), "TMPDIR": str(job.folder), "PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    return {**home, **client.environment}


def told(usage: Usage) -> dict[str, Any]:
    return {
        "exit": usage.code,
        "hung": usage.timed_out,
        "wall_s": round(usage.wall, 3),
        "elsewhere_cores": round(usage.elsewhere, 2),
        **({"tail": usage.tail} if usage.code else {}),
    }


def seen(log: Mapping[str, Any], wall: float, pages: int) -> dict[str, Any]:
    """What the server saw; overheads are fractions above the oracle for the same requests."""
    worked = [one for one in log["requests"] if one["oracle_end"] is not None]
    oracle = log["oracle"]
    found: dict[str, Any] = {
        "requests": len(log["requests"]),
        "requests_per_page": round(len(log["requests"]) / pages, 4),
        "answers_per_page": round(answered(log) / pages, 4),
        "prompt_tokens": sum(one["prompt_tokens"] for one in worked),
        "output_tokens": sum(one["output_tokens"] for one in worked),
        "oracle_s": round(oracle, 3),
        "pages_per_hour": round(pages / wall * 3600),
        "simulator_core_share": round(log["cpu_seconds"] / wall, 3),
    }
    if len(worked) >= LEAST:
        ends, ideal = sorted(one["end"] for one in worked), sorted(one["oracle_end"] for one in worked)
        first, last = (int(share * (len(worked) - 1)) for share in STEADY)
        found["server_overhead"] = round(log["measured"] / oracle - 1, 4)
        found["steady_overhead"] = round((ends[last] - ends[first]) / (ideal[last] - ideal[first]) - 1, 4)
        found["job_overhead"] = round(wall / oracle - 1, 4)
    return found


def answered(log: Mapping[str, Any]) -> int:
    """Answers that the server gave to their end."""
    return sum(one["finish"] in WHOLE for one in log["requests"])


def asked_again(state: Path) -> int:
    """Images that were asked for more than once."""
    names = lines(state)
    return sum(names.count(name) > 1 for name in set(names))


def lines(state: Path) -> list[str]:
    if not state.exists():
        return []
    return [line for line in state.read_text().splitlines() if line.startswith("asked ")]


def until(true: Callable[[], bool], process: "subprocess.Popen[bytes]", limit: float) -> None:
    """Wait until it is true, the process has ended, or so many seconds are over."""
    deadline = time.monotonic() + limit
    while not true() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(LOG_LOOKS)


def turns(clients: Sequence[Client], repeat: int) -> list[Client]:
    """Who begins changes with every repeat."""
    first = repeat % len(clients)
    return [*clients[first:], *clients[:first]]
