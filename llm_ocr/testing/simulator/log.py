"""What happened to every request, and what the oracle makes of the same requests."""

from dataclasses import dataclass
from typing import Any

from llm_ocr.testing.simulator import oracle
from llm_ocr.testing.simulator.engine import EngineModel
from llm_ocr.testing.simulator.sequence import Sequence


@dataclass(eq=False, slots=True)
class Entry:
    """One request. Times in seconds since the server's start; `asked` counts how often its image was asked before."""

    image: str
    asked: int
    arrival: float
    fault: str = ""
    status: int = 0  # of the HTTP answer; 0: none
    finish: str = ""  # stop, length, abort, or error
    temperature: float = 0.0
    end: float | None = None
    produced: int = 0  # tokens that were made
    sequence: Sequence | None = None  # None: it never reached the engine

    def as_json(self, oracle_end: float | None) -> dict[str, Any]:
        """For the log; times None where the request never came so far."""
        own = self.sequence
        return {
            "image": self.image,
            "asked": self.asked,
            "arrival": self.arrival,
            "queued": own.queued if own else None,
            "admitted": own.admitted if own else None,
            "first_token": own.first if own else None,
            "end": self.end,
            "prompt_tokens": own.prompt if own else 0,
            "output_tokens": self.produced,
            "preemptions": own.preemptions if own else 0,
            "temperature": self.temperature,
            "fault": self.fault,
            "status": self.status,
            "finish": self.finish,
            "oracle_end": oracle_end,
        }


def log_json(entries: list[Entry], model: EngineModel) -> dict[str, Any]:
    """All requests in order of arrival, beside measured and oracle makespan of those that made tokens and have ended.

    The oracle takes them in the order in which they reached the engine.
    """
    worked = [(one.sequence, one) for one in entries if one.sequence and one.produced and one.end is not None]
    worked.sort(key=lambda pair: pair[0].number)
    work = [oracle.Work(own.prompt, one.produced, own.images) for own, one in worked]
    ideal = oracle.ends(work, model.costs, model.limits)
    by_entry = {id(one): end for (_, one), end in zip(worked, ideal, strict=True)}
    starts, ends = [one.arrival for _, one in worked], [one.end or 0.0 for _, one in worked]
    measured = max(ends, default=0.0) - min(starts, default=0.0)
    best = max(ideal, default=0.0)
    return {
        "requests": [one.as_json(by_entry.get(id(one))) for one in entries],
        "measured": measured,
        "oracle": best,
        "overhead": measured / best - 1 if best else 0.0,
        "generated_tokens": model.generated,
        "preemptions": model.preemptions,
    }
