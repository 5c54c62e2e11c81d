"""Questions for tiny models with random weights, and the answers that structured output forces from them."""

import io
import random
from collections.abc import Callable, Mapping
from typing import Any

from llm_ocr.engines import CompletionRequest, TextWatch
from llm_ocr.types import EncodedImage

PROMPT = "<|grounding|>Convert the document to markdown."


def picture(width: int = 640, height: int = 480, seed: int = 0) -> EncodedImage:
    """A page image."""
    from PIL import Image, ImageDraw

    image = Image.new("L", (width, height), "white")
    chance = random.Random(seed)
    draw = ImageDraw.Draw(image)
    for top in range(10, height - 20, 24):
        draw.text((12, top), f"{seed} {chance.random():.12f}", fill="black")
    target = io.BytesIO()
    image.save(target, "PNG", compress_level=1)
    return EncodedImage(target.getvalue(), "image/png", width, height)


def grounded(number: int) -> str:
    """A page in DeepSeek-OCR's notation that no other number gives."""
    return (
        f"<|ref|>title<|/ref|><|det|>[[48, {60 + number}, 951, {99 + number}]]<|/det|>\n"
        f"# Page {number}: naïve café 表\n\n"
        f"<|ref|>image<|/ref|><|det|>[[71, 130, 930, 480]]<|/det|>\n\n"
        f'<|ref|>text<|/ref|><|det|>[[71, 500, 930, 990]]<|/det|>\nLine {number * 7919} and "quotes" \\ \n'
    )


def literal(text: str) -> dict[str, Any]:
    """Settings that make vLLM answer with exactly this text."""
    return {"structured_outputs": {"choice": [text]}}


def request(
    name: str,
    vllm_settings: Mapping[str, Any],
    *,
    image: EncodedImage | None = None,
    prompt: str = PROMPT,
    max_tokens: int = 600,
    watch: Callable[[], TextWatch] | None = None,
) -> CompletionRequest:
    """A question as the readers ask it: DeepSeek-OCR's marks are special tokens, and part of its answers."""
    vllm_settings = {"skip_special_tokens": False, **vllm_settings}
    settings = {"temperature": 0.0, "max_tokens": max_tokens}
    return CompletionRequest(name, picture() if image is None else image, prompt, settings, vllm_settings, watch=watch)


def endless(name: str, watch: Callable[[], TextWatch] | None = None, max_tokens: int = 3000) -> CompletionRequest:
    """A question whose answer takes longer than any test: tens of seconds."""
    return request(name, {"ignore_eos": True}, max_tokens=max_tokens, watch=watch)
