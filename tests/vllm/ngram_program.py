"""Compares our n-gram processor with vLLM's own; runs in the environment of vLLM. Prints what differs, and times."""

import random
import sys
import time

import torch
from llm_ocr_ngram import NoRepeatNgram
from vllm import SamplingParams
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.v1.sample.logits_processor import BatchUpdate

WORDS = 40  # tokens of the vocabulary: few, so that n-grams recur
CPU = torch.device("cpu")


def answer(rng: random.Random, length: int) -> list[int]:
    """Tokens that loop, loop with faults, or are random."""
    unit = [rng.randrange(WORDS) for _ in range(rng.randint(1, 12))]
    fault = rng.choice((0.0, 0.0, 0.02, 0.3, 1.0))
    return [rng.randrange(WORDS) if rng.random() < fault else unit[i % len(unit)] for i in range(length)]


def parameters(rng: random.Random) -> dict[str, object] | None:
    size = rng.choice((1, 2, 3, 5, 8, 30))
    arguments: dict[str, object] = {"ngram_size": size, "window_size": rng.choice((size, 20, 90, 500))}
    if rng.random() < 0.5:
        arguments["whitelist_token_ids"] = rng.sample(range(WORDS), 3)
    return arguments if rng.random() < 0.9 else None


def batches(rng: random.Random, count: int) -> int:
    """Batches of requests that come, grow, and go; returns the number of rows whose logits differ."""
    wrong = 0
    for _ in range(count):
        ours, theirs = NoRepeatNgram(None, CPU, False), NGramPerReqLogitsProcessor(None, CPU, False)
        requests = [
            (row, SamplingParams(extra_args=parameters(rng)), [], answer(rng, rng.randint(0, 120)))
            for row in range(rng.randint(1, 6))
        ]
        update = BatchUpdate(batch_size=len(requests), removed=[], added=requests, moved=[])
        for processor in (ours, theirs):
            processor.update_state(update)
        for _ in range(5):
            logits = torch.randn(len(requests), WORDS)
            wrong += int((ours.apply(logits.clone()) != theirs.apply(logits.clone())).any(dim=1).sum())
            for *_, output in requests:
                output.append(rng.choice(output[-8:] or [0]))
    return wrong


def microseconds(processor: object, output: list[int]) -> float:
    """Processor time per token."""
    params = SamplingParams(extra_args={"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128821, 128822]})
    processor.update_state(
        BatchUpdate(batch_size=64, removed=[], added=[(row, params, [], list(output)) for row in range(64)], moved=[])
    )
    logits = torch.zeros(64, 129_280)
    began = time.process_time()
    for _ in range(20):
        processor.apply(logits)
    return (time.process_time() - began) / 20 / 64 * 1e6


if __name__ == "__main__":
    torch.set_num_threads(1)
    rng = random.Random(int(sys.argv[1]))
    print("differences", batches(rng, int(sys.argv[2])))
    texts = {
        "text": [rng.randrange(2_000) for _ in range(600)],
        "prose": [int(rng.paretovariate(0.7)) % 2_000 for _ in range(600)],
        "loop": ([5, 6, 7, 8] * 200)[:600],
    }
    for name, output in texts.items():
        slow, fast = (
            microseconds(make(None, CPU, False), output) for make in (NGramPerReqLogitsProcessor, NoRepeatNgram)
        )
        print(f"{name}: vLLM {slow:.1f} us, ours {fast:.1f} us per token")
