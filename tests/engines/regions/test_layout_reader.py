"""A page read by its regions: what is asked, what becomes of the answers, and what the user is told."""

import asyncio
import json
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from region_parts import (
    GLM,
    LOOP,
    PADDLE,
    PAGE,
    RegionWorkbench,
    SeeingModel,
    WholeReader,
    read_regions,
    reader_of,
    region,
    rows,
    said,
    shown,
    whole_page,
)

from llm_ocr.engines import Finish
from llm_ocr.engines.regions.detection import Layout
from llm_ocr.engines.regions.reader import MOST_REGIONS
from llm_ocr.errors import PageFailure, RequestLost, RequestRefused, ServerError
from llm_ocr.types import BlockKind, Box, EncodedImage, Evidence, InkMap, Reason, Status

TEXT, TABLE, FORMULA = "Text Recognition:", "Table Recognition:", "Formula Recognition:"
GOOD = {TEXT: "Some words.", TABLE: "<table><tr><td>1</td></tr></table>", FORMULA: "E = mc^2"}
REFUSED = RequestRefused("no such image", status=400)
TOO_LONG = RequestRefused("does not fit", status=400, too_long=True)


def test_each_region_is_requested_with_its_task_prompt_and_crop():
    model = SeeingModel(GOOD)
    attempt = read_regions(rows("doc_title", "text", "table", "display_formula", "image", "header"), model)
    asked = [(request.id, request.prompt, request.image.data[:15]) for request in model.requests]
    assert asked == [
        ("d-p00001-r01", TEXT, b"crop 0.10 0.01 "),
        ("d-p00001-r02", TEXT, b"crop 0.10 0.06 "),
        ("d-p00001-r03", TABLE, b"crop 0.10 0.11 "),
        ("d-p00001-r04", FORMULA, b"crop 0.10 0.16 "),
    ]
    assert shown(attempt) == [
        ("title", "Some words."),
        ("text", "Some words."),
        ("table", "<table><tr><td>1</td></tr></table>"),
        ("formula", "$$\nE = mc^2\n$$"),
        ("figure", ""),
    ]
    assert (attempt.status, attempt.reason, attempt.detail, attempt.tries) == (Status.OK, None, "", ())
    assert (attempt.engine, attempt.source) == ("seeing", "model")
    assert (attempt.tokens_in, attempt.tokens_out, attempt.seconds) == (400, 200, 8.0)


def test_profile_and_user_settings_go_with_every_request():
    model = SeeingModel(GOOD)
    read_regions(rows("text"), model, temperature=0.3, max_tokens=700)
    (request,) = model.requests
    assert request.settings == {"top_p": 1.0, "stop": ["<|user|>"], "temperature": 0.3, "max_tokens": 700}
    assert request.vllm_settings == {"top_k": -1, "repetition_penalty": 1.1}
    assert request.watch is not None


async def test_regions_run_in_parallel_and_last_one_dequeues_the_page():
    model = SeeingModel(GOOD, hold=asyncio.Barrier(3))  # none is answered before all are asked
    left: list[int] = []
    reader = reader_of(rows("text", "text", "table"), model)
    attempt = await reader.read(PAGE, lambda: left.append(len(model.requests)))
    assert (attempt.status, left) == (Status.OK, [3])


def test_boxes_match_regions_and_blocks_keep_detector_order():
    found = [region("text", 0.5, 0.1, 0.9, 0.3, order=2), region("text", 0.1, 0.1, 0.4, 0.3, order=1)]
    attempt = read_regions(found, {"01": "left", "02": "right"})
    assert [(block.text, block.box) for block in attempt.blocks] == [
        ("left", Box(0.1, 0.1, 0.4, 0.3)),
        ("right", Box(0.5, 0.1, 0.9, 0.3)),
    ]


def test_what_came_is_kept_as_json():
    attempt = read_regions(rows("text", "image"), GOOD)
    first, second = json.loads(attempt.raw)
    assert first == {"label": "text", "box": [0.1, 0.01, 0.9, 0.05], "score": 0.9, "task": "text", "answer": GOOD[TEXT]}
    assert (second["label"], second["task"], second["answer"]) == ("image", "skip", None)


def test_a_bad_answer_is_asked_again_warmer_for_its_region_alone():
    model = SeeingModel({"01": "one", "02": ["", "two"], "03": "three"})
    attempt = read_regions(rows("text", "text", "text"), model)
    assert (attempt.status, [text for _, text in shown(attempt)]) == (Status.OK, ["one", "two", "three"])
    second = [one.settings["temperature"] for one in model.requests if one.id.endswith("r02")]
    assert second == [0.0, 0.1]
    assert len(model.requests) == 4
    together, again = attempt.tries
    assert (together["regions"], together["tokens_in"], again["tokens_in"]) == (3, 300, 100)
    assert attempt.tokens_in == sum(row["tokens_in"] for row in attempt.tries) == 400


def test_unreadable_region_degrades_the_page_and_is_named():
    attempt = read_regions(rows("text", "table"), {TEXT: "Some words.", TABLE: ""}, max_attempts=2)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.EMPTY)
    assert shown(attempt) == [("text", "Some words.")]
    assert "1 of 2 regions" in attempt.detail
    assert "table at 10,6 to 90,10 %: empty answer" in attempt.detail
    assert "no text was read" in attempt.detail


def test_a_loop_in_a_region_is_cut_off_and_the_rest_kept():
    looped = said(f"The Danube flows. {LOOP}", Finish.CUT)
    attempt = read_regions(rows("text", "text"), {"01": "fine", "02": looped}, max_attempts=2)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOOP)
    (_, first), (_, second) = shown(attempt)
    assert (first, second.startswith("The Danube flows."), len(second) < 200) == ("fine", True, True)


def test_a_lost_request_is_a_try_and_a_killer_is_one_region():
    model = SeeingModel(
        {"01": [RequestLost("reset"), "one"], "02": PageFailure(Reason.QUARANTINED, "killed 4 servers")}
    )
    attempt = read_regions(rows("text", "text"), model)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.QUARANTINED)
    assert shown(attempt) == [("text", "one")]


def test_a_page_of_which_nothing_could_be_read_is_read_whole():
    whole = WholeReader()
    attempt = read_regions(rows("text", "table"), {TEXT: "", TABLE: ""}, whole=whole, max_attempts=2)
    assert [page.id for page in whole.pages] == ["d-p00001"]
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.EMPTY)
    assert shown(attempt) == [("text", "the whole page")]
    assert "read as a whole page: none of its 2 regions could be read" in attempt.detail
    assert attempt.tokens_in == 1000 + 400 == sum(row["tokens_in"] for row in attempt.tries)


def test_a_page_with_only_pale_ink_is_read_whole():
    whole = WholeReader()
    pale = replace(PAGE, evidence=Evidence(InkMap(8, 1, zlib.compress(b"\1"), pale=True)))
    attempt = asyncio.run(reader_of(rows("text"), SeeingModel({}), whole=whole).read(pale))
    assert shown(attempt) == [("text", "the whole page")]  # its crops would count as blank


def test_page_fails_with_all_attempts_if_whole_read_fails_too():
    whole = WholeReader(PageFailure(Reason.LOOP, "looped", tries=({"tokens_in": 7, "tokens_out": 1, "seconds": 1.0},)))
    with pytest.raises(PageFailure) as caught:
        read_regions(rows("text"), {TEXT: ""}, whole=whole, max_attempts=2)
    assert caught.value.reason is Reason.LOOP
    assert sum(one["tokens_in"] for one in caught.value.tries) == 207


def test_regions_that_kill_the_server_are_not_read_another_way():
    whole = WholeReader()
    killer = PageFailure(Reason.QUARANTINED, "killed 4 servers")
    with pytest.raises(PageFailure, match="none of its 2 regions") as caught:
        read_regions(rows("text", "table"), {TEXT: killer, TABLE: killer}, whole=whole)
    assert (caught.value.reason, whole.pages) == (Reason.QUARANTINED, [])


def test_a_crop_that_does_not_fit_is_made_smaller_once():
    model = SeeingModel({TEXT: [TOO_LONG, "words"]})
    assert read_regions(rows("text"), model).status is Status.OK
    assert model.requests[1].image.data.endswith(b" at 0.7")


async def test_unavailable_server_ends_the_run_and_all_waiting_tasks():
    before = asyncio.all_tasks()
    model = SeeingModel({"01": ServerError("gone"), "02": asyncio.Event()})
    async with asyncio.timeout(20):
        with pytest.raises(ServerError, match="gone"):
            await reader_of(rows("text", "text"), model).read(PAGE)
    assert asyncio.all_tasks() == before


def test_page_that_detection_fails_on_is_read_whole_and_degraded():
    failure = PageFailure(Reason.ENGINE_TIMEOUT, "the detector: killed after 300 s")
    attempt = read_regions(failure, GOOD)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.ENGINE_TIMEOUT)
    assert "its regions were not found: the detector: killed after 300 s" in attempt.detail


def test_a_page_without_regions_is_read_whole():
    whole = read_regions((), SeeingModel({}))
    assert (whole.status, shown(whole)) == (Status.OK, [("text", "the whole page")])
    assert "no region to be read was found" in whole.detail


def test_a_page_of_small_pictures_asks_nothing():
    model = SeeingModel({})
    attempt = read_regions(rows("image", "chart"), model)
    assert [(block.kind, block.label) for block in attempt.blocks] == [
        (BlockKind.FIGURE, "image"),
        (BlockKind.FIGURE, "chart"),
    ]
    assert (attempt.status, model.requests) == (Status.OK, [])


def test_a_page_that_is_one_picture_is_asked_for_its_text():
    picture = [region("image", 0, 0, 1, 1)]
    attempt = read_regions(picture, SeeingModel({}))
    assert shown(attempt) == [("figure", ""), ("text", "the whole page")]
    tries = ({"tokens_in": 9, "tokens_out": 1, "seconds": 1.0},)
    empty = WholeReader(PageFailure(Reason.EMPTY, "nothing", tries=tries))
    attempt = read_regions(picture, SeeingModel({}), whole=empty)
    assert (attempt.status, shown(attempt), attempt.tokens_in) == (Status.OK, [("figure", "")], 9)
    looping = WholeReader(PageFailure(Reason.LOOP, "looped", tries=tries))
    attempt = read_regions(picture, SeeingModel({}), whole=looping)
    assert (attempt.status, attempt.reason, shown(attempt)) == (Status.DEGRADED, Reason.LOOP, [("figure", "")])


def test_too_many_regions_are_read_as_one_whole_page():
    many = [region("text", 0.1, i / 300, 0.9, (i + 1) / 300, order=i) for i in range(MOST_REGIONS + 1)]
    attempt = read_regions(many, SeeingModel({}))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.ENGINE_LIMIT)
    assert f"{MOST_REGIONS + 1} regions" in attempt.detail


def test_regions_that_cover_the_page_repeatedly_are_read_whole():
    crossing = [region(f"text{i}", 0.055 * i, 0, 0.055 * i + 0.5, 1, order=i) for i in range(9)]
    attempt = read_regions(crossing, SeeingModel({}))
    assert (attempt.reason, shown(attempt)) == (Reason.ENGINE_LIMIT, [("text", "the whole page")])
    assert "9 regions were found, 4.5 times the page" in attempt.detail


def test_crops_that_take_too_many_bytes_are_read_as_a_whole_page(monkeypatch):
    monkeypatch.setattr("llm_ocr.engines.regions.reader.MOST_BYTES", 1000)
    attempt = read_regions(rows("text", "text"), SeeingModel({}))
    assert (attempt.reason, shown(attempt)) == (Reason.ENGINE_LIMIT, [("text", "the whole page")])


def test_page_is_read_whole_if_its_crops_cannot_be_made():
    attempt = read_regions(rows("text"), SeeingModel({}), tools=RegionWorkbench(fails=True))
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.RENDER_CRASHED)


def test_blank_regions_are_not_asked_for():
    model = SeeingModel({TEXT: "words"})
    tools = RegionWorkbench(crop=lambda box: b"blank" if box.y0 < 0.05 else b"full" * 900)
    attempt = read_regions(rows("text", "text"), model, tools=tools)
    assert (len(model.requests), shown(attempt), attempt.status) == (1, [("text", "words")], Status.OK)
    assert tools.looked_at == [b"blank"]  # what has many bytes is not looked at


def test_a_speck_without_an_answer_is_taken_to_be_empty():
    speck = region("text", 0.5, 0.5, 0.53, 0.51, order=9)
    model = SeeingModel({"01": "words", "02": ""})
    attempt = read_regions([*rows("text"), speck], model)
    assert (attempt.status, shown(attempt)) == (Status.OK, [("text", "words")])
    assert "nothing was read in it" in attempt.detail
    assert len(model.requests) == 4


def test_a_page_that_the_detector_turned_is_cut_and_kept_upright():
    upright = EncodedImage(b"upright" * 500, "image/png", 1400, 1000)
    attempt = read_regions(Layout(rows("text"), upright, 90), GOOD)
    assert (attempt.rotation, attempt.image) == (90, upright)
    whole = WholeReader()
    attempt = read_regions(Layout((), upright, 90), GOOD, whole=whole)
    assert (whole.pages[0].image, attempt.image, attempt.rotation) == (upright, upright, 90)


def test_users_change_what_is_done_with_a_label():
    model = SeeingModel(GOOD)
    tasks = ("header=text", "table=skip", "text=abandon")
    attempt = read_regions(rows("header", "table", "text"), model, tasks=tasks)
    assert [(block.kind.value, block.label) for block in attempt.blocks] == [("header", "header"), ("figure", "table")]
    assert len(model.requests) == 1


def test_charts_are_read_if_model_can_and_user_wants_it():
    charts = {"Chart Recognition:": "Year | Sales\n2019 | 3"}
    attempt = read_regions(rows("chart"), charts, profile=PADDLE, tasks=("chart=chart",))
    (figure,) = attempt.blocks
    assert (figure.kind, figure.described) == (BlockKind.FIGURE, "Year | Sales\n---|---\n2019 | 3")
    kept = read_regions(rows("chart"), {}, profile=GLM, tasks=("chart=chart",))
    assert (kept.blocks[0].kind, kept.blocks[0].described) == (BlockKind.FIGURE, "")


def test_figures_are_those_that_the_user_wants_cut_out():
    attempt = read_regions(rows("image", "chart", "table"), GOOD, figure_labels=frozenset({"chart", "table"}))
    kinds = [(block.kind.value, block.label) for block in attempt.blocks]
    assert kinds == [("text", "image"), ("figure", "chart"), ("table", "table"), ("figure", "table")]


def test_the_key_holds_detector_mapping_and_prompts():
    def key(profile=GLM, **more) -> str:
        found = reader_of((), SeeingModel({}), profile=profile, **more)
        return json.dumps(found.identity(), sort_keys=True)

    plain = key()
    assert plain == key(backoff=3.0)
    assert '"detector": {"model": "given", "revision": "1"}' in plain
    assert json.loads(plain)["model"] == "nobody/seeing"
    changed = {key(tasks=("footer=text",)), key(PADDLE), key(temperature=0.2), key(max_tokens=9)}
    assert len({plain, *changed}) == 5


def test_closing_ends_the_detector_and_the_reader_of_whole_pages():
    whole = WholeReader()
    reader = reader_of((), SeeingModel({}), whole=whole)
    asyncio.run(reader.close())
    assert (reader.detector.closed, whole.closed) == (1, 1)


def test_degraded_whole_page_keeps_its_own_reason():
    bad = replace(whole_page(status=Status.DEGRADED), reason=Reason.LOOP)
    for found in ((), PageFailure(Reason.ENGINE_TIMEOUT, "the detector: killed after 300 s")):
        attempt = read_regions(found, SeeingModel({}), whole=WholeReader(bad))
        assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOOP)


KILLER = PageFailure(Reason.QUARANTINED, "killed 4 servers")
HALF = said("half of it", Finish.LENGTH)
ANSWERS = st.sampled_from(["words", "", LOOP, HALF, RequestLost("reset"), REFUSED, TOO_LONG, KILLER])
LABELS_READ = st.sampled_from(["text", "table", "doc_title", "display_formula", "image", "header"])


@given(st.lists(LABELS_READ, max_size=3), st.lists(ANSWERS, min_size=3, max_size=3), st.integers(1, 4), st.booleans())
def test_every_page_ends_and_loses_no_token_or_good_answer(labels, answers, most, whole_fails):
    model = SeeingModel({f"{number:02}": [one, "words"] for number, one in enumerate(answers, 1)})
    spent = ({"tokens_in": 1000, "tokens_out": 500, "seconds": 5.0},)
    whole = WholeReader(PageFailure(Reason.LOOP, "looped", tries=spent) if whole_fails else None)
    try:
        attempt = read_regions(rows(*labels), model, whole=whole, max_attempts=most)
    except PageFailure as failure:
        tokens = sum(one["tokens_in"] for one in failure.tries)
    else:
        assert (attempt.status is Status.OK) == (attempt.reason is None)
        tokens = attempt.tokens_in
        if not whole.pages:
            read = sum(label in ("text", "table", "doc_title", "display_formula") for label in labels)
            lost = attempt.detail.count("no text was read")
            assert len([block for block in attempt.blocks if block.text]) == read - lost
            assert sum(block.kind is BlockKind.FIGURE for block in attempt.blocks) == labels.count("image")
    assert tokens == 100 * model.answered + 1000 * len(whole.pages)
