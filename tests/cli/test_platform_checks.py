"""doctor says of each platform whether its client is installed and a login was found, and never shows the login."""

import json
import tomllib

import pytest

from llm_ocr.cli import doctor
from llm_ocr.cli.doctor import ACCOUNTS, State, account_check, login_found
from llm_ocr.errors import install_command

BY_NAME = {account.name: account for account in ACCOUNTS}


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


def test_what_is_missing_comes_with_the_command_that_brings_it(monkeypatch):
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


def test_doctor_lists_them_without_their_values(llm_ocr):
    secrets = {"HF_TOKEN": "hf_hidden", "AWS_ACCESS_KEY_ID": "hidden1", "AWS_SECRET_ACCESS_KEY": "hidden2"}
    done = llm_ocr("doctor", "--json", env=secrets)
    names = {check["name"] for check in json.loads(done.stdout)["checks"]}
    assert names >= {account.name for account in ACCOUNTS} | {"layout detector"}
    assert "hidden" not in done.stdout + done.stderr


def test_layout_detector_works_only_with_both_packages(monkeypatch):
    monkeypatch.setattr(doctor, "package_version", {"torch": "2.13", "transformers": "5.19"}.get)
    assert doctor.detector().state is State.WORKS
    monkeypatch.setattr(doctor, "package_version", {"torch": "2.13"}.get)
    check = doctor.detector()
    assert (check.state, check.fix) == (State.MISSING, install_command("detector"))
    assert "transformers not installed" in check.detail
