"""Place detected figures into an answer that has no coordinates. Pure."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llm_ocr.engines import Inspection
from llm_ocr.engines.descriptions import FIGURE_CAPTION
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.labels import normal
from llm_ocr.models.parsers.plain import is_placeless
from llm_ocr.types import Block, BlockKind


def with_crops(blocks: Sequence[Block], labels: Iterable[str]) -> tuple[Block, ...]:
    """Return the blocks with a figure block for each label to cut out, and for no other label.

    A figure with another label keeps its place, its text, and the model's description, without a crop. A text block
    with one of the labels (`table`) stays. The figure block of its crop follows it if its place is known.
    """
    wanted = frozenset(map(normal, labels))
    made: list[Block] = []
    for block in blocks:
        names = [name for name in (block.label, block.kind.value) if name]
        if block.kind is BlockKind.FIGURE and normal(names[0]) not in wanted:
            parts = (block.text.strip(), block.inside.strip(), block.described.strip())
            text = "\n\n".join(filter(None, parts))
            block = replace(block, kind=BlockKind.TEXT, text=text, inside="", caption="", described="")
            made.append(block)
            continue
        made.append(block)
        label = next((name for name in names if normal(name) in wanted), "")
        is_placed = block.box.area > 0 and block.box != WHOLE_PAGE
        if block.kind is not BlockKind.FIGURE and label and is_placed:
            made.append(Block(BlockKind.FIGURE, block.box, label=label, caption=block.caption))
    return tuple(made)


#: Letters and digits of a run: a common run of this length is not a coincidence.
RUN = 12
#: Share of the text's runs, or of the block's own runs, from which a block holds a part of the text.
_SHARE, _OWN_SHARE = 0.15, 0.5
_TAG = re.compile(r"<[^<>]*>")
_TWICE = -1


class Places:
    """Index of an answer's blocks by their runs; a run in two blocks is ignored."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._runs: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._sizes: list[int] = []
        for index, text in enumerate(texts):
            letters = letters_of(text)
            runs = _runs(letters)
            self._sizes.append(len(runs))
            for run in runs:
                if self._runs.setdefault(run, index) != index:
                    self._runs[run] = _TWICE
            if letters:
                self._whole[letters] = _TWICE if letters in self._whole else index

    def find(self, text: str) -> tuple[int, int] | None:
        """Return the first and the last block with the text; None if unknown.

        Distant parts do not belong to one text. In that case, the result is the block with the largest part.
        """
        letters = letters_of(text)
        whole = self._whole.get(letters, _TWICE)
        if whole != _TWICE:
            return whole, whole
        runs = _runs(letters)
        votes = Counter(self._runs.get(run, _TWICE) for run in runs)
        del votes[_TWICE]
        if not votes:
            return None
        held = [
            index
            for index, count in votes.items()
            if count >= _SHARE * len(runs) or count >= _OWN_SHARE * self._sizes[index]
        ]
        if not held:
            return None
        first, last = min(held), max(held)
        if last - first >= 2 * len(held):
            first = last = votes.most_common(1)[0][0]
        return first, last

    def share(self, text: str, indices: frozenset[int]) -> float:
        """Return the share (0..1) of the text's runs in these blocks; 0 for a text shorter than one run."""
        runs = _runs(letters_of(text))
        return sum(self._runs.get(run) in indices for run in runs) / len(runs) if runs else 0.0


def letters_of(text: str) -> str:
    """Return the letters and digits without case, Markdown marks, and tags."""
    plain = unicodedata.normalize("NFKC", _TAG.sub("", text)).casefold()
    return "".join(filter(str.isalnum, plain))


def _runs(letters: str) -> list[str]:
    return [letters[start : start + RUN] for start in range(len(letters) - RUN + 1)]


#: Limit of processed figures per answer: no page has more, and the time stays linear.
_MOST = 100
#: Minimum overlap of an answer's box with a detected figure; models guess these boxes.
_SAME = 0.2
#: Area of a box that a model may have seen, as a share of the page.
_LEAST_AREA, _MOST_AREA = 0.003, 0.9
#: Share of a figure's text inside the answer's tables from which the figure is a picture of a table.
_TABLE = 0.6
#: Maximum ratio of a caption-only block's letters to the detected letters of the caption.
_CAPTION_ONLY = 1.6


def mentions_figures(blocks: Sequence[Block]) -> bool:
    """Return whether an answer names a figure, by a link or by a caption."""
    return any(_replaces_figure(block) or _is_caption(block) for block in blocks)


def with_detected(blocks: Sequence[Block], seen: Inspection) -> tuple[Block, ...]:
    """Return the answer's blocks with the figures detected on the page, each in its place.

    Figures of the answer receive the boxes of detected figures by overlap, number, or neighbors, and keep the model's
    text. A figure without a detected box becomes text, except on scans, where the detection may be incomplete.
    """
    return _Page(blocks, seen).blocks()


@dataclass(slots=True)
class _Found:
    """Detected figure: its block, and the index of the answer's block that follows it."""

    block: Block
    before: int
    caption: int | None = None  # the answer's block that is its caption


class _Page:
    def __init__(self, blocks: Sequence[Block], seen: Inspection) -> None:
        self._blocks = list(blocks)
        self._seen = seen
        self._places = Places([block.text for block in blocks])
        self._tables = frozenset(index for index, block in enumerate(blocks) if block.kind is BlockKind.TABLE)
        self._spots = [None if b.kind is BlockKind.FIGURE else self._places.find(b.text) for b in seen.blocks]
        # A figure is no picture of a table that the model has read.
        self._found = [
            self._placed(index, block)
            for index, block in enumerate(seen.blocks)
            if block.kind is BlockKind.FIGURE and self._places.share(block.inside, self._tables) < _TABLE
        ]

    def blocks(self) -> tuple[Block, ...]:
        matched = self._matched()
        new: dict[int, list[Block]] = {}
        taken = {id(found) for found in matched.values()}
        for found in self._found:
            if id(found) not in taken:
                new.setdefault(found.before, []).append(found.block)
            if found.caption is not None:
                block = self._blocks[found.caption]
                if block.kind is BlockKind.TEXT:
                    self._blocks[found.caption] = replace(block, kind=BlockKind.CAPTION)
        made: list[Block] = []
        for index, block in enumerate(self._blocks):
            made += new.get(index, ())
            made.append(self._figure(block, matched.get(index)))
        made += new.get(len(self._blocks), ())
        return _captioned(made)

    def _placed(self, index: int, block: Block) -> _Found:
        """Place a figure next to its caption, else after its predecessor on the page, else before its successor."""
        for at, step in ((index + 1, 0), (index - 1, 1)):
            if not block.caption or not 0 <= at < len(self._spots):
                continue
            caption, spot = self._seen.blocks[at], self._spots[at]
            if caption.kind is not BlockKind.CAPTION or caption.text != block.caption or spot is None:
                continue
            read = self._blocks[spot[0]]
            if len(read.text) > _CAPTION_ONLY * len(caption.text):
                return _Found(block, spot[0] + step)
            return _Found(replace(block, caption=read.text.strip()), spot[0] + step, spot[0])
        before = next((spot[1] + 1 for spot in reversed(self._spots[:index]) if spot), None)
        after = next((spot[0] for spot in self._spots[index + 1 :] if spot), None)
        place = before if before is not None else after
        return _Found(block, len(self._blocks) if place is None else place)

    def _matched(self) -> dict[int, _Found]:
        """Match figures of the answer, by index, to detected figures."""
        named = [index for index, block in enumerate(self._blocks) if _replaces_figure(block)][:_MOST]
        left = self._found[:_MOST]
        matched: dict[int, _Found] = {}
        overlaps = sorted(
            (
                (self._blocks[index].box.iou(found.block.box), -index, place)
                for index in named
                if self._blocks[index].box != WHOLE_PAGE
                for place, found in enumerate(left)
            ),
            reverse=True,
        )
        used: set[int] = set()
        for overlap, negative, place in overlaps:
            if overlap >= _SAME and -negative not in matched and place not in used:
                matched[-negative] = left[place]
                used.add(place)
        rest = [found for place, found in enumerate(left) if place not in used]
        open_ones = [index for index in named if index not in matched]
        if len(rest) == len(open_ones):
            return matched | dict(zip(open_ones, rest, strict=True))
        for found in rest:
            near = next((index for index in (found.before, found.before - 1) if index in open_ones), None)
            if near is not None:
                open_ones.remove(near)
                matched[near] = found
        return matched

    def _figure(self, block: Block, found: _Found | None) -> Block:
        """Return a block of the answer; a figure becomes the detected figure, or text."""
        if not _replaces_figure(block):
            return block
        words = block.described or (block.text if is_placeless(block) else "")
        if found is not None:
            return replace(found.block, described=words, caption=found.block.caption or block.caption)
        if block.kind is not BlockKind.FIGURE:
            return block
        # Without a detected box, a figure keeps the model's place if it is the page, or on a scan without text there.
        if block.box == WHOLE_PAGE:
            stays = len(self._blocks) == 1
        else:
            over = sum(other.kind is not BlockKind.FIGURE and _within(other, block) for other in self._seen.blocks)
            stays = not self._seen.digital and _LEAST_AREA <= block.box.area <= _MOST_AREA and over <= 1
        if stays:
            return block
        return replace(block, kind=BlockKind.TEXT, box=WHOLE_PAGE, text=block.text or words, described="")


def _replaces_figure(block: Block) -> bool:
    return block.kind is BlockKind.FIGURE or is_placeless(block)


def _within(block: Block, figure: Block) -> bool:
    x, y = block.box.centre
    box = figure.box
    return box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1


def _captioned(blocks: list[Block]) -> tuple[Block, ...]:
    """Give a figure without a caption the caption directly after it, or directly before it."""
    for index, block in enumerate(blocks):
        if block.kind is not BlockKind.FIGURE or block.caption:
            continue
        for near in (index + 1, index - 1):
            if 0 <= near < len(blocks) and _is_caption(blocks[near]):
                blocks[index] = replace(block, caption=blocks[near].text.strip())
                blocks[near] = replace(blocks[near], kind=BlockKind.CAPTION, label="caption")
                break
    return tuple(blocks)


def _is_caption(block: Block) -> bool:
    """Return whether the block is an unassigned caption; a sentence such as "Figure 3 shows" is not a caption."""
    found = FIGURE_CAPTION.match(block.text) if block.kind is BlockKind.TEXT else None
    return found is not None and not (found[0][-1:].isspace() and block.text[found.end() : found.end() + 1].islower())
