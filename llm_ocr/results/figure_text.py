"""Figures in Markdown: alt text and descriptions."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.markdown import (
    IMAGE,
    MarkdownLine,
    collapse_blank_lines,
    escape,
    map_prose,
    markdown_lines,
    one_line,
    target_id,
    unescape,
)
from llm_ocr.types import FigureRecord

# Text for a figure: its description, its class, or its data in one line.


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
    if edges := _edges(data.get("edges")):
        yield edges
    elif isinstance(data.get("nodes"), list) and (nodes := _plain(data["nodes"])):
        yield nodes
    if text := _plain(data.get("text")):
        yield text


def _edges(edges: Any) -> str:
    """Return `start -> check; check -> end (yes)`."""
    known = [one for one in edges if isinstance(one, dict)] if isinstance(edges, list) else []
    ends = [(_plain(one.get("from")), _plain(one.get("to")), _plain(one.get("label"))) for one in known]
    return "; ".join(
        f"{start} -> {end}" + (f" ({label})" if label else "") for start, end, label in ends if start or end
    )


def _plain(value: Any) -> str:
    """Return text unchanged, the items of a list separated by `; `, and other values as JSON."""
    if isinstance(value, str) or value is None:
        return (value or "").strip()
    if isinstance(value, list):
        return "; ".join(filter(None, map(_plain, value)))
    return json.dumps(value, ensure_ascii=False)


# Replacement of figure links in Markdown that is exported without the figures' files.


_OPEN, _CLOSE = "<!--", "-->"


def with_figures(markdown: str, shown: Callable[[str], str]) -> str:
    """Replace each link to a figure with the result of `shown` for the figure's id. Code is unchanged."""

    def change(image: re.Match[str]) -> str:
        figure = target_id(image["target"])
        return image[0] if figure is None else shown(figure)

    return collapse_blank_lines(map_prose(markdown, lambda text: IMAGE.sub(change, text)))


def without_comments(markdown: str) -> str:
    """Remove HTML comments. Code is unchanged, and an unclosed comment is kept."""
    return collapse_blank_lines(map_prose(markdown, _bare)) if _OPEN in markdown else markdown


def _bare(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (start := text.find(_OPEN, at)) >= 0 and (end := text.find(_CLOSE, start + len(_OPEN))) >= 0:
        kept.append(text[at:start])
        at = end + len(_CLOSE)
    return "".join((*kept, text[at:]))


def new_words(row: DatasetRow, figure: str) -> str:
    """Return the known text of a figure that is not in the page's own text, in one line; "" for none.

    The embedded describer quotes the caption, which is text of the page and is removed.
    """
    described = row.figures.get(figure)
    words = one_line(figure_words(described)) if described else ""
    caption = next((one_line(one.caption) for one in row.record.figures if one.id == figure), "")
    return words.removeprefix(f'Caption: "{caption}"').lstrip() if caption else words


# Descriptions in the Markdown of a page: a short one in the alt text, the full one below. The output is deterministic,
# and processing it again does not change it. Descriptions come from a model or from the document and may contain any
# text. They are shown verbatim, never interpreted as Markdown or HTML.


#: Upper limit of characters of a figure's alt text, without the id.
ALT_LENGTH = 120
_ELLIPSIS = "..."
_LEGACY_PREFIX = "Figure "

_SENTENCE_END = re.compile(r"(?<!\s)[.!?]+[\"'”’»)\]]*(?=\s+[^\sa-z\d])|[。！？]+[」』”’）]*")
_LOOK_BACK = 16  # characters, more than the longest abbreviation
_NO_END = re.compile(
    r"(?:^|[\s(\"“])(?:[^\W\d_]|\d+|[Ff]igs?|[Tt]ab|[Ee]qs?|[Nn]os?|[Vv]ol|[Ss]ec|[Cc]h|pp?|cf|vs|ca|al|[Dd]r|[Mm]rs?|Prof|St)\.$"
)


def enrich(markdown: str, descriptions: Mapping[str, str]) -> str:
    """Add each non-empty description to the Markdown that links its figure. Other figures are unchanged.

    The alt text of `![…](figure:ID)` and the predecessor's `![Figure ID](path)` becomes `ID: first sentence`. An italic
    paragraph, `Figure ID: ` and the description on one line, follows the block with a figure's first link. Fenced code
    is unchanged.
    """
    if not descriptions or "![" not in markdown:
        return markdown
    return _Enricher(descriptions).run(list(markdown_lines(markdown)))


def short(description: str) -> str:
    """Return the first sentence, cut at a word boundary to at most 120 characters, then with three dots."""
    text = one_line(description)
    for end in _SENTENCE_END.finditer(text):
        before = text[max(0, end.end() - _LOOK_BACK) : end.end()]
        if not _NO_END.search(before.rstrip("\"'”’»)]")):
            text = text[: end.end()]
            break
    if len(text) <= ALT_LENGTH:
        return text
    head = text[: ALT_LENGTH + 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > 0 else head[:ALT_LENGTH]).rstrip() + _ELLIPSIS


class _Enricher:
    """Pass over the lines of a page, block by block (a block ends at a blank line or at a fence)."""

    def __init__(self, descriptions: Mapping[str, str]) -> None:
        self._descriptions = descriptions
        self._seen: set[str] = set()
        self._out: list[str] = []

    def run(self, lines: list[MarkdownLine]) -> str:
        at = 0
        while at < len(lines):
            end = at + 1
            if not (lines[at].blank or lines[at].fence):
                while end < len(lines) and not (lines[end].blank or lines[end].fence):
                    end += 1
                at = self._block(lines, at, end)
            else:
                self._out.append(lines[at].text)
                at = end
        return "\n".join(self._out)

    def _block(self, lines: list[MarkdownLine], start: int, end: int) -> int:
        """Write a block and its description paragraphs; return the next line's index."""
        first: list[str] = []
        text = "\n".join(line.text for line in lines[start:end])
        self._out.append(IMAGE.sub(lambda image: self._image(image, first), text))
        for figure in first:
            end = _behind_paragraph(lines, end, figure)
            self._out += ["", _paragraph(figure, self._descriptions[figure])]
        if first and end < len(lines) and not lines[end].blank:
            self._out.append("")
        return end

    def _image(self, image: re.Match[str], first: list[str]) -> str:
        figure = self._figure_of(image["alt"], image["target"])
        if figure is None:
            return image[0]
        if figure not in self._seen:
            self._seen.add(figure)
            first.append(figure)
        return f"![{escape(_alt(figure, self._descriptions[figure]))}]({image['target']})"

    def _figure_of(self, alt: str, target: str) -> str | None:
        linked = target_id(target)
        for figure in self._named(alt) if linked is None else (linked,):
            if one_line(self._descriptions.get(figure, "")):
                return figure
        return None

    def _named(self, alt: str) -> Iterator[str]:
        """Yield the figures that an alt text may name: `Figure ID`, or this class's replacement of it."""
        plain = unescape(alt)
        if plain.startswith(_LEGACY_PREFIX):
            yield plain.removeprefix(_LEGACY_PREFIX).strip()
        for colon in re.finditer(": ", plain):
            figure = plain[: colon.start()]
            if plain == _alt(figure, self._descriptions.get(figure, "")):
                yield figure


def _alt(figure: str, description: str) -> str:
    return one_line(f"{figure}: {short(description)}")


def _paragraph(figure: str, description: str) -> str:
    return f"*Figure {escape(figure)}: {escape(description)}*"


def _behind_paragraph(lines: list[MarkdownLine], at: int, figure: str) -> int:
    """Return the index after an older paragraph on the figure, which the new one replaces; `at` without one."""
    here = at
    while here < len(lines) and lines[here].blank:
        here += 1
    if here == at or here == len(lines) or lines[here].fence:
        return at
    text = lines[here].text
    alone = here + 1 == len(lines) or lines[here + 1].blank
    mine = text.startswith(f"*Figure {escape(figure)}: ") and text.endswith("*")
    return here + 1 if alone and mine else at
