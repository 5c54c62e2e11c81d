"""Progress of a stage while it runs: pages, costs, and the numbers of servers. The clock is the test's."""

import io
from dataclasses import replace

import pytest

from llm_ocr.cli.progress import (
    EngineMeter,
    LiveProgress,
    Meter,
    PlainProgress,
    shown_progress,
    span_text,
)
from llm_ocr.config.groups import LogSettings
from llm_ocr.engines import Load
from llm_ocr.stages import Progress, Silent
from llm_ocr.types import Counts, Status


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def progress(out, clock) -> PlainProgress:
    return PlainProgress(out, clock)


def test_speed_is_that_of_the_last_half_minute(clock):
    meter = Meter("extract", 1000, Counts(), clock)
    for _ in range(60):
        clock.now += 1
        meter.count(Status.OK)
    assert meter.speed() == pytest.approx(1.0, abs=0.05)
    for _ in range(300):
        clock.now += 0.1
        meter.count(Status.OK)
    assert meter.speed() == pytest.approx(10.0, abs=0.1)
    assert meter.left() == pytest.approx(64, abs=1)
    clock.now += 60
    assert (meter.speed(), meter.left(), meter.pace()) == (0.0, None, "")


def test_pages_of_earlier_runs_count_as_done_but_not_for_speed(clock):
    meter = Meter("extract", 100, Counts(50, 49, 0, 1), clock)
    for status in (Status.DEGRADED, Status.OK):
        clock.now += 10
        meter.count(status)
    assert meter.words() == "52/100 pages, 50 ok, 1 degraded, 1 failed"
    assert meter.pace() == "0.10 pages/s, 8:00 left"


def test_the_start_of_a_server_is_not_counted_as_work(clock):
    load = Load()
    meter = Meter("extract", 512, Counts(), clock, engine=EngineMeter(lambda: load, clock))
    clock.now += 120
    assert meter.pace() == "server starting"
    load = Load(servers=1, window=72, in_flight=72)
    clock.now += 10
    meter.count(Status.OK)
    assert meter.pace() == "0 tok/s, 72 of 72 in flight"
    for _ in range(11):
        clock.now += 1
        meter.count(Status.OK)
    assert meter.pace().startswith("1.0 pages/s, 8:20 left")


def test_units_of_other_machines_make_no_absurd_speed(clock):
    meter = Meter("extract", 640, Counts(), clock)
    speeds = []
    for _ in range(3):
        clock.now += 16
        for _ in range(64):
            clock.now += 1e-5
            meter.count(Status.OK)
            speeds.append(meter.speed())
    assert speeds[:64] == [0.0] * 64
    assert max(speeds) == pytest.approx(4.0, abs=0.3)


def test_first_document_of_assemble_shows_no_remaining_time(clock, out, progress):
    progress.begin("assemble", 5000, Counts())
    for _ in range(2):
        clock.now += 60
        for _ in range(2000):
            progress.count(Status.OK)
    first, second = [line for line in out.getvalue().splitlines() if "/" in line]
    assert first == "assemble: 1/5,000 pages, 1 ok"
    assert second.endswith("16.7 pages/s, 3:00 left")


def test_plain_progress_comes_every_ten_seconds_or_ten_percent(clock, out, progress):
    progress.begin("extract", 100, Counts(20, 20))
    for _ in range(80):
        clock.now += 0.25
        progress.count(Status.OK)
    progress.end()
    shown = out.getvalue().splitlines()
    assert shown[0] == "extract: 100 pages, 20 already done"
    assert shown[1] == "extract: 30/100 pages, 30 ok, 4.0 pages/s, 0:18 left"
    assert shown[-1] == "extract: 100/100 pages, 100 ok in 0:20"
    assert len(shown) == 9


def test_a_slow_stage_still_says_something_every_ten_seconds(clock, out, progress):
    progress.begin("describe", 10_000, Counts())
    for _ in range(4):
        clock.now += 6
        progress.count(Status.OK)
    assert [line.split(", ")[0] for line in out.getvalue().splitlines()] == [
        "describe: 10,000 figures",
        "describe: 2/10,000 figures",
        "describe: 4/10,000 figures",
    ]


def test_a_quick_stage_does_not_flood_the_log(out, progress):
    progress.begin("assemble", 5, Counts())
    for _ in range(5):
        progress.count(Status.OK)
    progress.end()
    assert out.getvalue().splitlines() == ["assemble: 5 pages", "assemble: 5/5 pages, 5 ok in 0:00"]


def test_a_stage_without_work_is_shown_as_done(out, progress):
    progress.begin("describe", 0, Counts())
    progress.end()
    assert out.getvalue().splitlines()[-1] == "describe: 0/0 figures, 0 ok in 0:00"


def test_on_a_terminal_each_stage_leaves_one_line(clock, out, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    progress = LiveProgress(out, clock)
    progress.say("before")
    for stage in ("extract", "describe"):
        progress.begin(stage, 3, Counts())
        progress.say(f"[bold]{stage}[/] begins with `page_markers=False`")
        for status in (Status.OK, Status.DEGRADED, Status.FAILED):
            clock.now += 1
            progress.count(status)
        progress.end()
    progress.close()
    progress.close()
    text = out.getvalue()
    assert text.startswith("before\n")
    assert "[bold]extract[/] begins with --no-page-markers" in text
    assert "3/3 pages, 1 ok, 1 degraded, 1 failed  in 0:0" in text
    assert "3/3 figures, 1 ok, 1 degraded, 1 failed  in 0:0" in text


def test_the_display_suits_the_settings_and_the_stream(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]

    def shown(stream: io.StringIO, *, quiet: bool = False) -> type[Progress]:
        monkeypatch.setattr("sys.stderr", stream)
        with shown_progress(LogSettings(quiet=quiet)) as progress:
            return type(progress)

    assert [shown(terminal, quiet=True), shown(terminal), shown(io.StringIO())] == [Silent, LiveProgress, PlainProgress]
    monkeypatch.setenv("TERM", "dumb")
    assert shown(terminal) is PlainProgress


def test_times_are_written_as_clocks_write_them():
    assert [span_text(seconds) for seconds in (0, 24.4, 723, 11045)] == ["0:00", "0:24", "12:03", "3:04:05"]


@pytest.mark.parametrize(
    ("spent", "ended", "expected", "words"),
    [
        (1.0, 0, 10, "$1.00"),
        (1.5, 5, 10, "$1.50 of about $2.00"),
        (1.0, 5, 10, "$1.00 of about $1.00"),
        (1.001, 1, 4, "$1.00 of about $1.00"),
        (1234.5, 1, 1, "$1,234.50 of about $1,234.50"),
    ],
)
def test_stage_cost_is_projected_on_top_of_earlier_spending(spent, ended, expected, words):
    meter = Meter("extract", expected, Counts(), lambda: 0.0, spent=lambda: 1.0, now=Counts(ok=ended))
    assert meter.costs(spent) == words


def test_less_than_a_cent_has_more_digits():
    meter = Meter("extract", 2, Counts(), lambda: 0.0, spent=lambda: 0.0, now=Counts(ok=1))
    assert meter.costs(0.0012) == "$0.0012 of about $0.0024"


def test_pages_of_earlier_runs_are_not_paid_again(clock, out, progress):
    costs = [5.0]
    progress.price(lambda: costs[0])
    progress.begin("extract", 100, Counts(ok=90))
    clock.now += 20
    costs[0] = 5.5
    progress.count(Status.OK)
    assert "91/100 pages" in out.getvalue() and "$5.50 of about $10.00" in out.getvalue()


BUSY = Load(servers=1, window=128, in_flight=120, waiting=7, answers=40, tokens_out=2000, busy=2, lost=1, restarts=1)


def test_tokens_a_second_are_those_since_it_began():
    seconds, loads = iter([0.0, 4.0]), iter([replace(BUSY, tokens_out=0), BUSY])
    meter = EngineMeter(lambda: next(loads), lambda: next(seconds))
    assert meter.words() == "500 tok/s, 120 of 128 in flight, 7 waiting, 2 busy, 1 lost, 1 restarted"


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(servers=1, window=8), "0 tok/s, 0 of 8 in flight"),  # without zeros
        # More in flight than the window is no share of it.
        (Load(servers=1, window=14, in_flight=90, waiting=61), "0 tok/s, 90 in flight, window 14, 61 waiting"),
        (Load(), "server starting"),
        (Load(answers=3), "server restarting"),
    ],
)
def test_numbers_of_servers_are_named(load, words):
    assert EngineMeter(lambda: load, lambda: 0.0).words() == words
