"""Sizes of passages, and text in groups of at most so much."""

from collections.abc import Callable, Iterator, Sequence

from llm_ocr.results.sentences import sentences, words

#: The size of a text, in characters or tokens.
Measure = Callable[[str], int]


def pack(units: Sequence[str], room: int, limit: int, measure: Measure) -> Iterator[str]:
    """The units joined to groups of at most `limit`, the first one of at most `room`; all of them, in order.

    A unit that is larger than the limit is a group of its own; one that only the first group has no room for begins
    the second one, so that the first may be missing.
    """
    group: list[str] = []
    total, most = 0, room
    for unit in units:
        size = measure(unit)
        if group and total + size > most:
            yield from _checked(group, most, measure)
            group, total, most = [], 0, limit
        group.append(unit)
        total += size
    yield from _checked(group, most, measure)


def _checked(group: Sequence[str], most: int, measure: Measure) -> Iterator[str]:
    """Tokens of a whole may be more than those of its parts: then it is cut in halves."""
    text = "".join(group)
    if len(group) > 1 and measure(text) > most:
        middle = len(group) // 2
        yield from _checked(group[:middle], most, measure)
        yield from _checked(group[middle:], most, measure)
    elif text:
        yield text


def split_text(text: str, room: int, limit: int, measure: Measure) -> Iterator[str]:
    """Sentences of at most `limit`, the first of at most `room` where words allow it; joined, they are the text.

    A longer sentence is cut between words, and a word never.
    """
    most = room
    for sentence in sentences(text):
        if measure(sentence) <= most:
            yield sentence
        else:
            yield from pack(list(words(sentence)), most, limit, measure)
        most = limit


def split_code(text: str, room: int, limit: int, measure: Measure) -> list[str]:
    """Fenced code cut between lines, each part in a fence of its own; lines that are too long, between words."""
    opening, *body, closing = text.split("\n")
    taken = measure(f"{opening}\n\n{closing}") + 1
    least = max(limit - taken, 1)
    groups = pack(lines("\n".join(body), least, measure), max(room - taken, 1), least, measure)
    return ["\n".join((opening, group.rstrip("\n"), closing)) for group in groups]


def lines(text: str, most: int, measure: Measure) -> list[str]:
    """The lines, each with its newline; those of more than `most` as words."""
    found: list[str] = []
    for line in text.split("\n"):
        found += [f"{line}\n"] if measure(line) < most else words(f"{line}\n")
    return found
