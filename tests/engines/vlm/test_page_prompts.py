"""Help for the model in its request: the page's own text, and a form that the server forces."""

import json
from dataclasses import replace

import pytest
from looking import ScriptedInspector, asked, reading
from scripted_model import PAGE, PROFILE, ScriptedEngine, stop

from llm_ocr.engines.vlm.requests import fitted
from llm_ocr.errors import PageFailure, RequestRefused, UsageError
from llm_ocr.models.registry import find_profile
from llm_ocr.types import Reason, Status

TAKER = replace(
    PROFILE, anchor="Read it. The file says: {text}", guides={"layout": {"structured_outputs": {"regex": "a*"}}}
)
LAYER = "The Danube flows\nthrough {ten} countries."


def prompts(engine: ScriptedEngine) -> list[str]:
    return [request.prompt for request in engine.requests]


def test_the_text_layer_stands_in_the_prompt_as_it_is():
    engine = ScriptedEngine(stop())
    asked(engine, TAKER, ScriptedInspector(text=LAYER), anchor=1000)
    assert prompts(engine) == [f"Read it. The file says: {LAYER}"]


def test_a_page_without_a_text_layer_gets_the_usual_prompt():
    engine = ScriptedEngine(stop())
    attempt = asked(engine, TAKER, ScriptedInspector(), anchor=1000)
    assert prompts(engine) == ["Read it with boxes."]
    assert (attempt.status, attempt.detail) == (Status.OK, "")


def test_no_text_is_asked_for_unless_the_user_wants_it():
    engine, inspector = ScriptedEngine(stop()), ScriptedInspector(text=LAYER)
    asked(engine, TAKER, inspector, figures_from="none")
    assert prompts(engine) == ["Read it with boxes."]
    assert inspector.asked == []


def test_a_prompt_of_the_users_own_has_a_place_for_it():
    for text, said in ((LAYER, f"Mine: {LAYER}!"), ("", "Mine: !")):
        engine = ScriptedEngine(stop())
        asked(engine, PROFILE, ScriptedInspector(text=text), anchor=100, prompt="Mine: {text}!")
        assert prompts(engine) == [said]


def test_another_prompt_of_the_ladder_goes_without_it():
    engine = ScriptedEngine(stop(""), stop(""), stop(""), stop())
    asked(engine, TAKER, ScriptedInspector(text=LAYER), anchor=100)
    assert prompts(engine)[-1] == "Read it."
    assert all(LAYER in prompt for prompt in prompts(engine)[:-1])


def test_answer_limit_shrinks_by_what_the_text_may_take():
    engine = ScriptedEngine(stop())
    asked(engine, TAKER, ScriptedInspector(text="a" * 600), anchor=1000)
    (request,) = engine.requests
    assert request.settings["max_tokens"] == 1000 - 300 - 300
    assert request.reserve == 200 + 300


def test_a_request_that_does_not_fit_is_made_without_it():
    engine = ScriptedEngine(RequestRefused("too long", status=400, too_long=True), stop())
    asked(engine, TAKER, ScriptedInspector(text=LAYER), anchor=100)
    assert prompts(engine)[1] == "Read it with boxes."


def test_unreadable_text_layer_is_reported_and_page_stays_ok():
    engine = ScriptedEngine(stop())
    inspector = ScriptedInspector(text=PageFailure(Reason.ENGINE_ERROR, "the worker died"))
    attempt = asked(engine, TAKER, inspector, anchor=100)
    assert (attempt.status, attempt.detail) == (Status.OK, "the text layer was not read: the worker died")
    assert prompts(engine) == ["Read it with boxes."]


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("one two three", 13, "one two three"),
        ("first words of it and the last of them", 25, "first\n[...]\nof them"),
        ("first words of it and the last of them", 31, "first words\n[...]\nlast of them"),
        ("a" * 50, 27, "a" * 10 + "\n[...]\n" + "a" * 10),
        ("abcdef", 3, "abc"),
    ],
)
def test_what_is_too_much_is_left_out_of_the_middle(text, most, kept):
    assert len(fitted(text, most)) <= most
    assert fitted(text, most) == kept


def test_models_that_take_no_text_are_refused_and_others_named():
    with pytest.raises(UsageError, match=r"does not support `anchor_text`(.|\n)*qwen3-vl"):
        reading(ScriptedEngine(stop()), find_profile("deepseek-ocr"), anchor=100)
    with pytest.raises(UsageError, match="in mode text"):
        reading(ScriptedEngine(stop()), TAKER, anchor=100, mode="text")


def test_the_form_of_answers_is_forced_where_it_is_known():
    engine = ScriptedEngine(stop(""), stop(""), stop(""), stop())
    asked(engine, TAKER, guided=True)
    forced = [request.vllm_settings.get("structured_outputs") for request in engine.requests]
    assert forced == [{"regex": "a*"}] * 3 + [None]  # the last rung has another prompt
    engine = ScriptedEngine(stop())
    asked(engine, TAKER)
    assert "structured_outputs" not in engine.requests[0].vllm_settings


@pytest.mark.parametrize("options", [{"mode": "text"}, {"prompt": "Mine."}])
def test_a_form_that_is_not_known_cannot_be_forced(options):
    with pytest.raises(UsageError, match=r"does not support `guided`(.|\n)*olmocr-2"):
        reading(ScriptedEngine(stop()), TAKER, guided=True, **options)


def test_all_of_it_is_in_the_key():
    def key(**options) -> str:
        return json.dumps(
            reading(ScriptedEngine(stop()), TAKER, ScriptedInspector(), **options).identity(), sort_keys=True
        )

    changes = [
        {},
        {"anchor": 100},
        {"anchor": 200},
        {"guided": True},
        {"rotate": "never"},
        {"rotate": "probe"},
        {"figures_from": "page"},
        {"figures_from": "none"},
    ]
    assert len({key(**change) for change in changes}) == len(changes)
    assert PAGE.image.data not in key().encode()
