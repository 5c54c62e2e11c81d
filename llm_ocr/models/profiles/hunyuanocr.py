"""HunyuanOCR 1.5: pages as Markdown, tables as HTML, places of figures in some answers.

The id served 1.0 until the vendor moved that model to a subfolder. Prompts, the empty system message, and settings are
those of the vendor's repository for 1.5 (`inference/utils/tasks.py`, `inference/vLLM/infer_vllm_client.py`). The vendor
fixes the prompts, all in Chinese, because other wordings made the results worse.
"""

from llm_ocr.models.parsers.markdown import parse_hunyuan
from llm_ocr.models.parsers.otsl import parse_formula
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import ANSWER, USUAL_ARGS, a4_tokens, side_at, warmer

_PAGE = (
    "提取文档图片中正文的所有信息用markdown格式表示，其中页眉、页脚部分忽略，表格用html格式表达，文档中公式用latex格式表示，"
    "按照阅读顺序组织进行解析。"
)
_PROMPTS = {
    "markdown": _PAGE,
    "text": "提取图中的文字。",
    "table": "把图中的表格解析为HTML。",
    "formula": "识别图片中的公式，用LaTeX格式表示。",
    "chart": "解析图中的图表，对于流程图使用Mermaid格式表示，其他图表使用Markdown格式表示。",
}

# No published size: that of pages at 144 dpi, as for other models. One token per 28 x 28 pixels is assumed.
_LONGEST = side_at(144)
# A square page of that side has 61 * 61 tokens, and 20,200 of the 32,768 with the longest answer.
_MAX_TOKENS, _CONTEXT = 16_384, 32_768

HUNYUANOCR = Profile(
    name="hunyuanocr",
    model="tencent/HunyuanOCR",
    licence="Tencent Hunyuan community licence",
    notice=(
        "hunyuanocr: licenses of this family exclude the European Union, the United Kingdom and South Korea, and "
        "sources disagree on this model: read the LICENSE file in its repository before you use it."
    ),
    aliases=("hunyuan", "hunyuan-ocr", "hunyuanocr-1.5"),
    prompts=_PROMPTS,
    parsers={"": parse_hunyuan, "formula": parse_formula},
    image=ImageRule(_LONGEST),
    max_tokens=_MAX_TOKENS,
    context=_CONTEXT,
    page_tokens=a4_tokens(_LONGEST, 28) + len(_PAGE) + ANSWER,
    mode="markdown",
    system="",
    settings={"top_p": 1.0},
    vllm_settings={"top_k": -1, "repetition_penalty": 1.08},
    server_args=USUAL_ARGS,
    ladder=warmer(plainer="text"),
    parameters=1.0,
    scores=(Score("OmniDocBench v1.5", 94.10, "vendor's run of 1.0"),),
)

PROFILES = (HUNYUANOCR,)
