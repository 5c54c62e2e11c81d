"""olmOCR, HunyuanOCR, Nanonets-OCR, and OvisOCR2, which answer with Markdown in a convention of their own.

olmOCR 2 writes a front matter with language, rotation, tables, and diagrams. Prompt, size, settings, and retries are
those of the vendor's pipeline (`build_no_anchoring_v4_yaml_prompt`). Arguments are those of its server.

HunyuanOCR 1.5 writes tables as HTML, and the places of figures in some answers. The id served 1.0 until the vendor
moved that model to a subfolder. Prompts, the empty system message, and settings are those of the vendor's repository
for 1.5 (`inference/utils/tasks.py`, `inference/vLLM/infer_vllm_client.py`). The vendor fixes the prompts, all in
Chinese, because other wordings made the results worse.

Nanonets-OCR2 and Nanonets-OCR-s describe pictures, and mark watermarks, page numbers, and check boxes. The prompt is
that of both model cards. Settings are those of the card and of third-party scripts.

OvisOCR2 writes the boxes of figures, and is experimental. Prompt, answer length, and image sizes are those of the model
card, the parameters those of its weights file. The revision is one that a third-party deployment pins. The context is
an estimate of llm_ocr.
"""

from dataclasses import replace

from llm_ocr.models.parsers.markdown import parse_front_matter, parse_hunyuan, parse_nanonets, parse_ovis
from llm_ocr.models.parsers.otsl import parse_formula
from llm_ocr.models.profile import ImageRule, Profile, Rung, Score
from llm_ocr.models.profiles.shared import ANSWER, CACHES_OFF, USUAL_ARGS, a4_tokens, page_tokens, side_at, warmer

_OLMOCR_PROMPT = (
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

_OLMOCR_LONGEST = 1288
_VENDOR = "vendor's run, vendor's repository"


def _olmocr(name: str, model: str, aliases: tuple[str, ...], weight_bytes: float, scores: tuple[Score, ...]) -> Profile:
    return Profile(
        name=name,
        model=model,
        licence="Apache-2.0",
        aliases=aliases,
        prompts={"markdown": _OLMOCR_PROMPT},
        parsers={"": parse_front_matter},
        image=ImageRule(_OLMOCR_LONGEST),
        max_tokens=8000,
        context=16_384,
        # Qwen2.5-VL: one token per 28 x 28 pixels.
        page_tokens=page_tokens(_OLMOCR_LONGEST, 28, _OLMOCR_PROMPT),
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


OLMOCR_2 = _olmocr(
    "olmocr-2",
    "allenai/olmOCR-2-7B-1025-FP8",
    ("olmocr", "olmocr-2-fp8"),
    1.0,
    (Score("olmOCR-bench", 82.4, _VENDOR),),
)
# The score above is published for the model; the source does not state which of the two weights was measured.
OLMOCR_2_BF16 = _olmocr("olmocr-2-bf16", "allenai/olmOCR-2-7B-1025", (), 2.0, ())


_HUNYUAN_PAGE = (
    "提取文档图片中正文的所有信息用markdown格式表示，其中页眉、页脚部分忽略，表格用html格式表达，文档中公式用latex格式表示，"
    "按照阅读顺序组织进行解析。"
)
_HUNYUAN_PROMPTS = {
    "markdown": _HUNYUAN_PAGE,
    "text": "提取图中的文字。",
    "table": "把图中的表格解析为HTML。",
    "formula": "识别图片中的公式，用LaTeX格式表示。",
    "chart": "解析图中的图表，对于流程图使用Mermaid格式表示，其他图表使用Markdown格式表示。",
}

# No published size: that of pages at 144 dpi, as for other models. One token per 28 x 28 pixels is assumed.
_LONGEST_144 = side_at(144)
# A square page of that side has 61 * 61 tokens, and 20,200 of the 32,768 with the longest answer.
_HUNYUAN_TOKENS, _HUNYUAN_CONTEXT = 16_384, 32_768

HUNYUANOCR = Profile(
    name="hunyuanocr",
    model="tencent/HunyuanOCR",
    licence="Tencent Hunyuan community licence",
    notice=(
        "hunyuanocr: licenses of this family exclude the European Union, the United Kingdom and South Korea, and "
        "sources disagree on this model: read the LICENSE file in its repository before you use it."
    ),
    aliases=("hunyuan", "hunyuan-ocr", "hunyuanocr-1.5"),
    prompts=_HUNYUAN_PROMPTS,
    parsers={"": parse_hunyuan, "formula": parse_formula},
    image=ImageRule(_LONGEST_144),
    max_tokens=_HUNYUAN_TOKENS,
    context=_HUNYUAN_CONTEXT,
    page_tokens=a4_tokens(_LONGEST_144, 28) + len(_HUNYUAN_PAGE) + ANSWER,
    mode="markdown",
    system="",
    settings={"top_p": 1.0},
    vllm_settings={"top_k": -1, "repetition_penalty": 1.08},
    server_args=USUAL_ARGS,
    ladder=warmer(plainer="text"),
    parameters=1.0,
    scores=(Score("OmniDocBench v1.5", 94.10, "vendor's run of 1.0"),),
)


_NANONETS_PROMPT = (
    "Extract the text from the above document as if you were reading it naturally. Return the tables in html format. "
    "Return the equations in LaTeX representation. If there is an image in the document and image caption is not "
    "present, add a small description of the image inside the <img></img> tag; otherwise, add the image caption inside "
    "<img></img>. Watermarks should be wrapped in brackets. Ex: <watermark>OFFICIAL COPY</watermark>. Page numbers "
    "should be wrapped in brackets. Ex: <page_number>14</page_number> or <page_number>9/22</page_number>. Prefer using "
    "☐ and ☑ for check boxes."
)

# Qwen2.5-VL: one token per 28 x 28 pixels. A square page has 61 * 61 tokens, and 18,900 with the longest answer.
_NANONETS_TOKENS, _NANONETS_CONTEXT = 15_000, 20_480

NANONETS_OCR2 = Profile(
    name="nanonets-ocr2",
    model="nanonets/Nanonets-OCR2-3B",
    licence="not stated",
    notice=(
        "nanonets-ocr2: its model card states no license, and that of the model on which it is built (Qwen2.5-VL-3B) "
        "allows research only, no commercial use."
    ),
    aliases=("nanonets",),
    prompts={"markdown": _NANONETS_PROMPT},
    parsers={"": parse_nanonets},
    image=ImageRule(_LONGEST_144),
    max_tokens=_NANONETS_TOKENS,
    context=_NANONETS_CONTEXT,
    page_tokens=page_tokens(_LONGEST_144, 28, _NANONETS_PROMPT),
    mode="markdown",
    vllm_settings={"repetition_penalty": 1.0},
    server_args=USUAL_ARGS,
    ladder=warmer(),
    parameters=3.0,
    scores=(Score("olmOCR-bench", 69.5, "as quoted by others"),),
)

NANONETS_OCR_S = replace(
    NANONETS_OCR2,
    name="nanonets-ocr-s",
    model="nanonets/Nanonets-OCR-s",
    notice=NANONETS_OCR2.notice.replace(NANONETS_OCR2.name, "nanonets-ocr-s"),
    aliases=(),
    scores=(),
)


_OVIS_PROMPT = (
    "\nExtract all readable content from the image in natural human reading order and output the result as a single "
    "Markdown document. For charts or images, represent them using an HTML image tag: "
    '<img src="images/bbox_{left}_{top}_{right}_{bottom}.jpg" />, where left, top, right, bottom are bounding box '
    "coordinates scaled to [0, 1000). Format formulas as LaTeX. Format tables as HTML: <table>...</table>. Transcribe "
    "all other text as standard Markdown. Preserve the original text without translation or paraphrasing."
)
# An A4 page at 200 dpi has 3.9 million pixels; the card's limit is 8.3 million.
_OVIS_LONGEST = side_at(200)

OVIS_OCR_2 = Profile(
    name="ovisocr2",
    model="ATH-MaaS/OvisOCR2",
    revision="1fc9221b7823a371d6e97f92d527cc847e24e107",
    licence="Apache-2.0",
    aliases=("ovisocr", "ovis-ocr-2"),
    prompts={"layout": _OVIS_PROMPT},
    parsers={"": parse_ovis},
    image=ImageRule(_OVIS_LONGEST),
    max_tokens=16_384,
    context=24_576,
    page_tokens=page_tokens(_OVIS_LONGEST, 32, _OVIS_PROMPT),
    vllm_settings={"chat_template_kwargs": {"enable_thinking": False}},
    server_args=USUAL_ARGS,
    min_vllm="0.22.1",
    figure_labels=frozenset({"image"}),
    ladder=warmer(),
    parameters=0.85,
    languages="English, Chinese",
    scores=(
        Score("olmOCR-bench", 70.5, "run by LightOn, which makes LightOnOCR"),
        Score("OmniDocBench v1.6", 96.58, "vendor's run"),
    ),
    experimental=True,
)
