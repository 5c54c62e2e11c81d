"""What the simulator remembers over its restarts, if a file is given: starts, and how often each image was asked."""

from collections import Counter
from pathlib import Path


class State:
    """Counts in a file of one line per event: a process that is killed at any moment loses none that was written."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._asked: Counter[str] = Counter()
        lines = path.read_text().splitlines() if path and path.exists() else []
        for line in lines:
            kind, _, name = line.partition(" ")
            if kind == "asked":
                self._asked[name] += 1
        self.starts = 1 + sum(line == "start" for line in lines)
        self._write("start")

    def count(self, image: str) -> int:
        """How often this image was asked before; counts this time."""
        before = self._asked[image]
        self._asked[image] += 1
        self._write(f"asked {image}")
        return before

    def _write(self, line: str) -> None:
        if self._path:
            with self._path.open("a") as file:
                file.write(line + "\n")
