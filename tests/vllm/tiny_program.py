"""`llm-ocr` with one more profile, `tiny-ocr`: that of DeepSeek-OCR, whose every page has the same known answer.

A model with random weights writes noise. The profile's requests make vLLM answer with `PAGE` for pages; figures are
asked as the real profile asks, best with `--describe-mode classify`, for which it forces one of the classes.
"""

import sys
from dataclasses import replace

from llm_ocr.models import registry
from llm_ocr.models.profiles.markers import DEEPSEEK_OCR

#: Long enough that a run can be stopped in its middle. Nothing in it comes twice: the profile blocks repetition, and
#: vLLM answers 500 when that leaves no token which the forced answer allows.
PAGE = (
    "<|ref|>title<|/ref|><|det|>[[48, 60, 951, 99]]<|/det|>\n# What the tiny model read: naïve café 表\n\n"
    "<|ref|>image<|/ref|><|det|>[[71, 130, 930, 480]]<|/det|>\n\n"
    "<|ref|>text<|/ref|><|det|>[[71, 500, 930, 990]]<|/det|>\n"
    f"{' '.join(str(7919 * number) for number in range(1, 150))}\n"
)
PROFILE = replace(
    DEEPSEEK_OCR,
    name="tiny-ocr",
    aliases=(),
    page_settings={**DEEPSEEK_OCR.page_settings, "structured_outputs": {"choice": [PAGE]}},
)

if __name__ == "__main__":
    registry.PROFILES = (*registry.PROFILES, PROFILE)
    from llm_ocr.cli import main

    sys.exit(main())
