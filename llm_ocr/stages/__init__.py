"""The three stages. Each reads the results of the stage before and publishes its own unit by unit."""

from collections.abc import Callable
from typing import Protocol

from llm_ocr.engines import Load
from llm_ocr.types import Counts, Status


class Progress(Protocol):
    """What a stage tells while it runs; the command line shows it, the Python API may."""

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        """A stage starts: `expected` pages (or figures, documents), of which `done` were finished in earlier runs.

        `estimated` is given, as True, when documents are counted only while the stage runs.
        """

    def correct(self, change: int, *, exact: bool) -> None:
        """What is expected changes by `change`; unless `exact` it is an estimate still.

        So it does, too, where a worker that shares units with others learns only when it takes one what is in it.
        """

    def count(self, status: Status) -> None:
        """One more page (figure, document) ended."""

    def measure(self, load: Callable[[], Load]) -> None:
        """Where the live numbers of the stage's engine are read, until the stage ends."""

    def say(self, message: str) -> None:
        """A line for the user."""

    def end(self) -> None:
        """The stage is over."""


class Silent:
    """Progress that is not shown."""

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None: ...

    def correct(self, change: int, *, exact: bool) -> None: ...

    def count(self, status: Status) -> None: ...

    def measure(self, load: Callable[[], Load]) -> None: ...

    def say(self, message: str) -> None: ...

    def end(self) -> None: ...
