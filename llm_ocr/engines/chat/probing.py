"""What a server says of itself, read from the bodies of its answers."""

import json
from collections.abc import Mapping
from typing import Any

from llm_ocr.engines.chat.gauges import cache_tokens, parse
from llm_ocr.engines.serving import ServerFacts


def roots_in(body: bytes) -> dict[str, str]:
    """What each model of the answer to /v1/models was loaded from, by its name; "" where the server does not say.

    Empty for any other text.
    """
    return {str(entry["id"]): str(entry.get("root") or "") for entry in _entries(body)}


def facts_of(model: str, models: bytes, version: bytes, metrics: bytes) -> ServerFacts:
    """The facts in the answers to /v1/models, /version and /metrics; empty bytes where there was none.

    A server is vLLM when it names itself as the models' owner, or has vLLM's gauges.
    """
    entries = _entries(models)
    entry = next((entry for entry in entries if entry["id"] == model), entries[0] if len(entries) == 1 else {})
    text = metrics.decode("utf-8", "replace")
    if not any(entry.get("owned_by") == "vllm" for entry in entries) and parse(text) is None:
        return ServerFacts(max_model_len=_count(entry.get("max_model_len")), serves=_identity(entry))
    said = _json(version)
    return ServerFacts(
        vllm=True,
        version=str(said.get("version", "")) if isinstance(said, Mapping) else "",
        max_model_len=_count(entry.get("max_model_len")),
        kv_tokens=cache_tokens(text),
        serves=_identity(entry),
    )


def identity(name: str, root: str) -> str:
    """Return a listed model's name and the end of the path or id of its weights: mount points may differ."""
    end = root.rstrip("/").rpartition("/")[2]
    return f"{name} ({end})" if end and end != name else name


def _identity(entry: Mapping[str, Any]) -> str:
    return identity(str(entry["id"]), str(entry.get("root") or "")) if entry else ""


def _entries(body: bytes) -> list[Mapping[str, Any]]:
    value = _json(body)
    entries = value.get("data") if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, Mapping) and "id" in entry]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
