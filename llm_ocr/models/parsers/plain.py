"""Plain Markdown answers, with or without elements between the text, and special tokens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.labels import known_kind
from llm_ocr.models.parsers.pieces import Piece, markdown_pieces
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import FURNITURE, Block, BlockKind

# DeepSeek's tokenizer writes its own tokens with U+FF5C and U+2581.
_ANYWHERE = ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<|grounding|>")
#: End tokens of common chat templates. "</s>" is also HTML, so these are removed at the end only.
_AT_END = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<|end_of_text|>", "<end_of_utterance>", "</s>")
_MARKS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>")
_SHORTEST_PART = 2  # a single "<" at the end may be text of the page
_BEGUN = re.compile(r"(?:\A|(?<=[\n>\]]))<\Z")  # except at the beginning of a line, or behind a tag


def without_special(text: str) -> str:
    """Return the answer without start, padding, and end tokens, and without an incomplete token at its end."""
    for token in _ANYWHERE:
        text = text.replace(token, "")
    return _without_part(without_end(text))


def without_end(text: str) -> str:
    """Return the answer up to its end tokens, without white space before them; always a prefix of `text`."""
    end = len(text)
    while True:
        end = _stripped(text, end)
        token = next((one for one in (*_AT_END, *_ANYWHERE) if text.endswith(one, 0, end)), "")
        if not token:
            return text[:end]
        end -= len(token)


def _stripped(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _without_part(text: str) -> str:
    longest = 0
    for token in (*_ANYWHERE, *_AT_END, *_MARKS):
        for length in range(_SHORTEST_PART, len(token)):
            if length > longest and text.endswith(token[:length]):
                longest = length
    return _BEGUN.sub("", text[: len(text) - longest])


# Plain Markdown answers, with or without elements between the text.


# Answers in plain Markdown, without places: every block has the whole page as its box.


_WRAPPERS = ("```markdown", "```md")


def parse_plain(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a Markdown answer. Never raises; linear in the length.

    A fence around the whole answer, common for chat models, is removed.
    """
    found = markdown_pieces(plain_body(text))
    return Parsed(tuple(Block(piece.kind, WHOLE_PAGE, piece.text, level=piece.level) for piece in found))


def plain_body(text: str) -> str:
    """Return the Markdown of an answer, without special tokens and without a fence around the whole."""
    return _unwrapped(without_special(text).replace("\r\n", "\n").strip())


def _unwrapped(text: str) -> str:
    first, _, rest = text.partition("\n")
    if first.strip().casefold() not in _WRAPPERS:
        return text
    lines = rest.split("\n")
    end = _closing(lines)
    if end is None:
        return rest  # the end of the answer was cut off
    return "\n".join(lines[:end]) if end == len(lines) - 1 else text


def _closing(lines: Sequence[str]) -> int | None:
    """Return the line that closes a fence opened before the first line; fences with a language are inside."""
    inside = False
    for number, line in enumerate(lines):
        bare = line.strip()
        if bare == "```":
            if not inside:
                return number
            inside = False
        elif bare.startswith("```") and not inside:
            inside = True
    return None


# Markdown with blocks in between: figures and furniture that models write as links, comments, or tags in their text.
# Each is removed before the Markdown is cut into pieces, and inserted afterward. Thus none of them splits a table or a
# list.


# Characters that Unicode reserves for use within a program: no page contains them.
_BEGIN, _END = "\ufdd0", "\ufdd1"
_MARK = re.compile(f"{_BEGIN}([0-9]{{1,9}}){_END}")
_FREE = re.compile(f"[{_BEGIN}{_END}]")
_BRACKETS = re.compile(r"[\[\]]")


@dataclass(frozen=True, slots=True)
class Insert:
    """Replacement for `text[start:end]`: a block, or None for no content.

    A heading, a list, or a table cannot contain a block. The block then follows, unless `words` take its place.
    """

    start: int
    end: int
    block: Block | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class ImageLink:
    """Markdown image `![alt](target)`. `target` is the match of the given pattern."""

    start: int
    alt: str
    target: re.Match[str]


def image_links(text: str, target: re.Pattern[str]) -> Iterator[ImageLink]:
    """Yield all image links whose end, from the `]` on, matches `target`; the words may contain brackets. Linear."""
    done = 0
    for found in target.finditer(text):
        start = _opening(text, done, found.start())
        done = found.end()
        if start >= 0:
            yield ImageLink(start, " ".join(text[start + 2 : found.start()].split()), found)


def _opening(text: str, start: int, end: int) -> int:
    """Return the position of the `![` whose words end at `end`, or -1."""
    depth = 1
    for bracket in reversed(list(_BRACKETS.finditer(text, start, end))):
        depth += 1 if bracket[0] == "]" else -1
        if not depth:
            at = bracket.start() - 1
            return at if at >= start and text[at] == "!" else -1
    return text.rfind("![", start, end)


def without_position(label: str, words: str) -> Block:
    """Return a figure with known words only: a text block with the figure's label and no place."""
    return Block(BlockKind.TEXT, WHOLE_PAGE, words, label)


def is_placeless(block: Block) -> bool:
    """Return whether a block is a figure of unknown place."""
    unplaced = block.kind is BlockKind.TEXT and block.box == WHOLE_PAGE
    return unplaced and known_kind(block.label) is BlockKind.FIGURE


def with_inserts(text: str, inserts: Sequence[Insert]) -> list[Block]:
    """Return the blocks of a Markdown text and the inserts, in order. Linear; never raises.

    An answer with a single figure without a place, and no other content, is a page that is this figure.
    """
    blocks: list[Block] = []
    seen: set[int] = set()
    for piece in markdown_pieces(_marked(text, inserts)):
        blocks += _code(piece, text, inserts, seen) if piece.kind is BlockKind.CODE else _around(piece, inserts, seen)
    blocks += [one.block for number, one in enumerate(inserts) if number not in seen and one.block is not None]
    body = [block for block in blocks if block.kind not in FURNITURE]
    if len(body) == 1 and is_placeless(body[0]):
        whole = replace(body[0], kind=BlockKind.FIGURE, text="", described=body[0].text)
        return [whole if block is body[0] else block for block in blocks]
    return [block for block in blocks if block.text or block.kind is not BlockKind.TEXT]


def _marked(text: str, inserts: Sequence[Insert]) -> str:
    parts: list[str] = []
    done = 0
    for number, one in enumerate(inserts):
        parts += [_FREE.sub("", text[done : one.start]), f"{_BEGIN}{number}{_END}"]
        done = one.end
    return "".join([*parts, _FREE.sub("", text[done:])])


def _code(piece: Piece, text: str, inserts: Sequence[Insert], seen: set[int]) -> list[Block]:
    """Return code unchanged, as written."""

    def raw(mark: re.Match[str]) -> str:
        number = int(mark[1])
        seen.add(number)
        return text[inserts[number].start : inserts[number].end]

    return [Block(piece.kind, WHOLE_PAGE, _MARK.sub(raw, piece.text), level=piece.level)]


def _around(piece: Piece, inserts: Sequence[Insert], seen: set[int]) -> list[Block]:
    splits = piece.kind is BlockKind.TEXT
    blocks: list[Block] = []
    behind: list[Block] = []
    run: list[str] = []
    done = 0

    def flush() -> None:
        words = "".join(run).strip()
        run.clear()
        if words:
            blocks.append(Block(piece.kind, WHOLE_PAGE, words, level=piece.level))

    for mark in _MARK.finditer(piece.text):
        run.append(piece.text[done : mark.start()])
        done = mark.end()
        number = int(mark[1])
        seen.add(number)
        block, words = inserts[number].block, inserts[number].words
        if not splits and words:
            run.append(words)
        elif block is not None and splits and block.kind not in FURNITURE:
            flush()
            blocks.append(block)
        elif block is not None:
            behind.append(block)
    run.append(piece.text[done:])
    flush()
    return blocks + behind
