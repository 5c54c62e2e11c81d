"""Forbid repeated n-grams in vLLM's engine process, at a cost of microseconds per token.

This file is loaded by vLLM, not by llm_ocr: `--logits-processors llm_ocr_ngram:NoRepeatNgram`, with its folder on the
server's PYTHONPATH. It imports nothing of llm_ocr, which may be missing in the server's environment.

The rule and its parameters are those of vLLM's `NGramPerReqLogitsProcessor` (model_executor/models/deepseek_ocr.py):
`vllm_xargs` of a request contains `ngram_size` (n), `window_size` (tokens, default 100), and `whitelist_token_ids`. A
token is forbidden if it would complete an n-gram that begins in the window. vLLM's class compares all n-grams of the
window as new tuples and changes the logits of each request with an operation of its own. This class compares only where
the last token recurs, and changes the logits of all requests with one operation.
"""

from collections.abc import Sequence

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class RepeatedNgrams:
    """The n-grams of one request. `output` is vLLM's list of the answer's tokens, which grows."""

    def __init__(self, size: int, window: int, allowed: Sequence[int], output: list[int]) -> None:
        self.size = size
        self.window = window
        self.allowed = frozenset(allowed)
        self.output = output

    def forbidden(self) -> set[int]:
        """Return the tokens that would complete an n-gram of the window."""
        output, size = self.output, self.size
        length = len(output)
        if length < size or size == 1:  # vLLM's class forbids nothing with a size of 1
            return set()
        last, before = output[-1], output[1 - size : -1]
        # Position of the last token of the first n-gram's beginning.
        position = max(0, length - self.window) + size - 2
        end = length - 1
        tokens: set[int] = set()
        while True:
            try:
                position = output.index(last, position, end)
            except ValueError:
                return tokens - self.allowed
            if output[position - size + 2 : position] == before:
                tokens.add(output[position + 1])
            position += 1


class NoRepeatNgram(LogitsProcessor):
    """Logits processor for `--logits-processors`; see the module's docstring."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Raise `ValueError` for invalid values in `vllm_xargs`; vLLM answers the request with status 400."""
        _parameters(sampling_params)

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        """Create the processor of one engine."""
        self._requests: dict[int, RepeatedNgrams] = {}
        self._device = device
        self._pinned = is_pin_memory
        self._never = torch.tensor(-float("inf"), device=device)

    def is_argmax_invariant(self) -> bool:
        """Return False: the most likely token may be forbidden."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests of the batch."""
        process_dict_updates(self._requests, batch_update, _ngrams)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Set the logits of forbidden tokens to minus infinity. `logits` has a row per request."""
        rows: list[int] = []
        tokens: list[int] = []
        for row, ngrams in self._requests.items():
            for token in ngrams.forbidden():
                rows.append(row)
                tokens.append(token)
        if rows:
            places = torch.tensor((rows, tokens), pin_memory=self._pinned).to(self._device, non_blocking=True)
            logits.index_put_((places[0], places[1]), self._never.to(logits.dtype))
        return logits


def _parameters(params: SamplingParams) -> tuple[int, int, Sequence[int]] | None:
    """Return n-gram size, window, and allowed tokens of a request; None for a request without them."""
    given = params.extra_args or {}
    size, window = given.get("ngram_size"), given.get("window_size", 100)
    allowed = given.get("whitelist_token_ids") or ()
    if size is None:
        return None
    for name, value in (("ngram_size", size), ("window_size", window)):
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"`{name}` has to be a strictly positive integer, got {value}.")
    if isinstance(allowed, str) or not all(isinstance(token, int) for token in allowed):
        raise ValueError(f"`whitelist_token_ids` has to be a sequence of integers, got {allowed}.")
    return size, window, allowed


def _ngrams(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> RepeatedNgrams | None:
    found = _parameters(params)
    return RepeatedNgrams(*found, output) if found else None
