"""Plain Markdown answers, with or without elements between the text, and special tokens."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.html import html_to_markdown, unescape
from llm_ocr.models.parsers.labels import known_kind
from llm_ocr.models.parsers.pieces import Piece, markdown_pieces
from llm_ocr.models.parsers.talk import unwrapped, without_talk
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import DIRECTIONS, FURNITURE, Block, BlockKind, Box

# DeepSeek's tokenizer writes its own tokens with U+FF5C and U+2581.
_ANYWHERE = ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<|grounding|>")
#: End tokens of common chat templates. "</s>" is also HTML, so these are removed at the end only.
_AT_END = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<|return|>",
    "</s>",
)
#: Tokens that fill the rest of an answer.
_FILLING = ("<pad>", "<unk>", "<eos>", "<end_of_turn>", "<|txt_contd|>")
#: Tokens of images and boxes, which are no text of the page in any family.
_OTHER_TOKENS = re.compile(
    r"(?<!`)<\|(?:vision_(?:start|end|pad)|(?:image|video)_pad|(?:begin|end)_of_(?:box|image))\|>(?!`)"
)
#: Tokens between two turns. An answer ends at the first one.
_TURN = re.compile(
    r"(?<!`)(?:<\|(?:im_start|im_end|endoftext|eot_id|end|end_of_text|user|assistant)\|>|<end_of_utterance>)(?!`)"
)
_ROLE = re.compile(
    r"\s*(?:(?:<\|im_start\|>|<\|start_header_id\|>)?\s*assistant\s*(?:<\|end_header_id\|>)?\s*\n"
    r"|<\|assistant\|>|<\|start_of_role\|>\w{1,20}<\|end_of_role\|>|<start_of_turn>model\s*\n|\[/INST\]"
    r"|(?:<\|channel\|>analysis.*)?<\|channel\|>final<\|message\|>)",
    re.DOTALL,
)
_THOUGHT = re.compile(r"(?<!`)<think(?:ing)?>\s*</think(?:ing)?>(?!`)")  # empty; others are removed only at the start
_THOUGHT_BEGIN = re.compile(r"[<◁](?P<name>think(?:ing)?|seed:think|reasoning)[>▷]")
_THOUGHT_END = re.compile(r"</think(?:ing)?>[ \t]*$", re.MULTILINE)
#: Beginnings of tokens between turns and around thoughts.
_CHAT = (
    "<|",
    "<end_of_utterance>",
    "<start_of_turn>",
    "[/INST]",
    "<think",
    "</think",
    "◁think",
    "<seed:",
    "<reasoning>",
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BARE_FENCE = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
_MARKS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>")
_SHORTEST_PART = 2  # a single "<" at the end may be text of the page
_BEGUN = re.compile(r"(?:\A|(?<=[\n>\]]))<\Z")  # except at the beginning of a line, or behind a tag


_COLORS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
#: Characters that a reader of the page does not see: controls, marks of direction that reorder text, places of hyphens
#: and line ends. Joiners are letters of some scripts. Bullets and check marks of symbol fonts have ordinary characters.
_UNSEEN = {
    **dict.fromkeys((*range(32), *range(127, 160), 0xAD, 0x200B, *DIRECTIONS, 0x2060, 0xFEFF)),
    **{ord(character): character for character in "\t\n\r"},
    **dict.fromkeys((0x0B, 0x0C, 0x85), "\n"),
    **dict.fromkeys((0xF0B7, 0xF0A7, 0xF0D8, 0xF076), "•"),
    **{0xF0A8: "☐", 0xF0FC: "✓", 0xF0FD: "☒", 0xF0FE: "☑"},
}


def legible(text: str) -> str:
    """Return an answer without characters that are not visible on a page, and with known symbols as characters."""
    return text if text.isascii() and text.isprintable() else _COLORS.sub("", text).translate(_UNSEEN)


def without_special(text: str) -> str:
    """Return the answer itself: without thoughts, chat turns, special tokens, and an incomplete token at its end."""
    for token in _ANYWHERE:
        text = text.replace(token, "")
    if any(mark in text for mark in _CHAT):
        text = _OTHER_TOKENS.sub("", _without_chat(text))
    text = without_end(text)
    longest = 0
    for token in (*_ANYWHERE, *_AT_END, *_MARKS, "<|im_start|>", "<|user|>", "<think>"):
        for length in range(_SHORTEST_PART, len(token)):
            if length > longest and text.endswith(token[:length]):
                longest = length
    return _BEGUN.sub("", text[: len(text) - longest])


def without_end(text: str) -> str:
    """Return the answer up to its end tokens, without white space before them; always a prefix of `text`."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        token = next((token for token in (*_AT_END, *_ANYWHERE, *_FILLING) if text.endswith(token, 0, end)), "")
        if not token:
            return text[:end]
        end -= len(token)


def _without_chat(text: str) -> str:
    """Return the text without thoughts before the answer, empty thoughts, and what follows a chat turn."""
    while role := _ROLE.match(text):
        text = text[role.end() :]
    begun = text.lstrip()
    if begin := _THOUGHT_BEGIN.match(begun):
        first, last = begun[0], begin[0][-1]
        text = begun.partition(f"{first}/{begin['name']}{last}")[2]
    elif (end := _THOUGHT_END.search(text)) and not any(mark in text[: end.start()] for mark in ("<think", "```")):
        text = text[end.end() :]  # the chat template has written the beginning
    parts: list[str] = []
    for prose, part in by_fences(text):
        if prose:
            part = _THOUGHT.sub("", part)
            turn = next((token for token in _TURN.finditer(part) if parts or part[: token.start()].strip()), None)
            if turn is not None:
                parts.append(part[: turn.start()])
                break
            part = _TURN.sub("", part)
        parts.append(part)
    return "".join(parts)


def by_fences(text: str) -> Iterator[tuple[bool, str]]:
    """Yield prose (True) and fenced code (False) in turn, as written."""
    start = at = 0
    mark = ""
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if fence and not mark:
            yield True, text[start:at]
            start, mark = at, fence[1]
        elif fence and line.strip().startswith(mark) and not line.strip().strip(mark[0]):
            yield False, text[start : at + len(line)]
            start, mark = at + len(line), ""
        at += len(line)
    yield not mark, text[start:]


# Answers in plain Markdown, without places: every block has the whole page as its box.


_SHORTEST_COPY = 20  # characters
_TEXT_NAMES = ("text", "content", "markdown", "html", "transcription", "natural_text")
#: Line end, tab, or quote that is written as an escape, unless it begins a command of LaTeX.
_LITERAL = re.compile(
    r"\\(n|t|\")(?!(?:abla|ot|eq|eg|umber|earrow|u|i|otin|imes|heta|ext\w*|ilde|o|an|au|op|riangle\w*)(?![a-z]))"
)
_JSON_FENCE = re.compile(r"\A```json[ \t]*\n(\{.*\})\s*```\Z", re.DOTALL)
_MOST_AROUND = 4
_AROUND = re.compile(
    r"<(?P<name>answer|document|doc|page|output|result|response|transcription|transcript|ocr|markdown)(?:\s[^<>]{0,200})?>"
)
_DIV = re.compile(r"(?<!`)</?div\b[^<>\n]{0,500}>(?!`)", re.IGNORECASE)
_HTML_PAGE = re.compile(r"<(?:!doctype|html|body|h[1-6]|p|ul|ol|section|article)\b", re.IGNORECASE)
#: Tag of a picture, or the end of a link to one: data, or the name of a file or figure that does not exist.
_PICTURE = re.compile(
    r"""(?<!`)<img\s(?P<rest>[^<>]*+)>(?!`)
        |\]\([ \t]{0,4}(?:(?:data|figure):[^()\s]*+|<?[^()<>\n:]{1,200}\.(?:png|jpe?g|webp|gif|svg)>?)
            (?:[ \t]{1,4}"[^"\n]{0,200}")?[ \t]{0,4}\)(?!`)""",
    re.IGNORECASE | re.VERBOSE,
)
_ALT = re.compile(r"""\balt\s{0,4}=\s{0,4}(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)')""", re.IGNORECASE)


def parse_plain(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a Markdown or HTML answer. Never raises; linear in the length.

    A fence around the whole answer, common for chat models, is removed. Pictures become figures without a place.
    """
    body = plain_body(text)
    return Parsed(tuple(with_inserts(body, ())))


def plain_body(text: str, names: Sequence[str] = _TEXT_NAMES) -> str:
    """Return the Markdown of an answer, without special tokens, talk, and a fence or tags around the whole.

    A JSON object with nothing but a text gives the text, if its key is one of `names`.
    """
    body = without_special(text).replace("\r\n", "\n").strip()
    body = unwrapped(_without_tags(_from_json(_JSON_FENCE.sub(r"\1", body), names)))
    if _HTML_PAGE.match(body) and body.endswith(">"):
        whole = body[:9].lower().startswith(("<!doctype", "<html", "<body"))
        if whole or all(line.lstrip()[:1] in ("", "<") for line in body.split("\n")):
            return html_to_markdown(body)
    return without_divs(_without_copies(without_talk(body)))


def _from_json(text: str, names: Sequence[str]) -> str:
    r"""Return the text of an answer that is a JSON string, or a JSON object with nothing but a text.

    The escapes of an answer in one line, with a blank line written as `\n\n`, are decoded as well.
    """
    if text.startswith(('"', "{")) and text.endswith(('"', "}")):
        with suppress(ValueError, RecursionError):
            value = json.loads(text, strict=False)
            if isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint(names):
                (value,) = value.values()
            if isinstance(value, str) and ("\n" in value or text[0] == "{"):
                return value.strip()
    if "\\n\\n" in text and "\n" not in text and not text.startswith(("{", "[")):
        return _LITERAL.sub(lambda escape: {"n": "\n", "t": "\t", '"': '"'}[escape[1]], text)
    return text


def _without_tags(text: str) -> str:
    """Return the text without tags around the whole of it, as `<answer>` and `<page number="1">`."""
    for _ in range(_MOST_AROUND):
        begin = _AROUND.match(text)
        if begin is None or not text.endswith(f"</{begin['name']}>"):
            break
        text = text[begin.end() : -len(begin["name"]) - 3].strip()
    return text


def _without_copies(text: str) -> str:
    """Return the text without copies of it behind fences: GLM-OCR repeats its answer after a missed end."""
    if "\n```" not in text:
        return text
    parts = [part.strip() for part in _BARE_FENCE.split(text)]
    whole, copies = parts[0], parts[1:-1] if not parts[-1] else parts[1:]
    is_copied = len(whole) >= _SHORTEST_COPY and copies and whole.startswith(copies[-1])
    return whole if is_copied and all(copy == whole for copy in copies[:-1]) else text


def without_divs(text: str) -> str:
    """Return the text without `<div>` tags, and without the indents inside them, which would make code of text."""
    if "<div" not in text.lower():
        return text
    parts: list[str] = []
    depth = 0
    for prose, part in by_fences(text):
        if not prose:
            parts.append(part)
            continue
        for line in part.splitlines(keepends=True):
            tags = _DIV.findall(line)
            bare = _DIV.sub("\n\n", line)
            parts.append(bare.lstrip(" \t") if depth or tags else line)
            depth = max(0, depth + sum(-1 if tag.startswith("</") else 1 for tag in tags))
    return "".join(parts)


def pictures(text: str) -> Iterator["Insert"]:
    """Yield the inserts of `<img>` tags, and of links to data or to files that the model has made up."""
    links = {link.target.start(): link for link in image_links(text, _PICTURE)} if "](" in text else {}
    for found in _PICTURE.finditer(text):
        link = links.get(found.start())
        if found["rest"] is not None:
            alt = _ALT.search(found["rest"])
            words = " ".join(unescape((alt["double"] or alt["single"] or "") if alt else "").split())
            yield figure_insert(found.start(), found.end(), "image", words)
        elif link is not None and text[link.start - 1 : link.start] != "`":
            known = known_kind(link.alt) is BlockKind.FIGURE
            yield figure_insert(link.start, found.end(), "image", "" if known else link.alt)


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
        # The bracket that opens the words; without one, the last `![`.
        start, depth = -1, 1
        for bracket in reversed(list(_BRACKETS.finditer(text, done, found.start()))):
            depth += 1 if bracket[0] == "]" else -1
            if not depth:
                start = bracket.start() - 1
                break
        if depth:
            start = text.rfind("![", done, found.start())
        if start >= done and text[start] == "!":
            yield ImageLink(start, " ".join(text[start + 2 : found.start()].split()), found)
        done = found.end()


def without_position(label: str, words: str) -> Block:
    """Return a figure with known words only: a text block with the figure's label and no place."""
    return Block(BlockKind.TEXT, WHOLE_PAGE, words, label)


def figure_insert(start: int, end: int, label: str, words: str, box: Box | None = None) -> Insert:
    """Return the insert of a figure with its words; without a box, the words stay in the text (`without_position`)."""
    if box is None:
        return Insert(start, end, without_position(label, words), words)
    return Insert(start, end, Block(BlockKind.FIGURE, box, label=label, described=words))


def is_placeless(block: Block) -> bool:
    """Return whether a block is a figure of unknown place."""
    unplaced = block.kind is BlockKind.TEXT and block.box == WHOLE_PAGE
    return unplaced and known_kind(block.label) is BlockKind.FIGURE


def with_inserts(
    text: str, inserts: Sequence[Insert], as_written: Sequence[BlockKind] = (BlockKind.CODE,)
) -> list[Block]:
    """Return the blocks of a Markdown text with its pictures and the inserts, in order. Linear; never raises.

    In pieces of the kinds `as_written`, nothing is replaced.
    An answer with a single figure without a place, and no other content, is a page that is this figure.
    """
    apart: list[Insert] = []
    for insert in sorted((*inserts, *pictures(text)), key=lambda insert: insert.start):
        if not apart or apart[-1].end <= insert.start:  # otherwise a picture in a tag, or the same one
            apart.append(insert)
    inserts = apart
    parts: list[str] = []
    done = 0
    for number, insert in enumerate(inserts):
        parts += [_FREE.sub("", text[done : insert.start]), f"{_BEGIN}{number}{_END}"]
        done = insert.end
    parts.append(_FREE.sub("", text[done:]))
    blocks: list[Block] = []
    seen: set[int] = set()
    for piece in markdown_pieces("".join(parts)):
        seen.update(int(mark[1]) for mark in _MARK.finditer(piece.text))
        if piece.kind in as_written:

            def written(mark: re.Match[str]) -> str:
                insert = inserts[int(mark[1])]
                return text[insert.start : insert.end]

            blocks.append(Block(piece.kind, WHOLE_PAGE, _MARK.sub(written, piece.text), level=piece.level))
        else:
            blocks += _around(piece, inserts)
    blocks += [insert.block for number, insert in enumerate(inserts) if number not in seen and insert.block is not None]
    body = [block for block in blocks if block.kind not in FURNITURE]
    if len(body) == 1 and is_placeless(body[0]):
        whole = replace(body[0], kind=BlockKind.FIGURE, text="", described=body[0].text)
        return [whole if block is body[0] else block for block in blocks]
    return [block for block in blocks if block.text or block.kind is not BlockKind.TEXT]


def _around(piece: Piece, inserts: Sequence[Insert]) -> list[Block]:
    """Return a piece with the blocks of its marks: text is split, and other pieces precede the blocks."""
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
        insert = inserts[int(mark[1])]
        if insert.words and (not splits or insert.block is None):
            run.append(insert.words)
        elif insert.block is not None and splits and insert.block.kind not in FURNITURE:
            flush()
            blocks.append(insert.block)
        elif insert.block is not None:
            behind.append(insert.block)
    run.append(piece.text[done:])
    flush()
    return blocks + behind
