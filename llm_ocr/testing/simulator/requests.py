"""Requests as they come over HTTP, checked as vLLM checks them, and its error answers."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from llm_ocr.testing.simulator.answers import Ask, image_hash, prompt_tokens

_PNG = "data:image/png;base64,"
_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,[A-Za-z0-9+/]{4,64}")


class Refused(Exception):
    """The request is answered with an error: status and body in vLLM's form."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(status, message, kind, param)


def error_body(status: int, message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    """vLLM's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request that can be answered."""

    ask: Ask
    prompt_tokens: int
    stream: bool
    usage: bool  # stream_options.include_usage


def read_chat(
    body: bytes, model: str, max_model_len: int, too_long: int | None = None, patch: int | None = None
) -> ChatRequest:
    """The request in a body. Raises `Refused`. URLs of more than `too_long` bytes count as a too long prompt.

    `patch`: PNG images cost a token for each square of so many pixels a side, as Qwen2.5-VL's 28.
    """
    try:
        data = json.loads(body)
        messages = data["messages"]
        url, prompt, images = _parts(messages)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(400, f"the request is not understood: {error!r}") from error
    if data.get("model", model) != model:
        raise Refused(404, f"The model `{data['model']}` does not exist.", "NotFoundError", "model")
    if images > 1:
        raise Refused(400, "At most 1 image(s) may be provided in one prompt.")
    if url and not _DATA_URL.match(url):
        raise Refused(400, "Failed to load image: cannot identify image file: only data URLs with base64 are read")
    image = image_hash(url) if url else ""
    squares = _squares(url, patch) if patch else 0
    tokens = squares + prompt_tokens("", prompt) if squares else prompt_tokens(image, prompt)
    if url and too_long is not None and len(url) > too_long:
        tokens += max_model_len
    room = _room(data, tokens, max_model_len)
    temperature = float(data["temperature"]) if data.get("temperature") is not None else 0.0
    ask = Ask(image, prompt, temperature, room, _forced(data))
    options = data.get("stream_options") or {}
    return ChatRequest(ask, tokens, bool(data.get("stream")), bool(options.get("include_usage")))


def _parts(messages: list[Any]) -> tuple[str, str, int]:
    """Image URL, all text, number of images."""
    urls: list[str] = []
    texts: list[str] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            texts.append(content)
            continue
        for part in content:
            if part["type"] == "image_url":
                urls.append(part["image_url"]["url"])
            elif part["type"] == "text":
                texts.append(part["text"])
    return (urls[0] if urls else ""), "\n".join(texts), len(urls)


def _room(data: dict[str, Any], tokens: int, context: int) -> int:
    """Tokens that the answer may have."""
    if tokens > context:
        raise Refused(
            400,
            f"This model's maximum context length is {context} tokens. However, your prompt contains at least "
            f"{context + 1} input tokens. Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    wanted = data.get("max_completion_tokens") or data.get("max_tokens")
    if wanted is None:
        return max(context - tokens, 1)
    if int(wanted) < 1:
        raise Refused(400, f"max_tokens must be at least 1, got {wanted}.", param="max_tokens")
    if int(wanted) > context:
        raise Refused(
            400,
            f"max_tokens={wanted} cannot be greater than max_model_len={context}. Please request fewer output tokens.",
        )
    if int(wanted) + tokens > context:
        raise Refused(
            400,
            f"This model's maximum context length is {context} tokens. However, you requested {wanted} output tokens "
            f"and your prompt contains at least {tokens} input tokens, for a total of at least {int(wanted) + tokens} "
            "tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            param="input_tokens",
        )
    return int(wanted)


def _squares(url: str, patch: int) -> int:
    """How many such squares a PNG has, the edges' counted; 0 for another image. Its size is in bytes 16 to 24."""
    if not url.startswith(_PNG):
        return 0
    head = base64.b64decode(url[len(_PNG) : len(_PNG) + 32])
    width, height = int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    return -(-width // patch) * -(-height // patch)


def _forced(data: dict[str, Any]) -> dict[str, object]:
    if outputs := data.get("structured_outputs"):
        return dict(outputs)
    shape = data.get("response_format") or {}
    if shape.get("type") == "json_schema":
        return {"json": shape["json_schema"]["schema"]}
    return {}
