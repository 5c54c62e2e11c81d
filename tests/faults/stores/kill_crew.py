"""Workers as real commands, to be killed."""

import random
import subprocess
import sys
import time
from pathlib import Path

from fault_places import Place

import llm_ocr

REPOSITORY = Path(llm_ocr.__file__).parents[1]
WORKERS = 3

#: Seconds until a lease passes on: what is short, and what Google Cloud Storage allows.
_LEASES = {"gcs": "150"}
_LEASE = "8"


class Crew:
    """The workers of one stage of one workspace."""

    def __init__(self, place: Place, stage: str, folder: Path, workers: int) -> None:
        self._place = place
        self._stage = stage
        self._folder = folder
        self._workers = workers
        self._alive: dict[int, subprocess.Popen[bytes]] = {}
        self.problems: list[str] = []

    def __enter__(self) -> "Crew":
        for number in range(self._workers):
            self.start(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._alive.values():
            process.kill()
            process.wait()

    def start(self, number: int) -> None:
        """Begin worker `number`, or begin it anew."""
        static = ["--shard-index", str(number), "--shard-count", str(self._workers)]
        share = lease(self._place, self._stage) or static
        with self._log(number).open("ab") as log:
            self._alive[number] = subprocess.Popen(
                command(self._place, self._stage, *share),
                stdout=log,
                stderr=log,
                env=environment(self._place, self._folder),
            )

    def _log(self, number: int) -> Path:
        return self._folder / f"{self._stage}-{number}.log"

    def kill(self, chance: random.Random) -> int:
        """Kill a worker that is at work, if there is one, and start it again; the process that it was, else 0."""
        running = [number for number, process in self._alive.items() if process.poll() is None]
        if not running:
            return 0
        number = chance.choice(running)
        process = self._alive[number]
        process.kill()
        if process.wait() != -9:
            return 0
        self.start(number)
        return process.pid

    def wait(self, seconds: float) -> bool:
        """Whether all have ended within so many seconds; those that failed are noted, and not started again."""
        end = time.monotonic() + seconds
        while any(process.poll() is None for process in self._alive.values()):
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        for number, process in self._alive.items():
            if process.returncode:
                last = self._log(number).read_text(errors="replace").strip().splitlines()[-3:]
                self.problems.append(f"{self._stage} {number} ended with {process.returncode}: {' / '.join(last)}")
        return True


def lease(place: Place, stage: str) -> list[str]:
    """How a stage's units are leased; nothing where they are not."""
    return ["--lease-seconds", _LEASES.get(place.kind, _LEASE)] if place.leases and stage != "assemble" else []


def command(place: Place, *words: str) -> list[str]:
    """A command line with the embedded engine."""
    engine = ["--engine", "embedded"] if words[0] in ("plan", "extract", "describe") else []
    if words[0] == "extract":
        engine += ["--render-workers", "1", "--ocr-workers", "1"]
    return [sys.executable, "-m", "llm_ocr", words[0], *place.flags, *engine, "--quiet", *words[1:]]


def environment(place: Place, folder: Path) -> dict[str, str]:
    """Nothing of this machine's."""
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder), **place.environment}


def make_pdfs(folder: Path, count: int) -> Path:
    """Documents of one page with a text layer."""
    from reportlab.pdfgen.canvas import Canvas

    if not folder.exists():
        folder.mkdir(parents=True)
        for number in range(count):
            page = Canvas(str(folder / f"letter {number:03d}.pdf"), pagesize=(420, 595))
            for line in range(12):
                page.drawString(
                    50, 540 - 20 * line, f"Line {line} of letter number {number}, which has twelve of them."
                )
            page.save()
    return folder
