"""olmOCR 2: Markdown after a front matter with language, rotation, tables, and diagrams.

Prompt, size, settings, and retries are those of the vendor's pipeline (`build_no_anchoring_v4_yaml_prompt`). Arguments
are those of its server.
"""

from llm_ocr.models.parsers.front_matter import parse_front_matter
from llm_ocr.models.profile import ImageRule, Profile, Rung, Score
from llm_ocr.models.profiles.shared import CACHES_OFF, page_tokens

_PROMPT = (
    "Attached is one page of a document that you must process. Just return the plain text representation of this "
    "document as if you were reading it naturally. Convert equations to LateX and tables to HTML.\n"
    "If there are any figures or charts, label them with the following markdown syntax "
    "![Alt text describing the contents of the figure](page_startx_starty_width_height.png)\n"
    "Return your output as markdown, with a front matter section on top specifying values for the primary_language, "
    "is_rotation_valid, rotation_correction, is_table, and is_diagram parameters."
)
_YES_OR_NO = "(True|False|true|false)"
# The front matter in the order of the prompt's values, then the page; no text for a page without text.
_GRAMMAR = (
    r"---\n"
    r"primary_language: ([a-z]{2}|null)\n"
    rf"is_rotation_valid: {_YES_OR_NO}\n"
    r"rotation_correction: (0|90|180|270)\n"
    rf"is_table: {_YES_OR_NO}\n"
    rf"is_diagram: {_YES_OR_NO}\n"
    r"---(\n[\s\S]*)?"
)

_LONGEST = 1288
_VENDOR = "vendor's run, vendor's repository"


def _profile(
    name: str, model: str, aliases: tuple[str, ...], weight_bytes: float, scores: tuple[Score, ...]
) -> Profile:
    return Profile(
        name=name,
        model=model,
        licence="Apache-2.0",
        aliases=aliases,
        prompts={"markdown": _PROMPT},
        parsers={"": parse_front_matter},
        image=ImageRule(_LONGEST),
        max_tokens=8000,
        context=16_384,
        # Qwen2.5-VL: one token per 28 x 28 pixels.
        page_tokens=page_tokens(_LONGEST, 28, _PROMPT),
        mode="markdown",
        image_first=False,
        temperature=0.1,
        guides={"markdown": {"structured_outputs": {"regex": _GRAMMAR}}},
        server_args=("--limit-mm-per-prompt", '{"video": 0}', *CACHES_OFF),
        # 0.1 twice, then warmer, as in the vendor's eight attempts.
        ladder=(Rung(0.1), Rung(0.2), Rung(0.3), Rung(0.5), Rung(0.8), Rung(0.9), Rung(1.0)),
        parameters=8.3,
        weight_bytes=weight_bytes,
        scores=scores,
    )


OLMOCR_2 = _profile(
    "olmocr-2",
    "allenai/olmOCR-2-7B-1025-FP8",
    ("olmocr", "olmocr-2-fp8"),
    1.0,
    (Score("olmOCR-bench", 82.4, _VENDOR),),
)
# The score above is published for the model; the source does not state which of the two weights was measured.
OLMOCR_2_BF16 = _profile("olmocr-2-bf16", "allenai/olmOCR-2-7B-1025", (), 2.0, ())

PROFILES = (OLMOCR_2, OLMOCR_2_BF16)
