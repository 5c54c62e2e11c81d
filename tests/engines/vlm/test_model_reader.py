"""A page read by a model: what is asked, what a good answer becomes, and what the user is told."""

import asyncio
import json
from dataclasses import replace

import pytest
from scripted_model import GOOD, PAGE, PROFILE, Fallback, ScriptedEngine, Tools, by_layer, read, reader, stop, text_of

from llm_ocr.engines import PageReader
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import ReadOptions
from llm_ocr.engines.vlm.retry import judge_page
from llm_ocr.errors import UsageError
from llm_ocr.models.parsers.html_blocks import parse_chandra
from llm_ocr.models.parsers.layout_json import parse_dots_layout_only
from llm_ocr.models.parsers.markers import parse_grounding, parse_lighton3, parse_unlimited
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import Frame
from llm_ocr.models.registry import find_profile
from llm_ocr.types import BlockKind, Evidence, Reason, Status


def test_the_first_request_is_the_profiles():
    engine = ScriptedEngine(stop())
    read(engine)
    (request,) = engine.requests
    assert (request.id, request.image, request.prompt) == ("d-p00001", PAGE.image, "Read it with boxes.")
    assert request.settings == {"top_p": 0.9, "temperature": 0.0, "max_tokens": 800}
    assert request.vllm_settings == {"skip_special_tokens": False, "vllm_xargs": {"ngram_size": 30}}
    assert request.watch is not None
    assert request.prompt_tokens > 1000  # an image counts as a full page
    assert not request.watch().feed("a piece of text")


def test_a_good_answer_becomes_blocks_and_is_kept_as_it_came():
    attempt = read(ScriptedEngine(stop()))
    assert (attempt.status, attempt.reason, attempt.detail) == (Status.OK, None, "")
    assert (attempt.engine, attempt.source, attempt.raw) == ("scripted", "model", GOOD)
    assert [(block.kind, block.text) for block in attempt.blocks] == [
        (BlockKind.TITLE, "Rivers"),
        (BlockKind.TEXT, "The Danube flows through ten countries."),
    ]
    assert (attempt.tokens_in, attempt.tokens_out, attempt.seconds, attempt.tries) == (100, 50, 2.0, ())


def test_a_model_is_not_asked_about_text_that_its_image_lacks():
    page, engine = replace(PAGE, evidence=Evidence(None, undrawn=0.6)), ScriptedEngine(stop())
    attempt = read(engine, page=page, fallback=Fallback(by_layer("請求書")))
    assert (engine.requests, attempt.source, text_of(attempt)) == ([], "text-layer", "請求書")
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.NOT_DRAWN)
    assert "60% of the text" in attempt.detail and "fonts-noto-cjk" in attempt.detail
    alone = read(engine, page=page)
    assert (alone.source, alone.status, alone.reason) == ("model", Status.DEGRADED, Reason.NOT_DRAWN)


def test_page_leaves_the_queue_once_despite_repeated_requests():
    calls: list[int] = []
    read(
        ScriptedEngine(stop(""), stop("")),
        on_dispatched=lambda: calls.append(1),
        max_attempts=2,
        fallback=Fallback(by_layer()),
    )
    assert calls == [1]


def test_a_prompt_of_the_users_own_is_asked_at_every_rung():
    engine = ScriptedEngine(stop(""), stop(""), stop(""), stop(""), stop())
    attempt = read(engine, prompt="Only the title, please.", mode="marked")
    assert {request.prompt for request in engine.requests} == {"Only the title, please."}
    assert {one["mode"] for one in attempt.tries} == {"marked"}


def test_user_temperature_comes_first_and_never_decreases():
    engine = ScriptedEngine(stop(""))
    read(engine, temperature=0.2, fallback=Fallback(by_layer()), max_attempts=5)
    assert [request.settings["temperature"] for request in engine.requests] == [0.2, 0.2, 0.2, 0.3, 0.3]


@pytest.mark.parametrize(("wanted", "asked"), [(None, 800), (300, 300), (5000, 800)])
def test_an_answer_is_never_asked_longer_than_what_fits(wanted, asked):
    engine = ScriptedEngine(stop())
    read(engine, max_tokens=wanted)
    assert engine.requests[0].settings["max_tokens"] == asked


def test_unknown_mode_is_refused_and_the_known_ones_are_named():
    with pytest.raises(UsageError, match=r"no mode 'maps'(.|\n)*layout, text, marked"):
        reader(ScriptedEngine(stop()), mode="maps")


def test_small_losses_are_told_and_the_page_stands():
    attempt = read(ScriptedEngine(stop("one\ntwo\nbad\nthree")), mode="marked")
    assert (attempt.status, attempt.detail) == (Status.OK, "the box of line 2 is malformed")
    assert text_of(attempt) == "one\ntwo\nthree"


def test_figures_follow_profile_labels_and_others_keep_places():
    attempt = read(ScriptedEngine(stop("one\nfig:image\nfig:seal\ntab:a | b")), mode="marked")
    kinds = [(block.kind, block.label, block.text) for block in attempt.blocks]
    assert kinds == [
        (BlockKind.TEXT, "text", "one"),
        (BlockKind.FIGURE, "image", ""),
        (BlockKind.TEXT, "seal", "words inside"),
        (BlockKind.TABLE, "table", "a | b"),
    ]


def test_cropped_table_stays_as_text_followed_by_its_figure():
    answer = stop("fig:image\ntab:a | b\none")
    attempt = read(ScriptedEngine(answer), mode="marked", figure_labels=frozenset({"Table"}))
    table, figure = attempt.blocks[1:3]
    assert [block.kind for block in attempt.blocks] == [
        BlockKind.TEXT,
        BlockKind.TABLE,
        BlockKind.FIGURE,
        BlockKind.TEXT,
    ]
    assert (table.text, figure.label, figure.text, figure.box) == ("a | b", "table", "", table.box)


def test_a_table_whose_place_is_not_known_is_not_cropped():
    attempt = read(ScriptedEngine(stop("| a |\n|---|\n| b |")), figure_labels=frozenset({"table"}))
    assert [block.kind for block in attempt.blocks] == [BlockKind.TABLE]


def test_a_page_as_deepseek_answers_it():
    def tagged(label: str, box: str, text: str) -> str:
        return f"<|ref|>{label}<|/ref|><|det|>[[{box}]]<|/det|>\n{text}\n\n"

    answer = (
        tagged("sub_title", "71, 88, 402, 110", "## 2 Methods")
        + tagged("text", "71, 120, 930, 200", "We measured the river.")
        + tagged("table", "71, 210, 930, 300", "<table><tr><td>1</td></tr></table>")
        + tagged("image", "71, 310, 930, 480", "")
        + tagged("image_caption", "71, 490, 930, 510", "Figure 1. The gauge.")
        + "<｜end▁of▁sentence｜>"
    )
    engine = ScriptedEngine(stop(answer))
    options = ReadOptions(figure_labels=frozenset({"image", "table"}))
    made = ModelReader(engine, find_profile("deepseek-ocr"), Tools(), options)
    attempt = asyncio.run(made.read(PAGE))
    assert (attempt.status, attempt.detail, attempt.raw) == (Status.OK, "", answer)
    assert engine.requests[0].prompt == "<|grounding|>Convert the document to markdown."
    figures = [block for block in attempt.blocks if block.kind is BlockKind.FIGURE]
    assert [(figure.label, figure.caption) for figure in figures] == [("table", ""), ("image", "Figure 1. The gauge.")]
    assert "We measured the river." in text_of(attempt)
    assert "<|" not in text_of(attempt)
    assert all(0 <= block.box.x0 < block.box.x1 <= 1 for block in attempt.blocks)


def test_modes_for_figures_read_no_pages():
    with pytest.raises(UsageError, match=r"has no mode .* for pages"):
        ModelReader(ScriptedEngine(stop()), find_profile("deepseek-ocr"), Tools(), ReadOptions(mode="parse"))


def identity(**options) -> str:
    return json.dumps(reader(ScriptedEngine(stop()), **options).identity(), sort_keys=True)


def test_the_key_holds_what_changes_results_and_nothing_else():
    plain = identity()
    assert plain == identity(backoff=3.0) == identity(mode="layout") == identity(temperature=0.0)
    changes = [
        {"mode": "text"},
        {"prompt": "Read."},
        {"max_tokens": 10},
        {"temperature": 0.5},
        {"max_attempts": 2},
        {"figure_labels": frozenset({"table"})},
        {"model": "somebody/else"},
        {"revision": "fff"},
        {"fallback": Fallback(by_layer())},
    ]
    assert len({plain, *(identity(**change) for change in changes)}) == len(changes) + 1
    assert json.loads(plain)["model"] == "nobody/scripted"
    assert json.loads(plain)["revision"] == "0123abc"


def test_the_profile_is_in_the_key_too():
    def of(profile) -> str:
        made = ModelReader(ScriptedEngine(stop()), profile, Tools(), ReadOptions())
        return json.dumps(made.identity(), sort_keys=True)

    changed = [
        replace(PROFILE, ladder=PROFILE.ladder[:1]),
        replace(PROFILE, settings={}),
        replace(PROFILE, system="You read."),
        replace(PROFILE, page_settings={}),
        replace(PROFILE, prompts={**PROFILE.prompts, "text": "Read it all."}),  # the last rung's
    ]
    assert len({of(PROFILE), *map(of, changed)}) == len(changed) + 1


def test_closing_ends_the_fallback_and_leaves_the_shared_engine():
    engine, fallback = ScriptedEngine(stop()), Fallback(by_layer())
    made: PageReader = reader(engine, fallback=fallback)
    asyncio.run(made.close())
    assert (engine.closed, fallback.closed) == (0, 1)


def test_a_layout_without_texts_is_an_answer():
    layout = '[{"bbox": [140, 112, 980, 168], "category": "Title"}, {"bbox": [140, 224, 980, 448], "category": "Text"}]'
    verdict = judge_page(stop(layout), parse_dots_layout_only, Frame(1120, 1568))
    assert verdict.sound
    assert [block.label for block in verdict.result] == ["Title", "Text"]


def test_formulas_have_one_pair_of_delimiters_in_all_families():
    verdict = judge_page(stop(r"Let \(x\) be $ y = 2 $."), parse_plain)
    assert [block.text for block in verdict.result] == ["Let $x$ be $y = 2$."]


def test_a_refusal_in_the_place_of_a_caption_is_left_out():
    answer = '<div data-bbox="1 1 500 400" data-label="Image"><img alt="I\'m unable to view images."/></div>'
    verdict = judge_page(stop(answer), parse_chandra)
    assert [block.described for block in verdict.result] == [""]
    assert "refused" in verdict.detail


def test_no_sentence_of_a_refusal_becomes_a_page():
    verdict = judge_page(stop("I'm sorry, but I can't read this image.\n\nPlease provide a clearer one."), parse_plain)
    assert (verdict.reason, verdict.result) == (Reason.MALFORMED, ())


def test_printed_refusal_sentence_is_kept_and_page_is_not_ok():
    letter = "Dear Sir,\n\nI am unable to open the attached document. Please send it again.\n\nYours"
    verdict = judge_page(stop(letter), parse_plain)
    assert verdict.reason is Reason.MALFORMED
    assert "\n\n".join(block.text for block in verdict.result) == letter


def test_statement_of_no_text_is_an_empty_page():
    verdict = judge_page(stop("There is no visible text in this image."), parse_plain)
    assert (verdict.reason, verdict.result) == (Reason.EMPTY, ())


def test_prompt_in_an_answer_is_no_text_of_the_page():
    verdict = judge_page(stop("Free OCR. \nFog lay on the bar."), parse_plain, prompt="<image>\nFree OCR. ")
    assert [block.text for block in verdict.result] == ["Fog lay on the bar."]


@pytest.mark.parametrize(
    "answer",
    [
        "# Rules\n\nNo grain on a holiday.\n\n(The remaining text is omitted for brevity.)",
        "The image shows a notice with the rules of a mill.",
        "Sh\ufffdt th\ufffd sl\ufffdice at dusk.",
    ],
)
def test_answer_that_is_not_the_whole_text_is_not_sound(answer: str):
    assert judge_page(stop(answer), parse_plain).reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("parse", "answer"),
    [
        (parse_grounding, "<|ref|>{0}<|/ref|><|det|>[[{1}]]<|/det|>\n{2}\n\n"),
        (parse_grounding, "{0}[[{1}]]\n{2}\n\n"),
        (parse_unlimited, "<|det|>{0} [{1}]<|/det|>{2}\n"),
        (parse_lighton3, "![{0}]({1}) {2}\n"),
    ],
)
def test_impossible_box_of_a_figure_costs_no_second_request(parse, answer: str):
    page = answer.format("text", "40, 50, 800, 960", "Fog lay on the bar.") + answer.format("image", "9, 7, 9, 7", "")
    verdict = judge_page(stop(page), parse)
    assert (verdict.sound, [block.text for block in verdict.result]) == (True, ["Fog lay on the bar."])
    assert verdict.detail == "image: cannot be cut out without a box"


def test_answer_without_unseen_characters_is_read():
    [title] = judge_page(stop("\ufeff# Ru\u00adles"), parse_plain).result
    assert (title.kind, title.text) == (BlockKind.TITLE, "Rules")
