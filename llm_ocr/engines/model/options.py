"""What users choose about the model readers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Tries at a page or figure before it is given up.
MAX_ATTEMPTS = 8
#: Seconds before the same request is sent again after it was lost; doubled each time, up to `LONGEST_BACKOFF`.
BACKOFF = 0.5
LONGEST_BACKOFF = 8.0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How pages are asked for; None: as the profile says. `backoff` in seconds, as `BACKOFF`.

    `rotate`: auto turns a page whose model says that it does not stand upright, probe looks at it before, too.
    `figures_from`: the model's boxes, what is seen on the page, none; auto: the model's where its answers have places.
    `anchor` characters of the text layer go into the prompt. `guided`: vLLM forces the form of the answers.
    """

    mode: str | None = None  # which of the profile's prompts
    prompt: str | None = None  # the user's own instead
    max_tokens: int | None = None  # of an answer
    temperature: float | None = None  # of the first try
    max_attempts: int = MAX_ATTEMPTS
    figure_labels: frozenset[str] | None = None  # of blocks that are cut out as figures
    model: str | None = None  # the weights, where they are not the profile's
    revision: str | None = None
    backoff: float = BACKOFF
    rotate: str = "auto"  # "never" or "probe"
    figures_from: str = "auto"  # "model", "page" or "none"
    anchor: int = 0
    guided: bool = False
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what else changes results, for the key


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """What is asked of figures; None: as the profile says.

    `mode` is describe, parse, classify, or the name of a `prompt` of the user's own. Such a prompt may also stand in
    for one of the three: then its answers must have that mode's form, and `{classes}` in it is filled in for classify.
    """

    mode: str = "describe"
    prompt: str | None = None
    classes: tuple[str, ...] = ()  # for classify; empty: the usual ones
    max_tokens: int | None = None
    temperature: float | None = None
    max_attempts: int = MAX_ATTEMPTS
    model: str | None = None
    revision: str | None = None
    backoff: float = BACKOFF
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what else changes results, for the key
