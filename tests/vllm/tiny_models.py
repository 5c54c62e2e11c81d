"""Makes tiny models with random weights: `python tiny_models.py FOLDER`, with the environment of vLLM.

Nothing is downloaded. `deepseek-ocr` is a configuration and a tokenizer for `--load-format dummy`; `qwen3-vl` has
weights on disk. What they write is noise: tests that need a certain answer ask for it by `structured_outputs`.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

#: What the tokenizers are trained on, so that text of a page costs about as many tokens as it has words.
_TEXT = (
    "the of and to in a is that for it as was with be by on not are this have from page table figure title text",
    "caption header footer list number invoice total image equation lorem ipsum dolor sit amet consectetur elit",
    "<|ref|>sub_title<|/ref|><|det|>[[48, 120, 951, 999]]<|/det|>\n## Results\n\n",
    "<table><tr><td>1</td><td>2</td></tr></table>\n| a | b |\n|---|---|\n",
    '{"type": "chart", "description": "", "data": []} 0 1 2 3 4 5 6 7 8 9',
)
_VOCABULARY = 1024

#: The head size of the text models. Smaller ones than 32 have not been tried with vLLM's attention on CPUs.
_HIDDEN, _HEADS, _LAYERS = 64, 2, 2


def _tokenizer(specials: list[str], begin: str | None, end: str, pad: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXT * 8, trainer)
    others = [word for word in specials if word not in (begin, end, pad)]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=begin,
        eos_token=end,
        pad_token=pad,
        additional_special_tokens=others,
        clean_up_tokenization_spaces=False,
    )


_DEEPSEEK_WORDS = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<image>", "<|ref|>", "<|/ref|>"]
_DEEPSEEK_WORDS += ["<|det|>", "<|/det|>", "<|grounding|>", "<td>", "</td>"]


def _deepseek_language(vocabulary: int) -> dict[str, object]:
    return {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "first_k_dense_replace": 1,
        "hidden_size": _HIDDEN,
        "intermediate_size": 128,
        "kv_lora_rank": None,
        "lm_head": True,
        "max_position_embeddings": 8192,
        "moe_intermediate_size": 64,
        "n_group": 1,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_attention_heads": _HEADS,
        "num_experts_per_tok": 2,
        "num_hidden_layers": _LAYERS,
        "num_key_value_heads": _HEADS,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "rm_head": False,
        "topk_group": 1,
        "topk_method": "greedy",
        "torch_dtype": "bfloat16",
        "use_mla": False,
        "v_head_dim": 0,
        "vocab_size": vocabulary,
    }


def deepseek_ocr(folder: Path) -> None:
    """The class that serves deepseek-ai/DeepSeek-OCR, with a tiny language model."""
    tokenizer = _tokenizer(_DEEPSEEK_WORDS, *_DEEPSEEK_WORDS[:3])
    tokenizer.save_pretrained(folder)
    model = {
        "architectures": ["DeepseekOCRForCausalLM"],
        "model_type": "deepseek_vl_v2",
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tile_tag": "2D",
        "global_view_pos": "head",
        "candidate_resolutions": [[1024, 1024]],
        "language_config": _deepseek_language(len(tokenizer)),
        "projector_config": {
            "input_dim": 2048,
            "model_type": "mlp_projector",
            "n_embed": _HIDDEN,
            "projector_type": "linear",
        },
        "vision_config": {"image_size": 1024, "mlp_ratio": 4, "model_name": "deeplip_b_l", "model_type": "vision"},
    }
    processor = {
        "processor_class": "DeepseekVLV2Processor",
        "add_special_token": False,
        "candidate_resolutions": [[1024, 1024]],
        "downsample_ratio": 4,
        "ignore_id": -100,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "image_token": "<image>",
        "mask_prompt": False,
        "normalize": True,
        "pad_token": "<｜▁pad▁｜>",
        "patch_size": 16,
        "sft_format": "deepseek",
    }
    (folder / "config.json").write_text(json.dumps(model, indent=1))
    (folder / "processor_config.json").write_text(json.dumps(processor, indent=1))


_QWEN_WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"]
_QWEN_WORDS += ["<|image_pad|>", "<|video_pad|>"]
_QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
#: An image costs 4 to 256 tokens.
_QWEN_PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
_QWEN_PATCH = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}


def _qwen_config(tokenizer: PreTrainedTokenizerFast):
    from transformers import Qwen3VLConfig

    number = tokenizer.convert_tokens_to_ids
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": _HIDDEN,
        "intermediate_size": 128,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": _HIDDEN // _HEADS,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
    }
    vision = {
        "depth": 2,
        "hidden_size": _HIDDEN,
        "out_hidden_size": _HIDDEN,
        "intermediate_size": 128,
        "num_heads": _HEADS,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [0],
    }
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=False,
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
    )
    config.dtype = "bfloat16"
    return config


def qwen3_vl(folder: Path) -> None:
    """The class of Qwen3-VL, with random weights on disk."""
    import torch
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    torch.manual_seed(0)
    tokenizer = _tokenizer(_QWEN_WORDS, None, "<|im_end|>", "<|endoftext|>")
    Qwen3VLForConditionalGeneration(_qwen_config(tokenizer)).to(torch.bfloat16).eval().save_pretrained(folder)
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=_QWEN_PIXELS, **_QWEN_PATCH),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(size=_QWEN_PIXELS, **_QWEN_PATCH),
        chat_template=_QWEN_TEMPLATE,
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(_QWEN_TEMPLATE)


if __name__ == "__main__":
    for name, action in (("deepseek-ocr", deepseek_ocr), ("qwen3-vl", qwen3_vl)):
        target = Path(sys.argv[1]) / name
        target.mkdir(parents=True, exist_ok=True)
        action(target)
