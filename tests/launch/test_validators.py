"""What a dry run shows are calls that the platforms' packages take; other platforms have tests of their own."""

import inspect
import json
from pathlib import Path

import pytest
from huggingface_hub import HfApi

FOLDER = Path(__file__).parent / "snapshots"


def requests(platform: str) -> list[tuple[str, dict[str, object]]]:
    """Name and arguments of each call in the platform's snapshots."""
    found = [json.loads(path.read_text())["requests"] for path in sorted(FOLDER.glob(f"{platform}-*.json"))]
    return [(one["call"], one["body"]) for many in found for one in many]


def test_jobs_on_hugging_face_are_arguments_of_the_client():
    calls = requests("hf-jobs")
    assert calls
    for name, body in calls:
        bound = inspect.signature(getattr(HfApi, name)).bind(HfApi(), **body)
        assert isinstance(bound.arguments["command"], list)
        assert all(isinstance(word, str) for word in bound.arguments["command"])
    with pytest.raises(TypeError, match="imagine"):
        inspect.signature(HfApi.run_job).bind(HfApi(), **{**calls[0][1], "imagine": 1})


def test_calls_on_modal_are_arguments_of_the_client():
    modal = pytest.importorskip("modal")
    calls = [body for name, body in requests("modal") if name == "Function.spawn"]
    assert calls
    for body in calls:
        inspect.signature(modal.Function.from_name).bind(body["app"], body["function"])
        inspect.signature(modal.Function.with_options).bind(None, **body["options"])
    with pytest.raises(TypeError, match="gpus"):
        inspect.signature(modal.Function.with_options).bind(None, gpus="L4")
