"""Synthetic answers: a function of image, prompt, and temperature."""

import asyncio
import json
import random
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256
from math import log
from random import Random
from typing import Any

from llm_ocr.types import EncodedImage

_NOUNS = (
    "survey", "sample", "station", "method", "report", "pressure", "water level", "temperature", "surface", "energy",
    "harbor", "river", "season", "measurement", "region", "material", "current", "model", "light", "growth rate",
)  # fmt: skip
_KINDS = ("first", "second", "new", "annual", "northern", "average", "early", "final", "small", "regional")
_VERBS = ("shows", "confirms", "follows", "limits", "explains", "depends on", "changes with", "differs from")
_PLACES = (
    "in the first season", "under constant light", "between the two regions", "at a lower rate", "near the coast",
    "during the second phase", "over five years", "after the spring", "in most cases", "at every station",
)  # fmt: skip
_WIDEST = 999  # coordinates range from 0 to this
_PARAGRAPH = 480  # characters
#: Values that olmOCR's own client requires in an answer: exactly these five.
_FRONT = (
    "---\nprimary_language: en\nis_rotation_valid: True\nrotation_correction: 0\n"
    "is_table: False\nis_diagram: False\n---\n"
)


class Form(Enum):
    """Form that a prompt requests."""

    PLAIN = auto()
    FRONT_MATTER = auto()
    GROUNDED = auto()
    FIGURE = auto()  # content of a figure, without a heading


def form_of(prompt: str) -> Form:
    """Return the form, by key words in the prompts of DeepSeek-OCR, olmOCR, and llm_ocr."""
    if "<|grounding|>" in prompt:
        return Form.GROUNDED
    if "front matter section" in prompt:
        return Form.FRONT_MATTER
    return Form.FIGURE if prompt.removeprefix("<image>").lstrip().startswith("Describe ") else Form.PLAIN


def page(rng: Random, token: str, length: int, form: Form = Form.PLAIN) -> str:
    """Return about `length` characters; the first line of the text contains `token`."""
    if form is Form.GROUNDED:
        return _grounded(rng, token, length)
    if form is Form.FRONT_MATTER:
        return _FRONT + _plain(rng, token, length - len(_FRONT))
    if form is Form.FIGURE:
        return _paragraphs(rng, f"The figure ({token}) shows the {_thing(rng)} {rng.choice(_PLACES)}.", length)
    return _plain(rng, token, length)


def loop(rng: Random, start: str, length: int) -> str:
    """Return `start`, then one line repeatedly up to `length` characters."""
    line = _prose(rng, 60) + "\n"
    return (start + "\n" + line * (max(length - len(start), 0) // len(line) + 1))[:length]


def _prose(rng: Random, length: int) -> str:
    """Return whole sentences: `length` characters, and at most one more short sentence."""
    found = _sentence(rng, length)
    while len(found) < length:
        found += " " + _sentence(rng, length - len(found))
    return found


def _sentence(rng: Random, room: int) -> str:
    """Return a sentence, a short one if `room` characters are too few for a long one."""
    said = f"the {_thing(rng)} {rng.choice(_VERBS)} the {rng.choice(_NOUNS)}"
    if room > 80:
        place = rng.choice(_PLACES)
        said = rng.choice((f"{said} {place}", f"{place}, {said}", f"{said}, and the {_thing(rng)} does not"))
    return f"{said[0].upper()}{said[1:]}."


def _thing(rng: Random) -> str:
    return f"{rng.choice(_KINDS)} {rng.choice(_NOUNS)}"


def _title(rng: Random, token: str) -> str:
    return f"{_thing(rng)} and {rng.choice(_NOUNS)}".capitalize() + f" ({token})"


def _plain(rng: Random, token: str, length: int) -> str:
    return _paragraphs(rng, f"# {_title(rng, token)}", length)


def _paragraphs(rng: Random, first: str, length: int) -> str:
    parts = [first]
    size = len(first)
    while size < length:
        part = _prose(rng, min(_PARAGRAPH, length - size - 2))
        parts.append(part)
        size += len(part) + 2
    return "\n\n".join(parts)


def _grounded(rng: Random, token: str, length: int) -> str:
    """Return blocks from top to bottom; each has the same share of the page's height as of its text."""
    parts: list[str] = []
    size, number = 0, 0
    while size < length or not parts:
        label, body = _block(rng, token, number, length - size)
        top = min(_WIDEST - 2, 40 + 920 * size // max(length, 1))
        bottom = min(_WIDEST - 1, max(top + 1, 36 + 920 * (size + len(body) + 60) // max(length, 1)))
        left = rng.randrange(60, 120)
        part = f"<|ref|>{label}<|/ref|><|det|>[[{left}, {top}, {_WIDEST - left}, {bottom}]]<|/det|>\n{body}\n"
        parts.append(part + "\n" if body else part)
        size += len(parts[-1])
        number += 1
    return "".join(parts)


def _block(rng: Random, token: str, number: int, left: int) -> tuple[str, str]:
    """Return label and text of the next block, with `left` characters remaining."""
    if number == 0:
        return "title", f"# {_title(rng, token)}"
    if left < 400:
        return "text", _prose(rng, left - 62)
    kind = number % 9
    if kind == 2:
        return "sub_title", f"## {number} {_thing(rng).capitalize()}"
    if kind == 4:
        return "image", ""
    if kind == 5:
        return "image_caption", f"<center>Figure {number}: {_prose(rng, 60)}</center>"
    if kind == 7:
        return "table", _table(rng)
    return "text", _prose(rng, min(_PARAGRAPH, left - 62))


def _table(rng: Random) -> str:
    rows = [["Quantity", "First year", "Second year"]] + [
        [name.capitalize(), *map(str, rng.choices(range(1000), k=2))] for name in rng.sample(_NOUNS, k=3)
    ]
    return "<table>" + "".join("<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in rows) + "</table>"


_DEEPEST = 32


def forced_text(forced: Mapping[str, Any], number: int) -> str:
    """Return the text for `structured_outputs` {"choice": [...]} or {"json": schema}; `number` selects a choice.

    Raises:
        ValueError: The form is not simulated. vLLM answers 400 to forms that it cannot compile.
    """
    if choices := forced.get("choice"):
        return str(choices[number % len(choices)])
    schema = forced.get("json")
    if isinstance(schema, str):
        schema = json.loads(schema)
    if isinstance(schema, dict):
        return json.dumps(instance(schema, schema))
    raise ValueError("structured_outputs: only choice and json are simulated")


def instance(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a small value that the schema allows: required properties only, shortest arrays and strings."""
    if depth > _DEEPEST:
        raise ValueError("the JSON schema nests too deeply")
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return instance(_referred(str(schema["$ref"]), root), root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return instance(schema[word][0], root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: instance(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return [instance(schema.get("items", {}), root, depth + 1)] * int(schema.get("minItems", 0))
    if kind == "string":
        return "text".ljust(int(schema.get("minLength", 0)), "x")[: schema.get("maxLength")]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1 if "exclusiveMinimum" in schema else 0)
    return False if kind == "boolean" else None


def _referred(path: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for name in path.removeprefix("#").split("/")[1:]:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


# Answers depend on the image, the prompt, and the temperature only. Repeated requests for a page give the same text, so
# that runs with and without faults can be compared. A retry with another temperature gives another text. Each synthetic
# text contains `token_of(url)`, so that page and answer can be matched.


#: Characters of text per token, as for English prose in most vocabularies.
CHARACTERS = 4
#: Key for every prompt without an answer of its own.
ANY = "*"
#: From this temperature on, no image makes the model loop, return no text, or break the form.
COOL = 0.2
#: Image tokens of DeepSeek-OCR in vLLM: 640 x 640 px gives a prompt of 284, six tiles 914.
_GLOBAL_TOKENS, _TILE_TOKENS, _TILES = 280, 105, (2, 4, 6, 6)


@dataclass(frozen=True, slots=True)
class Style:
    """Length of answers (lognormal: `mean` and `longest` in tokens, `sigma` of the logarithm), and shares of bad ones.

    `said`: fixed answers by prompt; "*" is the key for all other prompts. `forced`: fixed answers to requests that
    enforce a form, by a part of the prompt.
    """

    mean: float = 1000.0
    sigma: float = 0.5
    longest: int = 4096
    loop_rate: float = 0.0
    empty_rate: float = 0.0
    malformed_rate: float = 0.0  # answers with text in a broken form
    seed: int = 0
    said: Mapping[str, str] = field(default_factory=dict)
    forced: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """Part of a request that determines its answer. `forced`: its `structured_outputs` or JSON schema, or empty."""

    image: str  # `image_hash` of its data URL; "" without an image
    prompt: str
    temperature: float = 0.0
    room: int = 8192  # maximum tokens of the answer: max_tokens, or the rest of the context
    forced: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer: its text, its length in tokens (including the end token), and whether max_tokens cut the text."""

    text: str
    tokens: int
    cut: bool


def data_url(image: EncodedImage) -> bytes:
    """Return the image as a data URL in ASCII, as in requests."""
    return f"data:{image.media_type};base64,".encode() + b64encode(image.data)


def image_hash(url: str | bytes) -> str:
    """Return the sha256 of a data URL, in hex: the name of the image in the simulator's log and faults."""
    return sha256(url.encode() if isinstance(url, str) else url).hexdigest()


def token_of(url: str | bytes) -> str:
    """Return the word that the answer to this image contains."""
    return _token(image_hash(url))


def _token(image: str) -> str:
    return f"page-{image[:12]}"


def prompt_tokens(image: str, prompt: str) -> int:
    """Return the tokens of a prompt with the image of this hash ("" for none)."""
    if not image:
        return 8 + len(prompt) // CHARACTERS
    return _GLOBAL_TOKENS + _TILE_TOKENS * _TILES[int(image[:4], 16) % len(_TILES)] + 4 + len(prompt) // CHARACTERS


def reply(ask: Ask, style: Style) -> Reply:
    """Return the answer.

    Raises:
        ValueError: The enforced form is not simulated.
    """
    image = ask.image
    temperature = f"{ask.temperature:g}" if ask.temperature > 0 else ""
    seed = sha256(f"{style.seed}|{image}|{ask.prompt}|{temperature}".encode()).digest()
    if ask.forced:
        fixed = (text for part, text in style.forced.items() if part in ask.prompt)
        text = next(fixed, None) or forced_text(ask.forced, int.from_bytes(seed[:4]))
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
    form = form_of(ask.prompt)
    if ask.temperature < COOL and fate < style.empty_rate + style.loop_rate:
        start = page(rng, _token(image), min(tokens, 200) * CHARACTERS, form)
        return Reply(loop(rng, start, ask.room * CHARACTERS), ask.room, True)
    if ask.temperature < COOL and fate < style.empty_rate + style.loop_rate + style.malformed_rate:
        form = Form.PLAIN
    text = page(rng, _token(image), (tokens - 1) * CHARACTERS, form)
    return _limited(text, tokens, ask.room)


def _limited(text: str, tokens: int, room: int) -> Reply:
    if tokens <= room:
        return Reply(text, tokens, False)
    return Reply(text[: len(text) * room // tokens], room, True)


_DONE = b"data: [DONE]\n\n"


class SseStream:
    """Server-sent events of one answer, a piece of text per `interval` tokens.

    Frames are built here, because aiohttp's `write` is a coroutine: the engine's timer writes for all requests.
    """

    def __init__(
        self, transport: asyncio.Transport, head: Mapping[str, Any], text: str, tokens: int, interval: int
    ) -> None:
        self._transport = transport
        self._head = json.dumps(dict(head))[:-1]
        self._text = text
        self._tokens = tokens
        self._interval = interval
        self._sent = 0  # sent characters
        self._next = 0  # number of tokens at which the next piece is due

    def send(self, made: int) -> int:
        """Write the new text for `made` tokens; return the number of tokens at which more text is due."""
        events = []
        if not self._next:
            events.append(self._event('{"role": "assistant", "content": ""}'))
            self._next = 1
        ends = range(self._next, made + 1, self._interval)
        for tokens in ends if made < self._tokens else (*ends, made):
            end = len(self._text) * tokens // self._tokens
            if end > self._sent:
                events.append(self._event('{"content": ' + json.dumps(self._text[self._sent : end]) + "}"))
                self._sent = end
        self._next += len(ends) * self._interval
        if events:
            self._write("".join(events).encode())
        return self._next

    def finish(self, reason: str, usage: Mapping[str, int] | None) -> None:
        """Write the last events."""
        last = self._event("{}", json.dumps(reason))
        if usage is not None:
            last += f'data: {self._head}, "choices": [], "usage": {json.dumps(dict(usage))}}}\n\n'
        self._write(last.encode() + _DONE)

    def fail(self, error: Mapping[str, Any]) -> None:
        """Write an error in the middle, then the end, as vLLM does."""
        self._write(f"data: {json.dumps(dict(error))}\n\n".encode() + _DONE)

    def _event(self, delta: str, reason: str = "null") -> str:
        choice = f'{{"index": 0, "delta": {delta}, "logprobs": null, "finish_reason": {reason}}}'
        return f'data: {self._head}, "choices": [{choice}]}}\n\n'

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def whole_answer(head: Mapping[str, Any], text: str, reason: str, usage: Mapping[str, int]) -> bytes:
    """Return the body of an answer that is not streamed."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    return json.dumps({**head, "choices": [choice], "usage": dict(usage)}).encode()
