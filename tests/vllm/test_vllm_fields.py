"""Fields from a real vLLM with random weights: the form is enforced, and noise is no quote."""

import json
import shlex

import pytest
from tiny_server import MAX_MODEL_LEN, MAX_NUM_SEQS

import llm_ocr
from llm_ocr.results.field_schema import read_schema
from llm_ocr.types import Reason, Status

#: Values that end by themselves, whatever the weights.
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["invoice", "letter"]},
        "paid": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"unit": {"enum": ["m", "kg"]}}}},
    },
    "required": ["kind"],
}
#: Random weights would write white space without an end.
ARGUMENTS = (
    *("--enforce-eager", "--seed=0", f"--max-num-seqs={MAX_NUM_SEQS}"),
    *("--structured-outputs-config.backend=xgrammar", "--structured-outputs-config.disable_any_whitespace=true"),
)


@pytest.fixture
def assembled(examples, tmp_path):
    """A workspace with a paper of three pages."""
    one = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}
    llm_ocr.run(examples / "paper.pdf", workspace=tmp_path / "w", progress=None, **one)
    return tmp_path / "w"


def test_values_have_the_form_that_the_schema_asks_for(assembled, vllm, tiny_models):
    run = llm_ocr.fields(
        workspace=assembled,
        schema=SCHEMA,
        engine="vllm",
        vllm_command=shlex.quote(str(vllm)),
        vllm_arg=ARGUMENTS,
        model="qwen3-vl-2b",
        weights=tiny_models / "qwen3-vl",
        max_model_len=MAX_MODEL_LEN,
        fields_max_tokens=900,
        passage_tokens=300,
        max_page_attempts=6,
        progress=None,
    )
    (row,) = run.fields()
    assert row.passages > 3 and row.tokens_out > 0
    assert (row.status, row.reason) != (Status.FAILED, Reason.REFUSED), row
    assert row.values.get("kind") in ("invoice", "letter"), row
    assert read_schema(SCHEMA).faults(row.values) == ([], [])
    assert not any(one["quoted"] for one in row.fields if len(one["quote"]) > 30)
    assert json.loads(json.dumps(row.values)) == row.values
