"""Exclude documents from a plan: forms, spam, other languages, and blank documents."""

from dataclasses import asdict, dataclass
from typing import Any

# Filters run in the renderer's processes (`judging`), which also extract the text of the first pages. The language is
# identified in separate processes (`languages`). `Filters` is the main process's side. A document in doubt stays.


LANGUAGE, FORMS, SPAM, BLANK = "language", "forms", "spam", "blank"
#: Increased when a filter's rule changes, so that documents excluded by an older version are checked again.
REVISION = 1


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Enabled filters. `languages` are the codes of languages to keep, in order; none: every language is kept."""

    languages: tuple[str, ...] = ()
    forms: bool = False
    spam: bool = False
    blank: bool = False

    @property
    def any(self) -> bool:
        """Return whether a filter is enabled."""
        return bool(self.languages or self.forms or self.spam or self.blank)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the excluded documents, as JSON values."""
        return {**asdict(self), "languages": list(self.languages), "revision": REVISION} if self.any else {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Reason for excluding a document.

    `reason` is the filter's name; `kind` is its finding, such as a language code.
    """

    reason: str
    detail: str
    kind: str = ""

    @property
    def cause(self) -> str:
        """Return the category for counts: `language de`, `forms`."""
        return f"{self.reason} {self.kind}" if self.kind else self.reason
