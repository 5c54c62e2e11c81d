"""InternVL3.5: a general vision model, used with the prompts of llm_ocr.

Name and arguments are those of vLLM's recipe. The model's trained prompts for pages are unknown.
"""

from dataclasses import replace

from llm_ocr.models.profiles.chat import generic

INTERNVL_3_5 = replace(
    generic("OpenGVLab/InternVL3_5-8B"),
    name="internvl3.5-8b",
    licence="not known here: see its model card",
    aliases=("internvl3.5", "internvl"),
    trust_remote_code=True,
    parameters=8.0,
)

PROFILES = (INTERNVL_3_5,)
