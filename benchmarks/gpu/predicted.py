"""What the simulator's H200 expects of changes to the server, to be written down before a GPU is tried.

    python benchmarks/gpu/predicted.py [--pages 192]

Pages of 906 prompt tokens and 1,000 output tokens, as in the measured run, all there at once. Virtual time: a second.
"""

import argparse
import math
from dataclasses import replace

from llm_ocr_simulator.engine import H200, Costs, EngineModel, Limits

#: Seconds of the engine's process per token: the n-gram processor of vLLM, measured, and the same rule without tuples.
SLOW, FAST = 36e-6, 1.8e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=192, metavar="N", help="pages to read (default 192)")
    pages = parser.parse_args().pages
    slow = H200.costs()
    fast = replace(slow, engine_token=slow.engine_token - SLOW + FAST)
    without = replace(slow, engine_token=slow.engine_token - SLOW)
    rows = {
        "as measured": (slow, 1, 64, 1),
        "8 renderer workers": (slow, 1, 64, 8),
        "and the fast processor": (fast, 1, 64, 8),
        "and no processor": (without, 1, 64, 8),
        "two engines, slow processor, 1 worker": (slow, 2, 64, 1),
        "two engines, fast processor, 8 workers": (fast, 2, 64, 8),
        "128 sequences, slow processor, 1 worker": (slow, 1, 128, 1),
        "128 sequences, fast processor, 8 workers": (fast, 1, 128, 8),
        "all: two engines, 128 sequences, no processor, 8 workers": (without, 2, 128, 8),
        "three engines, 128 sequences, fast processor, 8 workers": (fast, 3, 128, 8),
    }
    print("| change | output tokens/s | pages/min | GPU busy | engine core busy |\n|---|---|---|---|---|")
    for name, (costs, engines, sequences, workers) in rows.items():
        tokens, gpu, core = predicted(costs, engines, sequences, workers, pages)
        print(f"| {name} | {tokens:,.0f} | {tokens * 60 / 1000:,.0f} | {gpu:.0%} | {core:.0%} |")


def predicted(costs: Costs, engines: int, sequences: int, workers: int, pages: int) -> tuple[float, float, float]:
    """Return tokens per second of all engines, and the busy shares of the GPU and of one engine's core."""
    limits = Limits(sequences, H200.kv_tokens // 16 // engines, renderer_num_workers=workers)
    model = EngineModel(costs.sharing(engines), limits)
    for _ in range(pages // engines):
        model.submit(0.0, 906, 1000)
    model.advance(math.inf)
    return engines * model.generated / model.time, model.gpu_busy, model.core_busy


if __name__ == "__main__":
    main()
