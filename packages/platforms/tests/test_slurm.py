"""The platform `slurm`: an array of tasks, submitted and watched with the cluster's programs."""

import os
import subprocess
from pathlib import Path

import pytest
from cases_slurm import cases, spec
from fake_slurm_programs import running_slurm
from jobs_running import all_submitted, over
from running import when

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Job, JobSpec, State, launching
from llm_ocr_platforms.slurm.launcher import STATES, Row, Slurm, task_status

FRUGAL = {"engine": "embedded"}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A login node, with nothing but what it has."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("LLM_OCR_"):
            monkeypatch.delenv(name)
    with running_slurm() as (controller, programs):
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        yield controller


def started(code: str, monkeypatch, **more):
    """Tasks that run this Python."""
    monkeypatch.setattr(JobSpec, "command", property(lambda self: ("python", "-c", code)))
    launcher = Slurm()
    return launcher, all_submitted(launcher, spec(**more))


@pytest.mark.slow
def test_an_array_really_does_its_units(slurm, examples, tmp_path):
    workspace = tmp_path / "w"
    llm_ocr.plan(examples / "paper.pdf", workspace=workspace, pages_per_unit=1, **FRUGAL)
    wanted = spec(shards=2, workspace=str(workspace), hardware="cpu")
    wanted.environment.update({"LLM_OCR_ENGINE": "embedded", "LLM_OCR_RENDER_WORKERS": "1", "LLM_OCR_OCR_WORKERS": "1"})
    wanted.environment.pop("LLM_OCR_LAUNCH")
    launcher = Slurm()
    plan = launcher.plan(wanted)
    launcher.check(plan)
    jobs = launcher.submit(plan)
    assert [job.shard for job in jobs] == [0, 1]
    assert [one.state for one in over(launcher, jobs)] == [State.SUCCEEDED] * 2
    status = llm_ocr.open(workspace).status
    assert status.stages["extract"].done == status.stages["extract"].total > 1
    assert any(line for job in jobs for line in launcher.logs(job))


@pytest.mark.slow
def test_command_resubmits_only_what_was_preempted(slurm, examples, tmp_path, monkeypatch):
    """A task is pre-empted before it began; the next array has a task for its only unit."""
    monkeypatch.setattr(launching, "EVERY", 0.5)
    submit, kept = slurm._sbatch, []

    def sbatch(flags, asked):
        before, answer = set(slurm.tasks), submit(flags, asked)
        if "test-only" not in flags:
            kept.append([task for task in slurm.tasks if task not in before])
            if len(kept) == 1:
                slurm.end(kept[0][1], "PREEMPTED")
        return answer

    monkeypatch.setattr(slurm, "_sbatch", sbatch)
    workspace = str(tmp_path / "w")
    flags = ["--hardware", "cpu", "--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1"]
    words = ["launch", "slurm", "extract", str(examples / "paper.pdf"), "-w", workspace, "--shards", "2", "--wait"]
    llm_ocr.plan(examples / "paper.pdf", workspace=workspace, pages_per_unit=1, **FRUGAL)
    assert main([*words, *flags]) == 0
    assert [len(one) for one in kept] == [2, 1]
    status = llm_ocr.open(workspace).status
    assert status.stages["extract"].done == status.stages["extract"].total > 1
    assert main(["jobs", "clean", "-w", workspace]) == 0


@pytest.mark.slow
def test_each_task_is_a_share_and_sees_only_needed_variables(slurm, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "geheimnis")
    monkeypatch.setenv("LLM_OCR_ENGINE", "server")
    monkeypatch.setenv("UNRELATED", "1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    code = (
        "from os import environ as e; from llm_ocr.scheduling.shards import detected_shard; s = detected_shard(e); "
        "print(s.index, s.count, e['HF_TOKEN'], e['LLM_OCR_WORKSPACE'], e['https_proxy'], 'UNRELATED' in e, "
        "'LLM_OCR_ENGINE' in e)"
    )
    launcher, jobs = started(code, monkeypatch, shards=2, secrets={"HF_TOKEN": ""}, workspace="/it's mine")
    over(launcher, jobs)
    assert [list(launcher.logs(job)) for job in jobs] == [
        ["0 2 geheimnis /it's mine http://127.0.0.1:1 False False"],
        ["1 2 geheimnis /it's mine http://127.0.0.1:1 False False"],
    ]
    assert "geheimnis" not in slurm.submitted[0]["stdin"] + " ".join(slurm.submitted[0]["arguments"])


def test_a_secret_can_stand_in_a_file_of_the_cluster(slurm, monkeypatch, tmp_path):
    (tmp_path / "my key").write_text("geheimnis\n")
    where = {"KEY": str(tmp_path / "my key")}
    launcher, jobs = started("import os; print(os.environ['KEY'])", monkeypatch, secrets=where)
    over(launcher, jobs)
    assert list(launcher.logs(jobs[0])) == ["geheimnis"]


def test_a_task_that_fails_says_why(slurm, monkeypatch):
    launcher, jobs = started("import sys; print('no model there'); sys.exit(1)", monkeypatch)
    (status,) = over(launcher, jobs)
    assert (status.state, status.reason) == (State.FAILED, "FAILED, exit code 1: no model there")
    assert status.ended and status.started and status.ended >= status.started


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("TIMEOUT", State.TIMED_OUT),
        ("PREEMPTED", State.PREEMPTED),
        ("NODE_FAIL", State.FAILED),
        ("OUT_OF_MEMORY", State.FAILED),
    ],
)
def test_what_slurm_ends_is_told_apart(slurm, monkeypatch, word, state):
    launcher, jobs = started("import time; print('begun', flush=True); time.sleep(600)", monkeypatch, shards=2)
    when(lambda: all(launcher_log(job) for job in jobs))
    slurm.end(jobs[1].id, word)
    first, second = launcher.status(jobs)
    assert first.state is State.RUNNING
    assert second.state is state
    assert second.reason == f"{word}: begun"


def launcher_log(job) -> str:
    path = Path(job.place["log"])
    return path.read_text() if path.exists() else ""


def test_task_stopped_just_before_its_limit_counts_as_timed_out():
    job = Job("7_0", "task", 0)
    late = Row(job.id, "FAILED", "4:0", 1.0, 3500.0, 3480.0, 3600.0)
    early = Row(job.id, "FAILED", "4:0", 1.0, 100.0, 99.0, 3600.0)
    assert task_status(job, late, "").state is State.TIMED_OUT
    assert task_status(job, early, "").state is State.FAILED


def test_slurm_states_are_mapped_and_new_ones_run_until_ended():
    job = Job("7_0", "task", 0)
    for word, state in STATES.items():
        assert task_status(job, Row(job.id, word, "0:0"), "").state is state
    new = task_status(job, Row(job.id, "HIBERNATING", "0:0"), "")
    assert (new.state, new.reason) == (State.RUNNING, "HIBERNATING")
    assert task_status(job, Row(job.id, "HIBERNATING", "0:0", ended=5.0), "").state is State.FAILED


def test_a_job_is_cancelled_and_its_log_followed_to_the_end(slurm, monkeypatch):
    launcher, jobs = started("import time; print('begun', flush=True); time.sleep(600)", monkeypatch)
    when(lambda: launcher_log(jobs[0]))
    lines = launcher.logs(jobs[0], follow=True)
    assert next(lines) == "begun"
    launcher.cancel(jobs[0])
    (status,) = over(launcher, jobs)
    assert status.state is State.CANCELLED
    assert list(lines) == []
    launcher.cancel(jobs[0])
    assert list(launcher.logs(jobs[0], tail=1)) == ["begun"]
    assert launcher.clean(jobs) == [f"kept: {jobs[0].place['log']}"]


def test_what_was_submitted_before_a_crash_is_found(slurm, monkeypatch):
    launcher = Slurm()
    assert launcher.find(spec(shards=3)) == []
    slurm.hold = True
    jobs = launcher.submit(launcher.plan(spec(shards=3)))
    assert launcher.find(spec(shards=3)) == jobs
    assert [one.state for one in launcher.status(jobs)] == [State.QUEUED] * 3
    assert launcher.find(spec(shards=3, submission=2)) == []


def test_queue_and_accounts_each_replace_the_other_if_it_forgets(slurm, monkeypatch):
    launcher, jobs = started("pass", monkeypatch)
    over(launcher, jobs)
    slurm.forgets = True
    assert launcher.status(jobs)[0].state is State.SUCCEEDED
    slurm.forgets, slurm.accounts = False, False
    assert launcher.status(jobs)[0].state is State.SUCCEEDED
    slurm.forgets = True
    (status,) = launcher.status(jobs)
    assert (status.state, status.reason) == (State.FAILED, "Slurm does not have this job, or no longer")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("invalid partition specified: gpuu", "gpu gpu:a100:8"),
        ("Batch job submission failed: Requested node configuration is not available", "gpu gpu:a100:8"),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "--account"),
        ("QOSMaxSubmitJobPerUserLimit", "fewer --shards"),
    ],
)
def test_what_slurm_refuses_is_said_before_anything_is_submitted(slurm, words, hint):
    slurm.refusal = words
    launcher = Slurm()
    with pytest.raises(LaunchError) as caught:
        launcher.check(launcher.plan(spec()))
    assert words in str(caught.value)
    assert hint in caught.value.hint
    assert slurm.submitted == []


def test_an_absent_secret_and_an_absent_slurm_are_said_before(slurm, monkeypatch, tmp_path):
    launcher = Slurm()
    plan = launcher.plan(spec(secrets={"HF_TOKEN": ""}))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(LaunchError, match="HF_TOKEN is not set"):
        launcher.check(plan)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="sbatch is not installed") as caught:
        launcher.check(launcher.plan(spec()))
    assert "login node" in caught.value.hint


@pytest.mark.parametrize(
    ("hardware", "arguments", "memory"),
    [
        ("gpu:1", [], "mem=32G"),
        ("gpu:a100:4", [], "mem=128G"),
        ("cpu", [], "mem=16G"),
        ("gpu:2", ["--mem=500G"], "mem=500G"),
        ("gpu:2", ["--mem=0"], "mem=0"),
        ("gpu:2", ["--mem-per-gpu=40G"], "mem-per-gpu=40G"),
        ("cpu", ["--mem-per-cpu=2G"], "mem-per-cpu=2G"),
    ],
)
def test_a_task_asks_for_memory_unless_the_user_does(slurm, hardware, arguments, memory):
    """Without it a task gets the cluster's default, which may be a few GB, and dies when a model loads."""
    slurm.hold = True
    launcher = Slurm()
    plan = launcher.plan(spec(hardware=hardware, options={"slurm_arg": arguments}))
    launcher.check(plan)
    (job,) = launcher.submit(plan)
    assert slurm.tasks[job.id].memory == memory


def test_node_with_too_little_memory_is_an_error_naming_the_flag(slurm):
    slurm.refusal = "Memory specification can not be satisfied"
    with pytest.raises(LaunchError, match="Memory specification") as caught:
        Slurm().check(Slurm().plan(spec()))
    assert "--slurm-arg=--mem=" in caught.value.hint


@pytest.mark.parametrize("hardware", ["a100", "gpu:0", "gpu:a100:", "gpu:1\n#SBATCH --uid=0"])
def test_hardware_that_slurm_could_not_read_is_wrong_usage(hardware):
    with pytest.raises(UsageError, match="must be cpu, gpu:N, or gpu:TYPE:N"):
        Slurm().plan(spec(hardware=hardware))


@pytest.mark.parametrize("argument", ["account=lab", "--account=lab\nrm -rf /"])
def test_an_argument_that_is_none_is_wrong_usage(argument):
    with pytest.raises(UsageError, match="--slurm-arg"):
        Slurm().plan(spec(options={"slurm_arg": [argument]}))


@pytest.mark.parametrize(
    "argument", ["--job-name=ocr", "-Jocr", "--output=%x.log", "-o x", "--chdir=/tmp", "--export=ALL"]
)
def test_arguments_by_which_tasks_are_found_are_refused(argument):
    with pytest.raises(UsageError, match="the launch would not find its jobs or their logs"):
        Slurm().plan(spec(options={"slurm_arg": [argument]}))
    Slurm().plan(spec(options={"slurm_arg": ["--export-file=variables", "--array=0-0%1", "--account=lab"]}))


def test_gpus_are_known_by_their_name():
    launcher = Slurm()
    assert [launcher.gpus(one) for one in ("cpu", "gpu:1", "gpu:a100:4", "gpu", "A100")] == [0, 1, 4, 1, None]


def test_a_script_is_sound_bash():
    for name, one in cases():
        script = Slurm().plan(one).requests[0].body["script"]
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0, name
