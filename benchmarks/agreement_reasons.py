"""Why readings differ: one sentence for each kind of difference, and how it is told.

A sound answer's difference is explained when readings agree once the known differences are taken out of them; one of a
broken answer by who keeps more of it. What no rule fits has no reason, and is listed with examples.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agreement_compare import Reading, compared, plain, text_of

#: What is left of marks that were cut or damaged, which is no text of a page.
_REMAINS = re.compile(
    r"<\|(?:ref|det)\|>\w*|<\|?/?(?:ref|det)\b|\b(?:ref|det)\|>|</?\|?\w*\|?>?|[a-z]{0,4}cel>"
    r"|\[\[?[\d.,\s]*\]?\]?(?:<\|/det\|>)?|\(page_[\d_]*(?:\.p?n?g?\)?)?|_[\d_]+\.png\)"
    r"|\b(?:alt|display)=\S*|\|/?(?:ref|det)\|?>?"
)
_WORD = re.compile(r"[^\W_]+")
_DEEPSEEK = ("deepseek", "unlimited")


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is known: `take_out` changes their reading (and ours) to what it would be without it."""

    why: str
    forms: tuple[str, ...]
    take_out: Callable[[str, Reading, Reading], None]


def _labelled(label: str, beginning: str) -> Callable[[str, Reading, Reading], None]:
    def change(answer: str, ours: Reading, theirs: Reading) -> None:
        for piece in theirs["pieces"]:
            if piece["label"] == "text" and piece["text"].lstrip().startswith(beginning):
                piece["label"] = label

    return change


def _captions_last(answer: str, ours: Reading, theirs: Reading) -> None:
    pieces = theirs["pieces"]
    for at in range(len(pieces) - 1):
        caption, owner = pieces[at], pieces[at + 1]
        above = caption["box"] and owner["box"] and caption["box"][1] > owner["box"][1]
        if caption["label"] == "caption" and owner["label"] in ("figure", "table") and above:
            pieces[at], pieces[at + 1] = owner, caption


def _less_than(answer: str, ours: Reading, theirs: Reading) -> None:
    if re.search(r"<\w+cel>[^<>]*< ", answer):
        for piece in (*ours["pieces"], *theirs["pieces"]):
            piece["grids"] = []


KNOWN = (
    Known(
        "docling's map of these labels lacks `equation`: text for it, a formula for us", _DEEPSEEK,
        _labelled("formula", "\\["),
    ),
    Known("a list under the label `text` is a list for us, text for docling", _DEEPSEEK, _labelled("list_item", "- ")),
    Known("code under the label `text` is code for us, text for docling", _DEEPSEEK, _labelled("code", "```")),
    Known("docling puts a caption before its figure; we keep the model's order", _DEEPSEEK, _captions_last),
    Known(
        "docling-core takes `<` within a cell for a tag and loses what stands behind it, cells too", ("doctags",),
        _less_than,
    ),
)  # fmt: skip


def reason_of(form: str, fault: str, answer: str, ours: Reading, theirs: Reading) -> str:
    """Why two readings of an answer differ; "" where no rule fits."""
    if "error" in theirs:
        return f"the other program raises {theirs['error'].split(':')[0]} and reads nothing; we keep what is sound"
    found = _known(form, answer, ours, theirs)
    if found:
        return "; ".join(found)
    return _of_broken(ours, theirs) if fault != "sound" else ""


def _known(form: str, answer: str, ours: Reading, theirs: Reading) -> tuple[str, ...]:
    """The fewest known differences that explain all of it."""
    fitting = [known for known in KNOWN if form in known.forms]
    for chosen in ([known] for known in fitting):
        if _agree_without(chosen, form, answer, ours, theirs):
            return tuple(known.why for known in chosen)
    if not _agree_without(fitting, form, answer, ours, theirs):
        return ()
    needed = list(fitting)
    for known in fitting:
        fewer = [one for one in needed if one is not known]
        if _agree_without(fewer, form, answer, ours, theirs):
            needed = fewer
    return tuple(known.why for known in needed)


def _agree_without(known: Iterable[Known], form: str, answer: str, ours: Reading, theirs: Reading) -> bool:
    mine, other = copy.deepcopy(ours), copy.deepcopy(theirs)
    for one in known:
        one.take_out(answer, mine, other)
    return all(compared(form, mine, other).values())


def _of_broken(ours: Reading, theirs: Reading) -> str:
    mine, other = Counter(_words(ours)), Counter(_words(theirs))
    if not mine and not other:
        mine, other = _places(ours), _places(theirs)
    if mine == other:
        return "the same words and cells, parted, labelled or placed differently around the damage"
    if not other:
        return "the other program reads nothing; we keep what is sound"
    if not other - mine:
        return "we keep all that the other program keeps, and more"
    if any("repeat" in lost for lost in ours.get("lost", ())):
        return "we leave out what a loop repeats, and say so in `lost`; the other program keeps it"
    if set(other) <= set(mine):
        return "a damaged mark joins or repeats cells for the other program; we keep each word once"
    joined = "".join(_words(ours))
    if all(word in joined for word in other - mine):
        return "the other program joins the words at both sides of a damaged mark; we keep them apart"
    return ""


def _words(reading: Reading) -> list[str]:
    """Words of the text and of cells in order, without remains of tags."""
    cells = [plain(cell) for piece in reading["pieces"] for grid in piece["grids"] for row in grid for cell in row]
    return [word for text in (text_of(reading), *cells) for word in _WORD.findall(_REMAINS.sub(" ", text))]


def _places(reading: Reading) -> Counter[str]:
    return Counter(f"{piece['label']} {[round(side, 2) for side in piece['box'] or ()]}" for piece in reading["pieces"])
