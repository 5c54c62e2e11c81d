"""`vllm bench serve` with the answers' lengths from its file; vLLM's dataset of images has one length for all.

    PYTHON benchmarks/gpu/bench_serve.py bench serve --dataset-name custom_image --dataset-path FILE ...

PYTHON is the interpreter of vLLM. Each row of FILE has `output_tokens` beside `prompt` and `image_files`.
"""

import sys
from typing import Any

from vllm.benchmarks.datasets import CustomDataset
from vllm.entrypoints.cli.main import main


def with_lengths(dataset: type[CustomDataset]) -> None:
    """Let the samples of a dataset have the lengths of their rows, which are in the same order."""
    sample = dataset.sample

    def sampled(self: CustomDataset, *args: Any, **options: Any) -> list[Any]:
        requests = sample(self, *args, **options)
        for request, row in zip(requests, self.data, strict=False):  # as many as were asked for
            request.expected_output_len = int(row["output_tokens"])
        return requests

    dataset.sample = sampled


for images in CustomDataset.__subclasses__():  # its name depends on vLLM's version
    with_lengths(images)
sys.exit(main())
