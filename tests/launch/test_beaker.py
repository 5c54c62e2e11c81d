"""The platform `beaker`: an experiment with a replica a share, through the `beaker` program."""

import json
import stat
import sys

import pytest
from cases_beaker import spec

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Job, State
from llm_ocr.launch.beaker.launcher import Beaker, experiment_status
from tests.fakes.container import Container

JOB = Job("01ABC", "job", None)
CREATED = "2026-01-01T10:00:00.123456789Z"

PROGRAM = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
with (folder / "asked").open("a") as file:
    file.write(json.dumps(words) + "\\n")
refusal = folder / "refusal"
if refusal.exists():
    sys.exit(refusal.read_text())
if words[:2] == ["experiment", "create"]:
    (folder / "experiment").write_text(pathlib.Path(words[-1]).read_text())
    print("Experiment 01ABC submitted. See progress at https://beaker.org/ex/01ABC")
elif words[:2] == ["secret", "list"]:
    print("NAME CREATED UPDATED\\nHF_TOKEN 2026 2026")
else:
    answer = folder / "-".join(words[:2])
    print(answer.read_text() if answer.exists() else "")
"""


@pytest.fixture
def beaker(tmp_path, monkeypatch):
    """A folder with the program, what it was asked, and what it answers."""
    program = tmp_path / "bin" / "beaker"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return tmp_path


def asked(folder) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "asked").read_text().splitlines()]


def replica(rank: int, created: str = CREATED, **status) -> dict:
    return {"execution": {"replicaRank": rank}, "status": {"created": created, **status}}


def ended(code: int, **more) -> dict:
    times = {"started": "2026-01-01T10:01:00Z", "exited": "2026-01-01T10:02:00Z", "finalized": "2026-01-01T10:03:00Z"}
    return {**times, "exitCode": code, **more}


def test_exactly_the_plan_is_submitted(beaker):
    launcher = Beaker()
    plan = launcher.plan(spec(shards=2, secrets={"HF_TOKEN": ""}))
    launcher.check(plan)
    (job,) = launcher.submit(plan)
    assert json.loads((beaker / "experiment").read_text()) == plan.requests[0].body["spec"]
    assert (job.id, job.shard, job.url) == ("01ABC", None, "https://beaker.org/ex/01ABC")
    create = asked(beaker)[-1]
    assert create[:4] == ["experiment", "create", f"--name={job.name}", "--workspace=lab/ocr"]
    (beaker / "workspace-experiments").write_text(
        json.dumps([{"id": "01ABC", "name": job.name}, {"id": "x", "name": "y"}])
    )
    assert launcher.find(spec(shards=2)) == [job]
    assert launcher.find(spec("describe")) == []


def test_a_replica_knows_its_share():
    command = Beaker().plan(spec(shards=3)).requests[0].body["spec"]["tasks"][0]["command"]
    program = "import os; print(os.environ['LLM_OCR_SHARD_INDEX'], os.environ['LLM_OCR_SHARD_COUNT'])"
    words = [*command[:4], "python", "-c", program]
    words = [sys.executable if word == "python" else word for word in words]
    container = Container(words, {"BEAKER_REPLICA_RANK": "2", "BEAKER_REPLICA_COUNT": "3"})
    try:
        assert container.wait(60) == 0
        assert container.lines() == ["2 3"]
    finally:
        container.remove()


@pytest.mark.parametrize(
    ("jobs", "state", "reason"),
    [
        ([], State.QUEUED, ""),
        ([replica(0), replica(1)], State.QUEUED, ""),
        ([replica(0), replica(1, started=CREATED)], State.RUNNING, ""),
        ([replica(0, **ended(0)), replica(1, started=CREATED)], State.RUNNING, ""),
        ([replica(0, **ended(0)), replica(1, **ended(0))], State.SUCCEEDED, ""),
        ([replica(0, **ended(0)), replica(1, **ended(1))], State.FAILED, "exit code 1"),
        ([replica(0, failed=CREATED, message="ImagePullBackOff")], State.FAILED, "ImagePullBackOff"),
        ([replica(0, canceled=CREATED, canceledCode=1)], State.PREEMPTED, "preempted"),
        ([replica(0, canceled=CREATED, canceledCode=4, canceledFor="Stopped by me")], State.CANCELLED, "Stopped by me"),
        ([replica(0, canceled=CREATED, canceledFor="Job timed out")], State.TIMED_OUT, "Job timed out"),
        ([replica(0, **ended(1)), replica(0, "2026-01-01T11:00:00Z", **ended(0))], State.SUCCEEDED, ""),
        ([replica(0, **ended(0, canceled="0001-01-01T00:00:00Z"))], State.SUCCEEDED, ""),
    ],
)
def test_replicas_are_one_job(jobs, state, reason):
    status = experiment_status(JOB, {"jobs": jobs})
    assert (status.state, status.reason) == (state, reason)


def test_what_is_billed_is_summed_over_replicas():
    status = experiment_status(JOB, {"jobs": [replica(0, **ended(0)), replica(1, **ended(0))]})
    assert status.seconds == 120
    assert status.ended - status.started == 60


def test_status_logs_and_cancel_ask_the_program(beaker):
    launcher = Beaker()
    (beaker / "experiment-get").write_text(json.dumps([{"id": "01ABC", "jobs": [replica(0, started=CREATED)]}]))
    assert launcher.status([JOB])[0].state is State.RUNNING
    (beaker / "experiment-logs").write_text("first\nlast")
    assert list(launcher.logs(JOB, tail=1)) == ["last"]
    launcher.cancel(JOB)
    assert asked(beaker)[-1] == ["experiment", "stop", "01ABC"]
    (beaker / "experiment-get").write_text(json.dumps([{"id": "01ABC", "jobs": [replica(0, **ended(0))]}]))
    launcher.cancel(JOB)
    assert asked(beaker)[-1][:2] == ["experiment", "get"]
    assert launcher.clean([JOB]) == ["kept: experiment 01ABC (beaker experiment delete 01ABC)"]


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Error: image lab/nothing not found", "--image"),
        ("Error: cluster ai2/moon does not exist", "beaker cluster list"),
        ("Error: unauthorized", "Log in"),
        ("Error: quota exceeded", "fewer --shards"),
    ],
)
def test_what_beaker_refuses_is_said_in_its_words_with_what_to_do(beaker, said, hint):
    (beaker / "refusal").write_text(said)
    launcher = Beaker()
    with pytest.raises(LaunchError) as caught:
        launcher.submit(launcher.plan(spec()))
    assert said in str(caught.value)
    assert hint in caught.value.hint


def test_what_is_missing_is_said_before(beaker, monkeypatch, tmp_path):
    launcher = Beaker()
    with pytest.raises(LaunchError, match="no secret MY_KEY") as caught:
        launcher.check(launcher.plan(spec(secrets={"HF_TOKEN": "", "KEY": "MY_KEY"})))
    assert "beaker secret write --workspace=lab/ocr MY_KEY" in caught.value.hint
    plan = launcher.plan(spec(image="", options={"beaker_workspace": None}))
    assert dict(plan.missing) == {"<workspace>": "--beaker-workspace WORKSPACE"}
    assert plan.requests[0].body["spec"]["tasks"][0]["image"] == {"docker": "vllm/vllm-openai:v0.33.0"}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="beaker is not installed") as caught:
        launcher.submit(launcher.plan(spec()))
    assert "--dry-run" in caught.value.hint


def test_hardware_that_beaker_does_not_have_is_wrong_usage():
    with pytest.raises(UsageError, match="cpu or gpu:N"):
        Beaker().plan(spec(hardware="a100"))
