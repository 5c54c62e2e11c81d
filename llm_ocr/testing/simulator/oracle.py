"""The best that any client could get: all requests there at once, in the same order, on a virtual clock."""

import math
from collections.abc import Sequence as List
from dataclasses import dataclass

from llm_ocr.testing.simulator.engine import EngineModel
from llm_ocr.testing.simulator.presets import Preset
from llm_ocr.testing.simulator.sequence import Limits
from llm_ocr.testing.simulator.timing import Costs


@dataclass(frozen=True, slots=True)
class Work:
    """What of a request costs time: tokens of its prompt and its answer, and its images."""

    prompt: int
    output: int
    images: int = 1


def ends(requests: List[Work], costs: Costs, limits: Limits) -> list[float]:
    """When each request ends, in seconds from a start at which all of them are there in this order."""
    model = EngineModel(costs, limits)
    sequences = [model.submit(0.0, one.prompt, one.output, one.images) for one in requests]
    model.advance(math.inf)
    return [sequence.end or 0.0 for sequence in sequences]


def makespan(requests: List[Work], preset: Preset, max_num_seqs: int, *, speed: float = 1.0) -> float:
    """Seconds from the start to the last end on `preset` with `max_num_seqs` slots."""
    limits = Limits(max_num_seqs, preset.kv_tokens // 16)
    return max(ends(requests, preset.costs().faster(speed), limits), default=0.0)
