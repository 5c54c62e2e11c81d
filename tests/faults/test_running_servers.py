"""Servers of others go away, come back or refuse us; clients are killed: the same command always goes on."""

from urllib.parse import urlsplit

import pytest
from faulty import (
    FEW,
    MIDDLE,
    PAGES,
    SMALL,
    asked,
    ended,
    extract,
    finished_units,
    own_server,
    same_as,
    simulator,
    started,
    words,
)
from running import when

KEY = "sk-the-right-one"


def back(server):
    """A server in the place of one that is gone, for `with`."""
    return simulator(port=urlsplit(server.url).port)


def begun(documents, workspace, server, **more):
    """The command in a process of its own, some units published and the server standing still since."""
    told = words("extract", documents, workspace=workspace, server_url=server.url, **{**SMALL, **FEW, **more})
    server.set_faults({"hang-after": MIDDLE})
    process = started(*told)

    def reached():
        assert process.poll() is None, ended(process).said
        return asked(server).total() > MIDDLE and finished_units(workspace)

    when(reached)
    return process, told


@pytest.mark.slow
def test_killed_client_restarts_without_loss_or_repeated_units(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator() as server:
        process, told = begun(documents, workspace, server, request_timeout=100)
        process.kill()
        assert ended(process).code == -9
        before = finished_units(workspace)
        server.set_faults({})
        server.reset()
        run = ended(started(*told))
        assert run.code == 0, run.said
        assert asked(server).total() == PAGES - SMALL["pages_per_unit"] * len(before)
    assert before.items() <= finished_units(workspace).items()
    same_as(clean, workspace)


@pytest.mark.slow
def test_server_that_comes_back_gets_unfinished_requests_again(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator() as first:
        process, _ = begun(documents, workspace, first, request_timeout=100)
        before = finished_units(workspace)
        first.kill()
    with back(first) as server:
        run = ended(process)
        assert run.code == 0, run.said
        assert asked(server).total() <= PAGES - SMALL["pages_per_unit"] * len(before)
    assert before.items() <= finished_units(workspace).items()
    same_as(clean, workspace)


@pytest.mark.slow
def test_lost_server_ends_command_with_reason_and_rerun_resumes(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator() as first:
        process, told = begun(documents, workspace, first, request_timeout=100, server_timeout=2)
        first.kill()
        stopped = ended(process)
    before = finished_units(workspace)
    assert stopped.code == 1, stopped.said
    assert f"the server {first.url} did not answer within 2 s" in stopped.said
    assert "then run the same command again. To wait longer, set --server-timeout SECONDS" in stopped.said
    assert "Traceback" not in stopped.said
    with back(first) as server:
        run = ended(started(*told))
        assert run.code == 0, run.said
        assert asked(server).total() == PAGES - SMALL["pages_per_unit"] * len(before)
    assert before.items() <= finished_units(workspace).items()
    same_as(clean, workspace)


@pytest.mark.slow
def test_second_server_takes_over_from_one_that_never_returns(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator() as first, simulator() as second:
        urls = [first.url, second.url]
        first.set_faults({"hang-after": 5})
        told = words("extract", documents, workspace=workspace, server_url=urls, server_timeout=6, **SMALL, **FEW)
        process = started(*told)
        when(lambda: asked(first).total() > 5)
        first.kill()
        run = ended(process)
        assert run.code == 0, run.said
        assert asked(second).total() <= PAGES
    same_as(clean, workspace)


@pytest.mark.slow
def test_hung_but_healthy_server_is_waited_for_until_an_answer(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator(fault={"hang-after": MIDDLE}) as server:
        run = extract(documents, workspace, server_url=server.url, **FEW, request_timeout=6, server_timeout=8)
        assert run.code == 1, run.said
        assert "no answer made progress for 6 s" in run.said
        assert "completed no request within 8 s" in run.said
        before = finished_units(workspace)
        server.set_faults({})
        server.reset()
        again = extract(documents, workspace, server_url=server.url)
        assert again.code == 0, again.said
        assert asked(server).total() == PAGES - SMALL["pages_per_unit"] * len(before)
    same_as(clean, workspace)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"server_key": "wrong"}, "401"),
        ({}, "401"),
        ({"server_key": KEY, "server_model": "another"}, "deepseek-ocr"),
    ],
    ids=["wrong key", "no key", "wrong model"],
)
def test_server_refusal_ends_command_at_once_and_fails_no_page(documents, clean, tmp_path, more, said):
    workspace = tmp_path / "w"
    with simulator(api_key=KEY) as server:
        run = extract(documents, workspace, server_url=server.url, **more)
        assert run.code == 1, run.said
        assert said in run.said
        assert KEY not in run.said
        assert "Traceback" not in run.said
        assert {one["status"] for one in server.log()["requests"]} <= {404}
        assert finished_units(workspace) == {}
        again = extract(documents, workspace, server_url=server.url, server_key=KEY)
        assert again.code == 0, again.said
    same_as(clean, workspace)


def test_a_command_for_vllm_that_is_not_there_says_so_at_once(documents, tmp_path):
    workspace = tmp_path / "w"
    run = extract(documents, workspace, **{**own_server(), "vllm_command": "no-such-program"})
    assert run.code == 1, run.said
    assert "no-such-program" in run.said
    assert "Traceback" not in run.said
    assert finished_units(workspace) == {}


@pytest.mark.slow
def test_two_clients_in_one_workspace_survive_a_faulty_server(documents, clean, tmp_path):
    workspace = tmp_path / "w"
    with simulator(fault={"reset": 0.1, "503": 0.1, "retry-after": 0.2}) as server:
        told = words("extract", documents, workspace=workspace, server_url=server.url, lease_seconds=300, **SMALL)
        for run in [ended(process) for process in [started(*told), started(*told)]]:
            assert run.code == 0, run.said
    same_as(clean, workspace)
