"""The platform `modal`: a call for each share, by the launcher; the app's own functions do the work."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import modal.exception as errors
import pytest
from cases_modal import spec
from jobs_running import all_submitted, over
from stub_modal import StubModal, dockerfile

from llm_ocr.errors import LaunchError, MissingExtra, UsageError
from llm_ocr.launch import JobSpec, State
from llm_ocr.launch.library import GPU_IMAGE
from llm_ocr_platforms.modal.launcher import GPUS, Modal

pytestmark = pytest.mark.filterwarnings("ignore:The .* function is executing locally")


@pytest.fixture
def account(monkeypatch):
    stub = StubModal()
    stub.install(monkeypatch)
    yield stub
    stub.finish()


def started(code: str, monkeypatch, **more):
    """Calls that run this Python."""
    monkeypatch.setattr(JobSpec, "command", property(lambda self: ("python", "-c", code)))
    launcher = Modal()
    return launcher, all_submitted(launcher, spec(**more))


def test_each_share_is_a_call_on_the_hardware_with_the_secrets(account, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "geheimnis")
    names = "LLM_OCR_SHARD_INDEX LLM_OCR_SHARD_COUNT HF_TOKEN AWS_SECRET_ACCESS_KEY LLM_OCR_WORKSPACE"
    file = tmp_path / "out"
    code = f"import os; open({str(file)!r}, 'a').write(' '.join(os.environ[n] for n in {names!r}.split()) + '\\n')"
    secrets = {"HF_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "aws"}
    launcher, jobs = started(code, monkeypatch, shards=2, hardware="H100", time_limit=3600, secrets=secrets)
    statuses = over(launcher, jobs)
    assert [one.state for one in statuses] == [State.SUCCEEDED] * 2
    assert all(one.started and one.ended and one.seconds is not None for one in statuses)
    assert sorted(file.read_text().splitlines()) == [
        "0 2 geheimnis of modal s3://bucket/run",
        "1 2 geheimnis of modal s3://bucket/run",
    ]
    assert [(one["gpu"], one["timeout"]) for one in account.options] == [("H100", 3600)] * 2
    assert [(job.shard, job.url) for job in jobs] == [(i, f"https://modal.com/id/{jobs[i].id}") for i in (0, 1)]
    assert sorted(set(account.commits)) == ["llm-ocr-data", "llm-ocr-models", "llm-ocr-vllm-cache"]


def test_a_stage_that_fails_is_a_failed_call_with_its_last_line(account, monkeypatch):
    launcher, jobs = started("import sys; print('no model there'); sys.exit(3)", monkeypatch)
    (status,) = over(launcher, jobs)
    assert (status.state, status.reason) == (State.FAILED, "exit code 3: no model there")
    with pytest.raises(RuntimeError, match="no model there"):
        account.calls[jobs[0].id].get()


def test_stage_is_stopped_before_its_time_limit_and_may_publish(account, monkeypatch):
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *a: (print('published', flush=True), "
        "sys.exit(4))); print('begun', flush=True); time.sleep(600)"
    )
    launcher, jobs = started(code, monkeypatch, time_limit=4)
    (status,) = over(launcher, jobs)
    assert status.state is State.TIMED_OUT
    assert status.reason == "stopped at the time limit of 4 s, exit code 4: published"


@pytest.mark.parametrize(
    ("raised", "state", "words"),
    [
        (errors.FunctionTimeoutError("Task's current input hit its timeout of 3600s"), State.TIMED_OUT, "timeout"),
        (errors.InputCancellation("Input was cancelled"), State.CANCELLED, "cancelled"),
        (errors.RemoteError("Runner failed with exit code: -1"), State.FAILED, "exit code: -1"),
        (errors.InternalFailure("worker lost"), State.FAILED, "worker lost"),
        (errors.OutputExpiredError(), State.FAILED, "has deleted its result"),
        (errors.NotFoundError("no such call"), State.FAILED, "no such call"),
    ],
)
def test_what_modal_ends_is_told_apart(account, raised, state, words):
    account.hold = True
    launcher = Modal()
    jobs = launcher.submit(launcher.plan(spec()))
    assert [one.state for one in launcher.status(jobs)] == [State.QUEUED]
    account.calls[jobs[0].id].end(raised)
    (status,) = launcher.status(jobs)
    assert status.state is state
    assert words in status.reason


def test_result_deleted_by_modal_comes_from_the_call_record(account, monkeypatch):
    launcher, jobs = started("pass", monkeypatch)
    over(launcher, jobs)
    account.calls[jobs[0].id].end(errors.OutputExpiredError())
    assert launcher.status(jobs)[0].state is State.SUCCEEDED


def test_not_being_able_to_ask_is_no_failure_of_the_job(account):
    account.hold = True
    launcher = Modal()
    jobs = launcher.submit(launcher.plan(spec()))
    account.calls[jobs[0].id].end(errors.ConnectionError("deadline exceeded"))
    with pytest.raises(LaunchError, match="deadline exceeded"):
        launcher.status(jobs)


def test_submission_before_a_crash_is_found_and_cleaned_up(account):
    account.hold = True
    launcher = Modal()
    assert launcher.find(spec(shards=2)) == []
    jobs = launcher.submit(launcher.plan(spec(shards=2)))
    assert launcher.find(spec(shards=2)) == jobs
    assert launcher.find(spec(shards=2, submission=2)) == []
    launcher.cancel(jobs[0])
    assert account.calls[jobs[0].id].cancelled
    lines = launcher.clean(jobs)
    assert lines == [
        f"deleted: records of {jobs[0].name} on Modal",
        "kept: app llm-ocr (modal app stop llm-ocr) and its volumes (modal volume list)",
    ]
    assert launcher.find(spec(shards=2)) == jobs[1:]


def test_a_log_is_lines_whatever_pieces_it_comes_in(account, monkeypatch):
    launcher, jobs = started("pass", monkeypatch)
    account.calls[jobs[0].id].output = "first line\nsecond\nlast without an end"
    over(launcher, jobs)
    assert list(launcher.logs(jobs[0])) == ["first line", "second", "last without an end"]
    assert list(launcher.logs(jobs[0], follow=True)) == ["first line", "second", "last without an end"]
    assert list(launcher.logs(jobs[0], tail=1)) == ["last without an end"]


def test_an_app_that_is_not_deployed_is_said_before(account):
    launcher = Modal()
    with pytest.raises(LaunchError, match="App not found") as caught:
        launcher.check(launcher.plan(spec(options={"modal_app": "mine"})))
    assert "modal deploy modal-app/app.py" in caught.value.hint
    assert not account.calls


@pytest.mark.parametrize(
    ("raised", "hint"),
    [
        (errors.InvalidError("GPU type H1000 is not supported"), "Did you mean H100"),
        (errors.ResourceExhaustedError("GPU limit of the workspace reached"), "fewer --shards"),
        (errors.AuthError("Token missing"), "modal token new"),
        (errors.PermissionDeniedError("not a member"), "owner"),
        (errors.ConnectionError("no route"), "network"),
    ],
)
def test_what_modal_refuses_is_said_in_its_words_with_what_to_do(account, raised, hint):
    account.refusal = raised
    launcher = Modal()
    plan = launcher.plan(spec(hardware="H1000"))
    for ask in (launcher.check, launcher.submit):
        with pytest.raises(LaunchError) as caught:
            ask(plan)
        assert str(raised) in str(caught.value)
        assert hint in caught.value.hint


def test_an_absent_secret_is_said_before(account, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    launcher = Modal()
    with pytest.raises(LaunchError, match="HF_TOKEN is not set"):
        launcher.check(launcher.plan(spec(secrets={"HF_TOKEN": ""})))
    with pytest.raises(LaunchError, match="not found") as caught:
        launcher.check(launcher.plan(spec(secrets={"HF_TOKEN": "nowhere"})))
    assert "modal secret create nowhere HF_TOKEN=" in caught.value.hint
    with pytest.raises(LaunchError, match="missing key"):
        launcher.check(launcher.plan(spec(secrets={"HF_TOKEN": "aws"})))


def test_secrets_stand_nowhere_but_with_modal(account, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "geheimnis")
    launcher, jobs = started("pass", monkeypatch, secrets={"HF_TOKEN": ""})
    over(launcher, jobs)
    plan = launcher.plan(spec(secrets={"HF_TOKEN": ""}))
    assert "geheimnis" not in f"{plan}{jobs}{account.boards}{account.arguments}"
    assert account.options[0]["secrets"] == [{"HF_TOKEN": "geheimnis"}]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"image": "example.org/mine"}, "LLM_OCR_MODAL_IMAGE=example.org/mine modal deploy"),
        ({"image": "example.org/mine", "hardware": "cpu"}, "LLM_OCR_MODAL_CPU_IMAGE=example.org/mine modal deploy"),
        ({"time_limit": 90000}, "24 hours"),
        ({"hardware": "A10:8"}, "the maximum is A10:4"),
        ({"hardware": "H100:many"}, "a number of GPUs"),
        ({"hardware": "H100:0"}, "a number of GPUs"),
    ],
)
def test_what_can_never_work_is_wrong_usage(more, said):
    with pytest.raises(UsageError) as caught:
        Modal().plan(spec(**more))
    assert said in str(caught.value)


def test_gpus_are_known_by_their_name():
    launcher = Modal()
    assert [launcher.gpus(one) for one in ("cpu", "L40S", "h100:2", "H1000", "L4:x")] == [0, 1, 2, None, None]
    assert all(launcher.gpus(name) == 1 for name in GPUS)


def test_without_the_package_the_pip_line_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "modal", None)
    launcher = Modal()
    with pytest.raises(MissingExtra, match=r'pip install "modal>='):
        launcher.check(launcher.plan(spec()))


def test_preempted_machine_leaves_no_process_and_can_publish(tmp_path):
    """Modal interrupts the function; the stage gets SIGTERM."""
    stage = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *a: (print('published', flush=True), "
        f"open({str(tmp_path / 'done')!r}, 'w').close(), sys.exit(4))); print('begun', flush=True); time.sleep(600)"
    )
    program = (  # SIGINT is ignored if the tests run in the background of a shell
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from llm_ocr_platforms.modal.functions import run_command; run_command(['python', '-c', {stage!r}], {{}})"
    )
    function = subprocess.Popen(
        [sys.executable, "-uc", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert function.stdout.readline() == "begun\n"
        function.send_signal(2)
        function.wait(300)
    finally:
        function.kill()
        function.stdout.close()
    assert (tmp_path / "done").exists()


def test_gpu_stages_have_the_pinned_vllm_and_its_cuda_compiler(account, repository):
    table = (repository / "hf-jobs" / "README.md").read_text()
    resolved = re.findall(r"^\| ([\d.]+) \| .* \| installs \|", table, re.MULTILINE)
    for function in (account.app.stage, account.app.batch):
        lines = dockerfile(function)
        assert re.fullmatch(r"FROM nvidia/cuda:13\.0\.\d+-devel-ubuntu\d\d\.04", lines[0])
        assert "ENTRYPOINT []" in lines
        installed = [line for line in lines if "pip install" in line and "--no-deps" not in line]
        assert len(installed) == 2
        versions = {line.rpartition(" vllm==")[2] for line in installed}  # the second command must not change it
        assert len(versions) == 1
        assert versions <= set(resolved)  # the library is known to install next to it
        assert GPU_IMAGE.endswith(f":v{versions.pop()}")  # as on other platforms


def test_cpu_stages_need_no_cuda_image(account):
    lines = dockerfile(account.app.stage_cpu)
    assert lines[0].startswith("FROM python:3.12")
    (installed,) = [line for line in lines if "pypdfium2" in line]
    assert "vllm" not in installed
    assert not [line for line in lines if "nvidia" in line or "cuda" in line]
    launcher = Modal()
    for hardware, function in [("cpu", "stage_cpu"), ("L40S", "stage")]:
        bodies = [request.body for request in launcher.plan(spec("assemble", hardware=hardware)).requests]
        assert bodies[0]["function"] == function


def test_both_images_install_the_library_of_the_checkout(account, repository):
    for function in (account.app.stage, account.app.stage_cpu):
        lines = dockerfile(function)
        assert lines.count("COPY . /") == 1
        assert "RUN python -m pip install --no-deps /src" in lines[lines.index("COPY . /") :]
    about = tomllib.loads((repository / "pyproject.toml").read_text())
    project, wheel = about["project"], about["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [project["readme"], *project["license-files"], *wheel["packages"], *wheel["force-include"]]
    assert not any(account.app.not_source(Path(name)) for name in ("pyproject.toml", *needed))
    assert all(map(account.app.not_source, (Path(".venv/bin/python"), Path(".git/config"))))


def test_own_images_are_taken_as_they_are(account, monkeypatch):
    monkeypatch.setenv("LLM_OCR_MODAL_IMAGE", "example.org/gpu:1")
    monkeypatch.setenv("LLM_OCR_MODAL_CPU_IMAGE", "example.org/cpu:1")
    account.install(monkeypatch)
    for function, image in [(account.app.stage, "example.org/gpu:1"), (account.app.stage_cpu, "example.org/cpu:1")]:
        lines = dockerfile(function)
        assert f"FROM {image}" in lines
        assert not [line for line in lines if "pip install" in line]
