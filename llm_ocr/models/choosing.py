"""Choose a model by vLLM release, GPU memory, license, and language."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from llm_ocr.models.parsers import PLACED, TELLING
from llm_ocr.models.profile import Profile, Score

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def numbers(version: str) -> tuple[int, ...]:
    """Return `0.14.0rc1.dev162` as (0, 14, 0) and `5.2` as (5, 2, 0); () for a text that is not a version."""
    match = _NUMBERS.search(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


# Settings per GPU model, as data: a starting point, not an optimum. The predecessor measured DeepSeek-OCR at a context
# of 8,192 tokens and a memory share of 0.90 (vLLM 0.12): the KV cache in tokens, and the concurrent requests with the
# resulting pages per minute. The a40 and the h100 were not measured; their entries state the derivation. Other contexts
# were not measured, so presets keep the profile's context. vLLM chooses the batched tokens by GPU.


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings per server: concurrent `sequences`, and `memory_share` of the GPU (0..1).

    `source` states the origin of the numbers.
    """

    name: str
    gigabytes: int  # GPU memory
    sequences: int
    source: str
    memory_share: float = 0.9

    @property
    def window(self) -> int:
        """Return the maximum requests in flight: running ones, and the small queue behind them (`engines.pool`)."""
        return self.sequences + max(4, self.sequences // 8)

    @property
    def server_args(self) -> tuple[str, ...]:
        """Return the preset as arguments of `vllm serve`."""
        return ("--max-num-seqs", str(self.sequences), "--gpu-memory-utilization", f"{self.memory_share:g}")


_PRESETS = (
    Preset("l4", 24, 32, "measured: 39 pages/min with 32 in parallel; 215,680 KV tokens hold 32 of 6,740"),
    Preset("a40", 48, 128, "not measured: the same memory as the l40s, so the same number of sequences"),
    Preset("l40s", 48, 128, "measured: 83 pages/min with 128 in parallel; 567,488 KV tokens hold 128 of 4,433"),
    Preset("a100", 80, 128, "measured: 91 pages/min with 128 in parallel; 1,115,616 KV tokens hold 128 of 8,715"),
    Preset("h100", 80, 256, "not measured: the a100's KV tokens hold 256 of 4,357, the share of each on the l40s"),
)
PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _PRESETS}


# GPU memory that a model's server needs, computed from its profile. Rule for one of the `n` GPUs of a server:
#
#   (weights / n + KV cache / n + 2 GB) / share of the GPU that vLLM may use
#
# Weights are `parameters` times `weight_bytes`. vLLM starts only if its KV cache holds one request of the full context:
# 144 KiB per token, which Qwen3's 4B and 8B need and which exceeds the need of most OCR models. CUDA, its graphs, and
# the image encoder use 2 GB. The share is vLLM's 0.9 unless the profile sets another value.


_GB = 1e9
BESIDE = 2.0 * _GB
KV_BYTES = 144 * 1024  # per token
_SHARE = 0.9

#: Memory of available GPUs in GB, and the numbers of GPUs per model.
_SOLD = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
_SPLITS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Gpus:
    """Number of GPUs, and memory of each in GB."""

    count: int
    gigabytes: int

    def __str__(self) -> str:
        return f"{self.gigabytes} GB" if self.count == 1 else f"{self.count} x {self.gigabytes} GB"


def weights_of(profile: Profile) -> float:
    """Return the bytes of the weights; 0 if the size is unknown."""
    return profile.parameters * profile.weight_bytes * _GB


def share_of(profile: Profile) -> float:
    """Return the share of GPU memory that the server uses, 0..1, from the last argument that sets the share."""
    words = [part for word in profile.server_args for part in word.split("=", 1)]
    given = [value for name, value in pairwise(words) if name.replace("_", "-") == "--gpu-memory-utilization"]
    try:
        share = float(given[-1])
    except (IndexError, ValueError):
        return _SHARE
    return share if 0 < share <= 1 else _SHARE


def needed_memory(weights: float, context: int, *, gpus: int = 1, share: float = _SHARE) -> float:
    """Return the bytes of memory per GPU for `weights` bytes and a context in tokens."""
    return ((weights + context * KV_BYTES) / gpus + BESIDE) / share


def smallest_gpu(profile: Profile, context: int | None = None) -> Gpus | None:
    """Return the smallest sufficient GPU, or the fewest GPUs; None if the model's size is unknown.

    Args:
        profile: Profile of the model.
        context: Tokens; None means the profile's context.
    """
    weights = weights_of(profile)
    if not weights:
        return None
    for count in _SPLITS:
        bytes_ = needed_memory(weights, context or profile.context, gpus=count, share=share_of(profile))
        enough = next((size for size in _SOLD if bytes_ <= size * _GB), None)
        if enough is not None:
            return Gpus(count, enough)
    return Gpus(_SPLITS[-1] * 2, _SOLD[-1])


#: Licenses without terms beyond the well-known ones.
OPEN_LICENCES = frozenset({"MIT", "Apache-2.0", "BSD-3-Clause", "BSD-2-Clause", "CC-BY-4.0", "OpenMDW-1.1"})
#: Benchmark with page-level results for most of the models. Results of other benchmarks are not comparable.
BENCHMARK = "olmOCR-bench"

_CODES = {
    "ar": "arabic", "bg": "bulgarian", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "fa": "persian", "fi": "finnish", "fr": "french", "he": "hebrew", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "it": "italian", "ja": "japanese", "ko": "korean", "nb": "norwegian", "nl": "dutch",
    "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish",
    "th": "thai", "tr": "turkish", "uk": "ukrainian", "ur": "urdu", "vi": "vietnamese", "zh": "chinese",
}  # fmt: skip
#: Words in a profile that mark its list of languages as incomplete.
_MANY = re.compile(r"\b(many|most|over|more|about|first|above all|\d{2,})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wants:
    """Requirements for a model; None and "" mean no requirement."""

    vllm: tuple[int, ...] = ()  # version of the installed vLLM
    gpu_bytes: float | None = None  # memory of one GPU
    gpus: int = 1  # GPUs per server
    context: int | None = None  # tokens, if not the profile's
    open_only: bool = False
    language: str = ""  # English name or ISO 639 code


@dataclass(frozen=True, slots=True)
class Choice:
    """Model with the reasons for its rank or its exclusion."""

    profile: Profile
    reasons: tuple[str, ...]


def rank(profiles: Sequence[Profile], wants: Wants) -> tuple[list[Choice], list[Choice]]:
    """Return the suitable profiles, the best first, and the unsuitable ones.

    The order is: models that are not experimental; models that read whole pages; models known to read the language;
    models whose single answer contains the places of figures. Ties are ordered by the published result in `BENCHMARK`
    (none is last), then by size, the smaller model first.
    """

    def place(profile: Profile) -> tuple[object, ...]:
        score = score_of(profile, BENCHMARK)
        return (
            profile.experimental,
            profile.layout_first,
            bool(wants.language) and not reads_language(profile, wants.language),
            not gives_boxes(profile),
            -(score.value if score else 0.0),
            profile.parameters or float("inf"),
            profile.name,
        )

    against = {profile.name: tuple(_against(profile, wants)) for profile in profiles}
    able = sorted((profile for profile in profiles if not against[profile.name]), key=place)
    ranked = [Choice(profile, tuple(_for(profile, wants))) for profile in able]
    return ranked, [Choice(profile, against[profile.name]) for profile in profiles if against[profile.name]]


def alternatives(profiles: Sequence[Profile], name: str) -> tuple[str, ...]:
    """Return names of three models of other families: the best with open licenses, at most one per family.

    Args:
        profiles: All profiles.
        name: Name of a profile, or Hugging Face id of its model.
    """
    own = {family(profile) for profile in profiles if name in (profile.name, profile.model)}
    others = [profile for profile in profiles if family(profile) not in own]
    found: dict[str, str] = {}
    for choice in rank(others, Wants(open_only=True))[0]:
        found.setdefault(family(choice.profile), choice.profile.name)
    return tuple(found.values())[:3]


def family(profile: Profile) -> str:
    """Return the family of a model: the letters at the start of its name."""
    found = re.match(r"[a-z]+", profile.name.casefold())
    return found[0] if found else profile.name


def score_of(profile: Profile, benchmark: str) -> Score | None:
    """Return the profile's best published result in a benchmark, in any version."""
    versions = f"{benchmark} v"
    found = [score for score in profile.scores if score.benchmark == benchmark or score.benchmark.startswith(versions)]
    return max(found, key=lambda score: (score.benchmark, score.value), default=None)


def language_name(language: str) -> str:
    """Return the English name of a language, given by name or code: `German` for `de`."""
    return _CODES.get(language.casefold(), language.casefold()).capitalize()


def gives_boxes(profile: Profile, mode: str = "") -> bool:
    """Return whether the answers in a mode (the default mode for "") contain the places of figures on a page."""
    parser = profile.parsers.get(mode or profile.mode, profile.parsers[""])
    return bool(profile.figure_labels) and parser in PLACED


def describes(profile: Profile) -> str:
    """Return how the model describes figures: "yes" on request, "in answers", or "no"."""
    if "describe" in profile.prompts:
        return "yes"
    return "no" if TELLING.isdisjoint(profile.parsers.values()) else "in answers"


def reads_language(profile: Profile, language: str) -> bool | None:
    """Return whether the model is known to read a language, by English name or code; None if unknown."""
    if not profile.languages:
        return None
    wanted = language_name(language).casefold()
    if re.search(rf"\b{re.escape(wanted)}\b", profile.languages.casefold()):
        return True
    return None if _MANY.search(profile.languages) else False


def _against(profile: Profile, wants: Wants) -> Iterator[str]:
    """Yield the reasons against the model."""
    if wants.vllm and numbers(profile.min_vllm) > wants.vllm:
        yield f"needs vLLM {profile.min_vllm}"
    weights = weights_of(profile)
    if wants.gpu_bytes is not None and weights:
        context = wants.context or profile.context
        needed = needed_memory(weights, context, gpus=wants.gpus, share=share_of(profile))
        if needed > wants.gpu_bytes:
            yield f"needs a GPU of {smallest_gpu(profile, context)}"
    if wants.open_only and profile.licence not in OPEN_LICENCES:
        stated = profile.licence not in ("", "not stated")
        yield f"its license adds terms ({profile.licence})" if stated else "its license is not stated"
    if wants.language and reads_language(profile, wants.language) is False:
        yield f"not known to read {language_name(wants.language)} (it reads {profile.languages})"


def _for(profile: Profile, wants: Wants) -> Iterator[str]:
    """Yield the reasons for the model's rank."""
    score = score_of(profile, BENCHMARK)
    yield f"{BENCHMARK} {score.value:g}" if score else f"no result in {BENCHMARK}"
    if profile.layout_first:
        yield "trained on regions that a detector finds"
    else:
        yield "returns positions of figures" if gives_boxes(profile) else "no positions of figures"
    if wants.language and reads_language(profile, wants.language) is None:
        yield f"unknown whether it reads {language_name(wants.language)}"
    size = smallest_gpu(profile)
    yield f"needs {size}" if size else "size unknown"
    if profile.experimental:
        yield "experimental"


#: Share of a run's pages above which another model is worth a trial.
MANY_LOOPS = 0.02


def loop_advice(loops: int, pages: int, model: str, profiles: Sequence[Profile]) -> str:
    """Return advice for a run in which `loops` of `pages` ended in repetitions; "" for a small share.

    Args:
        loops: Pages that ended in repetitions.
        pages: Pages of the run.
        model: Name of the run's profile, or Hugging Face id of its model.
        profiles: All profiles.
    """
    if not pages or loops / pages <= MANY_LOOPS:
        return ""
    names = " or ".join(f"`model={name}`" for name in alternatives(profiles, model))
    return f"repetition loops on {100 * loops / pages:.1f} % of the pages: try {names}"
