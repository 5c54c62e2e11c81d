"""Filters that leave documents out of a plan: forms, spam, other languages, blank documents."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

# Which documents are left out of a plan: forms, spam, other languages, blank ones. Documents are looked at in the
# renderer's processes (`judging`), which take the text of the first pages, too; its language is identified in a process
# of its own (`languages`). `looking` is the main process's side. A document in doubt stays.


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


# Text that was made for search engines: download sites for books, and shops for medicine.


#: The words of olmOCR's rule, and the share of a text's words above which it is spam (allenai/olmocr @ 4f34e02,
#: olmocr/filter/filter.py).
WORDS = frozenset(
    [
        *("download", "pdf", "epub", "mobi", "free", "ebook"),
        *("file", "save", "casino", "viagra", "cialis", "ciprofloxacin"),
    ]
)
SHARE = 0.004
#: Different ones of the words that must be there. olmOCR asks for one, and of 335 stretches of 3,000 characters of real
#: documents calls 11 spam, because a page says `free` three times; with three of them none is.
DIFFERENT = 3

_WORD = re.compile(r"\w+")


def spam(view: DocumentView) -> LeftOut | None:
    """Left out when several of the words make up more than `SHARE` of the text."""
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


# The filters over one opened document, in the renderer's process.


Rule = Callable[[DocumentView], LeftOut | None]


def judged(view: DocumentView, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the filters say, as JSON values; `options` are the fields of `FilterOptions`.

    `left_out`: reason and detail, or None. `text`: what the language is to be judged by, empty where it is not.
    `trouble`: what a filter met that could not look; its document stays.
    """
    trouble: list[str] = []
    for name, rule in _RULES.items():
        if options[name] and (found := _tried(name, rule, view, trouble)):
            return {"left_out": [found.reason, found.detail], "text": "", "trouble": ""}
    return {"left_out": None, "text": _text(view, options, trouble), "trouble": "; ".join(trouble)}


def _forms(view: DocumentView) -> LeftOut | None:
    form = view.form()
    return LeftOut(FORMS, form) if form else None


def _blank(view: DocumentView) -> LeftOut | None:
    return LeftOut(BLANK, "no text and no ink on any page") if view.blank() else None


def _tried(name: str, rule: Rule, view: DocumentView, trouble: list[str]) -> LeftOut | None:
    try:
        return rule(view)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a damaged file leads to, a filter must not cost the document
        trouble.append(f"{name}: {type(error).__name__} {error}")
        return None


def _text(view: DocumentView, options: Mapping[str, Any], trouble: list[str]) -> str:
    if not options["languages"]:
        return ""
    try:
        text = view.text()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        trouble.append(f"language: {type(error).__name__} {error}")
        return ""
    return text if enough_text(text) else ""


#: The cheapest first; one that is only asked when no other has spoken stands last.
_RULES: Mapping[str, Rule] = {FORMS: _forms, SPAM: spam, BLANK: _blank}
