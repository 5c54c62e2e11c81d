"""General vision models, mainly for figures: chat models of any name, Qwen3-VL, and InternVL3.5.

Prompts of pages are those of llm_ocr, answers plain Markdown without places. Names, licenses, and sizes of Qwen3-VL are
those of the model cards, arguments those of vLLM's recipe. Its two prompts that begin with `qwenvl` are the trained
prompts for documents. Name and arguments of InternVL3.5 are those of vLLM's recipe; its trained prompts for pages are
unknown.
"""

from collections.abc import Mapping
from dataclasses import replace

from llm_ocr.models.parsers import PLACED, parser_named
from llm_ocr.models.parsers.html_blocks import parse_qwen_html
from llm_ocr.models.parsers.labels import FIGURE_LABELS
from llm_ocr.models.parsers.markdown import parse_qwen_markdown
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Parser, Profile, Score
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
        parsers={"": chosen},
        image=ImageRule(longest_side=LONGEST_SIDE),
        max_tokens=_MAX_TOKENS,
        context=_CONTEXT,
        page_tokens=_PAGE_TOKENS,
        mode="markdown",
        server_args=SERVER_ARGS,
        figure_labels=FIGURE_LABELS if chosen in PLACED else frozenset(),
        ladder=LADDER,
        anchor=ANCHOR,
    )


# In billions; of "30B-A3B", three are active, and all must fit.
_QWEN_SIZES = {"2B": 2.0, "4B": 4.0, "8B": 8.0, "32B": 32.0, "30B-A3B": 30.0, "235B-A22B": 235.0}
_QWEN_DEFAULT = "8B"
_QWEN_SCORES = {
    "8B": (Score("olmOCR-bench", 64.6, "as quoted by others"),),
    "235B-A22B": (Score("OmniDocBench v1.5", 89.15, "as quoted by others"),),
}
_QWEN_PROMPTS = {**PROMPTS, "layout": "qwenvl html", "layout-markdown": "qwenvl markdown"}
_QWEN_PARSERS: Mapping[str, Parser] = {
    "": parse_plain,
    "layout": parse_qwen_html,
    "layout-markdown": parse_qwen_markdown,
}

# One token per 32 x 32 pixels: 38 * 53 for an A4 page of 1190 x 1684, plus the prompt and 1,000 tokens of answer.
_QWEN_PAGE = a4_tokens(LONGEST_SIDE, 32) + 100 + ANSWER


def _qwen(size: str) -> Profile:
    name = f"qwen3-vl-{size.lower()}"
    return Profile(
        name=name,
        model=f"Qwen/Qwen3-VL-{size}-Instruct",
        licence="Apache-2.0",
        aliases=("qwen3-vl",) if size == _QWEN_DEFAULT else (),
        prompts=_QWEN_PROMPTS,
        parsers=_QWEN_PARSERS,
        image=ImageRule(longest_side=LONGEST_SIDE),
        max_tokens=8192,  # the card's lower bound for long answers; its upper bound is 16,384
        context=32_768,
        page_tokens=_QWEN_PAGE,
        mode="markdown",
        server_args=SERVER_ARGS,
        figure_labels=FIGURE_LABELS,
        ladder=LADDER,
        parameters=_QWEN_SIZES[size],
        scores=_QWEN_SCORES.get(size, ()),
        anchor=ANCHOR,
    )


QWEN3_VL = tuple(map(_qwen, _QWEN_SIZES))


INTERNVL_3_5 = replace(
    generic("OpenGVLab/InternVL3_5-8B"),
    name="internvl3.5-8b",
    licence="not known here: see its model card",
    aliases=("internvl3.5", "internvl"),
    trust_remote_code=True,
    parameters=8.0,
)
