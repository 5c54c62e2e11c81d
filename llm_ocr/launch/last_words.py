"""Log files on this machine: lines for the user, and the reason why a stage ended."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

#: Lines at the end of a log that hold the last message: the command prints its error last, with a hint below it.
ENOUGH = 12
_OURS = "llm-ocr: "


def last_words(lines: Iterable[str]) -> str:
    """Return the last message of a log as one line; "" for an empty log.

    The message is the last one of this library with its hint. In the log of another program it is the last line.
    """
    kept = [line.strip() for line in lines if line.strip()][-ENOUGH:]
    start = max((place for place, line in enumerate(kept) if line.startswith(_OURS)), default=len(kept) - 1)
    return " ".join(kept[max(start, 0) :]).removeprefix(_OURS)


def file_lines(log: Path, over: Callable[[], bool], *, follow: bool, tail: int | None, every: float) -> Iterator[str]:
    """Yield the lines of a log file.

    Args:
        log: The file.
        over: Returns whether the job has ended.
        follow: Wait for more lines until the job has ended.
        tail: Yield only so many of the present lines; None for all.
        every: Seconds between two looks at the file.
    """
    with log.open(errors="replace") as lines:
        if tail is not None:
            yield from (line.rstrip("\n") for line in deque(lines, maxlen=tail))
        while True:
            last = not follow or over()  # first: the job may write a line between the two looks
            yield from (line.rstrip("\n") for line in lines)
            if last:
                return
            time.sleep(every)
