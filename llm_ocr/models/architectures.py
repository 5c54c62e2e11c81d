"""What a server must know to load each model: the classes that its `config.json` names, and its model type.

Sources: vLLM's list of the models that it tests (`tests/models/registry.py`, commit 0008d3565e9e) and the registry of
vLLM 0.32; where neither names a model, the model that it was made from. A model that none of them names is not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from llm_ocr.models.profile import Profile


@dataclass(frozen=True, slots=True)
class Architecture:
    """`classes` as vLLM's registry calls them, that of the draft model last where the profile's server uses one.

    `model_type`: as transformers calls it; "" where it is not known.
    """

    classes: tuple[str, ...]
    model_type: str = ""


_DEEPSEEK = Architecture(("DeepseekOCRForCausalLM",), "deepseek_vl_v2")
_DOTS = Architecture(("DotsOCRForCausalLM",), "dots_ocr")
_LIGHTON = Architecture(("LightOnOCRForConditionalGeneration",))
_PADDLE = Architecture(("PaddleOCRVLForConditionalGeneration",), "paddleocr_vl")
_QWEN_2_5 = Architecture(("Qwen2_5_VLForConditionalGeneration",), "qwen2_5_vl")
_QWEN_3 = Architecture(("Qwen3VLForConditionalGeneration",), "qwen3_vl")
_QWEN_3_MOE = Architecture(("Qwen3VLMoeForConditionalGeneration",), "qwen3_vl_moe")
_QWEN_3_5 = Architecture(("Qwen3_5ForConditionalGeneration",), "qwen3_5")

#: By the profile's name.
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "deepseek-ocr": _DEEPSEEK,
        "deepseek-ocr-2": Architecture(("DeepseekOCR2ForCausalLM",)),
        "lightonocr-3-0.8b": _QWEN_3_5,
        "lightonocr-3-1b": _LIGHTON,
        "lightonocr-3-4b": _QWEN_3_5,
        "lightonocr-2-1b": _LIGHTON,
        "lightonocr-2-1b-bbox": _LIGHTON,
        "lightonocr-2-1b-bbox-soup": _LIGHTON,
        "lightonocr-2-1b-ocr-soup": _LIGHTON,
        "dots.mocr": _DOTS,
        "dots.ocr": _DOTS,
        "glm-ocr": Architecture(("GlmOcrForConditionalGeneration", "GlmOcrMTPModel"), "glm_ocr"),
        "paddleocr-vl-1.6": _PADDLE,
        "paddleocr-vl-1.5": _PADDLE,
        "paddleocr-vl-1": _PADDLE,
        "chandra-2": _QWEN_3_5,
        "chandra-1": _QWEN_3,
        "olmocr-2": _QWEN_2_5,
        "olmocr-2-bf16": _QWEN_2_5,
        "hunyuanocr": Architecture(("HunYuanVLForConditionalGeneration",), "hunyuan_vl"),
        "nanonets-ocr2": _QWEN_2_5,
        "qwen3-vl-2b": _QWEN_3,
        "qwen3-vl-4b": _QWEN_3,
        "qwen3-vl-8b": _QWEN_3,
        "qwen3-vl-32b": _QWEN_3,
        "qwen3-vl-30b-a3b": _QWEN_3_MOE,
        "qwen3-vl-235b-a22b": _QWEN_3_MOE,
        "internvl3.5-8b": Architecture(("InternVLChatModel",)),
        "unlimited-ocr": Architecture(("UnlimitedOCRForCausalLM",)),
        "qianfan-ocr": Architecture(("QianfanOCRForConditionalGeneration",), "qianfan_ocr"),
    }
)


def architecture_of(profile: Profile) -> Architecture | None:
    """What is known of a profile's model; None where nothing is, or the profile is a user's own."""
    return ARCHITECTURES.get(profile.name)
