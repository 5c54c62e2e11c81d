"""A run without the model's logits processor in vLLM."""

import pytest

from llm_ocr.config.models import ExtractSettings
from llm_ocr.errors import UsageError
from llm_ocr.stages.model_choice import model_choice


def choice(**settings):
    return model_choice(ExtractSettings(sources=["a.pdf"], workspace="w", **settings)).profile


def test_without_it_neither_server_nor_request_has_it():
    with_it, without = choice(), choice(ngram_processor=False)
    assert "--logits-processors" in with_it.server_args and "vllm_xargs" in with_it.page_settings
    assert "NGram" not in str(without.server_args) and without.page_settings == {}
    assert len(without.server_args) == len(with_it.server_args) - 2


def test_a_model_without_one_refuses_the_setting():
    with pytest.raises(UsageError, match="no effect"):
        choice(model="qwen3-vl", ngram_processor=False)
