"""Judge what limited a run, from the gauges of its servers and the processor times of its processes.

A tick is a `Sample` of a worker. Each tick matches the first of the numbered `RULES` that applies. The cause with the
most seconds is the verdict. A rule applies only to known values: a server of another machine shows its gauges alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from llm_ocr.types import plural
from llm_ocr.workspace.metrics import GAUGES, Sample

#: Share of the window from which it counts as full: requests in transfer are missing from a full window.
FULL = 0.85
#: Share of a core from which one Python thread is a limit. A loop that also waits for messages stays below 100 %: on
#: one H200, EngineCore and the API server had 1.02 to 1.25 cores while the GPU was 38 % busy.
BUSY_CORE = 0.9
#: Share of a core from which renderers limit: they also wait for the next page between two pages.
BUSY_RENDERERS = 0.7
#: GPU utilization from which the GPU limits: NVML counts the time with any kernel, and steps have gaps.
BUSY_GPU = 0.85
#: Use of the KV cache from which it limits: vLLM keeps some blocks free, and preempts soon after.
FULL_KV = 0.9
#: Share of the requests in flight that are in neither gauge, from which the intake limits. The window keeps a queue of
#: 1/16 to 1/8 of the running requests; requests in transfer are few.
UNSEEN = 0.2
#: Queue, as a share of the running requests, up to which the engine counts as starved: the shortest useful queue.
STARVED = 1 / 16
#: Share of the maximum sequences from which they limit: a finished request frees its place for a moment.
PINNED = 0.95
#: Share of the ticks with a queue in which the running requests are at their highest, so that this is a limit.
CEILING = 0.8
#: Share of the time in which pages wait for the user's limits, from which these limit.
CAPPED = 0.5
#: Seconds of ticks without which there is no verdict.
SHORTEST = 10.0


class Cause(StrEnum):
    """Part of a run that limits its speed."""

    SOURCE = "source"
    RENDERING = "rendering"
    CLIENT = "client"
    INTAKE = "server intake"
    CORE = "engine core"
    GPU = "GPU"
    KV = "KV memory"
    SEQUENCES = "parallel sequences"
    ENGINE = "engine core or GPU"
    CAPS = "settings"
    UNKNOWN = "unknown"


def _below(value: float | None, most: float) -> bool:
    return value is not None and value < most


def _at_least(value: float | None, least: float) -> bool:
    return value is not None and value >= least


def _full(tick: Sample) -> bool:
    return (tick.in_flight or 0.0) >= FULL * (tick.window or 0.0)


def _unseen(tick: Sample) -> float:
    """Return the requests in flight that are in neither gauge: in preprocessing or in transfer."""
    return (tick.in_flight or 0.0) - (tick.running or 0.0) - (tick.waiting or 0.0)


def _hungry(tick: Sample) -> bool:
    """Return whether the window has free places for which no request is ready."""
    return not _full(tick) and (tick.queued or 0.0) < 1


def _capped(tick: Sample) -> bool:
    """Return whether the window has free places because the user limits the work in progress."""
    return _hungry(tick) and (tick.capped or 0.0) >= CAPPED


def _queued(tick: Sample) -> bool:
    """Return whether the server's queue is never empty."""
    return (tick.waiting or 0.0) > STARVED * (tick.running or 0.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule: its cause, the condition on a tick, and the text about the mean of its ticks, with the setting to change.

    The setting is "" if no setting helps.
    """

    cause: Cause
    applies: Callable[[Sample], bool]
    facts: Callable[[Sample], str]
    setting: Callable[[Sample], str] = lambda _: ""


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.0f} %"


def _in_window(mean: Sample) -> str:
    return f"{mean.in_flight or 0.0:.0f} of {mean.window or 0.0:.0f} requests in flight"


def _ours(mean: Sample, argument: str) -> str:
    """Return how to pass an argument to vLLM: by this program if it starts the server."""
    if mean.engine_cores is None:
        return f"start vLLM with {argument}"
    return f"`vllm_arg={argument.replace(' ', '=', 1)}`"


def _kv(mean: Sample) -> float:
    return (mean.kv_usage or 0.0) / max(1.0, mean.servers or 1.0)


#: Numbers of the rules about a window with free places. The others are of a full window.
FREE = frozenset({1, 2, 3, 4, 13})
#: Rules in order; the number of a rule is its place, from 1.
RULES: tuple[Rule, ...] = (
    Rule(
        Cause.CLIENT,
        lambda tick: _hungry(tick) and _at_least(tick.client_cores, BUSY_CORE),
        lambda mean: f"{_in_window(mean)}, this process at {_percent(mean.client_cores)} of a core",
        lambda _: "start a second worker with the same command",
    ),
    Rule(
        Cause.RENDERING,
        lambda tick: _hungry(tick) and _at_least(tick.renderer_cores, BUSY_RENDERERS),
        lambda mean: f"{_in_window(mean)}, renderers {_percent(mean.renderer_cores)} busy",
        lambda _: "more `render_workers`, on a machine with more cores",
    ),
    Rule(
        Cause.SOURCE,
        lambda tick: (
            _hungry(tick)
            and not _capped(tick)
            and (_below(tick.renderer_cores, BUSY_RENDERERS) or not tick.bytes_waiting)
        ),
        lambda mean: f"{_in_window(mean)}, renderers {_percent(mean.renderer_cores)} busy",
        lambda _: "read the documents from a nearer store",
    ),
    Rule(
        Cause.UNKNOWN,
        lambda tick: _hungry(tick) and not _capped(tick),
        lambda mean: f"{_in_window(mean)}: source or rendering, because processor times are not known here",
    ),
    Rule(
        Cause.GPU,
        lambda tick: _full(tick) and _at_least(tick.gpu, BUSY_GPU),
        lambda mean: f"GPU {_percent(mean.gpu)} busy",
        lambda _: "more GPUs",
    ),
    Rule(
        Cause.KV,
        lambda tick: _full(tick) and tick.running is not None and _kv(tick) >= FULL_KV,
        lambda mean: f"KV cache {_percent(_kv(mean))} full",
        lambda mean: (
            "start vLLM with a higher --gpu-memory-utilization"
            if mean.engine_cores is None
            else "a higher `gpu_memory_utilization`"
        ),
    ),
    Rule(
        Cause.INTAKE,
        lambda tick: (
            _full(tick)
            and tick.running is not None
            and not _queued(tick)
            and _unseen(tick) > UNSEEN * (tick.in_flight or 0.0)
            and not _below(tick.intake_cores, BUSY_CORE)
        ),
        lambda mean: (
            f"{_unseen(mean):.0f} of {mean.in_flight or 0.0:.0f} requests have not reached the engine"
            + ("" if mean.intake_cores is None else f", API server at {_percent(mean.intake_cores)} of a core")
        ),
        lambda mean: _ours(mean, "--renderer-num-workers N") + ", with a higher N than now",
    ),
    Rule(
        Cause.CLIENT,
        lambda tick: (
            _full(tick)
            and (tick.queued or 0.0) >= 1
            and tick.running is not None
            and not _queued(tick)
            and 0 <= _unseen(tick) <= UNSEEN * (tick.in_flight or 0.0)
            and not _at_least(tick.running / (tick.max_num_seqs or float("inf")), PINNED)
        ),
        lambda mean: f"{_in_window(mean)}, all of them running and none waiting",
        lambda _: "a higher `max_inflight_requests`, if it is set",
    ),
    Rule(
        Cause.CORE,
        lambda tick: _full(tick) and _at_least(tick.engine_cores, BUSY_CORE) and _below(tick.gpu, BUSY_GPU),
        lambda mean: f"GPU {_percent(mean.gpu)} busy, engine core at {_percent(mean.engine_cores)} of a core",
        lambda _: "`replicas_per_gpu=2`",
    ),
    Rule(
        Cause.SEQUENCES,
        lambda tick: (
            _full(tick) and tick.max_num_seqs is not None and (tick.running or 0.0) >= PINNED * tick.max_num_seqs
        ),
        lambda mean: f"running pinned at {mean.running or 0.0:.0f} of {mean.max_num_seqs or 0.0:.0f}",
        lambda mean: _ours(
            mean, f"--max-num-seqs {2 * round((mean.max_num_seqs or 0.0) / max(1.0, mean.servers or 1.0))}"
        ),
    ),
    # EngineCore waits for the GPU in a loop: without the use of the GPU, its processor time proves nothing.
    Rule(
        Cause.ENGINE,
        lambda tick: _full(tick) and tick.max_num_seqs is not None and _queued(tick) and tick.gpu is None,
        lambda mean: (
            f"{mean.running or 0.0:.0f} of {mean.max_num_seqs or 0.0:.0f} running, {mean.waiting or 0.0:.0f} waiting, "
            f"KV cache {_percent(_kv(mean))} full; the use of the GPU is not known here"
        ),
    ),
    Rule(
        Cause.UNKNOWN,
        lambda tick: not _capped(tick),
        lambda mean: f"{_in_window(mean)}" + ("; the server has no gauges" if mean.running is None else ""),
    ),
    # Last, because workers of earlier versions have stored the numbers of the rules.
    Rule(
        Cause.CAPS,
        _capped,
        lambda mean: f"{_in_window(mean)}, and pages wait for the limits on work in progress",
        lambda _: "a higher `workers`, `max_concurrent_documents`, or `max_page_concurrency`, whichever is set",
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict: seconds by number of rule, and the text of the strongest rule of the strongest cause."""

    seconds: Mapping[int, float]
    text: str = ""

    @property
    def causes(self) -> Mapping[Cause, float]:
        """Seconds by cause, the most first."""
        sums: dict[Cause, float] = {}
        for number, seconds in self.seconds.items():
            cause = RULES[number - 1].cause
            sums[cause] = sums.get(cause, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda entry: -entry[1]))

    @property
    def cause(self) -> Cause:
        """Cause of the most seconds."""
        return next(iter(self.causes))

    @property
    def rule(self) -> int:
        """Number of the rule of that cause with the most seconds."""
        mine = (number for number in self.seconds if RULES[number - 1].cause is self.cause)
        return max(mine, key=lambda number: self.seconds[number])

    @property
    def share(self) -> float:
        """Share of that cause in the time, 0..1."""
        return self.causes[self.cause] / sum(self.seconds.values())

    @property
    def sentence(self) -> str:
        """Text for users: `limited by engine core, 93 % of the time (rule 9): GPU 38 % busy: …`."""
        by = "limit unknown" if self.cause is Cause.UNKNOWN else f"limited by {self.cause}"
        return f"{by}, {100 * self.share:.0f} % of the time (rule {self.rule}): {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `verdict_from_json` reads them."""
        return {
            "cause": str(self.cause),
            "rule": self.rule,
            "share": round(self.share, 3),
            "text": self.text,
            "seconds": {str(number): round(seconds, 1) for number, seconds in sorted(self.seconds.items())},
        }


def verdict_from_json(value: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict in a worker's file; None without one, or if another version wrote it."""
    found = value.get("seconds")
    seconds = {
        int(number): float(amount)
        for number, amount in (found.items() if isinstance(found, Mapping) else ())
        if number.isdecimal() and 1 <= int(number) <= len(RULES) and isinstance(amount, int | float) and amount > 0
    }
    return Verdict(seconds, str(value.get("text", ""))) if seconds else None


def judge(ticks: Sequence[Sample]) -> Verdict | None:
    """Return the verdict over a worker's ticks; None without an engine, or in less than `SHORTEST` seconds.

    The start, until the first request, and the end, while the last requests finish, are not judged. Neither are free
    places if more requests were lost than pages finished: requests wait then to be sent again.
    """
    kept = [tick for tick in ticks if tick.window]  # without a ready server there is nothing to judge
    while kept and not kept[0].in_flight:
        kept.pop(0)
    # The end of a run: all pages that finished later were in flight already, so that none was left to send.
    later = 0
    while kept and not kept[-1].queued and later <= (kept[-1].in_flight or 0.0):
        later += kept.pop().items
    kept = _with_ceiling(kept)
    if sum(tick.seconds for tick in kept) < SHORTEST:
        return None
    groups: dict[int, list[Sample]] = {}
    for tick in kept:
        number = next(number for number, rule in enumerate(RULES, 1) if rule.applies(tick))
        groups.setdefault(number, []).append(tick)
    verdict = Verdict({number: sum(tick.seconds for tick in group) for number, group in groups.items()})
    lost = sum(tick.retries for tick in kept) > sum(tick.items for tick in kept)
    if lost and verdict.rule in FREE:
        return None
    rule, mean = RULES[verdict.rule - 1], _mean(groups[verdict.rule])
    setting = rule.setting(mean)
    return replace(verdict, text=f"{rule.facts(mean)}: {setting}" if setting else rule.facts(mean))


def overall(verdicts: Iterable[Verdict | None]) -> Verdict | None:
    """Return the verdict over several workers, with the text of the worker that its rule limited longest."""
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    sums: dict[int, float] = {}
    for verdict in known:
        for number, seconds in verdict.seconds.items():
            sums[number] = sums.get(number, 0.0) + seconds
    whole = Verdict(sums)
    same = [verdict for verdict in known if verdict.rule == whole.rule]
    if not same:
        return replace(whole, text=f"of {plural(len(known), 'worker')}; see the report")
    return replace(whole, text=max(same, key=lambda verdict: verdict.seconds[whole.rule]).text)


def _with_ceiling(ticks: list[Sample]) -> list[Sample]:
    """Return the ticks with the highest running requests as their maximum, if that is unknown and clearly a limit."""

    def queued(tick: Sample) -> bool:
        return tick.max_num_seqs is None and _at_least(tick.waiting, 1.0)

    highest = max((tick.running or 0.0 for tick in ticks if queued(tick)), default=0.0)
    seconds = sum(tick.seconds for tick in ticks if queued(tick))
    pinned = sum(tick.seconds for tick in ticks if queued(tick) and (tick.running or 0.0) >= PINNED * highest)
    if not highest or pinned < CEILING * seconds:
        return ticks
    return [replace(tick, max_num_seqs=highest) if queued(tick) else tick for tick in ticks]


def _mean(ticks: Sequence[Sample]) -> Sample:
    values: dict[str, Any] = {}
    for name in GAUGES:
        known = [(getattr(tick, name), tick.seconds) for tick in ticks if getattr(tick, name) is not None]
        seconds = sum(weight for _, weight in known)
        values[name] = sum(value * weight for value, weight in known) / seconds if seconds else None
    return Sample(sum(tick.seconds for tick in ticks), **values)
