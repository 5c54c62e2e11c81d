"""Writes a folder with which vLLM serves DeepSeek-OCR's architecture without its weights: `--load-format dummy`.

    python benchmarks/gpu/model.py FOLDER [--layers N] [--experts N]

Nothing is downloaded, and no package is needed. `config.json` holds the values of deepseek-ai/DeepSeek-OCR's own; the
count of parameters that follows from them is that of its weights (3,336,106,240 in 2,710 tensors). The tokenizer is
made here: it has the model's size and its special tokens at their places, and its words are invented. `--layers` and
`--experts` make a smaller one, for a try on a CPU.
"""

import argparse
import itertools
import json
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: `language_config` of the model's config.json, which repeats most of it at its top level; `auto_map`, which names code
#: that vLLM does not need, is left out.
LANGUAGE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",  # vLLM reads it as such; the model's own file leaves it out
    "bos_token_id": 0,
    "eos_token_id": 1,
    "first_k_dense_replace": 1,
    "hidden_size": 1280,
    "intermediate_size": 6848,
    "kv_lora_rank": None,
    "lm_head": True,
    "max_position_embeddings": 8192,
    "moe_intermediate_size": 896,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_attention_heads": 10,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 12,
    "num_key_value_heads": 10,
    "q_lora_rank": None,
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "rm_head": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "use_mla": False,
    "v_head_dim": 0,
    "vocab_size": 129280,
}
#: The rest of config.json. vLLM builds both towers (SAM-B, CLIP-L) with sizes of its own, which are these.
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekOCRForCausalLM"],
    "model_type": "deepseek_vl_v2",
    "torch_dtype": "bfloat16",
    "candidate_resolutions": [[1024, 1024]],
    "global_view_pos": "head",
    "tile_tag": "2D",
    "projector_config": {
        "input_dim": 2048,
        "model_type": "mlp_projector",
        "n_embed": 1280,
        "projector_type": "linear",
    },
    "vision_config": {
        "image_size": 1024,
        "mlp_ratio": 3.7362,
        "model_name": "deeplip_b_l",
        "model_type": "vision",
        "width": {
            "clip-l-14-224": {"heads": 16, "image_size": 224, "layers": 24, "patch_size": 14, "width": 1024},
            "sam_vit_b": {
                "downsample_channels": [512, 1024],
                "global_attn_indexes": [2, 5, 8, 11],
                "heads": 12,
                "layers": 12,
                "width": 768,
            },
        },
    },
}
#: What vLLM's processor for the model reads; tile sizes and their number are vLLM's own (1024, 640, 2 to 6).
PROCESSOR: dict[str, Any] = {
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
#: Parameters of both towers in the model's weights: CLIP-L 303,177,728 and SAM-B 95,569,152.
TOWERS = 303_177_728 + 95_569_152
#: Parameters of all the model's weights.
PARAMETERS = 3_336_106_240

BEGIN, END, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
#: Special tokens at the places that they have in the model's vocabulary.
SPECIAL = {
    0: BEGIN,
    1: END,
    2: PAD,
    128815: "<image>",
    128816: "<|ref|>",
    128817: "<|/ref|>",
    128818: "<|det|>",
    128819: "<|/det|>",
    128820: "<|grounding|>",
    128821: "<td>",
    128822: "</td>",
}
#: Words of the prompts: one token each, as in a trained vocabulary.
PROMPT = "Convert the document to markdown. Free OCR. OCR this image."


def parameters(language: dict[str, Any]) -> int:
    """How many parameters a model with this language part has, towers included."""
    hidden, inner = language["hidden_size"], language["moe_intermediate_size"]
    dense = language["first_k_dense_replace"]
    sparse = language["num_hidden_layers"] - dense
    mixture = 3 * hidden * inner * (language["n_routed_experts"] + language["n_shared_experts"])
    layers = (4 * hidden * hidden + 2 * hidden) * (dense + sparse)
    layers += dense * 3 * hidden * language["intermediate_size"]
    layers += sparse * (mixture + language["n_routed_experts"] * hidden)
    words = 2 * language["vocab_size"] * hidden + hidden  # both embeddings, and the last norm
    projector = CONFIG["projector_config"]["input_dim"] * hidden + hidden + 2 * hidden  # and two separators
    return int(words + layers + projector + TOWERS)


def byte_letters() -> list[str]:
    """The letter that byte-level tokenizers write for each byte: itself where it can be seen, else one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in seen}
    for number, byte in enumerate(byte for byte in range(256) if byte not in letters):
        letters[byte] = chr(256 + number)
    return [letters[byte] for byte in range(256)]


def words() -> Iterator[str]:
    """The words of the prompts, then invented ones of 4 letters, every other one behind a space."""
    space = byte_letters()[32]
    found = re.findall(r" ?[A-Za-z]+|[^\sA-Za-z]", PROMPT)
    yield from dict.fromkeys(word.replace(" ", space) for word in found if len(word) > 1)
    for number, letters in enumerate(itertools.product(string.ascii_lowercase, repeat=4)):
        yield (space if number % 2 else "") + "".join(letters)


def vocabulary(size: int) -> dict[str, int]:
    """As many tokens: special ones at their places, the bytes, words."""
    found = dict.fromkeys(itertools.chain(byte_letters(), words()))
    ordinary = (word for word in found if word not in SPECIAL.values())
    return {SPECIAL.get(number) or next(ordinary): number for number in range(size)}


def tokenizer(size: int) -> dict[str, Any]:
    """tokenizer.json: a byte-level BPE without merges; a word that is in the vocabulary is one token."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": word, **flags} for number, word in SPECIAL.items()],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocabulary(size),
            "merges": [],
        },
    }


def write(folder: Path, *, layers: int, experts: int) -> int:
    """Write the folder's files; returns how many parameters the model has."""
    language = {**LANGUAGE, "num_hidden_layers": layers, "n_routed_experts": experts}
    language["num_experts_per_tok"] = min(LANGUAGE["num_experts_per_tok"], experts)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": language["max_position_embeddings"],
    }
    top = {name: value for name, value in language.items() if name not in ("architectures", "model_type")}
    files = {
        "config.json": {**top, **CONFIG, "language_config": language},
        "processor_config.json": PROCESSOR,
        "tokenizer.json": tokenizer(language["vocab_size"]),
        "tokenizer_config.json": settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return parameters(language)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=LANGUAGE["num_hidden_layers"], metavar="N", help="(default 12)")
    parser.add_argument("--experts", type=int, default=LANGUAGE["n_routed_experts"], metavar="N", help="(default 64)")
    given = parser.parse_args()
    count = write(given.folder, layers=given.layers, experts=given.experts)
    whole = (given.layers, given.experts) == (LANGUAGE["num_hidden_layers"], LANGUAGE["n_routed_experts"])
    if whole and count != PARAMETERS:
        raise SystemExit(f"{count:,} parameters, and DeepSeek-OCR has {PARAMETERS:,}")
    print(f"{given.folder}: {count:,} parameters{'' if whole else ', smaller than DeepSeek-OCR'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
