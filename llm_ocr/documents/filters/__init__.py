"""Exclude documents from a plan: forms, spam, other languages, and blank documents."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

# Filters run in the renderer's processes (`judged`), which also extract the text of the first pages. The language is
# identified in separate processes (`languages`). `Filters` is the main process's side. A document in doubt stays.


LANGUAGE, FORMS, SPAM, BLANK = "language", "forms", "spam", "blank"
#: Increased when a filter's rule changes, so that documents excluded by an older version are checked again.
REVISION = 1
#: Number of pages whose text is used, as in olmOCR's filter (allenai/olmocr @ 4f34e02, olmocr/filter/filter.py).
TEXT_PAGES = 5
#: Limit of characters per page; a broadsheet has 30,000, and a few hundred identify a language.
TEXT_CHARACTERS = 8000
#: Minimum characters of a text to judge, and minimum share of letters among them: olmOCR's numbers. Scans without a
#: text layer have no characters; tables of numbers and wrong text layers have few letters.
ENOUGH_CHARACTERS, LETTERS = 200, 0.5


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


class DocumentView(Protocol):
    """View of a document for filters; each value is extracted at its first use."""

    def text(self) -> str:
        """Return the text layer of the first pages; "" without one."""

    def form(self) -> str:
        """Return the kind of fillable form in words; "" for no form."""

    def blank(self) -> bool:
        """Return whether no page has text or ink."""


def enough_text(text: str) -> bool:
    """Return whether a text is long enough to judge."""
    return len(text) >= ENOUGH_CHARACTERS and sum(map(str.isalpha, text)) >= LETTERS * len(text)


# Text for search engines: download sites for books, and shops for medicine.


#: Words of olmOCR's rule, and the share of a text's words above which the text is spam (allenai/olmocr @ 4f34e02,
#: olmocr/filter/filter.py).
WORDS = frozenset(
    [
        *("download", "pdf", "epub", "mobi", "free", "ebook"),
        *("file", "save", "casino", "viagra", "cialis", "ciprofloxacin"),
    ]
)
SHARE = 0.004
#: Minimum number of different spam words. olmOCR requires one. Measured on 335 stretches of 3,000 characters from real
#: documents: one word marks 11 as spam, because a page contains `free` three times. Three words mark none.
DIFFERENT = 3

_WORD = re.compile(r"\w+")


def spam(view: DocumentView) -> LeftOut | None:
    """Exclude a document if several of the words make up more than `SHARE` of its text."""
    text = view.text()
    if not enough_text(text):
        return None
    words = Counter(_WORD.findall(text.lower()))
    met = {word: words[word] for word in WORDS if words[word]}
    share = sum(met.values()) / max(1, words.total())
    if share <= SHARE or len(met) < DIFFERENT:
        return None
    shown = ", ".join(sorted(met, key=lambda word: (-met[word], word))[:3])
    return LeftOut(SPAM, f"{share:.1%} of {words.total()} words: {shown}")


# Filters over an opened document in the renderer's process.


T = TypeVar("T")


def judged(view: DocumentView, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the filters as JSON values; `options` are the fields of `FilterOptions`.

    `left_out`: reason and detail, or None. `text`: text for the language check, empty without a check. `trouble`:
    errors of filters, whose documents stay.
    """
    trouble: list[str] = []

    def tried(name: str, step: Callable[[], T], failed: T) -> T:
        try:
            return step()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a filter's error, whatever its type, must not affect the document
            trouble.append(f"{name}: {type(error).__name__} {error}")
            return failed

    # Cheapest first; the last filter runs only if no other filter matched.
    rules: dict[str, Callable[[], LeftOut | None]] = {
        FORMS: lambda: LeftOut(FORMS, form) if (form := view.form()) else None,
        SPAM: lambda: spam(view),
        BLANK: lambda: LeftOut(BLANK, "no text and no ink on any page") if view.blank() else None,
    }
    for name, rule in rules.items():
        if options[name] and (found := tried(name, rule, None)):
            return {"left_out": [found.reason, found.detail], "text": "", "trouble": ""}
    text = tried(LANGUAGE, view.text, "") if options["languages"] else ""
    return {"left_out": None, "text": text if enough_text(text) else "", "trouble": "; ".join(trouble)}
