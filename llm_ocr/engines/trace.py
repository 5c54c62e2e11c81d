"""Trace the decisions of a page's passes: log records at level DEBUG that hold a `Decision`.

A worker process returns its decisions with the page's answer, and the main process logs them once more. Messages hold
no text of the page; facts do.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from llm_ocr.types import Box

_log = logging.getLogger(__name__)

#: The step of the decisions that hold the time of a pass, in `milliseconds`.
TIME = "time"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of one pass. `facts` are JSON values; boxes are relative to the page: x0, y0, x1, y1."""

    step: str
    message: str
    facts: Mapping[str, object] = field(default_factory=dict)
    page: str = ""  # the page, in the main process

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.page, self.step, self.message)))


def tracing() -> bool:
    """Return whether decisions are logged. Ask before work that only a decision needs."""
    return _log.isEnabledFor(logging.DEBUG)


def note(step: str, message: str, **facts: object) -> None:
    """Log a decision, if decisions are logged."""
    if tracing():
        _log.debug(Decision(step, message, facts))


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Log the time of the block, if decisions are logged and the block raises nothing."""
    if not tracing():
        yield
        return
    began = time.perf_counter()
    yield
    milliseconds = round(1000 * (time.perf_counter() - began), 2)
    note(TIME, f"{name} {milliseconds} ms", name=name, milliseconds=milliseconds)


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, Decision):
            self.decisions.append(record.msg)


@contextmanager
def collected() -> Iterator[list[Decision]]:
    """Collect all decisions of the block in a list, and log them nowhere else."""
    collector = _Collector()
    before = _log.level, _log.propagate
    _log.setLevel(logging.DEBUG)
    _log.propagate = False
    _log.addHandler(collector)
    try:
        yield collector.decisions
    finally:
        _log.removeHandler(collector)
        _log.setLevel(before[0])
        _log.propagate = before[1]


def decisions_to_wire(decisions: Sequence[Decision]) -> list[list[object]]:
    """Return decisions as JSON values."""
    return [[decision.step, decision.message, decision.facts] for decision in decisions]


def log_from_wire(wire: Sequence[tuple[str, str, Mapping[str, object]]], page: str) -> None:
    """Log the decisions that a worker process returned for a page."""
    for step, message, facts in wire:
        _log.debug(Decision(step, message, facts, page))


def relative(box: Box, width: float, height: float) -> list[float]:
    """Return a box in page units as relative numbers for `Decision.facts`."""
    scaled = box.scaled(1 / max(width, 1e-6), 1 / max(height, 1e-6)).clipped()
    return [round(side, 4) for side in (scaled.x0, scaled.y0, scaled.x1, scaled.y1)]
