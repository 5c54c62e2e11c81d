"""Figures in Markdown: alt text and descriptions."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from llm_ocr.engines.descriptions import FIGURE_CAPTION, INSIDE, TABLE_CAPTION
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.markdown import (
    DESCRIPTION,
    IMAGE,
    collapse_blank_lines,
    escape,
    map_prose,
    markdown_lines,
    one_line,
    target_id,
)
from llm_ocr.types import FigureRecord, PageRecord

#: Upper limit of characters of data in the Markdown; the dataset has all of them.
LONGEST_DATA = 2000


def figure_words(record: FigureRecord) -> str:
    """Return a figure's description, otherwise its data in one line, otherwise its class.

    Data have the form `bar chart: Sales. year | units; 2020 | 5; 2021 | 7`.
    """
    if record.description or not record.data:
        return record.description or record.label
    try:
        data = json.loads(record.data)
    except ValueError:
        return record.label
    text = ". ".join(_parts(data)) if isinstance(data, Mapping) else ""
    if len(text) > LONGEST_DATA:
        text = text[:LONGEST_DATA].rpartition("; ")[0] + " ..."
    return text or record.label


def _parts(data: Mapping[str, Any]) -> Iterator[str]:
    head = ": ".join(_plain(data[name]) for name in ("type", "title") if _plain(data.get(name)))
    if head:
        yield head
    columns, rows = data.get("columns"), data.get("rows")
    table = [columns, *(rows if isinstance(rows, list) else ())]
    if text := "; ".join(" | ".join(map(_plain, row)) for row in table if isinstance(row, list) and row):
        yield text
    edges, nodes = data.get("edges"), data.get("nodes")
    known = [edge for edge in edges if isinstance(edge, dict)] if isinstance(edges, list) else []
    ends = [(_plain(edge.get("from")), _plain(edge.get("to")), _plain(edge.get("label"))) for edge in known]
    # For example `start -> check; check -> end (yes)`.
    flow = "; ".join(
        f"{start} -> {end}" + (f" ({label})" if label else "") for start, end, label in ends if start or end
    )
    if flow or (flow := _plain(nodes) if isinstance(nodes, list) else ""):
        yield flow
    if text := _plain(data.get("text")):
        yield text


def _plain(value: Any) -> str:
    """Return text unchanged, the items of a list separated by `; `, and other values as JSON."""
    if isinstance(value, str) or value is None:
        return (value or "").strip()
    if isinstance(value, list):
        return "; ".join(filter(None, map(_plain, value)))
    return json.dumps(value, ensure_ascii=False)


def with_figures(markdown: str, shown: Callable[[str], str]) -> str:
    """Replace each link to a figure with the result of `shown` for the figure's id. Code is unchanged."""

    def change(image: re.Match[str]) -> str:
        figure = target_id(image["target"])
        return image[0] if figure is None else shown(figure)

    return collapse_blank_lines(map_prose(markdown, lambda text: IMAGE.sub(change, text)))


def without_comments(markdown: str) -> str:
    """Remove HTML comments. Code is unchanged, and an unclosed comment is kept."""

    def without(text: str) -> str:
        kept: list[str] = []
        at = 0
        while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + len("<!--"))) >= 0:
            kept.append(text[at:start])
            at = end + len("-->")
        return "".join((*kept, text[at:]))

    return collapse_blank_lines(map_prose(markdown, without)) if "<!--" in markdown else markdown


# Words on a figure that its page does not contain: a caption, and text of the page, is not repeated.


#: Fewest letters of a description that is searched for in the page's text, where shorter words occur by chance.
_QUOTED = 20
_NO_LETTERS = re.compile(r"[\W_]+")


def new_words(row: DatasetRow, figure: str) -> str:
    """Return the known text of a figure that is not in its caption or the page's own text, in one line; "" for none."""
    described = row.figures.get(figure)
    caption = next((crop.caption for crop in row.record.figures if crop.id == figure), "")
    return _added(figure_words(described), caption, _page_letters([row.record.markdown])) if described else ""


def _added(words: str, caption: str, page: str) -> str:
    """Return the words in one line, or "" if the caption or the page's letters contain them."""
    line = one_line(words)
    letters = _letters(line.removeprefix(INSIDE))
    repeated = letters in _letters(caption) or (len(letters) >= _QUOTED and letters in page)
    return "" if repeated else line


def _letters(text: str) -> str:
    """Return letters and digits in lower case: quotes differ from their source in spaces, marks, and case."""
    return _NO_LETTERS.sub("", text).casefold()


def _page_letters(texts: Iterable[str]) -> str:
    """Return the letters of texts of a page. Alt texts are not text of the page."""
    return "".join(_letters(IMAGE.sub("", text)) for text in texts)


# Descriptions in the Markdown of a page: a short one in the alt text, the full one below. Descriptions come from a
# model or from the document and may contain any text. They are shown verbatim, never interpreted as Markdown or HTML.


#: Upper limit of characters of a figure's alt text.
ALT_LENGTH = 120
_ELLIPSIS = "..."

_SENTENCE_END = re.compile(r"(?<!\s)[.!?]+[\"'”’»)\]]*(?=\s+[^\sa-z\d])|[。！？]+[」』”’）]*")
_LOOK_BACK = 16  # characters, more than the longest abbreviation
_NO_END = re.compile(
    r"(?:^|[\s(\"“])(?:[^\W\d_]|\d+|[Ff]igs?|[Tt]ab|[Ee]qs?|[Nn]os?|[Vv]ol|[Ss]ec|[Cc]h|pp?|cf|vs|ca|al|[Dd]r|[Mm]rs?|Prof|St)\.$"
)


@dataclass(frozen=True, slots=True)
class FigureText:
    """Texts on a figure: its description (or data, or class), its caption, and the label of its block."""

    words: str = ""
    caption: str = ""
    label: str = ""


def enrich(markdown: str, figures: Mapping[str, FigureText]) -> str:
    """Write the alt texts and descriptions of a page's figures, given by their ids. Fenced code is unchanged.

    The alt text of `![…](figure:ID)` becomes the description's first sentence. Without a description, it is the
    caption's, the label, or `Figure`. The description follows the block with the figure's first link, as a block quote
    `> **Figure description:** …` of one line. The quote is omitted if the alt text, the caption, or the page's own text
    contains the description.
    """
    if not figures or "![" not in markdown:
        return markdown
    # Blocks: runs of lines without blank lines and fences.
    runs = [
        (blank, fenced, "\n".join(line.text for line in run))
        for (blank, fenced), run in groupby(markdown_lines(markdown), key=lambda line: (line.blank, bool(line.fence)))
    ]
    page = _page_letters(text for _, fenced, text in runs if not fenced)
    added = {figure: _added(text.words, text.caption, page) for figure, text in figures.items()}
    alts = {figure: _alt(text, added[figure]) for figure, text in figures.items()}
    linked: list[str] = []  # figures of the links in the current block
    seen: set[str] = set()

    def change(image: re.Match[str]) -> str:
        figure = target_id(image["target"])
        if figure is None or figure not in alts:
            return image[0]
        linked.append(figure)
        return f"![{escape(alts[figure])}]({image['target']})"

    out: list[str] = []
    for at, (blank, fenced, text) in enumerate(runs):
        linked.clear()
        out.append(text if blank or fenced else IMAGE.sub(change, text))
        first = [figure for figure in dict.fromkeys(linked) if figure not in seen]
        seen.update(first)
        shown = [added[figure] for figure in first if added[figure] not in ("", alts[figure])]
        for words in shown:
            out += ["", f"{DESCRIPTION}{escape(words)}"]
        if shown and at + 1 < len(runs) and not runs[at + 1][0]:
            out.append("")
    return "\n".join(out)


def enriched_page(record: PageRecord, descriptions: Mapping[str, FigureRecord]) -> str:
    """Return the page's Markdown with the descriptions of its figures."""
    known = {
        figure.id: FigureText(
            figure_words(described) if (described := descriptions.get(figure.id)) else "", figure.caption, figure.label
        )
        for figure in record.figures
    }
    return enrich(record.markdown, known)


def short(description: str, after: int = 0) -> str:
    """Return the first sentence, cut at a word boundary to at most 120 characters, then with three dots.

    Args:
        description: The text.
        after: Characters at its beginning in which no sentence ends, such as the number of a caption.
    """
    text = one_line(description)
    for end in _SENTENCE_END.finditer(text):
        before = text[max(0, end.end() - _LOOK_BACK) : end.end()]
        if end.end() > after and not _NO_END.search(before.rstrip("\"'”’»)]")):
            text = text[: end.end()]
            break
    if len(text) <= ALT_LENGTH:
        return text
    head = text[: ALT_LENGTH + 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > 0 else head[:ALT_LENGTH]).rstrip() + _ELLIPSIS


_WORDS = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)?")


def _alt(text: FigureText, added: str) -> str:
    """Return the alt text; `added` is the description without repetitions."""
    if added:
        return short(added)
    if caption := one_line(text.caption):
        numbers = (form.match(caption) for form in (FIGURE_CAPTION, TABLE_CAPTION))
        return short(caption, after=max(found.end() if found else 0 for found in numbers))
    label = one_line(text.label).replace("_", " ")
    return label.capitalize() if _WORDS.fullmatch(label) else "Figure"
