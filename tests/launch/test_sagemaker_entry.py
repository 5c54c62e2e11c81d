"""What runs in a container of SageMaker: secrets, signals, and the failure that is left for the job's description."""

import os
import signal
import subprocess
import sys
import time

import pytest
from sagemaker_account import REPOSITORY, opened, until

from llm_ocr.errors import LaunchError
from llm_ocr.launch.sagemaker.entry import ending, fetched, leave, main, run

SHOW = "import os; print(os.environ.get('KEY'), os.environ.get('LLM_OCR_SECRETS'))"


@pytest.fixture(scope="module")
def account():
    with opened() as found:
        store = found.client("secretsmanager")
        store.create_secret(Name="entry/key", SecretString="geheimnis\n")
        store.create_secret(Name="entry/pairs", SecretString='{"KEY": "of the pairs", "OTHER": "x"}')
        store.create_secret(Name="entry/bytes", SecretBinary=b"x")
        yield found


def python(code, *words):
    return [sys.executable, "-c", code, *words]


def test_the_command_gets_its_secrets_and_not_their_list(account, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LLM_OCR_SECRETS", "KEY=entry/key")
    assert main([str(tmp_path / "message"), *python(SHOW)]) == 0
    assert capfd.readouterr().out == "geheimnis None\n"
    assert not (tmp_path / "message").exists()


def test_secrets_by_name_by_arn_and_as_pairs(account):
    arn = account.client("secretsmanager").describe_secret(SecretId="entry/key")["ARN"]
    assert fetched(f"KEY=entry/key,TWO={arn}", {}) == {"KEY": "geheimnis", "TWO": "geheimnis"}
    assert fetched("KEY=entry/pairs", {}) == {"KEY": "of the pairs"}
    assert fetched("THIRD=entry/pairs", {}) == {"THIRD": '{"KEY": "of the pairs", "OTHER": "x"}'}
    assert fetched("", {}) == {}


@pytest.mark.parametrize(
    "variables",
    [{"AWS_REGION": "us-east-1"}, {"TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x"}],
)
def test_the_region_is_the_jobs(account, monkeypatch, variables):
    """SageMaker does not say it in the variable that boto3 reads."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert fetched("KEY=entry/key", variables) == {"KEY": "geheimnis"}


@pytest.mark.parametrize(("where", "hint"), [("entry/absent", "create-secret"), ("entry/bytes", "--secret-string")])
def test_a_secret_that_cannot_be_had_is_the_jobs_failure(account, tmp_path, monkeypatch, where, hint):
    with pytest.raises(LaunchError, match=where) as error:
        fetched(f"KEY={where}", {})
    assert hint in error.value.hint
    monkeypatch.setenv("LLM_OCR_SECRETS", f"KEY={where}")
    assert main([str(tmp_path / "output" / "failure"), *python("raise SystemExit('ran')")]) == 1
    assert where in (tmp_path / "output" / "failure").read_text()


def test_a_failure_is_told_by_the_commands_own_complaint_and_without_secrets(account, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LLM_OCR_SECRETS", "KEY=entry/key")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    code = """if True:
        import os, sys
        print("progress")
        print("llm-ocr: cannot use", os.environ["KEY"], file=sys.stderr)
        print("Do this.", file=sys.stderr)
        sys.exit(2)"""
    file = tmp_path / "message"
    assert main([str(file), *python(code)]) == 2
    assert file.read_text() == "llm-ocr: cannot use <secret KEY>\nDo this.\n"
    assert "progress\nllm-ocr: cannot use geheimnis\nDo this.\n" in capfd.readouterr().out


def test_a_killed_command_has_the_exit_code_of_its_signal(tmp_path):
    file = tmp_path / "message"
    assert main([str(file), *python("import os, signal; print('last'); os.kill(os.getpid(), signal.SIGKILL)")]) == 137
    assert file.read_text().startswith("exit code 137: ")


def test_a_program_that_is_not_there(tmp_path, capsys):
    file = tmp_path / "message"
    assert main([str(file), "no-such-program"]) == 127
    assert "no-such-program" in file.read_text()
    assert main([str(file)]) == 2


def test_sigterm_goes_to_the_command_once_and_its_exit_code_comes_back(tmp_path):
    """Also when all processes of a container are signalled, and more than once."""
    code = """if True:
        import os, signal, time
        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append(os.write(1, b"told\\n")))
        os.write(1, b"ready\\n")
        while not told:
            time.sleep(0.05)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            time.sleep(0.05)
        raise SystemExit(4)"""
    words = [sys.executable, "-m", "llm_ocr.launch.sagemaker.entry", str(tmp_path / "message"), *python(code)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 4


def test_sigterm_that_comes_while_the_command_is_begun_goes_on_to_it(monkeypatch):
    real = subprocess.Popen

    def told_meanwhile(*words, **more):
        process = real(*words, **more)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", told_meanwhile)
    assert run(["sleep", "600"], {"PATH": "/usr/bin:/bin"})[0] == 128 + signal.SIGTERM


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(os.getppid(), signal.SIGTERM)\n"
        "while True: time.sleep(0.1)\n"
    )
    assert run(python(code), {"PATH": "/usr/bin:/bin"}, grace=0.2)[0] == 137


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_the_command_does_not_outlive_the_entry(tmp_path):
    mark = tmp_path / "alive"
    code = f"import time\nwhile True: open({str(mark)!r}, 'w').write(str(time.time())); time.sleep(0.05)\n"
    words = [sys.executable, "-m", "llm_ocr.launch.sagemaker.entry", str(tmp_path / "message"), *python(code)]
    process = subprocess.Popen(words, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)})
    try:
        until(mark.is_file, bool)
    finally:
        process.kill()
        process.wait()

    def still() -> bool:
        before = mark.stat().st_mtime_ns
        time.sleep(0.3)
        return mark.stat().st_mtime_ns == before

    until(still, bool)


def test_what_is_shown_is_the_last_complaint_else_the_last_lines():
    assert ending(b"llm-ocr: warning: x\nllm-ocr: one\nllm-ocr: two\nhint\n") == "llm-ocr: two\nhint"
    assert ending(b"\x1b[31ma\x1b[0m\rb\n\nc\n") == "a\nb\nc"
    assert ending("\n".join(map(str, range(20))).encode()) == "\n".join(map(str, range(12, 20)))
    assert ending(b"") == "it wrote nothing"
    assert ending(b"\xff\xfe") == "��"


def test_what_is_left_is_whole_utf_8_of_at_most_a_kilobyte(tmp_path, capsys):
    leave(tmp_path / "a", "ä" * 2000)
    data = (tmp_path / "a").read_bytes()
    assert len(data) <= 1024
    assert data.decode().endswith("ä…")
    (tmp_path / "file").write_text("")
    leave(tmp_path / "file" / "message", "why")  # such as on a machine where /opt/ml is another user's
    assert "cannot write" in capsys.readouterr().err
