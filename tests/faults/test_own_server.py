"""A server of our own dies, hangs, has no memory, or is killed by a page: it comes back, and no page is lost."""

import signal

import pytest
from faulty import (
    FEW,
    MIDDLE,
    PAGES,
    SMALL,
    accounted,
    command,
    complaints,
    ended,
    extract,
    finished_units,
    own_server,
    pages,
    remembered,
    same_as,
    simulators_of,
    started,
    texts,
    words,
)
from running import alive, when

import llm_ocr

#: Seconds without progress after which a server hangs; long enough for a machine that is busy with something else.
STALL = 6


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def once(*triggers, state, **more):
    """A server whose triggers act in its first life only."""
    return own_server(*(f"--fault={one}" for one in (*triggers, "only-starts=1")), state_file=state, **more)


@pytest.mark.slow
def test_nothing_is_asked_twice_of_a_server_that_lives(documents, clean, state, tmp_path):
    run = extract(documents, tmp_path / "w", **own_server("--fault=silent-start=1", state_file=state))
    assert run.code == 0, run.said
    same_as(clean, tmp_path / "w")
    assert remembered(state).starts == 1
    assert remembered(state).asked.total() == PAGES


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["engine-death=1"]], ids=["killed", "its worker killed"])
def test_a_server_that_dies_in_the_middle_comes_back(documents, clean, state, tmp_path, how):
    run = extract(documents, tmp_path / "w", **FEW, **once(f"die-after={MIDDLE}", *how, state=state))
    assert run.code == 0, run.said
    same_as(clean, tmp_path / "w")
    assert remembered(state).starts == 2
    assert remembered(state).asked.total() <= PAGES + 2 * FEW["max_inflight_requests"]
    assert all(len(row.attempts) == 1 for row in pages(tmp_path / "w"))


@pytest.mark.slow
def test_server_that_hangs_but_reports_healthy_is_restarted(documents, clean, state, tmp_path):
    broken = once(f"hang-after={MIDDLE}", state=state)
    run = extract(documents, tmp_path / "w", **FEW, **broken, request_timeout=STALL)
    assert run.code == 0, run.said
    same_as(clean, tmp_path / "w")
    assert remembered(state).starts == 2
    assert remembered(state).asked.total() <= PAGES + 2 * FEW["max_inflight_requests"]


@pytest.mark.slow
@pytest.mark.parametrize("trigger", ["die-image", "hang-image"])
def test_only_the_page_that_downs_the_server_is_quarantined(documents, clean, images, state, tmp_path, trigger):
    workspace, killer = tmp_path / "w", sorted(images)[PAGES // 2]
    broken = own_server(f"--fault={trigger}={images[killer]}", state_file=state)
    run = extract(documents, workspace, **broken, request_timeout=STALL)
    assert run.code == 3, run.said
    assert "quarantined" in run.said
    rows = accounted(workspace, failed=1)
    assert str(rows[killer].reason) == "quarantined"
    what = "died" if trigger == "die-image" else "hung"
    assert rows[killer].detail == f"the server {what} 4 times while it read this page"
    assert texts(workspace) == {**clean, killer: ""}
    seen = remembered(state)
    assert seen.asked[images[killer]] == 4
    assert seen.starts in (4, 5)  # once more only where other pages are left to read
    assert seen.asked.total() <= PAGES + 2 * PAGES

    assert command("retry-failed", workspace=workspace).code == 0
    again = command("extract", workspace=workspace, **own_server())
    assert again.code == 0, again.said
    same_as(clean, workspace)


@pytest.mark.slow
def test_server_killed_by_every_page_is_given_up_blaming_no_page(documents, clean, state, tmp_path):
    workspace = tmp_path / "w"
    broken = own_server("--fault=die-prompt=Convert", state_file=state)
    run = extract(documents, workspace, **broken, pages_per_unit=1)
    assert run.code == 1, run.said
    assert "vLLM 0 died 6 times" in run.said
    assert "--max-server-restarts" in run.said
    assert "Traceback" not in run.said
    assert remembered(state).starts == 6
    assert llm_ocr.open(workspace).status.pages.failed == 0
    again = extract(documents, workspace, **own_server())
    assert again.code == 0, again.said
    same_as(clean, workspace)


@pytest.mark.slow
def test_server_that_dies_repeatedly_makes_progress_each_time(documents, clean, state, tmp_path):
    """Not by one page's fault: after five restarts the command ends, and the next ones finish."""
    workspace = tmp_path / "w"
    broken = own_server("--fault=die-after=8", state_file=state)
    for _ in range(4):
        before = finished_units(workspace)
        run = extract(documents, workspace, **FEW, **broken)
        assert before.items() <= finished_units(workspace).items()
        assert complaints(pages(workspace)) == []
        if run.code == 0:
            break
        assert run.code == 1, run.said
        assert "vLLM 0 died 6 times" in run.said
    assert run.code == 0
    same_as(clean, workspace)


@pytest.mark.slow
def test_server_short_of_memory_gets_and_reports_fewer_sequences(documents, clean, tmp_path):
    run = extract(documents, tmp_path / "w", **own_server("--oom-above=8", max_num_seqs=16))
    assert run.code == 0, run.said
    assert "ran out of memory; retrying with --max-num-seqs 8" in run.said
    same_as(clean, tmp_path / "w")


@pytest.mark.slow
def test_server_that_runs_out_of_memory_midway_returns_with_less(documents, clean, state, tmp_path):
    run = extract(documents, tmp_path / "w", **FEW, **once(f"oom-after={MIDDLE}", state=state))
    assert run.code == 0, run.said
    assert "ran out of memory; retrying with --max-num-seqs 8" in run.said
    same_as(clean, tmp_path / "w")
    assert remembered(state).starts == 2


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 4), (signal.SIGKILL, -9)])
def test_stopped_client_ends_its_server_and_resumes_later(documents, clean, state, tmp_path, number, code):
    workspace = tmp_path / "w"
    told = words("extract", documents, workspace=workspace, **arguments(state))
    process = started(*told)
    server = middle(process, state, workspace)
    process.send_signal(number)
    stopped = ended(process)
    assert stopped.code == code, stopped.said
    if number == signal.SIGTERM:
        assert "Run the same command again" in stopped.said
        assert "Traceback" not in stopped.said
    assert when(lambda: not alive(server))
    before, asked = finished_units(workspace), remembered(state).asked
    run = ended(started(*told))
    assert run.code == 0, run.said
    assert before.items() <= finished_units(workspace).items()
    same_as(clean, workspace)
    more = remembered(state).asked - asked
    assert more.total() <= PAGES - SMALL["pages_per_unit"] * len(before)


def arguments(state):
    """Settings of a server that stands still in the middle of its first life, longer than these tests wait for it."""
    return {**SMALL, **FEW, "request_timeout": 100, **once(f"hang-after={MIDDLE}", state=state)}


def middle(process, state, workspace) -> int:
    """Wait until the server stands still and some units are published; its process."""

    def reached():
        assert process.poll() is None, ended(process).said
        return remembered(state).asked.total() > MIDDLE and finished_units(workspace)

    when(reached)
    (server,) = simulators_of(process.pid)
    return server
