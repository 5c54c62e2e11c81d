"""Pages made of lines, for the layout's tests."""

from collections.abc import Iterable, Iterator

from llm_ocr.types import Box, Line, PageContent, Word

SIZE = 10.0


def line(text: str, x: float, y: float, *, size: float = SIZE, width: float | None = None, **face: bool) -> Line:
    """A line with its top left corner at x, y; half a size wide per character unless `width` says more."""
    total = width if width is not None else 0.5 * size * len(text)
    step = total / max(len(text), 1)
    words, at = [], 0
    for token in text.split(" "):
        words.append(Word(token, Box(x + at * step, y, x + (at + len(token)) * step, y + size)))
        at += len(token) + 1
    return Line(text, Box(x, y, x + total, y + size), size, tuple(words), **face)


def paragraph(
    text: str, x: float, y: float, width: float, *, indent: float = 0.0, size: float = SIZE
) -> Iterator[Line]:
    """Text set in lines of at most `width`, all but the last justified."""
    words = text.split()
    rows: list[str] = []
    for word in words:
        room = width - (indent if len(rows) <= 1 else 0.0)
        if rows and 0.5 * size * (len(rows[-1]) + 1 + len(word)) <= room:
            rows[-1] += " " + word
        else:
            rows.append(word)
    for index, row in enumerate(rows):
        left = x + (indent if index == 0 else 0.0)
        full = x + width - left if index + 1 < len(rows) else None
        yield line(row, left, y + index * 1.2 * size, size=size, width=full)


def page(lines: Iterable[Line], width: float = 600, height: float = 800) -> PageContent:
    return PageContent(width, height, tuple(lines))


def prose(seed: int, words: int = 60) -> str:
    """Sentences without meaning, different for each seed, ended by a full stop."""
    stock = [
        *("river", "water", "gauge", "level", "rain", "flood", "quay", "bridge", "winter", "summer", "reader"),
        "staff",
    ]
    stock += ["chalk", "board", "measure", "notebook"]
    chosen = [stock[(seed * 7 + index * (seed % 5 + 3)) % len(stock)] for index in range(words)]
    return " ".join([f"Start{seed}", *chosen, f"end{seed}."])
