"""Which model suits: by the vLLM, the memory, the licence and the language at hand."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_ocr.models.parsers import gives_places, tells_figures
from llm_ocr.models.profile import Profile, Score
from llm_ocr.models.sizes import needed_memory, share_of, smallest_gpu, weights_of
from llm_ocr.models.versions import numbers

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
