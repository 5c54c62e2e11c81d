"""The simulated model's answers: deterministic, paired with their page, of the asked form and length."""

import base64
import io
import json
import re
import urllib.request
from dataclasses import replace
from statistics import mean

import pytest
from PIL import Image

from llm_ocr.models.parsers.markdown import parse_front_matter
from llm_ocr.models.parsers.repetition import sound_length
from llm_ocr.models.profile import Frame, PageNotes
from llm_ocr.models.registry import PROFILES, find_profile
from llm_ocr_simulator import running
from llm_ocr_simulator.answers import Ask, Style, image_hash, instance, prompt_tokens, reply, token_of

PAGE = "<|grounding|>Convert the document to markdown."
BLOCK = re.compile(r"<\|ref\|>(\w+)<\|/ref\|><\|det\|>\[\[(\d+), (\d+), (\d+), (\d+)\]\]<\|/det\|>\n")


def ask(number, prompt=PAGE, **more):
    return Ask(image_hash(f"data:image/png;base64,{number}"), prompt, **more)


def test_same_request_gets_same_answer_others_get_other_answers():
    first = reply(ask(1), Style())
    assert first == reply(ask(1), Style())
    others = [ask(2), ask(1, "Free OCR."), ask(1, temperature=0.3)]
    assert all(reply(other, Style()).text != first.text for other in others)
    assert reply(ask(1), Style(seed=1)).text != first.text


def test_an_answer_names_its_page():
    for prompt in (PAGE, "Free OCR."):
        assert token_of(b"data:image/png;base64,7") in reply(ask(7, prompt), Style()).text


SENTENCE = re.compile(r"[A-Z][a-z]+( [a-z]+,?)+( \(page-[0-9a-f]{12}\)( [a-z]+)+)?\.")


def test_texts_are_sentences_as_a_reader_expects_them():
    for number in range(100):
        for prompt in ("Free OCR.", "<image>\nDescribe this image in detail."):
            title, *paragraphs = reply(ask(number, prompt), Style()).text.split("\n\n")
            if prompt == "Free OCR.":
                assert re.fullmatch(r"# [A-Z][a-z]+( [a-z]+)+ \(page-[0-9a-f]{12}\)", title)
            else:
                paragraphs.insert(0, title)
            for paragraph in paragraphs:
                said = paragraph.replace(". ", ".\n").split("\n")
                assert all(SENTENCE.fullmatch(one) for one in said), paragraph


#: A profile for each prompt.
FAMILIES = list({profile.prompts[profile.mode]: profile for profile in PROFILES}.values())


@pytest.mark.parametrize("profile", FAMILIES, ids=lambda profile: profile.name)
def test_parsed_text_of_each_family_is_prose_without_loop(profile):
    parse = profile.parsers.get(profile.mode) or profile.parsers[""]
    for number in range(4):
        text = reply(ask(number, profile.prompts[profile.mode]), Style(mean=2000)).text
        assert sound_length(text) is None
        shown = " ".join(block.text for block in parse(text, Frame(1000, 1400)).blocks)
        assert token_of(f"data:image/png;base64,{number}") in shown
        assert "<|" not in shown and "det" not in shown


def test_lengths_follow_the_style_and_bodies_follow_the_lengths():
    replies = [reply(ask(number), Style(mean=800, sigma=0.4)) for number in range(400)]
    assert mean(one.tokens for one in replies) == pytest.approx(800, rel=0.1)
    assert all(one.tokens <= 4096 and not one.cut for one in replies)
    assert all(len(one.text) == pytest.approx(4 * one.tokens, rel=0.25) for one in replies if one.tokens > 100)


def test_grounded_page_has_ordered_blocks_inside_the_page():
    for number in range(50):
        text = reply(ask(number), Style()).text
        blocks = [(label, *map(int, box)) for label, *box in BLOCK.findall(text)]
        assert blocks[0][0] == "title"
        assert all(0 <= left < right <= 999 and 0 <= top < bottom <= 999 for _, left, top, right, bottom in blocks)
        tops = [top for _, _, top, _, _ in blocks]
        assert tops == sorted(tops)
        assert text.count("<|ref|>") == len(blocks)


def test_long_pages_have_headings_tables_images_and_captions():
    text = reply(ask(1), Style(mean=4000, sigma=0.01)).text
    labels = {label for label, *_ in BLOCK.findall(text)}
    assert labels == {"title", "sub_title", "text", "table", "image", "image_caption"}


def test_an_answer_is_cut_at_max_tokens():
    whole = reply(ask(3), Style())
    cut = reply(ask(3, room=100), Style())
    assert (cut.tokens, cut.cut) == (100, True)
    assert whole.text.startswith(cut.text)
    assert len(cut.text) == pytest.approx(400, rel=0.1)


def test_loop_repeats_a_line_until_cut_and_temperature_ends_it():
    style = Style(loop_rate=1)
    looping = reply(ask(5, room=3000), style)
    assert (looping.tokens, looping.cut) == (3000, True)
    lines = looping.text.splitlines()
    assert lines[-2] == lines[-3] == lines[-4]
    assert reply(ask(5, room=3000, temperature=0.1), style).cut
    assert not reply(ask(5, room=8000, temperature=0.2), style).cut


def test_shares_of_loops_and_of_empty_answers_are_as_asked():
    replies = [reply(ask(number), Style(loop_rate=0.1, empty_rate=0.2)) for number in range(1000)]
    assert sum(one.cut for one in replies) == pytest.approx(100, abs=40)
    assert sum(not one.text for one in replies) == pytest.approx(200, abs=50)


def test_a_choice_is_returned_literally():
    forced = {"choice": ["<|ref|>text<|/ref|>\nexactly this"]}
    assert reply(ask(1, forced=forced), Style()).text == forced["choice"][0]
    many = {"choice": ["a", "b", "c"]}
    assert {reply(ask(number, forced=many), Style()).text for number in range(50)} == {"a", "b", "c"}


def test_a_json_schema_gets_a_valid_instance():
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["chart", "photo"]},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "minItems": 2},
            "note": {"anyOf": [{"type": "string", "minLength": 6}, {"type": "null"}]},
            "score": {"type": "number", "minimum": 1},
            "extra": {"type": "string"},
        },
        "required": ["kind", "rows", "note", "score"],
        "$defs": {"row": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    }
    text = reply(ask(1, forced={"json": schema}), Style()).text
    assert json.loads(text) == {"kind": "chart", "rows": [{"x": 0}, {"x": 0}], "note": "textxx", "score": 1}
    with pytest.raises(ValueError, match="nests too deeply"):
        instance({"$ref": "#"}, {"$ref": "#"})


def test_forms_that_are_not_simulated_are_refused():
    with pytest.raises(ValueError, match="only choice and json"):
        reply(replace(ask(1), forced={"regex": "a+"}), Style())


def test_front_matter_prompt_yields_the_five_values_of_olmocr():
    prompt = find_profile("olmocr-2").prompts["markdown"]
    text = reply(ask(1, prompt), Style()).text
    parsed = parse_front_matter(text)
    assert not parsed.lost
    assert parsed.notes == PageNotes("en", True, 0, False, False)
    assert text.split("---")[1].count(":") == 5
    assert "---" not in reply(ask(1, prompt), Style(malformed_rate=1.0)).text
    assert "---" in reply(ask(1, prompt, temperature=0.3), Style(malformed_rate=1.0)).text


def test_in_order_answers_follow_images_and_patches_their_size():
    def read(colour, url):
        out = io.BytesIO()
        Image.new("RGB", (57, 29), colour).save(out, "PNG")
        image = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
        content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "Free OCR."}]
        body = {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 50}
        request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
        return json.loads(urllib.request.urlopen(request, timeout=30).read())

    def texts(*colours):
        with running(model="m", speed=100, in_order=True, patch=28, mean_tokens=20) as server:
            answers = [read(colour, server.url) for colour in colours]
        assert {answer["usage"]["prompt_tokens"] for answer in answers} == {3 * 2 + prompt_tokens("", "Free OCR.")}
        return [answer["choices"][0]["message"]["content"] for answer in answers]

    first = texts("red", "green", "red")
    assert first[0] == first[2] != first[1]
    assert texts("blue", "white") == first[:2]
