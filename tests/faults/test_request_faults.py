"""Single requests go wrong: the page is asked again, and what comes out is what comes out without faults."""

import pytest
from faulty import (
    PAGES,
    QUICK,
    SMALL,
    accounted,
    asked,
    command,
    extract,
    own_server,
    pages,
    remembered,
    same_as,
    simulator,
)

import llm_ocr

#: What a server says when it is busy: no try of the page.
BUSY = ("429", "503")
#: Mean tokens of answers that are long enough to have figures.
LONGER = 900


def faulted(server) -> int:
    """Requests that the server spoilt; a seed that spoils none proves nothing."""
    count = sum(1 for one in server.log()["requests"] if one["fault"])
    assert count
    return count


@pytest.mark.parametrize("fault", [QUICK[0], *(pytest.param(fault, marks=pytest.mark.slow) for fault in QUICK[1:])])
def test_each_faulted_request_costs_one_more_and_no_page(documents, clean, tmp_path, fault):
    with simulator(fault={fault: 0.1, "retry-after": 0.2}) as server:
        run = extract(documents, tmp_path / "w", server_url=server.url)
        assert run.code == 0, run.said
        spoilt = faulted(server)
        assert asked(server).total() == PAGES + spoilt
    same_as(clean, tmp_path / "w")
    tries = [one for row in pages(tmp_path / "w") for one in row.attempts]
    counted = 0 if fault in BUSY else spoilt
    assert [one["reason"] for one in tries if one["status"] == "failed"] == ["server error"] * counted
    assert len(tries) == PAGES + counted


@pytest.mark.slow
def test_requests_that_hang_are_given_up_and_asked_again(documents, clean, tmp_path):
    with simulator(fault={"hang": 0.1}) as server:
        run = extract(documents, tmp_path / "w", server_url=server.url, request_timeout=6)
        assert run.code == 0, run.said
        assert asked(server).total() <= PAGES + 2 * faulted(server)
    same_as(clean, tmp_path / "w")


@pytest.mark.slow
def test_all_faults_together(documents, clean, tmp_path):
    faults = {kind: 0.4 / (len(QUICK) + 1) for kind in (*QUICK, "hang")}
    with simulator(fault={**faults, "retry-after": 0.2}) as server:
        run = extract(documents, tmp_path / "w", server_url=server.url, request_timeout=6, max_page_attempts=20)
        assert run.code == 0, run.said
        assert asked(server).total() <= PAGES + 2 * faulted(server)
    same_as(clean, tmp_path / "w")


@pytest.mark.slow
def test_a_provider_without_gauges_that_takes_a_few_at_a_time(documents, clean, tmp_path):
    # Answers take so long that requests overlap on a busy machine, too.
    with simulator(no_metrics=True, speed=15, fault={"max-inflight": 3, "retry-after": 0.1}) as server:
        run = extract(documents, tmp_path / "w", server_url=server.url, max_page_attempts=1)
        assert run.code == 0, run.said
        refused = faulted(server)
        assert refused <= 2 * PAGES
        assert asked(server).total() == PAGES + refused
    same_as(clean, tmp_path / "w")


@pytest.mark.slow
def test_server_slow_to_start_gets_no_page_before_it_is_ready(documents, clean, tmp_path):
    with simulator(fault={"slow-start": 2}) as server:
        run = extract(documents, tmp_path / "w", server_url=server.url)
        assert run.code == 0, run.said
        assert asked(server).total() == PAGES
        assert {one["status"] for one in server.log()["requests"]} == {200}
    same_as(clean, tmp_path / "w")


@pytest.mark.slow
def test_pages_that_run_out_of_tries_fail_and_are_read_by_retry(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator(fault={"500": 0.5}) as server:
        run = extract(documents, workspace, server_url=server.url, max_page_attempts=1)
        lost = faulted(server)
        assert run.code == 3, run.said
        assert asked(server).total() == PAGES
        rows = accounted(workspace, failed=lost)
        failed = [row for row in rows.values() if row.status == "failed"]
        assert {str(row.reason) for row in failed} == {"server error"}
        assert all(len(row.attempts) == 1 for row in failed)
        server.set_faults({})
        again = command("retry-failed", workspace=workspace)
        assert again.code == 0, again.said
        done = command("extract", workspace=workspace, server_url=server.url, max_page_attempts=1)
        assert done.code == 0, done.said
        assert asked(server).total() == PAGES + lost
    same_as(clean, workspace)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [dict.fromkeys(QUICK, 0.02), {"die-after": PAGES + 10, "only-starts": 1}])
def test_faults_in_any_stage_leave_documents_and_figures_equal(documents, whole, tmp_path, fault):
    """By faults all the time, and by a death while the figures are described."""
    workspace, state = tmp_path / "w", tmp_path / "state"
    flags = [f"--fault={kind}={value}" for kind, value in fault.items()]
    broken = own_server(*flags, state_file=state, mean_tokens=LONGER)
    run = command("run", documents, workspace=workspace, **SMALL, **broken)
    assert run.code == 0, run.said
    assert remembered(state).starts == 1 + ("die-after" in fault)
    accounted(workspace)
    assert outcome(workspace) == whole


@pytest.fixture(scope="module")
def whole(documents, tmp_path_factory):
    """What all three stages give without faults."""
    workspace = tmp_path_factory.mktemp("whole") / "w"
    with simulator(mean_tokens=LONGER) as server:
        run = command("run", documents, workspace=workspace, server_url=server.url, **SMALL)
        assert run.code == 0, run.said
        assert asked(server).total() > PAGES + 20
    return outcome(workspace)


def outcome(workspace):
    opened = llm_ocr.open(str(workspace))
    figures = opened.status.figures
    assert figures.expected == figures.ok
    return figures, [(one.path, one.markdown) for one in opened.documents()]
