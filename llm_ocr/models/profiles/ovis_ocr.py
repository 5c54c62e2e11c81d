"""OvisOCR2: pages as Markdown with boxes of figures. Experimental.

Prompt, answer length, and image sizes are those of the model card, the parameters those of its weights file. The
revision is one that a third-party deployment pins. The context is an estimate of llm_ocr.
"""

from llm_ocr.models.parsers.markdown import parse_ovis
from llm_ocr.models.profile import ImageRule, Profile, Score
from llm_ocr.models.profiles.shared import USUAL_ARGS, page_tokens, side_at, warmer

_PROMPT = (
    "\nExtract all readable content from the image in natural human reading order and output the result as a single "
    "Markdown document. For charts or images, represent them using an HTML image tag: "
    '<img src="images/bbox_{left}_{top}_{right}_{bottom}.jpg" />, where left, top, right, bottom are bounding box '
    "coordinates scaled to [0, 1000). Format formulas as LaTeX. Format tables as HTML: <table>...</table>. Transcribe "
    "all other text as standard Markdown. Preserve the original text without translation or paraphrasing."
)
# An A4 page at 200 dpi has 3.9 million pixels; the card's limit is 8.3 million.
_LONGEST = side_at(200)

OVIS_OCR_2 = Profile(
    name="ovisocr2",
    model="ATH-MaaS/OvisOCR2",
    revision="1fc9221b7823a371d6e97f92d527cc847e24e107",
    licence="Apache-2.0",
    aliases=("ovisocr", "ovis-ocr-2"),
    prompts={"layout": _PROMPT},
    parsers={"": parse_ovis},
    image=ImageRule(_LONGEST),
    max_tokens=16_384,
    context=24_576,
    page_tokens=page_tokens(_LONGEST, 32, _PROMPT),
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

PROFILES = (OVIS_OCR_2,)
