"""The stages plan, Extract, Describe, and Assemble. Each stage reads the results of the stage before.

A stage publishes its own results unit by unit.
"""

from collections.abc import Callable
from typing import Protocol

from llm_ocr.engines import Load
from llm_ocr.types import Counts, Status


class Progress(Protocol):
    """Receives the progress of a stage, for the command line or the Python API."""

    def begin(self, stage: str, expected: int, done: Counts, *, estimated: bool = False) -> None:
        """Begin a stage.

        Args:
            stage: The name of the stage.
            expected: Pages, figures, or documents.
            done: Those that earlier runs finished.
            estimated: True if documents are counted only while the stage runs. Otherwise it is not passed.
        """

    def correct(self, change: int, *, exact: bool) -> None:
        """Change the expected number by `change`.

        A worker that shares units with others learns their sizes only when it takes them.

        Args:
            change: The difference.
            exact: Whether the new number is exact. If not, it is still an estimate.
        """

    def count(self, status: Status) -> None:
        """Count a finished page, figure, or document."""

    def measure(self, load: Callable[[], Load]) -> None:
        """Set the function that returns the live numbers of the stage's engine, until the stage ends."""

    def say(self, message: str) -> None:
        """Show a message to the user."""

    def end(self) -> None:
        """End the stage."""


class Silent:
    """Progress that is not shown."""

    def begin(self, stage: str, expected: int, done: Counts, *, estimated: bool = False) -> None: ...

    def correct(self, change: int, *, exact: bool) -> None: ...

    def count(self, status: Status) -> None: ...

    def measure(self, load: Callable[[], Load]) -> None: ...

    def say(self, message: str) -> None: ...

    def end(self) -> None: ...
