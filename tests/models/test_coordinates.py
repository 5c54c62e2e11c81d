"""Boxes in every scale that models write become boxes on the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.coordinates import (
    Scale,
    dots_size,
    from_500,
    from_1000,
    from_1024,
    from_bins,
    from_canvas,
    from_fractions,
    from_pixel_sizes,
    from_resized,
)
from llm_ocr.models.profile import NO_FRAME, Frame
from llm_ocr.types import Box

WHOLE = Box(0, 0, 1, 1)
A4 = Frame(1654, 2339)  # 200 dpi
SCALES: dict[str, tuple[Scale, tuple[float, float, float, float]]] = {
    "0-999": (from_bins, (0, 0, 999, 999)),
    "0-1000": (from_1000, (0, 0, 1000, 1000)),
    "0-1024": (from_1024, (0, 0, 1024, 1024)),
    "0-500": (from_500, (0, 0, 500, 500)),
    "fractions": (from_fractions, (0, 0, 1, 1)),
    "x y w h": (from_pixel_sizes(A4), (0, 0, 1654, 2339)),
    "resized": (from_resized(A4), (0, 0, 1652, 2352)),
    "canvas": (from_canvas(A4), (108 / 1664, 0, (108 + 1448) / 1664, 1)),
}


@pytest.mark.parametrize("name", SCALES)
def test_the_whole_picture_is_the_whole_page(name: str):
    scale, whole = SCALES[name]
    box = scale(*whole)
    assert box is not None
    assert (box.x0, box.y0, box.x1, box.y1) == pytest.approx((0, 0, 1, 1), abs=1e-9)


@pytest.mark.parametrize("name", SCALES)
@given(numbers=st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 4))
def test_any_numbers_are_a_box_on_the_page_or_none(name: str, numbers: tuple[float, float, float, float]):
    box = SCALES[name][0](*numbers)
    assert box is None or (0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1)


def test_boxes_are_clipped_and_corners_put_in_order():
    assert from_1000(500, 700, -3, 1200) == Box(0, 0.7, 0.5, 1)


@pytest.mark.parametrize("numbers", [(5, 5, 5, 9), (5, 5, 9, 5), (1000, 0, 1200, 9), (-9, 0, -1, 9)])
def test_a_box_without_an_area_on_the_page_is_none(numbers: tuple[float, float, float, float]):
    assert from_1000(*numbers) is None


@pytest.mark.parametrize("make", [from_pixel_sizes, from_resized, from_canvas])
def test_pixels_of_an_unknown_image_are_no_box(make):
    assert make(NO_FRAME)(0, 0, 9, 9) is None


def test_a_place_and_a_size_in_pixels():
    assert from_pixel_sizes(Frame(1000, 2000))(100, 200, 500, 800) == Box(0.1, 0.1, 0.6, 0.5)
    assert from_pixel_sizes(Frame(1000, 2000))(100, 200, -50, 800) is None


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((1654, 2339), (1652, 2352)),  # nearest multiples of 28
        ((1680, 2352), (1680, 2352)),  # as it is
        ((42, 42), (56, 56)),  # 1.5 and 2.5 times 28 go to the even one ...
        ((70, 70), (56, 56)),
        ((28, 28), (56, 56)),  # at least 3136 pixels
        ((1, 1), (56, 56)),
        ((10, 400), (28, 392)),
        ((3360, 3360), (3360, 3360)),  # 11,289,600 pixels: the most
        ((3361, 3361), (3360, 3360)),
        ((4000, 6000), (2716, 4088)),
        ((0, 5), (0, 0)),
    ],
)
def test_the_size_that_dots_sees(size: tuple[int, int], resized: tuple[int, int]):
    assert dots_size(*size) == resized


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_what_dots_sees_has_sides_of_28_and_an_area_within_its_limits(width: int, height: int):
    across, down = dots_size(width, height)
    assert across % 28 == down % 28 == 0
    assert 3136 <= across * down <= 11_289_600 or min(across, down) == 28


def test_the_canvas_makes_smaller_and_never_larger():
    # 1000 x 1000 stays as it is in the middle: (1664 - 1000) / 2 at the left, (2048 - 1000) / 2 above.
    small = from_canvas(Frame(1000, 1000))(332 / 1664, 524 / 2048, 832 / 1664, 1024 / 2048)
    assert small == Box(0, 0, 0.5, 0.5)
    # 3328 x 2048 becomes 1664 x 1024, with 512 above and below.
    wide = from_canvas(Frame(3328, 2048))(0, 0.25, 0.5, 0.5)
    assert wide == Box(0, 0, 0.5, 0.5)


def test_what_lies_in_the_margin_of_the_canvas_is_clipped():
    scale = from_canvas(Frame(1000, 1000))
    assert scale(0, 0, 1, 1) == WHOLE
    assert scale(0, 0, 0.1, 0.1) is None


def test_another_canvas_can_be_named():
    assert from_canvas(Frame(1648, 2048), width=1648)(0, 0, 1, 1) == WHOLE
    assert from_canvas(Frame(1648, 2048), width=1648)(0, 0, 0.5, 1) == Box(0, 0, 0.5, 1)
