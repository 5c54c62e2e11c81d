"""Pages with any content, for properties that hold for all pages."""

from hypothesis import strategies as st

from llm_ocr.types import Box, Line, PageContent, Path, Raster, Word

PROSE = "the quick brown fox jumps over the lazy dog and runs away from it all again"
_NUMBERS = st.floats(-50, 900, allow_nan=False) | st.sampled_from([0.0, 100.0, 100.5, 200.0, 300.0])
_TEXTS = ("Table 1: x", "12.5", "Figure 2. y", "Fig. 3", PROSE, "a b", ". . . . .", "نص", "表", "", " ")


@st.composite
def boxes(draw):
    x, y = draw(_NUMBERS), draw(_NUMBERS)
    return Box(
        x, y, x + draw(st.sampled_from([0, 0.5, 10, 40, 200, 600])), y + draw(st.sampled_from([0, 0.5, 10, 30, 400]))
    )


@st.composite
def contents(draw):
    """A page with lines, words, paths, and rasters."""
    lines = []
    for box in draw(st.lists(boxes(), max_size=25)):
        text = draw(st.sampled_from(_TEXTS))
        words = tuple(Word(part, box) for part in text.split()) if draw(st.booleans()) else ()
        lines.append(Line(text, box, draw(st.sampled_from([0.0, 1.0, 10.0, box.height])), words))
    colour = st.none() | st.just((0, 0, 0)) | st.just((255, 255, 255))
    paths = draw(st.lists(st.builds(Path, boxes(), colour, colour, st.integers(0, 40)), max_size=40))
    rasters = draw(st.lists(st.builds(Raster, boxes()), max_size=8))
    width, height = draw(st.sampled_from([0.0, 1.0, 595.0])), draw(st.sampled_from([0.0, 842.0]))
    return PageContent(width, height, tuple(lines), tuple(rasters), tuple(paths))
