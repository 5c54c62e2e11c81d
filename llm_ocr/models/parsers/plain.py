"""Plain Markdown answers, with or without elements between the text, and special tokens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.labels import known_kind
from llm_ocr.models.parsers.pieces import Piece, markdown_pieces
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import FURNITURE, Block, BlockKind, Box

# DeepSeek's tokenizer writes its own tokens with U+FF5C and U+2581.
_ANYWHERE = ("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<|grounding|>")
#: End tokens of common chat templates. "</s>" is also HTML, so these are removed at the end only.
_AT_END = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<|end_of_text|>", "<end_of_utterance>", "</s>")
#: Tokens between two turns. An answer ends at the first one.
_TURN = re.compile(
    r"(?<!`)(?:<\|(?:im_start|im_end|endoftext|eot_id|end|end_of_text|user|assistant)\|>|<end_of_utterance>)(?!`)"
)
_ROLE = re.compile(
    r"\s*(?:(?:<\|im_start\|>|<\|start_header_id\|>)?\s*assistant\s*(?:<\|end_header_id\|>)?\s*\n|<\|assistant\|>)"
)
_THOUGHT = re.compile(r"(?<!`)<think>\s*</think>(?!`)")  # an empty one; others are removed only before the answer
_THOUGHT_END = re.compile(r"^[ \t]*</think>[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LONGEST_REFUSAL = 600
_REFUSAL = re.compile(
    r"""\W{0,4}
        (?:(?:i(?:['’]m|\ am)?\ (?:very\ |so\ )?sorry|sorry|apologies|i\ apologi[sz]e|unfortunately)\b
        [^.!?\n]{0,60}?[,.;:!]?\ (?:but\ )?)?
        (?:as\ an?\ (?:ai|language|text)\b[^,.\n]{0,60},?\ )?
        i(?:['’]m|\ am)?\ (?:currently\ )?
        (?:unable\ to|not\ able\ to|cannot|can['’]t|can\ not|do(?:n['’]t|\ not)\ have\ the\ ability\ to)
        \ (?:directly\ )?
        (?:(?:assist|help)(?:\ you)?\ with\ (?:that|this)\b
        |(?:view|see|access|process|read|analy[sz]e|interpret|extract|transcribe|describe|identify|open|display)\b
        [^\n]{0,80}?\b(?:images?|pictures?|photos?|files?|attachments?|figures?|documents?)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_MARKS = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>")
_SHORTEST_PART = 2  # a single "<" at the end may be text of the page
_BEGUN = re.compile(r"(?:\A|(?<=[\n>\]]))<\Z")  # except at the beginning of a line, or behind a tag


def without_special(text: str) -> str:
    """Return the answer itself: without thoughts, chat turns, special tokens, and an incomplete token at its end."""
    for token in _ANYWHERE:
        text = text.replace(token, "")
    if "<|" in text or "<end_of_utterance>" in text or "think>" in text:
        text = _without_chat(text)
    text = without_end(text)
    longest = 0
    for token in (*_ANYWHERE, *_AT_END, *_MARKS, "<|im_start|>", "<|user|>", "<think>"):
        for length in range(_SHORTEST_PART, len(token)):
            if length > longest and text.endswith(token[:length]):
                longest = length
    return _BEGUN.sub("", text[: len(text) - longest])


def is_refusal(text: str) -> bool:
    """Return whether a text says that the model does not read the image, instead of content of the page."""
    return len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text) is not None


def without_end(text: str) -> str:
    """Return the answer up to its end tokens, without white space before them; always a prefix of `text`."""
    end = len(text)
    while True:
        while end and text[end - 1].isspace():
            end -= 1
        token = next((token for token in (*_AT_END, *_ANYWHERE) if text.endswith(token, 0, end)), "")
        if not token:
            return text[:end]
        end -= len(token)


def _without_chat(text: str) -> str:
    """Return the text without thoughts before the answer, empty thoughts, and what follows a chat turn."""
    while role := _ROLE.match(text):
        text = text[role.end() :]
    begun = text.lstrip()
    if begun.startswith("<think>"):
        text = begun.partition("</think>")[2]
    elif "</think>" in text and (end := _THOUGHT_END.search(text)) and "<think>" not in text[: end.start()]:
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


_WRAPPERS = ("```markdown", "```md", "```html")
#: Fences that hold the answer only if the model announces it.
_OTHER_WRAPPERS = ("```", "```text", "```plaintext", "```txt")
_TALK = re.compile(
    r"(?:sure|certainly|of course|okay|here(?:['’]s| is| are)|below is|the following is|i(?:['’]ve| have))\b"
    r"[^\n]{0,200}\b(?:text|contents?|transcri\w{2,8}|markdown|image|document|page|ocr|html)\b[^\n]{0,200}[:.]\Z",
    re.IGNORECASE,
)
_LONGEST_TALK = 400  # characters on either side
_LEAST_WRAPPED = 4  # lengths of the talk around an answer that is not announced


def parse_plain(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a Markdown answer. Never raises; linear in the length.

    A fence around the whole answer, common for chat models, is removed.
    """
    found = markdown_pieces(plain_body(text))
    return Parsed(tuple(Block(piece.kind, WHOLE_PAGE, piece.text, level=piece.level) for piece in found))


def plain_body(text: str) -> str:
    """Return the Markdown of an answer, without special tokens and without a fence around the whole."""
    return unwrapped(without_special(text).replace("\r\n", "\n").strip())


def unwrapped(text: str) -> str:
    """Return the content of a fence around the whole answer, and without one sentence of talk before and after it."""
    lines = text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip().startswith("```")), None)
    if begin is None:
        return text
    before = "\n".join(lines[:begin]).strip()
    announced = _TALK.match(before) is not None
    mark = lines[begin].strip().casefold()
    if mark not in _WRAPPERS and not (announced and mark in _OTHER_WRAPPERS):
        return text
    inside = lines[begin + 1 :]
    end: int | None = None  # line that closes the fence; fences with a language are inside of it
    nested = False
    for number, line in enumerate(inside):
        if line.strip() == "```" and not nested:
            end = number
            break
        if line.strip().startswith("```"):
            nested = line.strip() != "```"
    after = "\n".join(inside[end + 1 :]).strip() if end is not None else ""
    wrapped = "\n".join(inside[:end])
    talk = len(before) + len(after)
    is_talk = all(len(part) <= _LONGEST_TALK and "\n" not in part and part[:1] != "#" for part in (before, after))
    return wrapped if is_talk and (announced or _LEAST_WRAPPED * talk <= len(wrapped)) else text


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


def with_inserts(text: str, inserts: Sequence[Insert]) -> list[Block]:
    """Return the blocks of a Markdown text and the inserts, in order. Linear; never raises.

    An answer with a single figure without a place, and no other content, is a page that is this figure.
    """
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
        if piece.kind is BlockKind.CODE:  # code stays as written

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
        if not splits and insert.words:
            run.append(insert.words)
        elif insert.block is not None and splits and insert.block.kind not in FURNITURE:
            flush()
            blocks.append(insert.block)
        elif insert.block is not None:
            behind.append(insert.block)
    run.append(piece.text[done:])
    flush()
    return blocks + behind
