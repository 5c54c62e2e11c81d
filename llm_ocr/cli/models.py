"""llm-ocr models: the models that are known, one of them, or which suits this machine."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm_ocr.cli.output import write_json, write_line
from llm_ocr.errors import UsageError
from llm_ocr.settings.models import ModelsSettings

_WIDTH = 110
_LICENCE, _LANGUAGES = 18, 30  # characters of them in the table
_NOTES = """\
*         the default; (e): experimental, taken from descriptions alone
figures   boxes: the model says where they are; page: they are found on the page itself; detector: a detector finds them
describes figures when asked, or within the answer for a page
GPU       the smallest whose memory holds the weights, one whole context and 2 GB beside them
Scores are as published; versions of OmniDocBench (in brackets) cannot be compared with each other.
All about one: llm-ocr models NAME. Which suits this machine: llm-ocr models --recommend"""
_ORDER = (
    "Order: places of figures in the page's own answer first, then the published result in olmOCR-bench, then the size."
)


def run_models(command: str, settings: ModelsSettings) -> int:
    """Print what is asked for; returns 0. Raises `UsageError` for an unknown model."""
    from llm_ocr.api import models_known as known

    if settings.name and settings.recommend:
        raise UsageError("--recommend ranks all models", hint=f"All about {settings.name}: leave out --recommend.")
    found: Any
    if settings.name:
        found, text = (one := known.one_model(settings)), one_text(one)
    elif settings.recommend:
        found, text = (ranked := known.recommended(settings)), recommended_text(ranked)
    else:
        found, text = (models := known.all_models()), table_text(models)
    if settings.json_output:
        write_json(found)
    else:
        write_line(text)
    return 0


def table_text(models: Sequence[Mapping[str, Any]]) -> str:
    """The table of all."""
    head = ("model", "size", "licence", "figures", "describes", "GPU", "olmOCR-bench", "OmniDocBench", "languages")
    rows = [head, *(tuple(_cells(model)) for model in models)]
    return "\n".join([*_columns(rows), "", _NOTES])


def one_text(model: Mapping[str, Any]) -> str:
    """Everything about one."""
    return "\n".join([*_columns(list(_facts(model))), "", *_prompts(model), "", *_serving(model)])


def recommended_text(found: Mapping[str, Any]) -> str:
    """The ranking with its reasons, and what was left out."""
    rows = [(f"{place}.", one["name"], "; ".join(one["reasons"])) for place, one in enumerate(found["ranked"], 1)]
    lines = [_conditions(found), _ORDER, "", *(_columns(rows) if rows else ["No model is left."])]
    if found["left_out"]:
        out = [("-", one["name"], "; ".join(one["reasons"])) for one in found["left_out"]]
        lines += ["", "Left out:", *_columns(out)]
    return "\n".join(lines)


def _cells(model: Mapping[str, Any]) -> Iterator[str]:
    mark = " *" if model["default"] else " (e)" if model["experimental"] else ""
    yield model["name"] + mark
    yield _size(model)
    yield _cut(model["licence"] or "-", _LICENCE)
    yield model["figures"]
    yield model["describes"]
    yield model["smallest_gpu"] or "-"
    yield _score(model["best"]["olmOCR-bench"])
    yield _score(model["best"]["OmniDocBench"])
    yield _cut(model["languages"] or "-", _LANGUAGES)


def _facts(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is known of a model, in words."""
    yield "model", f"{model['name']}" + (" (the default)" if model["default"] else "")
    yield "weights", model["model"] + (f" at {model['revision']}" if model["revision"] else "")
    if model["aliases"]:
        yield "also called", ", ".join(model["aliases"])
    yield "size", _size(model) + (f", {model['weights_gb']:g} GB of weights" if model["weights_gb"] else "")
    yield "licence", model["licence"] or "not known"
    if model["notice"]:
        yield "notice", model["notice"]
    yield "GPU", f"{model['smallest_gpu']} (about {model['needed_gb']:g} GB)" if model["smallest_gpu"] else "not known"
    where = {"boxes": "by the model's boxes", "page": "found on the page itself", "detector": "found by a detector"}
    yield (
        "figures",
        where[model["figures"]] + (f" ({', '.join(model['figure_labels'])})" if model["figure_labels"] else ""),
    )
    yield "describes", model["describes"]
    yield "languages", model["languages"] or "nothing is said of them"
    for score in model["scores"]:
        yield "score", f"{score['benchmark']} {score['value']:g} ({score['source']})"
    needs = [f"vLLM {model['min_vllm']}"] if model["min_vllm"] else []
    needs += [f"transformers {model['min_transformers']}"] if model["min_transformers"] else []
    if needs:
        yield "needs", ", ".join(needs) + " or newer"
    if model["trust_remote_code"]:
        yield "code", "runs code that comes with the model (--trust-remote-code)"
    if model["experimental"]:
        yield "experimental", "taken from descriptions alone, or facts about it disagree"
    image, order = model["image"], "before" if model["image_first"] else "behind"
    yield "image", f"longest side {image['longest_side']} pixels, {image['format']}, {order} the text"
    yield "answers", f"at most {model['max_tokens']} tokens of a context of {model['context']}"
    yield "sampling", ", ".join([f"temperature {model['temperature']:g}", *_pairs(model["request"])])
    retries = ", ".join(_rung(rung) for rung in model["ladder"])
    yield "retries", retries or "the same request again"


def _prompts(model: Mapping[str, Any]) -> Iterator[str]:
    yield "prompts by mode:"
    if model["system"] is not None:
        yield f"  (system message: {json.dumps(model['system'])})"
    for mode, prompt in model["prompts"].items():
        usual = " (the usual one)" if mode == model["mode"] else ""
        yield f"  {mode}{usual}:"
        yield textwrap.indent(prompt.rstrip("\n"), "    ") if prompt else "    (the image alone)"


def _serving(model: Mapping[str, Any]) -> Iterator[str]:
    version = f"vLLM {model['vllm']}" if model["vllm"] else "a new vLLM (none is installed here)"
    yield f"its server, for {version}:"
    yield f"  {model['serve']}"
    if preset := model["preset"]:
        yield f"  Preset {preset['name']}: at most {preset['window']} requests under way; {preset['source']}."
    if not model["revision"]:
        yield "  No commit is pinned: a run asks for the newest one, records it and stays with it (--revision)."


def _conditions(found: Mapping[str, Any]) -> str:
    vllm = f"vLLM {found['vllm']}" if found["vllm"] else "any vLLM (none is installed here)"
    memory = f"a GPU of {found['gpu_gb']:g} GB" if found["gpu_gb"] else "any GPU (none is seen here; --gpu-memory GB)"
    if found["gpus"] > 1 and found["gpu_gb"]:
        memory = f"{found['gpus']} GPUs of {found['gpu_gb']:g} GB for one server"
    licence = "open licences only" if found["licence"] == "open" else "any licence"
    language = found["language"] or "any language"
    return f"For {vllm}, {memory}, {licence}, {language}:"


def _size(model: Mapping[str, Any]) -> str:
    return f"{model['parameters']:g} B" if model["parameters"] else "-"


def _score(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    version = found["benchmark"].rpartition(" v")
    return f"{found['value']:g}" + (f" (v{version[2]})" if version[1] else "")


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} {json.dumps(value)}" for name, value in values.items()]


def _rung(rung: Mapping[str, Any]) -> str:
    parts = [] if rung["temperature"] is None else [f"{rung['temperature']:g}"]
    parts += [f"in mode {rung['mode']}"] if rung["mode"] else []
    parts += [f"image x {rung['scale']:g}"] if rung["scale"] != 1 else []
    return " ".join(parts) or "the same"


def _cut(text: str, length: int) -> str:
    return textwrap.shorten(text, length, placeholder=" …")


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their columns below each other; the last one is wrapped."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        start = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        last = textwrap.wrap(row[-1], max(40, _WIDTH - len(start)), subsequent_indent=" " * len(start))
        lines.append((start + "\n".join(last)).rstrip())
    return lines
