"""The three stages: each takes what the one before published, and publishes its own result unit by unit."""

from typing import Protocol

from llm_ocr.types import Counts, Status


class Progress(Protocol):
    """What a stage tells while it runs; the command line shows it, the Python API may."""

    def begin(self, stage: str, expected: int, done: Counts) -> None:
        """A stage starts: `expected` pages (or figures, documents), of which `done` were finished in earlier runs."""

    def count(self, status: Status) -> None:
        """One more page (figure, document) ended."""

    def say(self, message: str) -> None:
        """A line for the user."""

    def end(self) -> None:
        """The stage is over."""


class Silent:
    """Progress that is not shown."""

    def begin(self, stage: str, expected: int, done: Counts) -> None: ...

    def count(self, status: Status) -> None: ...

    def say(self, message: str) -> None: ...

    def end(self) -> None: ...
