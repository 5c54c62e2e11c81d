"""The workers of the soak: real commands that are killed, told to stop, put to sleep, and started again."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import soak_watch
from soak_watch import Process, Track

#: Seconds after which another worker takes a unit over: short beside the kills, long beside what a pause costs.
LEASE = 20
#: Seconds in which a worker that was told to stop has to be gone: --grace is 20.
_TERM_PATIENCE = 60.0
#: Seconds in which what a dead worker had started has to be gone.
_ORPHAN_PATIENCE = 15.0
#: A worker so young may not yet hear SIGTERM: the interpreter dies of it.
_DEAF = 8.0
_INTERRUPTED = 4  # the command's exit code


@dataclass(slots=True)
class Life:
    """One process of a worker, from its start to its end."""

    process: "subprocess.Popen[bytes]"
    track: Track
    began: float
    below: set[Process] = field(default_factory=set)  # whatever it or its children have started
    sent: str = ""  # what was done to it: kill, kill machine, term
    sent_at: float = 0.0
    ended: float = 0.0

    @property
    def running(self) -> bool:
        return self.process.poll() is None


@dataclass(slots=True)
class Worker:
    """A place in the crew; `life` is None between a death and the next start."""

    name: str
    words: Sequence[str]
    life: Life | None = None
    again_at: float = 0.0  # when it is started again; 0: not
    asleep_until: float = 0.0
    done: bool = False
    lives: int = 0

    @property
    def stage(self) -> str:
        return self.words[0]


class Crew:
    """The workers of one round. Everything that is not as promised is a line in `problems`."""

    def __init__(self, workers: Mapping[str, Sequence[str]], environment: Mapping[str, str], folder: Path) -> None:
        self.workers = [Worker(name, words) for name, words in workers.items()]
        self.problems: list[str] = []
        self.events: Counter[str] = Counter()
        self.tracks: list[dict[str, Any]] = []
        self.killed: set[int] = set()  # processes that could not release their leases
        self._environment = environment
        self._folder = folder
        self._dead: list[Life] = []

    def __enter__(self) -> "Crew":
        for worker in self.workers:
            self.start(worker)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing that we started is left."""
        for worker in self.workers:
            if worker.life is not None and worker.life.running:
                _kill_tree(worker.life)
                worker.life.process.wait()

    def start(self, worker: Worker) -> None:
        """Begin a life."""
        worker.lives += 1
        self.temporary(worker).mkdir(exist_ok=True)
        with self.log(worker).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "llm_ocr", *worker.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,  # Python looks there first
                env={**self._environment, "TMPDIR": str(self.temporary(worker))},
                start_new_session=True,  # Ctrl-C is for the soak, which then ends them
            )
        worker.life = Life(process, Track(process.pid), time.monotonic())
        worker.again_at, worker.done = 0.0, False

    def log(self, worker: Worker) -> Path:
        return self._folder / f"{worker.name}.log"

    def temporary(self, worker: Worker) -> Path:
        """Its TMPDIR, the same for all its lives: what a killed one leaves, the next one has to remove."""
        return self._folder / f"{worker.name}.tmp"

    def alive(self, seconds: float = 0.0) -> list[Worker]:
        """Those that run, for so long at least."""
        youngest = time.monotonic() - seconds
        return [one for one in self.workers if one.life is not None and one.life.running and one.life.began <= youngest]

    def idle(self) -> bool:
        """Whether all have ended by themselves and none is to be started again."""
        return all(worker.life is None and not worker.again_at for worker in self.workers)

    # -- what is done to them -------------------------------------------------------------------------------------

    def hurt(self, worker: Worker, how: str, chance: random.Random) -> None:
        """kill: SIGKILL; kill machine: its children too; term: SIGTERM; pause: asleep for longer than its leases."""
        life = worker.life
        if life is None or not life.running or life.sent or (worker.asleep_until and not how.startswith("kill")):
            return  # who sleeps hears nothing else
        self.events[f"{how} {worker.stage}"] += 1
        if how == "pause":
            worker.asleep_until = time.monotonic() + LEASE * chance.uniform(1.2, 2.0)
            life.process.send_signal(signal.SIGSTOP)
            return
        life.sent, life.sent_at = how, time.monotonic()
        if how == "kill machine":
            self._follow(life, soak_watch.children())
            _kill_tree(life)
        else:
            life.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        worker.asleep_until = 0.0

    def tick(self, chance: random.Random) -> None:
        """See who has ended, wake and start those whose time it is."""
        now = time.monotonic()
        for worker in self.workers:
            life = worker.life
            if worker.asleep_until and now >= worker.asleep_until:
                worker.asleep_until = 0.0
                if life is not None and life.running:
                    life.process.send_signal(signal.SIGCONT)
            if life is not None and not life.running:
                self._ended(worker, life, now, chance)
            elif life is not None and life.sent == "term" and now > life.sent_at + _TERM_PATIENCE:
                self.problems.append(f"{worker.name} does not end after SIGTERM")
                life.sent = "kill"
                _kill_tree(life)
            if worker.again_at and now >= worker.again_at:
                self.start(worker)
        self._bury(now)

    def wake(self) -> None:
        """All that sleep, now."""
        for worker in self.workers:
            worker.asleep_until = min(worker.asleep_until, time.monotonic()) if worker.asleep_until else 0.0

    def sample(self) -> None:
        """Measure all, and see what they have started."""
        now, known = time.monotonic(), soak_watch.children()
        for worker in self.alive():
            if worker.life is not None:
                tree = self._follow(worker.life, known)
                worker.life.track.look(now, [one.pid for one in tree])

    def _follow(self, life: Life, known: dict[int, list[Process]]) -> list[Process]:
        tree = soak_watch.descendants(life.process.pid, known)
        life.below.update(tree)
        return tree

    # -- how they end ---------------------------------------------------------------------------------------------

    def _ended(self, worker: Worker, life: Life, now: float, chance: random.Random) -> None:
        worker.life, life.ended, code = None, now, life.process.returncode
        self._dead.append(life)
        told = {"worker": worker.name, "life": worker.lives, "end": life.sent or "done", "exit": code}
        self.tracks.append(told | life.track.summary())
        self.problems += [
            f"{worker.name}, life {worker.lives}: {line}" for line in soak_watch.not_flat(self.tracks[-1])
        ]
        if not self._as_expected(life, code):
            self.problems.append(f"{worker.name} ended with {code} ({life.sent or 'by itself'}): {self._last(worker)}")
        self.killed |= {life.process.pid} if code == -signal.SIGKILL else set()
        worker.done = code == 0
        if worker.done and (files := sorted(path.name for path in self.temporary(worker).iterdir())):
            self.problems.append(f"{worker.name}, life {worker.lives}, ended and left in its TMPDIR: {files[:5]}")
        if code != 0:
            worker.again_at = now + chance.uniform(2.0, 8.0)

    def _as_expected(self, life: Life, code: int) -> bool:
        if life.sent == "term":
            deaf = life.sent_at - life.began < _DEAF and code == -signal.SIGTERM
            return code in (0, _INTERRUPTED) or deaf
        return code == 0 or (code == -signal.SIGKILL and bool(life.sent))

    def _last(self, worker: Worker) -> str:
        return " / ".join(self.log(worker).read_text(errors="replace").strip().splitlines()[-4:])[-800:]

    def _bury(self, now: float) -> None:
        """What the dead have started is to be gone."""
        for life in list(self._dead):
            left = [one for one in life.below if one.alive()]
            if left and now < life.ended + _ORPHAN_PATIENCE:
                continue
            self._dead.remove(life)
            for one in left:
                self.problems.append(f"process {one.pid} outlived its worker {life.process.pid} ({life.sent})")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)


def _kill_tree(life: Life) -> None:
    """As when the machine is gone: the worker first, so that it starts nothing more."""
    with contextlib.suppress(ProcessLookupError):
        life.process.kill()
    for one in life.below:
        if one.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
