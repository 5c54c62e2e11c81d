"""A line that was detected across the gutter of two columns is parted; spaces and table cells are left alone."""

from llm_ocr.types import Box, Line, Word
from llm_ocr_cpu.ocr.detect import parted_at_gutters

SIZE = 19.0


def line(y: float, *runs: tuple[float, str]) -> Line:
    """Words of 50 pixels with spaces of 6, each run beginning where it is told."""
    words = [
        Word(text, Box(x + 56 * i, y, x + 56 * i + 50, y + 20)) for x, run in runs for i, text in enumerate(run.split())
    ]
    box = Box(words[0].box.x0, y, words[-1].box.x1, y + 20)
    return Line(" ".join(word.text for word in words), box, SIZE, tuple(words))


LEFT, RIGHT = "one two three four five six", "aaa bbb ccc ddd eee fff"
START, BEHIND = 100.0, 100 + 56 * 5 + 50 + 22.0  # a gutter of 22 pixels, less than what parts a line by itself


def columns(rows: int) -> list[Line]:
    return [one for row in range(rows) for one in (line(30 * row, (START, LEFT)), line(30 * row, (BEHIND, RIGHT)))]


def test_a_line_across_a_gutter_is_two_lines():
    across = line(300, (START, LEFT), (BEHIND, RIGHT))
    parts = parted_at_gutters([*columns(8), across])[-2:]
    assert [part.text for part in parts] == [LEFT, RIGHT]
    assert parts[0].box.x1 < BEHIND == parts[1].box.x0


def test_without_other_lines_at_its_edges_a_gap_is_only_a_gap():
    across = line(300, (START, LEFT), (BEHIND, RIGHT))
    assert parted_at_gutters([across]) == [across]
    assert parted_at_gutters([*columns(2), across])[-1] == across


def test_a_line_that_runs_into_a_note_is_two_lines():
    text = [line(30 * row, (START, LEFT)) for row in range(12)]
    across = line(360, (START, LEFT), (BEHIND, "Art. 57"))
    assert [part.text for part in parted_at_gutters([*text, across])[-2:]] == [LEFT, "Art. 57"]
    assert parted_at_gutters([*text[:6], across])[-1] == across


def test_where_most_lines_run_through_there_is_no_gutter():
    through = [line(400 + 30 * row, (START + 20, "w " * 12)) for row in range(8)]
    across = line(300, (START, LEFT), (BEHIND, RIGHT))
    assert parted_at_gutters([*columns(5), *through, across])[-1] == across


def test_no_word_is_lost():
    lines = [*columns(8), line(300, (START, LEFT), (BEHIND, RIGHT)), line(330, (40, "x"))]
    before = sorted(word.text for one in lines for word in one.words)
    assert sorted(word.text for one in parted_at_gutters(lines) for word in one.words) == before
