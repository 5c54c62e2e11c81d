"""One round of the soak: a workspace from its plan to its removal, with what is done to its workers meanwhile."""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proctree
import soak_checks
from fault_checking import attempts, unnamed_data
from fault_injection import Server, Store
from soak_documents import Corpus
from soak_store import BUCKET
from soak_workers import LEASE, Crew

import llm_ocr

REPOSITORY = Path(llm_ocr.__file__).resolve().parents[1]
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-soak",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
UNIT = 16  # pages
EXTRACTORS = 3
_TICK, _SAMPLE, _TELL = 0.5, 5.0, 60.0  # seconds
_STUCK = 420.0  # seconds without a new marker after which the soak gives up
#: Most blows are for workers that have begun to work; some for those that just start.
_GROWN, _ALSO_YOUNG = 15.0, 0.15  # seconds; share
_MOST_PROBLEMS = 40  # with which a round is given up
#: What is done to a worker, and how likely each is.
_HARM = {"kill": 4, "kill machine": 3, "term": 3, "pause": 2}


@dataclass(slots=True)
class Soak:
    """What all rounds share."""

    arguments: argparse.Namespace
    folder: Path
    store: Store
    servers: list[Server]
    chance: random.Random
    began: float = field(default_factory=time.monotonic)
    storms: float = 0.0  # when the first began; 0: not yet
    kills: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    machine: dict[str, object] = field(default_factory=proctree.machine)

    def left(self) -> float:
        """Seconds of storms."""
        return (self.storms or time.monotonic()) + float(self.arguments.seconds) - time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", file=sys.stderr, flush=True)


class Round:
    """One workspace, from its plan to its removal."""

    def __init__(self, soak: Soak, number: int, corpus: Corpus, stormy: bool) -> None:
        self.soak, self.corpus, self.stormy = soak, corpus, stormy
        self.number = number
        self.url = f"s3://{BUCKET}/runs/round-{number}"
        self.folder = soak.folder / f"round-{number}"
        self.environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), **AWS}
        self.before: dict[tuple[str, str], str] = {}
        self.problems: list[str] = []
        self.done = self.told = 0
        self.moved = time.monotonic()

    # -- commands -------------------------------------------------------------------------------------------------

    def place(self, *, direct: bool = False) -> list[str]:
        return ["-w", self.url, "--workspace-endpoint", self.soak.store.direct if direct else self.soak.store.url]

    def workers(self) -> dict[str, list[str]]:
        urls = [word for server in self.soak.servers for word in ("--server-url", server.url)]
        engine = ["--engine", "server", *urls, "--request-timeout", "20"]
        every = [*self.place(), "--quiet", "--max-failed-rate", "0.5"]
        leases = ["--lease-seconds", str(LEASE)]
        images = ["--image-size", "640", "--image-format", "jpeg", "--render-workers", "1"]
        crew = {f"extract-{n}": ["extract", *every, *leases, *engine, *images] for n in range(EXTRACTORS)}
        crew["describe"] = ["describe", "--follow", *every, *leases, *engine]
        crew["assemble"] = ["assemble", "--follow", *every, *leases, "--dataset-images", "figures"]
        return crew

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command in calm, at the store itself."""
        return subprocess.run(
            [sys.executable, "-m", "llm_ocr", *words, *self.place(direct=True)],
            env={**self.environment, "TMPDIR": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    # -- the round ------------------------------------------------------------------------------------------------

    def run(self, calm: soak_checks.Read | None, calm_asked: Counter[str]) -> tuple[dict[str, Any], soak_checks.Read]:
        soak = self.soak
        self.folder.mkdir()
        for server in soak.servers:
            server.forget()
        planned = self.command("plan", str(self.corpus.folder), "--pages-per-unit", str(UNIT))
        if planned.returncode:
            raise SystemExit(f"plan ended with {planned.returncode}: {planned.stderr[-1000:]}")
        soak.say(f"round {self.number}{'' if self.stormy else ' (calm)'}: {self.corpus.pages} pages")
        began, cpu = time.monotonic(), os.times()
        with Crew(self.workers(), self.environment, self.folder) as crew:
            soak.storms = soak.storms or (began if self.stormy else 0.0)
            self.watch(crew)
            seconds = time.monotonic() - began
        soak.store.set({})
        soak.say(f"round {self.number}: done in {seconds:.0f} s, now checked")
        self.problems += crew.problems
        facts, result = self.checked(crew, calm, calm_asked)
        after = os.times()
        used = after.children_user + after.children_system - cpu.children_user - cpu.children_system
        told = {
            "round": self.number,
            "stormy": self.stormy,
            "pages": self.corpus.pages,
            "seconds": round(seconds, 1),
            "pages_per_second": round(self.corpus.pages / seconds, 2),
            "workers_cpu_s_per_page": round(used / self.corpus.pages, 3),
            "events": dict(sorted(crew.events.items())),
            **facts,
            "lives": crew.tracks,
            "problems": self.problems,
        }
        return told, result

    def watch(self, crew: Crew) -> None:
        """Until all workers have ended and everything is done."""
        soak, spared = self.soak, self.spared()
        next_sample = next_tell = next_move = 0.0
        every = kill_every(soak.arguments.seconds)
        next_kill = time.monotonic() + soak.chance.uniform(0.5, 1.0) * every
        while True:
            now, stormy = time.monotonic(), self.stormy and soak.left() > 0
            crew.tick(soak.chance)
            for server in soak.servers:
                server.tick(stormy)
            soak.store.tick(stormy)
            if now >= next_sample:
                crew.sample()
                next_sample = now + _SAMPLE
            if stormy and now >= next_kill:
                self.harm(crew, spared)
                next_kill = now + soak.chance.uniform(0.4, 1.6) * every
            if now >= next_move:
                self.look(now)
                next_move = now + 4 * _SAMPLE
            if now >= next_tell:
                self.tell(crew)
                next_tell = now + _TELL
            if crew.idle() and self.finished(crew):
                return
            if now > self.moved + _STUCK or len(crew.problems) > _MOST_PROBLEMS:
                waited = now - self.moved
                self.problems.append(f"given up; nothing was published for {waited:.0f} s: {self.state(crew)}")
                return
            time.sleep(_TICK)

    def spared(self) -> set[str]:
        """Workers that live through the round: their memory is seen over a long time."""
        return {f"extract-{self.number % EXTRACTORS}", ("describe", "assemble")[self.number % 2]}

    def harm(self, crew: Crew, spared: set[str]) -> None:
        chance = self.soak.chance
        age = 0.0 if chance.random() < _ALSO_YOUNG else _GROWN
        victims = [one for one in crew.alive(age) if one.name not in spared]
        if not victims:
            return
        crew.hurt(chance.choice(victims), chance.choices(list(_HARM), list(_HARM.values()))[0], chance)
        with self.entered() as store:
            found = attempts(store)
        for place, attempt in self.before.items():
            if found.get(place) != attempt:
                self.problems.append(f"published twice, or lost: {place} was of {attempt}, is of {found.get(place)}")
        self.before = found

    def look(self, now: float) -> None:
        """Whether markers have come."""
        with self.entered() as store:
            done = sum(info.key.endswith(".done") for info in store.list())
        if done != self.done:
            self.done, self.moved = done, now

    def finished(self, crew: Crew) -> bool:
        """Whether all stages are done; where one is not, a worker comes back: what a dead one held is free by now."""
        if self.soak.left() <= 0 or not self.stormy:
            crew.wake()
        with self.entered() as store:
            open_ = soak_checks.unfinished(store)
        back = [one for one in crew.workers if one.stage in open_ and one.name in ("extract-0", "describe", "assemble")]
        for worker in back:
            crew.events[f"came back {worker.stage}"] += 1
            worker.again_at = time.monotonic() + LEASE / 4
        return not back

    def tell(self, crew: Crew) -> None:
        for server in self.soak.servers:
            server.count()
        self.soak.say(self.state(crew))
        for line in crew.problems[self.told :]:
            self.soak.say(f"  {line}")
        self.told = len(crew.problems)

    def state(self, crew: Crew) -> str:
        weather = [*(server.storm or "calm" for server in self.soak.servers), self.soak.store.storm or "calm"]
        alive = ", ".join(worker.name for worker in crew.alive())
        return f"{self.done} markers; alive: {alive}; weather: {' / '.join(weather)}; {len(crew.problems)} problems"

    # -- its end --------------------------------------------------------------------------------------------------

    def entered(self) -> "soak_checks.Direct":
        return soak_checks.Direct(self.url, self.soak.store.direct)

    def checked(
        self, crew: Crew, calm: soak_checks.Read | None, calm_asked: Counter[str]
    ) -> tuple[dict[str, Any], soak_checks.Read]:
        """Everything that must be true now, and the counts."""
        asked = sum((server.asked() for server in self.soak.servers), Counter[str]())
        for server in self.soak.servers:
            server.count()
        facts: dict[str, Any] = {"requests": asked.total()}
        self.statused()
        with self.entered() as store:
            result = soak_checks.read(store, self.corpus)
            self.problems += result.problems
            facts |= {"counts": dict(result.counts()), "figures": result.figures}
            if calm is not None:
                found, more = soak_checks.compared(result, calm)
                self.problems += found
                again = soak_checks.asked_again(asked, result, calm, calm_asked)
                facts |= {**more, "asked_again": again, "asked_again_share": round(again / self.corpus.pages, 4)}
            unnamed = unnamed_data(store)
            facts["written_and_not_published"] = len(unnamed)
            self.problems += soak_checks.stood(store, self.corpus, result.figures, self.before, crew.killed)
            soak_checks.remove_all(store)
        return facts, result

    def statused(self) -> None:
        """`status` reads the workspace and exits 0; what it prints is conserved."""
        done = self.command("status", "--json")
        if done.returncode:
            self.problems.append(f"status ended with {done.returncode}: {done.stderr[-500:]}")
            return
        pages = json.loads(done.stdout)["pages"]
        if pages["expected"] != pages["ok"] + pages["degraded"] + pages["failed"]:
            self.problems.append(f"status says {pages}")


def kill_every(seconds: float) -> float:
    """Seconds between two kills, in the mean."""
    return min(90.0, max(12.0, float(seconds) / 24))
