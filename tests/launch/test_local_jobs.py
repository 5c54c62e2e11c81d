"""The platform `local`: jobs as processes of this machine, for real."""

import json
import os
import signal
import subprocess
import sys

import pytest
from jobs_running import over

from llm_ocr.errors import LaunchError
from llm_ocr.launch import JobSpec, State
from llm_ocr.launch.local.launcher import Local, _folder


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def started(code: str, monkeypatch, **more):
    monkeypatch.setattr(JobSpec, "command", property(lambda self: ("python", "-c", code)))
    launcher = Local()
    plan = launcher.plan(JobSpec("extract", "w", "20260101-000000-0000", **more))
    launcher.check(plan)
    return launcher, launcher.submit(plan)


def test_each_shard_is_a_process_with_its_number(monkeypatch):
    code = "import os; print(os.environ['LLM_OCR_SHARD_INDEX'], os.environ['LLM_OCR_SHARD_COUNT'])"
    launcher, jobs = started(code, monkeypatch, shards=2)
    statuses = over(launcher, jobs)
    assert [one.state for one in statuses] == [State.SUCCEEDED] * 2
    assert [list(launcher.logs(job)) for job in jobs] == [["0 2"], ["1 2"]]
    assert launcher.find(JobSpec("extract", "w", "20260101-000000-0000", shards=2)) == jobs
    assert len(launcher.clean(jobs)) == 2
    assert launcher.find(JobSpec("extract", "w", "20260101-000000-0000", shards=2)) == []


def test_a_job_that_fails_says_so(monkeypatch):
    launcher, jobs = started("import sys; print('no model'); sys.exit(1)", monkeypatch)
    (status,) = over(launcher, jobs)
    assert (status.state, status.reason) == (State.FAILED, "exit code 1")
    assert list(launcher.logs(jobs[0], tail=1)) == ["no model"]


def test_a_job_ends_at_its_time_limit(monkeypatch):
    launcher, jobs = started("import time; time.sleep(600)", monkeypatch, time_limit=1)
    (status,) = over(launcher, jobs)
    assert (status.state, status.reason) == (State.TIMED_OUT, "time limit of 1 s")


def test_a_job_is_cancelled_and_its_log_followed_to_the_end(monkeypatch):
    launcher, jobs = started("import time; print('begun', flush=True); time.sleep(600)", monkeypatch)
    lines = launcher.logs(jobs[0], follow=True)
    assert next(lines) == "begun"
    launcher.cancel(jobs[0])
    (status,) = over(launcher, jobs)
    assert status.state is State.CANCELLED
    assert list(lines) == []
    launcher.cancel(jobs[0])


def test_a_job_is_cancelled_while_it_starts_and_leaves_no_process(monkeypatch, tmp_path):
    mark = str(tmp_path / "mark")
    for number in range(3):
        launcher, jobs = started(f"import time; time.sleep(600); {mark!r}", monkeypatch, submission=number + 1)
        launcher.cancel(jobs[0])
        (status,) = over(launcher, jobs)
        assert (status.state, status.reason) == (State.CANCELLED, "canceled")
    listed = subprocess.run(["ps", "-ww", "-eo", "args="], capture_output=True, text=True, check=True)
    assert mark not in listed.stdout


def test_a_job_whose_processes_were_killed_is_failed(monkeypatch):
    launcher, jobs = started("import os, time; print(os.getpid(), flush=True); time.sleep(600)", monkeypatch)
    child = int(next(launcher.logs(jobs[0], follow=True)))
    os.kill(int((_folder(jobs[0].id) / "supervisor").read_text()), signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    (status,) = over(launcher, jobs)
    assert (status.state, status.reason) == (State.FAILED, "its process was killed")


def test_secrets_come_from_this_environment_and_stand_in_no_file(monkeypatch, tmp_path):
    code = "import os; print(len(os.environ['MY_KEY']))"
    with pytest.raises(LaunchError, match="secret MY_KEY is not set on this machine"):
        started(code, monkeypatch, secrets={"MY_KEY": ""})
    monkeypatch.setenv("MY_KEY", "geheimnis")
    launcher, jobs = started(code, monkeypatch, secrets={"MY_KEY": ""})
    over(launcher, jobs)
    assert list(launcher.logs(jobs[0])) == ["9"]
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert files
    assert all(b"geheimnis" not in path.read_bytes() for path in files)


def test_settings_of_the_launching_shell_do_not_reach_the_job(monkeypatch):
    monkeypatch.setenv("LLM_OCR_MODEL", "of this shell")
    launcher, jobs = started("import os; print('LLM_OCR_MODEL' in os.environ)", monkeypatch)
    over(launcher, jobs)
    assert list(launcher.logs(jobs[0])) == ["False"]


def test_the_plan_is_what_is_started(monkeypatch):
    launcher, jobs = started("pass", monkeypatch, environment={"A": "1"})
    over(launcher, jobs)
    body = json.loads((_folder(jobs[0].id) / "job.json").read_text())
    assert (
        body == launcher.plan(JobSpec("extract", "w", "20260101-000000-0000", environment={"A": "1"})).requests[0].body
    )
    assert sys.executable not in body["command"]
