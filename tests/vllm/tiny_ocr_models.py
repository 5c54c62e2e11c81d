"""Makes tiny models of the classes that serve dots.ocr, GLM-OCR and PaddleOCR-VL: `python tiny_ocr_models.py FOLDER`.

Configurations, tokenizers and processors only, for `--load-format dummy`: special tokens, chat templates and the order
of a prompt's parts are those of the real models, sizes are not. Nothing is downloaded.
"""

import json
import sys
from pathlib import Path

from tiny_models import _tokenizer

#: An image costs at most 256 tokens.
_PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
_NORMAL = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_HIDDEN, _HEADS, _LAYERS = 64, 2, 2
_TEXT = {
    "hidden_size": _HIDDEN,
    "intermediate_size": 128,
    "num_attention_heads": _HEADS,
    "num_hidden_layers": _LAYERS,
    "num_key_value_heads": _HEADS,
    "head_dim": _HIDDEN // _HEADS,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}

_DOTS_WORDS = ["<|endoftext|>", "<|user|>", "<|endofuser|>", "<|assistant|>", "<|endofassistant|>", "<|system|>"]
_DOTS_WORDS += ["<|endofsystem|>", "<|img|>", "<|imgpad|>", "<|endofimg|>", "<|video_pad|>"]
# The template of dots.ocr takes strings: vLLM joins the parts of a message for it.
_DOTS_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}<|system|>{{ message['content'] }}<|endofsystem|>\n"
    "{% elif message['role'] == 'user' %}<|user|>{{ message['content'] }}<|endofuser|>"
    "{% else %}<|assistant|>{{ message['content'] }}<|endofassistant|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_DOTS_CODE = "from vllm.transformers_utils.configs.dotsocr import DotsOCRConfig\n\n__all__ = ['DotsOCRConfig']\n"


def dots_ocr(folder: Path) -> None:
    """The class of rednote-hilab/dots.ocr."""
    from transformers import Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    tokenizer = _tokenizer(_DOTS_WORDS, None, "<|endofassistant|>", "<|endoftext|>")
    patches = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 1, "size": _PIXELS, **_NORMAL}
    tokenizer.image_token, tokenizer.video_token = "<|imgpad|>", "<|video_pad|>"
    number = tokenizer.convert_tokens_to_ids
    config = {
        **_TEXT,
        "architectures": ["DotsOCRForCausalLM"],
        "auto_map": {"AutoConfig": "configuration_dots.DotsOCRConfig"},
        "model_type": "dots_ocr",
        "torch_dtype": "bfloat16",
        "attention_bias": True,
        "vocab_size": len(tokenizer),
        "eos_token_id": number("<|endofassistant|>"),
        "pad_token_id": number("<|endoftext|>"),
        "image_token_id": number("<|imgpad|>"),
        "video_token_id": number("<|video_pad|>"),
        "rope_theta": 1000000,
        "vision_config": {
            "embed_dim": _HIDDEN,
            "hidden_size": _HIDDEN,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": _HEADS,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 1,
        },
    }
    Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(**patches),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**patches),
        chat_template=_DOTS_TEMPLATE,
    ).save_pretrained(folder)
    _write(folder, tokenizer, config, _DOTS_TEMPLATE)
    # The real model brings its configuration as code of its own: that is what `--trust-remote-code` is for.
    (folder / "configuration_dots.py").write_text(_DOTS_CODE)


_GLM_WORDS = ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|begin_of_image|>"]
_GLM_WORDS += ["<|image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|video|>", "<|end_of_video|>"]
_GLM_TEMPLATE = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message['role'] }}|>\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}<|begin_of_image|><|image|><|end_of_image|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def glm_ocr(folder: Path) -> None:
    """The class of zai-org/GLM-OCR, with the layer that predicts several tokens at once."""
    from transformers import Glm46VImageProcessor, Glm46VProcessor, Glm46VVideoProcessor

    tokenizer = _tokenizer(_GLM_WORDS, None, "<|endoftext|>", "<|endoftext|>")
    number = tokenizer.convert_tokens_to_ids
    config = {
        "architectures": ["GlmOcrForConditionalGeneration"],
        "model_type": "glm_ocr",
        "torch_dtype": "bfloat16",
        "image_token_id": number("<|image|>"),
        "video_token_id": number("<|video|>"),
        "image_start_token_id": number("<|begin_of_image|>"),
        "image_end_token_id": number("<|end_of_image|>"),
        "video_start_token_id": number("<|begin_of_video|>"),
        "video_end_token_id": number("<|end_of_video|>"),
        "tie_word_embeddings": False,
        "text_config": {
            **_TEXT,
            "model_type": "glm_ocr_text",
            "vocab_size": len(tokenizer),
            "eos_token_id": [number("<|endoftext|>"), number("<|user|>")],
            "pad_token_id": number("<|endoftext|>"),
            "num_nextn_predict_layers": 1,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000,
                "mrope_section": [4, 6, 6],
                "partial_rotary_factor": 1.0,
            },
        },
        "vision_config": {
            "model_type": "glm_ocr_vision",
            "depth": 1,
            "hidden_size": _HIDDEN,
            "intermediate_size": 128,
            "num_heads": _HEADS,
            "out_hidden_size": _HIDDEN,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    }
    patches = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "size": _PIXELS, **_NORMAL}
    Glm46VProcessor(
        image_processor=Glm46VImageProcessor(**patches),
        tokenizer=tokenizer,
        video_processor=Glm46VVideoProcessor(**patches),
        chat_template=_GLM_TEMPLATE,
    ).save_pretrained(folder)
    _write(folder, tokenizer, config, _GLM_TEMPLATE)


_PADDLE_WORDS = ["<unk>", "<s>", "</s>", "<|begin_of_sentence|>", "<|end_of_sentence|>", "<|IMAGE_START|>"]
_PADDLE_WORDS += ["<|IMAGE_PLACEHOLDER|>", "<|IMAGE_END|>", "<|video_pad|>"]
_PADDLE_TEMPLATE = (
    "<|begin_of_sentence|>{% for message in messages %}"
    "{% if message['role'] == 'user' %}User: {% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{% endif %}"
    "{% endfor %}{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}\n{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:\n{% endif %}"
)


def paddleocr_vl(folder: Path) -> None:
    """The class of PaddlePaddle/PaddleOCR-VL and of the later ones, with the processor that transformers brings."""
    from transformers import PaddleOCRVLImageProcessor, PaddleOCRVLProcessor

    tokenizer = _tokenizer(_PADDLE_WORDS, "<s>", "</s>", "<unk>")
    tokenizer._set_model_specific_special_tokens({"image_token": "<|IMAGE_PLACEHOLDER|>"})
    number = tokenizer.convert_tokens_to_ids
    config = {
        "architectures": ["PaddleOCRVLForConditionalGeneration"],
        "model_type": "paddleocr_vl",
        "torch_dtype": "bfloat16",
        "image_token_id": number("<|IMAGE_PLACEHOLDER|>"),
        "video_token_id": number("<|video_pad|>"),
        "vision_start_token_id": number("<|IMAGE_START|>"),
        "vision_end_token_id": number("<|IMAGE_END|>"),
        "tie_word_embeddings": False,
        "text_config": {
            **_TEXT,
            "model_type": "paddleocr_vl_text",
            "vocab_size": len(tokenizer),
            "bos_token_id": number("<s>"),
            "eos_token_id": number("</s>"),
            "pad_token_id": number("<unk>"),
            "use_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [4, 6, 6]},
        },
        "vision_config": {
            "model_type": "paddleocr_vl_vision",
            "hidden_size": _HIDDEN,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": _HEADS,
            "image_size": 56,
            "patch_size": 14,
            "spatial_merge_size": 2,
        },
    }
    patches = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 1, "size": _PIXELS, **_NORMAL}
    PaddleOCRVLProcessor(
        image_processor=PaddleOCRVLImageProcessor(**patches), tokenizer=tokenizer, chat_template=_PADDLE_TEMPLATE
    ).save_pretrained(folder)
    _write(folder, tokenizer, config, _PADDLE_TEMPLATE)


def _write(folder: Path, tokenizer, config: dict, template: str) -> None:
    """The rest of a model's folder. The processor wrote a tokenizer too; this one knows the token of images."""
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "chat_template.jinja").write_text(template)


if __name__ == "__main__":
    for name, action in (("dots-ocr", dots_ocr), ("glm-ocr", glm_ocr), ("paddleocr-vl", paddleocr_vl)):
        target = Path(sys.argv[1]) / name
        target.mkdir(parents=True, exist_ok=True)
        action(target)
