"""llm-ocr models: list known models, show one, or recommend one for this machine."""

import asyncio
import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from llm_ocr.cli.output import aligned, write_json, write_line
from llm_ocr.config.models import ModelsSettings
from llm_ocr.engines.vllm.command import serve_command, shown
from llm_ocr.engines.vllm.server import Release
from llm_ocr.engines.vllm.sizing import gpu_memory, vllm_installed
from llm_ocr.errors import UsageError
from llm_ocr.models.choosing import (
    PRESETS,
    Wants,
    describes,
    gives_boxes,
    language_name,
    needed_memory,
    numbers,
    rank,
    score_of,
    share_of,
    smallest_gpu,
    weights_of,
)
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import DEFAULT, all_profiles
from llm_ocr.stages.model_choice import named_model
from llm_ocr.stages.servers import serve_options

#: Placeholder for the free port of a server.
_PORT = 8000
#: Version assumed without an installed vLLM, so that the command line is that for a new release.
_NEW = (99, 0, 0)


def one_model(settings: ModelsSettings) -> dict[str, Any]:
    """Return all facts about a model, named as in `--model`.

    Raises:
        UsageError: The model is unknown.
    """
    assert settings.name is not None
    asked = named_model(settings.name, own_prompt=True)
    profile = asked.profile
    version = _version(settings)
    options = serve_options(settings, asked.name, None)
    command = serve_command(profile, options, settings.vllm_port or _PORT, version=numbers(version) or _NEW)
    preset = PRESETS[settings.preset] if settings.preset else None
    return {
        **summary_of(profile),
        "asked": settings.name,
        "aliases": list(profile.aliases),
        "revision": profile.revision,
        "notice": profile.notice,
        "scores": [asdict(score) for score in profile.scores],
        "min_vllm": profile.min_vllm or None,
        "min_transformers": profile.min_transformers or None,
        "trust_remote_code": profile.trust_remote_code,
        "image": asdict(profile.image),
        "context": profile.context,
        "max_tokens": profile.max_tokens,
        "temperature": profile.temperature,
        "mode": profile.mode,
        "prompts": dict(profile.prompts),
        "system": profile.system,
        "image_first": profile.image_first,
        "request": {**profile.settings, **profile.vllm_settings, **profile.page_settings},
        "figure_labels": sorted(profile.figure_labels),
        "ladder": [asdict(rung) for rung in profile.ladder],
        "vllm": version or None,
        "preset": {**asdict(preset), "window": preset.window} if preset else None,
        "serve": shown(command),
    }


def recommended(settings: ModelsSettings) -> dict[str, Any]:
    """Return the models ranked for this vLLM, GPU, license, and language, each with its reasons."""
    version = _version(settings)
    memory = gpu_memory()
    size = settings.gpu_memory * 1e9 if settings.gpu_memory else min(memory.values(), default=None)
    wants = Wants(
        vllm=numbers(version),
        gpu_bytes=size,
        gpus=settings.tensor_parallel_size,
        context=settings.max_model_len,
        open_only=settings.licence == "open",
        language=settings.language or "",
    )
    ranked, left_out = (
        [{"name": choice.profile.name, "reasons": list(choice.reasons)} for choice in choices]
        for choices in rank(all_profiles(), wants)
    )
    return {
        "vllm": version or None,
        "gpu_gb": round(size / 1e9, 1) if size else None,
        "gpus": wants.gpus,
        "licence": settings.licence,
        "language": language_name(settings.language) if settings.language else None,
        "ranked": ranked,
        "left_out": left_out,
    }


def summary_of(profile: Profile) -> dict[str, Any]:
    """Return the facts about a model for tables."""
    size = smallest_gpu(profile)
    weights = weights_of(profile)
    needed = needed_memory(weights, profile.context, share=share_of(profile)) if weights else 0.0
    best: dict[str, dict[str, Any] | None] = {}
    for benchmark in ("olmOCR-bench", "OmniDocBench"):
        score = score_of(profile, benchmark)
        best[benchmark] = {"value": score.value, "benchmark": score.benchmark} if score else None
    figures = "boxes" if gives_boxes(profile) else "detector" if profile.layout_first else "page"
    return {
        "name": profile.name,
        "model": profile.model,
        "default": profile.name == DEFAULT,
        "experimental": profile.experimental,
        "licence": profile.licence or None,
        "parameters": profile.parameters or None,
        "weights_gb": round(weights / 1e9, 1) or None,
        "needed_gb": round(needed / 1e9, 1) or None,
        "smallest_gpu": str(size) if size else None,
        "figures": figures,
        "describes": describes(profile),
        "languages": profile.languages or None,
        "best": best,
    }


def _version(settings: ModelsSettings) -> str:
    """Return the version of the installed vLLM, or ""."""
    command = tuple(shlex.split(settings.vllm_command))
    if not vllm_installed(command):
        return ""
    return asyncio.run(Release(serve_options(settings, "", None)).version())


_WIDTH = 110
_LICENCE, _LANGUAGES = 18, 30  # maximum characters in the table
_NOTES = """\
*         the default model; (e): experimental, based on descriptions only
figures   boxes: the model returns their boxes; page: found on the page itself; detector: found by a layout detector
describes whether the model describes figures on request, or in its answer for a page
GPU       the smallest GPU with memory for the weights, one full context, and 2 GB of overhead
Scores are as published. Scores of different OmniDocBench versions (in parentheses) are not comparable.
Details of one model: llm-ocr models NAME. Models for this machine: llm-ocr models --recommend"""
_ORDER = "Order: models that return boxes of figures first, then by published olmOCR-bench score, then by size."


_WHY_DEFAULT = f"""\
The default is {DEFAULT}, not the first of this list: it returns boxes of figures and also describes figures, so
one model serves Extract and Describe. A fixed default gives the same text on every machine; scores measure text only.
Choose another one with --model NAME."""


def run_models(command: str, settings: ModelsSettings) -> int:
    """Print the requested models; return 0.

    Raises:
        UsageError: A model is unknown.
    """
    if settings.name and settings.recommend:
        raise UsageError("--recommend does not accept a model", hint=f"Remove --recommend to show {settings.name}.")
    found: Any
    if settings.name:
        found = one_model(settings)
        text = one_text(found)
    elif settings.recommend:
        found = recommended(settings)
        text = recommended_text(found)
    else:
        found = [summary_of(profile) for profile in all_profiles()]
        text = table_text(found)
    if settings.json_output:
        write_json(found)
    else:
        write_line(text)
    return 0


def table_text(models: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of all models."""
    rows = [("model", "size", "license", "figures", "describes", "GPU", "olmOCR-bench", "OmniDocBench", "languages")]
    for model in models:
        mark = " *" if model["default"] else " (e)" if model["experimental"] else ""
        rows.append(
            (
                model["name"] + mark,
                _size(model),
                textwrap.shorten(model["licence"] or "-", _LICENCE, placeholder=" …"),
                model["figures"],
                model["describes"],
                model["smallest_gpu"] or "-",
                _score(model["best"]["olmOCR-bench"]),
                _score(model["best"]["OmniDocBench"]),
                textwrap.shorten(model["languages"] or "-", _LANGUAGES, placeholder=" …"),
            )
        )
    profiles = all_profiles()
    short_names = []
    for profile in profiles:  # names that several models share, each with the model that it means
        shared = (alias for alias in profile.aliases if sum(other.name.startswith(alias) for other in profiles) > 1)
        if alias := next(shared, None):
            short_names.append(f"{alias} means {profile.name}")
    return "\n".join([*_columns(rows), "", _NOTES, f"Short names: {', '.join(short_names)}"])


def one_text(model: Mapping[str, Any]) -> str:
    """Return all facts about one model as text: a table, the prompts, and the command of its server."""
    lines = [*_columns(list(_facts(model))), "", "prompts by mode:"]
    if model["system"] is not None:
        lines.append(f"  (system message: {json.dumps(model['system'])})")
    for mode, prompt in model["prompts"].items():
        lines.append(f"  {mode}{' (default)' if mode == model['mode'] else ''}:")
        lines.append(textwrap.indent(prompt.rstrip("\n"), "    ") if prompt else "    (image only)")
    version = f"vLLM {model['vllm']}" if model["vllm"] else "a recent vLLM (none is installed here)"
    lines += ["", f"server command for {version}:", f"  {model['serve']}"]
    if preset := model["preset"]:
        lines.append(f"  Preset {preset['name']}: at most {preset['window']} requests in flight; {preset['source']}.")
    if not model["revision"]:
        lines.append("  No commit is pinned: a run uses and records the newest one, unless --revision is set.")
    return "\n".join(lines)


def recommended_text(found: Mapping[str, Any]) -> str:
    """Return the ranking with its reasons, and the excluded models."""
    vllm = f"vLLM {found['vllm']}" if found["vllm"] else "any vLLM (none is installed here)"
    memory = f"a GPU of {found['gpu_gb']:g} GB" if found["gpu_gb"] else "any GPU (none found here; see --gpu-memory)"
    if found["gpus"] > 1 and found["gpu_gb"]:
        memory = f"{found['gpus']} GPUs of {found['gpu_gb']:g} GB for one server"
    licence = "open licenses only" if found["licence"] == "open" else "any license"
    conditions = f"For {vllm}, {memory}, {licence}, {found['language'] or 'any language'}:"
    ranked = found["ranked"]
    rows = [(f"{place}.", model["name"], "; ".join(model["reasons"])) for place, model in enumerate(ranked, 1)]
    lines = [conditions, _ORDER, "", *(_columns(rows) if rows else ["No model matches."])]
    if any(model["name"] == DEFAULT for model in ranked[1:]):
        lines += ["", _WHY_DEFAULT]
    if found["left_out"]:
        out = [("-", model["name"], "; ".join(model["reasons"])) for model in found["left_out"]]
        lines += ["", "Excluded:", *_columns(out)]
    return "\n".join(lines)


def _facts(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the known facts about a model, as text."""
    notes = ["the default"] if model["default"] else []
    if model["asked"] in model["aliases"]:
        notes.append(f"{model['asked']} means this model")
    yield "model", model["name"] + (f" ({'; '.join(notes)})" if notes else "")
    yield "weights", model["model"] + (f" at {model['revision']}" if model["revision"] else "")
    if model["aliases"]:
        yield "also called", ", ".join(model["aliases"])
    yield "size", _size(model) + (f", {model['weights_gb']:g} GB of weights" if model["weights_gb"] else "")
    yield "license", model["licence"] or "unknown"
    if model["notice"]:
        yield "notice", model["notice"]
    yield "GPU", f"{model['smallest_gpu']} (about {model['needed_gb']:g} GB)" if model["smallest_gpu"] else "unknown"
    where = {"boxes": "boxes from the model", "page": "found on the page itself", "detector": "found by a detector"}
    yield (
        "figures",
        where[model["figures"]] + (f" ({', '.join(model['figure_labels'])})" if model["figure_labels"] else ""),
    )
    yield "describes", model["describes"]
    yield "languages", model["languages"] or "not stated"
    for score in model["scores"]:
        yield "score", f"{score['benchmark']} {score['value']:g} ({score['source']})"
    needs = [f"vLLM {model['min_vllm']}"] if model["min_vllm"] else []
    needs += [f"transformers {model['min_transformers']}"] if model["min_transformers"] else []
    if needs:
        yield "needs", ", ".join(needs) + " or newer"
    if model["trust_remote_code"]:
        yield "code", "runs code that comes with the model (--trust-remote-code)"
    if model["experimental"]:
        yield "experimental", "based on descriptions only, or sources disagree"
    image, order = model["image"], "before" if model["image_first"] else "after"
    yield "image", f"longest side {image['longest_side']} pixels, {image['format']}, {order} the text"
    yield "answers", f"at most {model['max_tokens']} tokens, in a context of {model['context']} tokens"
    options = [f"{name} {json.dumps(value)}" for name, value in model["request"].items()]
    yield "sampling", ", ".join([f"temperature {model['temperature']:g}", *options])
    retries = []
    for rung in model["ladder"]:
        changes = [] if rung["temperature"] is None else [f"{rung['temperature']:g}"]
        changes += [f"in mode {rung['mode']}"] if rung["mode"] else []
        changes += [f"image x {rung['scale']:g}"] if rung["scale"] != 1 else []
        retries.append(" ".join(changes) or "the same")
    yield "retries", ", ".join(retries) or "the same request again"


def _size(model: Mapping[str, Any]) -> str:
    return f"{model['parameters']:g} B" if model["parameters"] else "-"


def _score(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    version = found["benchmark"].rpartition(" v")
    return f"{found['value']:g}" + (f" (v{version[2]})" if version[1] else "")


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with aligned columns; the last column is wrapped."""
    lines = []
    for row, start in zip(rows, aligned([(*row[:-1], "") for row in rows]), strict=True):
        last = textwrap.wrap(row[-1], max(40, _WIDTH - len(start)), subsequent_indent=" " * len(start))
        lines.append((start + "\n".join(last)).rstrip())
    return lines
