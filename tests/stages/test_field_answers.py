"""Answers of models that are asked for fields."""

import pytest

from llm_ocr.engines import Completion, Finish
from llm_ocr.results.field_schema import Found, read_schema
from llm_ocr.stages.fields import _judged
from llm_ocr.types import Reason

SCHEMA = read_schema({"type": "object", "properties": {"number": {"type": "string"}, "total": {"type": "number"}}})
SOUND = '{"number": {"quote": "1847", "value": "1847"}, "total": {"quote": "", "value": null}}'


@pytest.mark.parametrize(
    ("text", "reason", "number"),
    [
        (SOUND, None, "1847"),
        (f"<think>A schema is {{...}}.</think>Here it is: {SOUND}", None, "1847"),
        (f"<think>Maybe {SOUND}", Reason.MALFORMED, None),
        (SOUND.replace('"value": "1847"', '"value": "1847", "value": "1848"'), Reason.MALFORMED, "1847"),
        (SOUND.replace('"1847"}', 5000 * "[" + "}"), Reason.MALFORMED, None),
    ],
    ids=["sound", "thoughts", "open thoughts", "twice", "deep"],
)
def test_strange_answers_give_the_fields_that_they_have(text, reason, number):
    verdict = _judged(SCHEMA, Completion(text, Finish.STOP))
    assert verdict.reason is reason
    assert dict(SCHEMA.fields(verdict.result)).get("number", Found(None, "")).value == number


def test_a_cut_answer_keeps_the_fields_before_the_cut():
    verdict = _judged(SCHEMA, Completion(SOUND[:50], Finish.LENGTH))
    assert (verdict.reason, [path for path, _ in SCHEMA.fields(verdict.result)]) == (Reason.TRUNCATED, ["number"])
