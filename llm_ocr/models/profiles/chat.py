"""Any chat model with image input: prompts of llm_ocr, answers in plain Markdown without places."""

from llm_ocr.models.parsers import parser_named
from llm_ocr.models.parsers.labels import FIGURE_LABELS
from llm_ocr.models.profile import ImageRule, Profile
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, CHAT_PROMPTS, a4_tokens, side_at, warmer

_MARKDOWN = (
    "Convert this page of a document to Markdown. Write all of its text in reading order and in its own language; "
    "correct, translate and add nothing. Mark headings with #. Write tables as HTML with <table>, <tr>, <th>, <td>, "
    "with rowspan and colspan where cells are joined. Write formulas in LaTeX between $ or $$. Leave out running heads "
    "and feet and page numbers, and do not describe pictures. Answer with the Markdown only."
)
_TEXT = (
    "Write down all text on this page in reading order, without any formatting. Correct, translate and add nothing. "
    "Answer with the text only."
)

#: Prompts by mode.
PROMPTS = {"markdown": _MARKDOWN, "text": _TEXT, **CHAT_PROMPTS}
#: Prompt for a page whose file contains text; the text improves spelling and small print.
ANCHOR = (
    f"{_MARKDOWN}\n\n"
    "Between the lines of dashes stands text that was found in the file of this page. It may be wrong, incomplete or "
    "out of order: where it and the picture differ, the picture is right.\n"
    "-----\n{text}\n-----"
)

#: Ladder as for DeepSeek-OCR: a smaller image is early, another prompt late.
LADDER = warmer(plainer="text")

SERVER_ARGS = (*CACHES_OFF, "--limit-mm-per-prompt", '{"image": 1, "video": 0}')

# Long side of A4 at 144 dpi: small print stays readable. A page of 1190 x 1684 pixels has 2,003,960 pixels, within the
# maximum of 2048 * 32 * 32 in Qwen3-VL's recipe.
LONGEST_SIDE = side_at(144)
# One token per 28 x 28 pixels (Qwen2-VL and most others; Qwen3-VL has 32 x 32); the prompt has about 100.
_PAGE_TOKENS = a4_tokens(LONGEST_SIDE, 28) + 100 + ANSWER
_CONTEXT = 16_384
_MAX_TOKENS = 8192


def generic(model_id: str, parser: str = "plain") -> Profile:
    """Return a profile for a chat model of which only the name is known.

    Args:
        model_id: Name as the server spells it.
        parser: Name in `models/parsers` of the parser for pages. Blocks of `plain` have no boxes: a detector finds the
            figures, and figures from other models' pages can be described.

    Raises:
        UsageError: The parser is unknown.
    """
    chosen = parser_named(parser)
    return Profile(
        name=model_id,
        model=model_id,
        licence="",
        prompts=PROMPTS,
        parsers={"": chosen.parse},
        image=ImageRule(longest_side=LONGEST_SIDE),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=_PAGE_TOKENS,
        mode="markdown",
        server_args=SERVER_ARGS,
        figure_labels=FIGURE_LABELS if chosen.places else frozenset(),
        ladder=LADDER,
        anchor=ANCHOR,
    )
