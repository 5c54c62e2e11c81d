"""What `llm-ocr models` tells: the models that are known, one of them, and which suit a machine. JSON values."""

import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from llm_ocr.api.engines import serve_options
from llm_ocr.api.models import named_model
from llm_ocr.engines.vllm.command import serve_command, shown
from llm_ocr.engines.vllm.hardware import gpu_memory, vllm_installed
from llm_ocr.engines.vllm.replicas import release_of
from llm_ocr.models.choosing import Choice, Wants, describes, gives_boxes, language_name, rank, score_of
from llm_ocr.models.presets import PRESETS
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import DEFAULT, PROFILES
from llm_ocr.models.sizes import needed_memory, share_of, smallest_gpu, weights_of
from llm_ocr.models.versions import numbers
from llm_ocr.settings.models import ModelsSettings

#: Stands for the free port that a server gets.
_PORT = 8000
#: Where no vLLM is installed the line is that for a new one.
_NEW = (99, 0, 0)


def all_models() -> list[dict[str, Any]]:
    """Each model in short, the default first."""
    return [_short(profile) for profile in PROFILES]


def one_model(settings: ModelsSettings) -> dict[str, Any]:
    """Everything about a model, given as `--model` takes it. Raises `UsageError` for an unknown one."""
    assert settings.name is not None
    asked = named_model(settings.name, own_prompt=True)
    profile = asked.profile
    version = _version(settings)
    options = serve_options(settings, asked.name, None)
    command = serve_command(profile, options, settings.vllm_port or _PORT, version=numbers(version) or _NEW)
    return {
        **_short(profile),
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
        "preset": _preset(settings.preset) if settings.preset else None,
        "serve": shown(command),
    }


def recommended(settings: ModelsSettings) -> dict[str, Any]:
    """The models ranked for this vLLM, GPU, licence and language, each with its reasons."""
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
    ranking = rank(PROFILES, wants)
    return {
        "vllm": version or None,
        "gpu_gb": round(size / 1e9, 1) if size else None,
        "gpus": wants.gpus,
        "licence": settings.licence,
        "language": language_name(settings.language) if settings.language else None,
        "ranked": [_choice(choice) for choice in ranking.ranked],
        "left_out": [_choice(choice) for choice in ranking.left_out],
    }


def _preset(name: str) -> dict[str, Any]:
    preset = PRESETS[name]
    return {**asdict(preset), "window": preset.window}


def _choice(choice: Choice) -> dict[str, Any]:
    return {"name": choice.profile.name, "reasons": list(choice.reasons)}


def _short(profile: Profile) -> dict[str, Any]:
    size = smallest_gpu(profile)
    weights = weights_of(profile)
    needed = needed_memory(weights, profile.context, share=share_of(profile)) if weights else 0.0
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
        "figures": _figures(profile),
        "describes": describes(profile),
        "languages": profile.languages or None,
        "best": {name: _score(profile, name) for name in ("olmOCR-bench", "OmniDocBench")},
    }


def _figures(profile: Profile) -> str:
    if gives_boxes(profile):
        return "boxes"
    return "detector" if profile.layout_first else "page"


def _score(profile: Profile, benchmark: str) -> Mapping[str, Any] | None:
    found = score_of(profile, benchmark)
    return {"value": found.value, "benchmark": found.benchmark} if found else None


def _version(settings: ModelsSettings) -> str:
    """The version of the vLLM at hand, "" without one."""
    command = tuple(shlex.split(settings.vllm_command))
    if not vllm_installed(command):
        return ""
    return asyncio.run(release_of(serve_options(settings, "", None)).version())
