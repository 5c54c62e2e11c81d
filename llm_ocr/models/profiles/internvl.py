"""InternVL3.5: a general model that sees images, asked with our own prompts.

Its name and arguments are those of vLLM's recipe; nothing is known here of what it was trained to answer about pages.
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
