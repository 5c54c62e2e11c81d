"""Choose a model by vLLM release, GPU memory, license, and language."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from llm_ocr.models.parsers import gives_places, tells_figures
from llm_ocr.models.profile import Profile, Score

# Versions of packages, compared by their numbers.


_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def numbers(version: str) -> tuple[int, ...]:
    """`0.14.0rc1.dev162` as (0, 14, 0), `5.2` as (5, 2, 0); () for what is no version."""
    match = _NUMBERS.search(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


# What a server must know to load each model: the classes that its `config.json` names, and its model type. Sources:
# vLLM's list of the models that it tests (`tests/models/registry.py`, commit 0008d3565e9e) and the registry of vLLM
# 0.32; where neither names a model, the model that it was made from. A model that none of them names is not here.


@dataclass(frozen=True, slots=True)
class Architecture:
    """`classes` as vLLM's registry calls them, that of the draft model last where the profile's server uses one.

    `model_type`: as transformers calls it; "" where it is not known.
    """

    classes: tuple[str, ...]
    model_type: str = ""


_DEEPSEEK = Architecture(("DeepseekOCRForCausalLM",), "deepseek_vl_v2")
_DOTS = Architecture(("DotsOCRForCausalLM",), "dots_ocr")
_LIGHTON = Architecture(("LightOnOCRForConditionalGeneration",))
_PADDLE = Architecture(("PaddleOCRVLForConditionalGeneration",), "paddleocr_vl")
_QWEN_2_5 = Architecture(("Qwen2_5_VLForConditionalGeneration",), "qwen2_5_vl")
_QWEN_3 = Architecture(("Qwen3VLForConditionalGeneration",), "qwen3_vl")
_QWEN_3_MOE = Architecture(("Qwen3VLMoeForConditionalGeneration",), "qwen3_vl_moe")
_QWEN_3_5 = Architecture(("Qwen3_5ForConditionalGeneration",), "qwen3_5")

#: By the profile's name.
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "deepseek-ocr": _DEEPSEEK,
        "deepseek-ocr-2": Architecture(("DeepseekOCR2ForCausalLM",)),
        "lightonocr-3-0.8b": _QWEN_3_5,
        "lightonocr-3-1b": _LIGHTON,
        "lightonocr-3-4b": _QWEN_3_5,
        "lightonocr-2-1b": _LIGHTON,
        "lightonocr-2-1b-bbox": _LIGHTON,
        "lightonocr-2-1b-bbox-soup": _LIGHTON,
        "lightonocr-2-1b-ocr-soup": _LIGHTON,
        "dots.mocr": _DOTS,
        "dots.ocr": _DOTS,
        "glm-ocr": Architecture(("GlmOcrForConditionalGeneration", "GlmOcrMTPModel"), "glm_ocr"),
        "paddleocr-vl-1.6": _PADDLE,
        "paddleocr-vl-1.5": _PADDLE,
        "paddleocr-vl-1": _PADDLE,
        "chandra-2": _QWEN_3_5,
        "chandra-1": _QWEN_3,
        "olmocr-2": _QWEN_2_5,
        "olmocr-2-bf16": _QWEN_2_5,
        "hunyuanocr": Architecture(("HunYuanVLForConditionalGeneration",), "hunyuan_vl"),
        "nanonets-ocr2": _QWEN_2_5,
        "qwen3-vl-2b": _QWEN_3,
        "qwen3-vl-4b": _QWEN_3,
        "qwen3-vl-8b": _QWEN_3,
        "qwen3-vl-32b": _QWEN_3,
        "qwen3-vl-30b-a3b": _QWEN_3_MOE,
        "qwen3-vl-235b-a22b": _QWEN_3_MOE,
        "internvl3.5-8b": Architecture(("InternVLChatModel",)),
        "unlimited-ocr": Architecture(("UnlimitedOCRForCausalLM",)),
        "qianfan-ocr": Architecture(("QianfanOCRForConditionalGeneration",), "qianfan_ocr"),
    }
)


def architecture_of(profile: Profile) -> Architecture | None:
    """What is known of a profile's model; None where nothing is, or the profile is a user's own."""
    return ARCHITECTURES.get(profile.name)


# Settings for one kind of GPU, as data: a starting point, not an optimum. Measured by the predecessor with DeepSeek-OCR
# at a context of 8,192 tokens and a memory share of 0.90 (vLLM 0.12): the KV cache in tokens, and the requests at once
# with the pages per minute that they gave. For the a40 and the h100 nothing was measured; what their numbers are
# derived from stands with them. Nobody measured another context than the profile's: presets leave it alone. Batched
# tokens are left to vLLM, which chooses them by the GPU.


@dataclass(frozen=True, slots=True)
class Preset:
    """For each server: `sequences` it runs at once, `memory_share` of the GPU (0..1).

    `source` says where the numbers come from.
    """

    name: str
    gigabytes: int  # of the GPU's memory
    sequences: int
    source: str
    memory_share: float = 0.9

    @property
    def window(self) -> int:
        """The most requests under way: what runs, and the small queue of `engines.fleet.window` behind it."""
        return self.sequences + max(4, self.sequences // 8)

    @property
    def server_args(self) -> tuple[str, ...]:
        """As arguments of `vllm serve`."""
        return ("--max-num-seqs", str(self.sequences), "--gpu-memory-utilization", f"{self.memory_share:g}")


_PRESETS = (
    Preset("l4", 24, 32, "measured: 39 pages/min with 32 at once; 215,680 KV tokens hold 32 of 6,740"),
    Preset("a40", 48, 128, "not measured: as much memory as the l40s, so as many sequences"),
    Preset("l40s", 48, 128, "measured: 83 pages/min with 128 at once; 567,488 KV tokens hold 128 of 4,433"),
    Preset("a100", 80, 128, "measured: 91 pages/min with 128 at once; 1,115,616 KV tokens hold 128 of 8,715"),
    Preset("h100", 80, 256, "not measured: the a100's KV tokens hold 256 of 4,357, what the l40s has for each"),
)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _PRESETS})


# How much memory of a GPU a model's server needs: arithmetic on what its profile says. The rule, for one of `n` GPUs
# that a server splits the model over: (weights / n + KV cache / n + 2 GB) / share of the GPU that vLLM may take Weights
# are `parameters` times `weight_bytes`. vLLM starts only when its KV cache holds one request of the whole context: 144
# KiB a token, which is what Qwen3's 4B and 8B take and more than most OCR models do. 2 GB are what CUDA, its graphs and
# the image encoder take beside that. The share is vLLM's 0.9 unless the profile has another one.


_GB = 1e9
_BESIDE = 2.0 * _GB
_KV_BYTES = 144 * 1024  # of a token
_SHARE = 0.9

#: Memory of GPUs that can be bought or rented, in GB, and into how many a model is split.
_SOLD = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
_SPLITS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Gpus:
    """So many GPUs of so many GB each."""

    count: int
    gigabytes: int

    def __str__(self) -> str:
        return f"{self.gigabytes} GB" if self.count == 1 else f"{self.count} x {self.gigabytes} GB"


def weights_of(profile: Profile) -> float:
    """Bytes of the weights; 0 where the size is not known."""
    return profile.parameters * profile.weight_bytes * _GB


def share_of(profile: Profile) -> float:
    """The share of a GPU's memory that the server takes, 0..1, by the last argument that gives one."""
    words = [part for word in profile.server_args for part in word.split("=", 1)]
    given = [value for name, value in pairwise(words) if name.replace("_", "-") == "--gpu-memory-utilization"]
    try:
        share = float(given[-1])
    except (IndexError, ValueError):
        return _SHARE
    return share if 0 < share <= 1 else _SHARE


def needed_memory(weights: float, context: int, *, gpus: int = 1, share: float = _SHARE) -> float:
    """Bytes of each GPU's memory for weights of so many bytes and a context of so many tokens."""
    return ((weights + context * _KV_BYTES) / gpus + _BESIDE) / share


def smallest_gpu(profile: Profile, context: int | None = None) -> Gpus | None:
    """The smallest GPU that is enough, or the fewest of them; None where the model's size is not known.

    `context` in tokens; None: the profile's.
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


# Which model suits: by the vLLM, the memory, the licence and the language at hand.


#: Licences that add no terms of their own to what everybody knows.
OPEN_LICENCES = frozenset({"MIT", "Apache-2.0", "BSD-3-Clause", "BSD-2-Clause", "CC-BY-4.0", "OpenMDW-1.1"})
#: The benchmark that most of the models were run on, page by page; others cannot be compared with it.
BENCHMARK = "olmOCR-bench"

_CODES = {
    "ar": "arabic", "bg": "bulgarian", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "fa": "persian", "fi": "finnish", "fr": "french", "he": "hebrew", "hi": "hindi", "hu": "hungarian",
    "id": "indonesian", "it": "italian", "ja": "japanese", "ko": "korean", "nb": "norwegian", "nl": "dutch",
    "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish",
    "th": "thai", "tr": "turkish", "uk": "ukrainian", "ur": "urdu", "vi": "vietnamese", "zh": "chinese",
}  # fmt: skip
#: Words by which a profile says that its list of languages is not all there is.
_MANY = re.compile(r"\b(many|most|over|more|about|first|above all|\d{2,})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wants:
    """What a model is wanted for; None and "" leave it open."""

    vllm: tuple[int, ...] = ()  # version of the vLLM at hand
    gpu_bytes: float | None = None  # memory of one GPU
    gpus: int = 1  # that one server is split over
    context: int | None = None  # tokens, where they are not the profile's
    open_only: bool = False
    language: str = ""  # English name or ISO 639 code


@dataclass(frozen=True, slots=True)
class Choice:
    """A model, and why it stands where it stands, or why it was left out."""

    profile: Profile
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best first."""

    ranked: tuple[Choice, ...]
    left_out: tuple[Choice, ...]


def rank(profiles: Sequence[Profile], wants: Wants) -> Ranking:
    """The profiles that can do it, the best first, and those that cannot.

    First come models that are not experimental, then those that read whole pages, that are known to read the language,
    whose one answer has the places of figures; of two such the one with the better published result in `BENCHMARK`
    (none: behind), then the smaller one.
    """
    against = {profile.name: tuple(_against(profile, wants)) for profile in profiles}
    able = [profile for profile in profiles if not against[profile.name]]
    able.sort(key=lambda profile: _place(profile, wants))
    return Ranking(
        tuple(Choice(profile, tuple(_for(profile, wants))) for profile in able),
        tuple(Choice(profile, against[profile.name]) for profile in profiles if against[profile.name]),
    )


def alternatives(profiles: Sequence[Profile], name: str, *, count: int = 3) -> tuple[str, ...]:
    """Names of models of other families to try instead: the best with open licences, one of each family.

    `name` is that of a profile, or the Hugging Face id of its model.
    """
    own = {family(one) for one in profiles if name in (one.name, one.model)}
    others = [one for one in profiles if family(one) not in own]
    found: dict[str, str] = {}
    for choice in rank(others, Wants(open_only=True)).ranked:
        found.setdefault(family(choice.profile), choice.profile.name)
    return tuple(found.values())[:count]


def family(profile: Profile) -> str:
    """What the models of one maker's series share: the letters that their names begin with."""
    found = re.match(r"[a-z]+", profile.name.casefold())
    return found[0] if found else profile.name


def score_of(profile: Profile, benchmark: str) -> Score | None:
    """The profile's best published result of a benchmark, whatever its version."""
    found = [one for one in profile.scores if one.benchmark == benchmark or one.benchmark.startswith(f"{benchmark} v")]
    return max(found, key=lambda one: (one.benchmark, one.value), default=None)


def language_name(language: str) -> str:
    """The English name of a language given by name or code, `German` for `de`."""
    return _CODES.get(language.casefold(), language.casefold()).capitalize()


def gives_boxes(profile: Profile) -> bool:
    """Whether its usual answers say where the figures of a page are."""
    parser = profile.parsers.get(profile.mode, profile.parsers[""])
    return bool(profile.figure_labels) and gives_places(parser)


def describes(profile: Profile) -> str:
    """How it describes figures: "yes" when it is asked, "in answers", or "no"."""
    if "describe" in profile.prompts:
        return "yes"
    return "in answers" if any(map(tells_figures, profile.parsers.values())) else "no"


def reads_language(profile: Profile, language: str) -> bool | None:
    """Whether it is known to read a language, by English name or code; None where nothing is known about it."""
    if not profile.languages:
        return None
    wanted = language_name(language).casefold()
    if re.search(rf"\b{re.escape(wanted)}\b", profile.languages.casefold()):
        return True
    return None if _MANY.search(profile.languages) else False


def _place(profile: Profile, wants: Wants) -> tuple[object, ...]:
    known = wants.language and reads_language(profile, wants.language)
    score = score_of(profile, BENCHMARK)
    return (
        profile.experimental,
        profile.layout_first,
        bool(wants.language) and not known,
        not gives_boxes(profile),
        -(score.value if score else 0.0),
        profile.parameters or float("inf"),
        profile.name,
    )


def _against(profile: Profile, wants: Wants) -> Iterator[str]:
    """Why it cannot be taken."""
    if wants.vllm and numbers(profile.min_vllm) > wants.vllm:
        yield f"needs vLLM {profile.min_vllm}"
    weights = weights_of(profile)
    if wants.gpu_bytes is not None and weights:
        context = wants.context or profile.context
        needed = needed_memory(weights, context, gpus=wants.gpus, share=share_of(profile))
        if needed > wants.gpu_bytes:
            yield f"needs a GPU of {smallest_gpu(profile, context)}"
    if wants.open_only and profile.licence not in OPEN_LICENCES:
        yield f"its licence adds terms ({profile.licence or 'not known'})"
    if wants.language and reads_language(profile, wants.language) is False:
        yield f"not known to read {language_name(wants.language)} (it reads {profile.languages})"


def _for(profile: Profile, wants: Wants) -> Iterator[str]:
    """Why it stands where it stands."""
    score = score_of(profile, BENCHMARK)
    yield f"{BENCHMARK} {score.value:g}" if score else f"no result in {BENCHMARK}"
    if profile.layout_first:
        yield "made for regions that a detector finds"
    else:
        yield "places of figures in its one answer" if gives_boxes(profile) else "no places of figures"
    if wants.language and reads_language(profile, wants.language) is None:
        yield f"not known whether it reads {language_name(wants.language)}"
    size = smallest_gpu(profile)
    yield f"needs {size}" if size else "size not known"
    if profile.experimental:
        yield "experimental"


#: Of a run's pages; above it another model is worth a try.
MANY_LOOPS = 0.02


def loop_advice(loops: int, pages: int, model: str, profiles: Sequence[Profile]) -> str:
    """What to say of a run where `loops` of `pages` ended in repetitions; "" when they are few.

    `model`: the name of the run's profile, or the Hugging Face id of its model.
    """
    if not pages or loops / pages <= MANY_LOOPS:
        return ""
    names = " or ".join(f"--model {one}" for one in alternatives(profiles, model))
    return f"repetition loops on {100 * loops / pages:.1f} % of the pages: try {names}"
