"""Figures described by a model: what is asked in each mode, what is accepted, and what the user is told."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import LOOP, Reply, ScriptedEngine, ended, stop

from llm_ocr.engines import Completion, FigureReader, Finish
from llm_ocr.engines.vlm.figures import ModelFigureReader
from llm_ocr.engines.vlm.requests import DescribeOptions
from llm_ocr.errors import PageFailure, RequestLost, RequestRefused, UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.profiles.shared import DEEPSEEK_PROMPTS
from llm_ocr.models.registry import find_profile
from llm_ocr.types import Box, EncodedImage, Figure, FigureRecord, Reason, Status

CHAT = generic("somebody/sees")
DEEPSEEK = find_profile("deepseek-ocr")
FIGURE = Figure(
    "d-p00001-f01",
    "image",
    Box(0, 0, 1, 1),
    EncodedImage(b"pixels", "image/png", 10, 10),
    caption="Figure 1. Sales",
    inside="2019\n2020",
)
DATA = '{"type": "bar chart", "title": "Sales", "axes": [], "columns": ["year"], "rows": [["2019"]], "text": ""}'
TOO_LONG = RequestRefused("max_tokens=8192 cannot be greater", status=400, too_long=True)


def made(engine: ScriptedEngine, profile: Profile = CHAT, **options) -> ModelFigureReader:
    return ModelFigureReader(engine, profile, DescribeOptions(**{"backoff": 0.0, **options}))


def described(*replies: Reply, profile: Profile = CHAT, figure: Figure = FIGURE, **options) -> FigureRecord:
    reader: FigureReader = made(ScriptedEngine(*replies), profile, **options)
    return asyncio.run(reader.describe(figure, "d-p00001", "d"))


def asked(profile: Profile, figure: Figure = FIGURE, **options):
    engine = ScriptedEngine(stop(DATA))
    try:
        asyncio.run(made(engine, profile, **options).describe(figure, "d-p00001", "d"))
    except PageFailure:
        assert options["mode"] == "classify"
    return engine.requests[0]


def test_a_description_is_the_models_words():
    record = described(stop("A bar chart of sales. <|im_end|>"))
    assert (record.status, record.mode, record.description) == (Status.OK, "describe", "A bar chart of sales.")
    assert (record.figure_id, record.page_id, record.document_id) == ("d-p00001-f01", "d-p00001", "d")
    assert (record.engine, record.tokens_in, record.tokens_out, record.seconds) == ("scripted", 100, 50, 2.0)
    assert (record.data, record.label, record.reason, record.detail) == ("", "", None, "")


def test_a_description_has_no_prompt_and_no_hidden_characters():
    prompt = asked(CHAT).prompt
    record = described(stop(f"{prompt}\n\nA \u202ebar\u202c chart\x00 of sales."))
    assert (record.status, record.description) == (Status.OK, "A bar chart of sales.")
    with pytest.raises(PageFailure, match="nothing"):
        described(stop(prompt))


def test_unknown_characters_degrade_a_description():
    record = described(stop("A b\ufffdr ch\ufffdrt."))
    assert (record.status, record.reason, record.description) == (
        Status.DEGRADED,
        Reason.MALFORMED,
        "A b\ufffdr ch\ufffdrt.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "I can't provide a description of this image.",
        "I won't be able to help with identifying this person.",
        "I'm sorry, but I cannot fulfill this request.",
        "There is no image provided. Please upload the figure.",
        "Es tut mir leid, aber ich kann dieses Bild nicht beschreiben.",
        "Je suis désolé, mais je ne peux pas décrire cette image.",
        "Lo siento, no puedo describir esta imagen.",
        "Desculpe, não consigo ver a imagem.",
        "Mi dispiace, non posso descrivere questa immagine.",
        "很抱歉，我不能提供这张图片的描述。",
        "申し訳ありませんが、この画像を説明することはできません。",
    ],
)
def test_a_refusal_describes_nothing(text: str):
    with pytest.raises(PageFailure, match="refused"):
        described(stop(text))


@pytest.mark.parametrize(
    "text",
    [
        "A sign that says: sorry, I cannot read the image.",
        "No image of the bridge was included in the first atlas; this is the second.",
        "I cannot fulfill the order before May, writes the clerk.",
        "No puedo enviar la foto hoy, dice la carta.",
        "Ich kann nicht kommen, steht auf der Karte.",
    ],
)
def test_words_like_those_of_a_refusal_are_kept(text: str):
    assert described(stop(text)).description == text


def test_chat_models_are_told_what_the_document_says():
    request = asked(CHAT)
    assert request.image == FIGURE.image
    assert 'Caption: "Figure 1. Sales" Text inside the figure: "2019; 2020"' in request.prompt
    bare = asked(CHAT, replace(FIGURE, caption="", inside=""))
    assert bare.prompt == CHAT.prompts["describe"]


@pytest.mark.parametrize("mode", ["describe", "parse"])
def test_models_trained_on_one_string_get_that_string(mode):
    request = asked(DEEPSEEK, mode=mode)
    assert request.prompt == DEEPSEEK_PROMPTS[mode]
    assert request.vllm_settings == {"skip_special_tokens": False}


def test_parse_and_classify_use_structured_outputs_if_supported():
    assert "json" in asked(CHAT, mode="parse").vllm_settings["structured_outputs"]
    request = asked(CHAT, mode="classify", classes=("cat", "dog"))
    assert request.vllm_settings["structured_outputs"] == {"choice": ["cat", "dog"]}
    assert "cat, dog" in request.prompt
    assert "structured_outputs" not in asked(CHAT).vllm_settings


def test_parsed_data_is_stored_as_json():
    record = described(stop(f"Here it is:\n```json\n{DATA}\n```"), mode="parse")
    assert record.status is Status.OK
    assert json.loads(record.data) == json.loads(DATA)


def test_a_diagram_keeps_its_nodes_and_edges():
    said = {"type": "flow chart", "nodes": ["start", "end"], "edges": [{"from": "start", "to": "end"}]}
    record = described(stop(json.dumps(said)), mode="parse")
    assert (record.status, json.loads(record.data)) == (Status.OK, said)


def test_a_prompt_of_the_users_own_decides_the_form_of_the_data():
    said = [{"name": "pump", "rows": [{"x": 1}]}]
    record = described(stop(json.dumps(said)), mode="parse", prompt="List the parts as JSON.")
    assert (record.status, json.loads(record.data)) == (Status.OK, said)
    assert "structured_outputs" not in asked(CHAT, mode="parse", prompt="List the parts as JSON.").vllm_settings


def test_invalid_data_is_retried_once_and_then_its_text_is_kept():
    record = described(stop("no data here"), mode="parse")
    assert (record.status, record.reason, record.data) == (Status.DEGRADED, Reason.MALFORMED, "")
    assert (record.description, record.tokens_in) == ("no data here", 200)
    assert "no JSON object" in record.detail
    assert described(stop("no data here"), stop(DATA), mode="parse").status is Status.OK


def test_a_label_is_one_of_the_list():
    record = described(stop('"Dog".'), mode="classify", classes=("cat", "dog"))
    assert (record.status, record.label) == (Status.OK, "dog")


def test_a_figure_of_no_class_fails_after_one_more_try():
    with pytest.raises(PageFailure, match="none of the classes: 'a horse'") as caught:
        described(stop("a horse"), mode="classify", classes=("cat", "dog"))
    assert (caught.value.reason, len(caught.value.tries)) == (Reason.MALFORMED, 2)


def test_a_prompt_of_the_users_own_has_a_name_and_gives_text():
    record = described(stop("Three."), mode="bars", prompt="How many bars?")
    assert (record.mode, record.description) == ("bars", "Three.")
    assert asked(DEEPSEEK, mode="bars", prompt="How many bars?").prompt == "How many bars?"


def test_custom_prompt_for_a_known_mode_keeps_its_format():
    assert described(stop("dog"), mode="classify", classes=("dog",), prompt="Which of {classes}?").label == "dog"
    assert asked(DEEPSEEK, mode="classify", classes=("dog",), prompt="Which of {classes}?").prompt == "Which of dog?"


def test_impossible_modes_are_refused_before_any_request():
    with pytest.raises(UsageError, match=r"for figures: 'bars'(.|\n)*describe, parse, classify"):
        made(ScriptedEngine(stop()), mode="bars")
    with pytest.raises(UsageError, match="cannot parse figures"):
        made(ScriptedEngine(stop()), replace(CHAT, prompts={}), mode="parse")


def test_only_the_temperature_climbs():
    engine = ScriptedEngine(stop(""), stop(""), stop(""), stop("A map."))
    record = asyncio.run(made(engine).describe(FIGURE, "d-p00001", "d"))
    assert [request.settings["temperature"] for request in engine.requests] == [0.0, 0.1, 0.2, 0.3]
    assert {(request.image.data, request.prompt) for request in engine.requests} == {
        (FIGURE.image.data, engine.requests[0].prompt)
    }
    assert (record.status, record.tokens_in) == (Status.OK, 400)


def test_a_loop_is_cut_off_and_the_rest_is_degraded():
    record = described(ended(f"A map of the Rhine. {LOOP}", Finish.CUT), max_attempts=2)
    assert (record.status, record.reason) == (Status.DEGRADED, Reason.LOOP)
    assert record.description.startswith("A map of the Rhine.")
    assert len(record.description) < 200


def test_an_answer_that_does_not_fit_is_asked_shorter_once():
    engine = ScriptedEngine(TOO_LONG, stop("A map."))
    asyncio.run(made(engine).describe(FIGURE, "d-p00001", "d"))
    first, second = (request.settings["max_tokens"] for request in engine.requests)
    assert second == first // 2
    with pytest.raises(PageFailure) as caught:
        described(TOO_LONG)
    assert (caught.value.reason, len(caught.value.tries)) == (Reason.TOO_LONG, 2)


def test_refused_and_quarantined_figures_fail_at_once():
    for error, reason in [
        (RequestRefused("no such image", status=400), Reason.REFUSED),
        (PageFailure(Reason.QUARANTINED, "killed 3 servers"), Reason.QUARANTINED),
    ]:
        with pytest.raises(PageFailure) as caught:
            described(error)
        assert (caught.value.reason, len(caught.value.tries)) == (reason, 1)


def test_key_holds_exactly_what_changes_descriptions():
    def identity(profile: Profile = CHAT, **options) -> str:
        return json.dumps(made(ScriptedEngine(stop()), profile, **options).identity(), sort_keys=True)

    plain = identity()
    assert plain == identity(backoff=2.0) == identity(classes=("cat",))
    changes = [
        {"mode": "parse"},
        {"mode": "classify"},
        {"mode": "classify", "classes": ("cat", "dog")},
        {"mode": "bars", "prompt": "How many?"},
        {"prompt": "How many?"},
        {"max_tokens": 9},
        {"temperature": 0.3},
        {"max_attempts": 1},
        {"model": "x/y"},
        {"revision": "abc"},
        {"profile": DEEPSEEK},
    ]
    assert len({plain, *(identity(**change) for change in changes)}) == len(changes) + 1


ANSWERS = st.builds(
    Completion,
    st.sampled_from(["", DATA, LOOP, f"A map. {LOOP}", "dog", "a horse"]) | st.text(max_size=30),
    st.sampled_from(list(Finish)),
    st.integers(0, 500),
    st.integers(0, 500),
)
ERRORS = st.sampled_from([RequestLost("reset"), TOO_LONG, RequestRefused("no", status=400)])


@given(
    replies=st.lists(ANSWERS | ANSWERS | ERRORS, min_size=1, max_size=9),
    mode=st.sampled_from(["describe", "parse", "classify"]),
    most=st.integers(1, 9),
)
def test_figure_always_ends_within_its_tries_and_tokens_add_up(replies: list[Reply], mode: str, most: int):
    engine = ScriptedEngine(*replies)
    reader = made(engine, mode=mode, max_attempts=most, classes=("cat", "dog"))
    tokens = None
    try:
        record = asyncio.run(reader.describe(FIGURE, "d-p00001", "d"))
    except PageFailure as failure:
        assert len(failure.tries) == len(engine.requests)
        tokens = sum(one["tokens_in"] for one in failure.tries)
    else:
        assert (record.status is Status.OK) == (record.reason is None)
        assert record.description or record.data or record.label
        tokens = record.tokens_in
    count = len(engine.requests)
    assert 1 <= count <= most
    came = [*replies, *[replies[-1]] * most][:count]
    assert tokens == sum(reply.tokens_in for reply in came if isinstance(reply, Completion))
