"""A plugin of vLLM, for tests: makes the vision towers of DeepSeek-OCR small.

vLLM builds that model's SAM and CLIP towers with sizes of its own, whatever config.json says; on a CPU an image then
takes seconds. Image processing, image tokens, tiling, scheduling and the API stay those of the real model.
"""

import functools

_TOWER = {"encoder_embed_dim": 32, "encoder_depth": 1, "encoder_num_heads": 1, "encoder_global_attn_indexes": []}


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.model_executor.models import deepencoder, deepseek_ocr

    clip = deepseek_ocr.CLIPVisionConfig
    if isinstance(clip, functools.partial):  # vLLM may call a plugin twice
        return
    deepseek_ocr.build_sam_vit_b = functools.partial(deepencoder._build_sam, **_TOWER)
    deepseek_ocr.CLIPVisionConfig = functools.partial(_small_clip, clip)


def _small_clip(real, **settings):
    return real(**{**settings, "num_hidden_layers": 1, "intermediate_size": 64})
