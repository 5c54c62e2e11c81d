"""Pages that do not stand upright: by the model's word, or by a look at them before."""

from dataclasses import replace

import pytest
from looking import ScriptedInspector, asked
from scripted_model import GOOD, PAGE, PROFILE, ScriptedEngine, Tools, ended, stop, text_of

from llm_ocr.engines import Finish
from llm_ocr.errors import PageFailure
from llm_ocr.models.parsers.markdown import parse_front_matter
from llm_ocr.models.profile import Frame, Parsed
from llm_ocr.models.registry import find_profile
from llm_ocr.types import Block, BlockKind, Box, EncodedImage, Reason, Status

OLMOCR = find_profile("olmocr-2")
WIDE = replace(PAGE, image=EncodedImage(b"pixels", "image/png", 400, 200))


def answer(correction: int, text: str = GOOD, *, valid: bool | None = None) -> str:
    """As olmOCR counts: against the clock."""
    upright = correction == 0 if valid is None else valid
    head = f"primary_language: de\nis_rotation_valid: {upright}\nrotation_correction: {correction}"
    return f"---\n{head}\nis_table: False\nis_diagram: False\n---\n{text}"


def test_a_page_that_stands_wrong_is_turned_and_asked_for_again():
    engine, tools = ScriptedEngine(stop(answer(270, "gibberish")), stop(answer(0))), Tools()
    attempt = asked(engine, OLMOCR, tools=tools, page=WIDE)
    assert [request.image.data for request in engine.requests] == [b"pixels", b"turned 90"]
    assert (attempt.status, attempt.rotation, text_of(attempt)) == (
        Status.OK,
        90,
        "Rivers\nThe Danube flows through ten countries.",
    )
    assert attempt.image == EncodedImage(b"turned 90", "image/png", 200, 400)
    assert [(one["status"], one["detail"]) for one in attempt.tries] == [
        ("ok", "according to the model, the page must be rotated by 90 degrees clockwise"),
        ("ok", ""),
    ]
    assert attempt.tokens_out == 100


def test_what_the_model_notes_of_the_page_is_kept():
    attempt = asked(ScriptedEngine(stop(answer(0))), OLMOCR)
    assert attempt.notes == {
        "primary_language": "de",
        "is_rotation_valid": True,
        "rotation_correction": 0,
        "is_table": False,
        "is_diagram": False,
    }
    assert (attempt.rotation, attempt.image) == (0, None)
    assert asked(ScriptedEngine(stop()), PROFILE).notes == {}


def test_turning_is_no_failed_try():
    engine = ScriptedEngine(stop(answer(180, "gibberish")), stop(answer(0)))
    attempt = asked(engine, OLMOCR, max_attempts=1)
    assert (attempt.status, attempt.rotation) == (Status.OK, 180)
    assert {request.settings["temperature"] for request in engine.requests} == {0.1}


def test_looping_answer_of_a_sideways_page_is_retried_upright():
    looping = ended(answer(90, "no no no no " * 400), Finish.LENGTH)
    attempt = asked(ScriptedEngine(looping, stop(answer(0))), OLMOCR, max_attempts=1)
    assert (attempt.status, attempt.rotation) == (Status.OK, 270)


def test_page_is_turned_at_most_twice_and_never_back():
    for corrections, rotations in (([270, 270, 270], [0, 90, 180]), ([270, 90], [0, 90]), ([0], [0])):
        engine, tools = ScriptedEngine(*(stop(answer(one, valid=False)) for one in corrections)), Tools()
        attempt = asked(engine, OLMOCR, tools=tools)
        images = [b"pixels", b"turned 90", b"turned 180"]
        assert [images.index(request.image.data) * 90 for request in engine.requests] == rotations
        assert (attempt.status, attempt.rotation) == (Status.OK, rotations[-1])
        assert attempt.notes["is_rotation_valid"] is False


def test_an_answer_that_was_read_sideways_is_better_than_none():
    engine = ScriptedEngine(stop(answer(270, "Read sideways.")), stop(""))
    attempt = asked(engine, OLMOCR, max_attempts=2)
    assert (attempt.status, attempt.reason, text_of(attempt)) == (Status.DEGRADED, Reason.EMPTY, "Read sideways.")
    assert (attempt.rotation, attempt.image) == (0, None)


def test_a_page_that_cannot_be_turned_keeps_what_was_read_of_it():
    engine = ScriptedEngine(stop(answer(270, "Read sideways.")))
    attempt = asked(engine, OLMOCR, tools=Tools(fails=["turned"]))
    assert (attempt.status, attempt.reason, text_of(attempt)) == (
        Status.DEGRADED,
        Reason.RENDER_CRASHED,
        "Read sideways.",
    )


def test_never_leaves_pages_as_they_are():
    attempt = asked(ScriptedEngine(stop(answer(90))), OLMOCR, rotate="never")
    assert (attempt.status, attempt.rotation, attempt.tries) == (Status.OK, 0, ())


def test_a_probe_turns_a_page_before_it_is_asked_for():
    engine, inspector = ScriptedEngine(stop()), ScriptedInspector(degrees=270)
    attempt = asked(engine, PROFILE, inspector, rotate="probe")
    assert [request.image.data for request in engine.requests] == [b"turned 270"]
    assert (attempt.rotation, attempt.image and attempt.image.data) == (270, b"turned 270")
    assert inspector.asked[0] == "orientation"


def test_a_probe_that_fails_costs_nothing_but_a_word():
    inspector = ScriptedInspector(degrees=PageFailure(Reason.ENGINE_ERROR, "the worker died"))
    attempt = asked(ScriptedEngine(stop()), PROFILE, inspector, rotate="probe")
    assert attempt.status is Status.OK
    assert attempt.detail == "the orientation of the page is unknown: the worker died"


@pytest.mark.parametrize(("scale", "size"), [(1.0, (400, 200)), (0.8, (320, 160))])
def test_parsers_are_told_the_pixels_of_the_image_as_it_was_sent(scale, size):
    frames: list[Frame] = []

    def parse(text: str, frame: Frame) -> Parsed:
        frames.append(frame)
        return Parsed((Block(BlockKind.TEXT, Box(0, 0, 1, 0.1), text),) if text else ())

    profile = replace(PROFILE, parsers={"": parse})
    replies = [stop("")] * (2 if scale != 1.0 else 0) + [stop("text")]
    asked(ScriptedEngine(*replies), profile, page=WIDE)  # the second rung has the smaller image
    assert (frames[-1].width, frames[-1].height) == size


def test_boxes_in_pixels_are_those_of_the_turned_image():
    profile = replace(OLMOCR, parsers={"": parse_front_matter})
    figure = "![A quay](page_50_100_100_200.png)"
    engine = ScriptedEngine(stop(answer(270, "gibberish")), stop(answer(0, f"{GOOD}\n\n{figure}")))
    attempt = asked(engine, profile, page=WIDE, figure_labels=frozenset({"image"}))
    (block,) = [block for block in attempt.blocks if block.kind is BlockKind.FIGURE]
    assert block.box == Box(0.25, 0.25, 0.75, 0.75)
