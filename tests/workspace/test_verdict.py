"""A run's verdict names what limited it, by which rule, and the setting to change."""

import asyncio

import pytest

from llm_ocr.cli.outcome import status_text
from llm_ocr.config.models import DescribeSettings
from llm_ocr.engines import Load
from llm_ocr.stages import Silent
from llm_ocr.stages.recording import Recorded
from llm_ocr.types import Counts, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import Sample
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.verdict import RULES, Cause, Verdict, judge, overall, verdict_from_json
from llm_ocr_outputs.report import page, report_of
from tests.fakes.memory_store import MemoryStore


def ticks(count: int = 30, **values: float) -> list[Sample]:
    """Return seconds of a full window at one server whose numbers are not known, with the given ones."""
    usual: dict[str, float] = {"servers": 1, "window": 72, "in_flight": 72, "queued": 20, "bytes_waiting": 9e6, "ok": 2}
    return [Sample(1.0, **{**usual, **values}) for _ in range(count)]


#: Seconds of a run on one H200 with --max-num-seqs=64: GPU, running, waiting, API server, engine core.
MEASURED = (
    (0.345, 35, 0, 1.17, 1.12), (0.385, 56, 0, 1.15, 1.09), (0.470, 60, 0, 1.16, 1.05), (0.435, 64, 5, 1.24, 1.10),
    (0.340, 64, 10, 1.08, 1.06), (0.325, 63, 4, 1.10, 1.05), (0.300, 64, 4, 0.75, 1.05), (0.300, 63, 4, 0.97, 1.04),
)  # fmt: skip
HUNGRY = {"in_flight": 10, "queued": 0}
SERVED = {"running": 61, "waiting": 6, "kv_usage": 0.04, "max_num_seqs": 64}


def measured(**more: float) -> list[Sample]:
    return [
        tick
        for gpu, running, waiting, intake, engine in MEASURED
        for tick in ticks(
            4, gpu=gpu, running=running, waiting=waiting, intake_cores=intake, engine_cores=engine, **more
        )
    ]


def test_a_measured_run_was_limited_by_the_engine_core() -> None:
    verdict = judge(measured(max_num_seqs=64, kv_usage=0.044))
    assert verdict is not None
    assert (verdict.cause, verdict.rule) == (Cause.CORE, 9)
    assert verdict.share > 0.6
    assert verdict.text == "GPU 34 % busy, engine core at 106 % of a core: `replicas_per_gpu=2`"
    assert verdict.causes[Cause.INTAKE] == 8.0


CASES = [
    (1, HUNGRY | {"client_cores": 0.97, "renderer_cores": 0.8}, "start a second worker"),
    (2, HUNGRY | {"client_cores": 0.3, "renderer_cores": 0.85}, "renderers 85 % busy: more `render_workers`"),
    (3, HUNGRY | {"client_cores": 0.3, "renderer_cores": 0.1}, "10 of 72 requests in flight, renderers 10 % busy"),
    (3, HUNGRY | {"bytes_waiting": 0, "in_flight": 10}, "nearer store"),
    (4, HUNGRY, "source or rendering"),
    (5, SERVED | {"gpu": 0.93, "engine_cores": 1.0}, "GPU 93 % busy: more GPUs"),
    (6, SERVED | {"kv_usage": 0.95, "max_num_seqs": 256}, "KV cache 95 % full: start vLLM with a higher"),
    (6, SERVED | {"kv_usage": 0.95, "engine_cores": 0.5}, "full: a higher `gpu_memory_utilization`"),
    (7, {"running": 30, "waiting": 0}, "42 of 72 requests have not reached the engine: start vLLM with"),
    (7, {"running": 30, "waiting": 0, "intake_cores": 1.1, "engine_cores": 1.0}, "`vllm_arg=--renderer-num-workers=N`"),
    (8, {"running": 70, "waiting": 0, "max_num_seqs": 256}, "`max_inflight_requests`"),
    (9, SERVED | {"gpu": 0.38, "engine_cores": 1.0}, "GPU 38 % busy, engine core at 100 % of a core"),
    (10, SERVED | {"running": 64}, "running pinned at 64 of 64: start vLLM with --max-num-seqs 128"),
    (10, SERVED | {"running": 64, "engine_cores": 0.6, "gpu": 0.4}, ": `vllm_arg=--max-num-seqs=128`"),
    (11, SERVED | {"running": 40}, "40 of 64 running, 6 waiting, KV cache 4 % full"),
    (12, {}, "the server has no gauges"),
    (13, HUNGRY | {"client_cores": 0.3, "renderer_cores": 0.1, "capped": 1}, "wait for the limits on work in progress"),
    (13, HUNGRY | {"capped": 1}, "a higher `workers`"),
]


@pytest.mark.parametrize(("rule", "values", "words"), CASES)
def test_each_rule_names_cause_facts_and_setting(rule: int, values: dict[str, float], words: str) -> None:
    verdict = judge(ticks(30, **values))
    assert verdict is not None
    assert verdict.rule == rule
    assert words in verdict.text
    assert verdict.cause is RULES[rule - 1].cause
    assert f"(rule {rule})" in verdict.sentence


def test_each_rule_has_a_case() -> None:
    assert {rule for rule, _, _ in CASES} == set(range(1, len(RULES) + 1))


def test_a_busy_engine_core_without_gpu_use_is_no_verdict() -> None:
    verdict = judge(ticks(**(SERVED | {"running": 40, "engine_cores": 1.05})))
    assert verdict is not None and verdict.cause is Cause.ENGINE


def test_a_steady_maximum_is_found_where_none_is_reported() -> None:
    steady = [tick for number in range(15) for tick in ticks(2, running=[32, 31][number % 8 == 0], waiting=5)]
    verdict = judge(steady)
    assert verdict is not None
    assert verdict.text == "running pinned at 32 of 32: start vLLM with --max-num-seqs 64"
    changing = [tick for number in range(15) for tick in ticks(2, running=20 + 3 * (number % 5), waiting=5)]
    unknown = judge(changing)
    assert unknown is not None and unknown.cause is Cause.UNKNOWN


def test_the_start_and_the_end_of_a_run_are_not_judged() -> None:
    starting = ticks(100, servers=0, window=0, in_flight=0)
    ending = [tick for left in range(70, 0, -1) for tick in ticks(1, in_flight=left, queued=0, bytes_waiting=0, ok=1)]
    verdict = judge([*starting, *ticks(20, **SERVED, gpu=0.95), *ending])
    assert verdict is not None
    assert verdict.seconds == {5: 20.0}


def test_a_failing_server_is_not_a_slow_source() -> None:
    hungry = HUNGRY | {"client_cores": 0.3, "renderer_cores": 0.1}
    assert judge(ticks(**hungry, retries=1)) is not None
    assert judge(ticks(**hungry, retries=3)) is None


def test_a_run_of_fewer_pages_than_places_has_no_verdict() -> None:
    """All pages are in flight at once, and none is missing: no source is slow."""
    assert judge([tick for left in (9, 9, 7, 7, 4, 1) for tick in ticks(4, in_flight=left, queued=0, ok=0)]) is None


def test_a_short_run_and_one_without_servers_have_no_verdict() -> None:
    assert judge(ticks(9, **SERVED)) is None
    assert judge([Sample(100.0, ok=50)]) is None


def test_verdicts_round_trip() -> None:
    verdict = judge(measured(max_num_seqs=64))
    assert verdict is not None
    assert verdict_from_json(verdict.to_json()) == verdict


@pytest.mark.parametrize("value", [{}, {"seconds": 3}, {"seconds": {"99": 1.0}}, {"seconds": {"x": 1, "5": "y"}}])
def test_a_verdict_of_another_version_is_none(value: dict[str, object]) -> None:
    assert verdict_from_json(value) is None


def test_workers_are_judged_together_with_the_longest_text() -> None:
    whole = overall([Verdict({9: 10.0}, "short"), Verdict({9: 50.0, 5: 4.0}, "long"), None, Verdict({5: 40.0}, "gpu")])
    assert whole is not None
    assert (whole.cause, whole.text) == (Cause.CORE, "long")
    assert whole.seconds == {9: 60.0, 5: 44.0}
    assert overall([None]) is None


class Said(Silent):
    """Progress that keeps its messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


def test_verdicts_are_shown_in_status_and_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llm_ocr.workspace.verdict.SHORTEST", 0.01)
    monkeypatch.setattr("llm_ocr.stages.recording.LOOK", 0.01)
    workspace, said = Workspace.on(MemoryStore(), create=True), Said()
    load = Load(servers=1, window=6, in_flight=6, queued=2, running=4, waiting=2, max_num_seqs=4)
    looks = 0

    def look() -> Load:
        nonlocal looks
        looks += 1
        return load

    async def stage() -> None:
        recorded = Recorded(said, workspace, "w", DescribeSettings(workspace="memory"))
        async with recorded.kept():
            recorded.measure(look)
            recorded.begin("extract", 1, Counts())
            recorded.count(Status.OK)
            while looks < 20:  # noqa: ASYNC110 - what is waited for are readings
                await asyncio.sleep(0.01)
            recorded.end()

    asyncio.run(stage())
    words = (
        "parallel sequences, 100 % of the time (rule 10): running pinned at 4 of 4: start vLLM with --max-num-seqs 8"
    )
    assert said.messages == [f"extract: limited by {words}"]
    status = run_status(workspace)
    assert f"limit      {words}" in status_text(status)
    assert status.to_json()["limit"]["cause"] == "parallel sequences"
    assert f"Extract: limited by {words}." in page(report_of(workspace))
