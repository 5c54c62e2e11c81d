"""What the simulated model answers: a function of the image, the prompt and the temperature, and of nothing else.

The same page asked twice gives the same text, so answers can be compared between a run with faults and one without; a
retry with another temperature gives another. Each text that is made up holds `token_of(url)`, so that page and answer
can be matched.
"""

import random
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import log

from llm_ocr.testing.simulator import pages
from llm_ocr.testing.simulator.structured import forced_text
from llm_ocr.types import EncodedImage

#: Characters of text per token, as English prose has in most vocabularies.
CHARACTERS = 4
#: Stands for every prompt without an answer of its own.
ANY = "*"
#: From this temperature on no image makes the model loop, fall silent or forget the form.
COOL = 0.2
#: Image tokens of DeepSeek-OCR in vLLM: 640 x 640 px gives a prompt of 284, six tiles 914.
_GLOBAL_TOKENS, _TILE_TOKENS, _TILES = 280, 105, (2, 4, 6, 6)


@dataclass(frozen=True, slots=True)
class Style:
    """How long answers are (lognormal: `mean` and `longest` in tokens, `sigma` of the logarithm), how many are bad.

    `said`: the answer to each of these prompts, instead of one that is made up; "*" stands for all others.
    """

    mean: float = 1000.0
    sigma: float = 0.5
    longest: int = 4096
    loop_rate: float = 0.0
    empty_rate: float = 0.0
    malformed_rate: float = 0.0  # of answers whose text is there and whose form is not
    seed: int = 0
    said: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """What of a request decides its answer. `forced`: its `structured_outputs` or JSON schema, empty for none."""

    image: str  # `image_hash` of its data URL; "" for a question without one
    prompt: str
    temperature: float = 0.0
    room: int = 8192  # tokens that the answer may have: max_tokens, or what is left of the context
    forced: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its text, its length in tokens (the end token counted), and whether max_tokens cut it."""

    text: str
    tokens: int
    cut: bool


def data_url(image: EncodedImage) -> bytes:
    """The image as requests hold it, in ASCII."""
    return f"data:{image.media_type};base64,".encode() + b64encode(image.data)


def image_hash(url: str | bytes) -> str:
    """sha256 of a data URL, in hex: how the simulator names images in its log and its faults."""
    return sha256(url.encode() if isinstance(url, str) else url).hexdigest()


def token_of(url: str | bytes) -> str:
    """The word that the answer to this image holds."""
    return _token(image_hash(url))


def _token(image: str) -> str:
    return f"page-{image[:12]}"


def prompt_tokens(image: str, prompt: str) -> int:
    """Tokens of a prompt with the image of this hash ("" for none)."""
    if not image:
        return 8 + len(prompt) // CHARACTERS
    return _GLOBAL_TOKENS + _TILE_TOKENS * _TILES[int(image[:4], 16) % len(_TILES)] + 4 + len(prompt) // CHARACTERS


def reply(ask: Ask, style: Style) -> Reply:
    """The answer. Raises ValueError for a forced form that is not simulated."""
    image = ask.image
    temperature = f"{ask.temperature:g}" if ask.temperature > 0 else ""
    seed = sha256(f"{style.seed}|{image}|{ask.prompt}|{temperature}".encode()).digest()
    if ask.forced:
        text = forced_text(ask.forced, int.from_bytes(seed[:4]))
        return _limited(text, len(text) // CHARACTERS + 2, ask.room)
    said = style.said.get(ask.prompt, style.said.get(ANY))
    if said is not None:
        return _limited(said, len(said) // CHARACTERS + 2, ask.room)
    fate = int.from_bytes(sha256(f"{style.seed}|fate|{image}".encode()).digest()[:4]) / 2**32
    if ask.temperature < COOL and fate < style.empty_rate:
        return Reply("", 1, False)
    rng = random.Random(seed)
    tokens = round(rng.lognormvariate(log(style.mean) - style.sigma**2 / 2, style.sigma)) if style.mean else 2
    tokens = max(2, min(tokens, style.longest))
    form = pages.form_of(ask.prompt)
    if ask.temperature < COOL and fate < style.empty_rate + style.loop_rate:
        start = pages.page(rng, _token(image), min(tokens, 200) * CHARACTERS, form)
        return Reply(pages.loop(rng, start, ask.room * CHARACTERS), ask.room, True)
    if ask.temperature < COOL and fate < style.empty_rate + style.loop_rate + style.malformed_rate:
        form = pages.Form.PLAIN
    text = pages.page(rng, _token(image), (tokens - 1) * CHARACTERS, form)
    return _limited(text, tokens, ask.room)


def _limited(text: str, tokens: int, room: int) -> Reply:
    if tokens <= room:
        return Reply(text, tokens, False)
    return Reply(text[: len(text) * room // tokens], room, True)
