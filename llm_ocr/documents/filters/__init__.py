"""Which documents are left out of a plan: forms, spam, other languages, blank ones.

Documents are looked at in the renderer's processes (`judging`), which take the text of the first pages, too; its
language is identified in a process of its own (`languages`). `looking` is the main process's side. A document in doubt
stays.
"""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

LANGUAGE, FORMS, SPAM, BLANK = "language", "forms", "spam", "blank"
#: Raised when a filter's rule changes: then what an older version left out is looked at again.
REVISION = 1
#: Pages whose text is taken, as olmOCR's filter does (allenai/olmocr @ 4f34e02, olmocr/filter/filter.py).
TEXT_PAGES = 5
#: Characters taken of one page; a broadsheet has 30,000, and a language is known after some hundred.
TEXT_CHARACTERS = 8000
#: Characters below which a text is not judged, and the share of them that must be letters: olmOCR's numbers. Scans
#: without a text layer have none, tables of numbers and text layers that are wrong have few letters.
ENOUGH_CHARACTERS, LETTERS = 200, 0.5


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which filters are on. `languages` are the codes of those that stay, in order; none: any language stays."""

    languages: tuple[str, ...] = ()
    forms: bool = False
    spam: bool = False
    blank: bool = False

    @property
    def any(self) -> bool:
        """Whether one is on."""
        return bool(self.languages or self.forms or self.spam or self.blank)

    def identity(self) -> dict[str, Any]:
        """What decides what they leave out, as JSON values."""
        return {**asdict(self), "languages": list(self.languages), "revision": REVISION} if self.any else {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a document is left out. `reason` is the filter's name, `kind` what it found where there are kinds: a code."""

    reason: str
    detail: str
    kind: str = ""

    @property
    def cause(self) -> str:
        """What documents are counted by: `language de`, `forms`."""
        return f"{self.reason} {self.kind}" if self.kind else self.reason


class DocumentView(Protocol):
    """What filters look at. Each is taken from the document when it is first asked for."""

    def text(self) -> str:
        """The text layer of the first pages; empty where there is none."""

    def form(self) -> str:
        """The kind of form that can be filled in, in words; empty for no form."""

    def blank(self) -> bool:
        """Whether no page has text or ink."""


def enough_text(text: str) -> bool:
    """Whether a text can be judged at all."""
    return len(text) >= ENOUGH_CHARACTERS and sum(map(str.isalpha, text)) >= LETTERS * len(text)
