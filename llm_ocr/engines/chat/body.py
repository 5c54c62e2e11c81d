"""The JSON of a request, made around the image, of which nobody ever holds the base64 as a whole."""

import json
from typing import Any

from llm_ocr.engines.asking import Question

_IMAGE = ('{"type": "image_url", "image_url": {"url": "', '"}}')
_OURS = frozenset({"model", "messages", "stream", "stream_options"})


def body_parts(question: Question, model: str, vllm: bool) -> tuple[bytes, bytes, bytes]:
    """The JSON before the image's base64, the image itself (the same object), and the JSON behind it."""
    before, after = _content(question)
    # An empty one is a message too: HunyuanOCR was trained with it.
    given = question.system is not None
    system = f'{{"role": "system", "content": {json.dumps(question.system)}}}, ' if given else ""
    start = f'{{"model": {json.dumps(model)}, "messages": [{system}{{"role": "user", "content": [{before}'
    head = f"{start}data:{question.image.media_type};base64,"
    return head.encode("ascii"), question.image.data, f"{after}]}}], {_settings(question, vllm)}}}".encode("ascii")


def _content(question: Question) -> tuple[str, str]:
    """The parts of the user's message before and behind the image. An empty prompt leaves no text part."""
    opening, closing = _IMAGE
    if not question.prompt:
        return opening, closing
    text = json.dumps({"type": "text", "text": question.prompt})
    return (opening, f"{closing}, {text}") if question.image_first else (f"{text}, {opening}", closing)


def _settings(question: Question, vllm: bool) -> str:
    """All other members, without the braces."""
    options: dict[str, Any] = {"include_usage": True}
    settings = dict(question.settings)
    if vllm:
        settings |= question.vllm_settings
        # Counts come with each event then, so that those of an answer that we cut are known too.
        options["continuous_usage_stats"] = True
    settings = {name: value for name, value in settings.items() if name not in _OURS}
    return json.dumps({**settings, "stream": True, "stream_options": options}, default=_plain)[1:-1]


def _plain(value: Any) -> Any:
    """What `json` does not know of a profile's frozen values: mappings and sets."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    return dict(value)
