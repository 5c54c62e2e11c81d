"""After the device ran out of memory: what is tried with less, and when to give up."""

from dataclasses import replace

from llm_ocr.engines.vllm.command import Limits

#: vLLM's defaults on most GPUs: 256 sequences, and 2,048 tokens in one step.
_SEQUENCES, _TOKENS = 256, 2048
#: Below these a server is too slow to be worth it, and a page's image no longer fits into one step.
_FEWEST_SEQUENCES, _FEWEST_TOKENS = 8, 1024
STEPS = 6  # at most, over the life of a server


def lowered(limits: Limits, sequences: int | None, tokens: int | None, step: int) -> Limits | None:
    """The limits of the next try, the `step`-th from 0: sequences and batched tokens halved by turns.

    `sequences` and `tokens` are what the server used until now, None where it is not known. None when nothing is left
    to lower.
    """
    if step >= STEPS:
        return None
    fewer = (limits.max_num_seqs or sequences or _SEQUENCES) // 2
    smaller = (limits.max_num_batched_tokens or tokens or _TOKENS) // 2
    by_turns = [
        replace(limits, max_num_seqs=fewer) if fewer >= _FEWEST_SEQUENCES else None,
        replace(limits, max_num_batched_tokens=smaller) if smaller >= _FEWEST_TOKENS else None,
    ]
    first, second = by_turns if step % 2 == 0 else by_turns[::-1]
    return first or second


def described(limits: Limits) -> str:
    """`--max-num-seqs 128`, for messages."""
    parts = []
    if limits.max_num_seqs:
        parts.append(f"--max-num-seqs {limits.max_num_seqs}")
    if limits.max_num_batched_tokens:
        parts.append(f"--max-num-batched-tokens {limits.max_num_batched_tokens}")
    return " ".join(parts)
