"""Promises about the workflow files: what starts them, what they may do, what they publish."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).resolve().parent.parent / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.y*ml"))


def workflow(name: str) -> dict:
    found = yaml.safe_load((FOLDER / name).read_text())
    found["on"] = found.pop(True, found.get("on"))  # YAML 1.1 reads the word `on` as true
    return found


def steps(job: dict) -> list[dict]:
    return job["steps"]


each_file = pytest.mark.parametrize("name", [path.name for path in FILES])


def test_the_workflows_are_these():
    assert [path.name for path in FILES] == ["audit.yml", "images.yml", "runpod-release.yml"]


@each_file
def test_nothing_may_be_written_unless_a_job_says_so(name):
    found = workflow(name)
    assert found["permissions"] == {"contents": "read"}
    for job in found["jobs"].values():
        writes = [what for what, how in job.get("permissions", {}).items() if how == "write"]
        assert len(writes) <= 1


@each_file
def test_actions_are_pinned_and_runners_named(name):
    for job in workflow(name)["jobs"].values():
        assert not job["runs-on"].endswith("latest")
        assert job["timeout-minutes"] <= 120
        for step in steps(job):
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", step["uses"])


@each_file
def test_nothing_that_others_write_is_pasted_into_a_script(name):
    for job in workflow(name)["jobs"].values():
        for step in steps(job):
            assert "${{" not in step.get("run", "")


def test_a_pull_request_builds_all_images_and_pushes_none():
    found = workflow("images.yml")
    assert "pull_request" in found["on"] and "pull_request_target" not in found["on"]
    check, publish = found["jobs"]["check"], found["jobs"]["publish"]
    assert check["if"] == "github.event_name == 'pull_request'"
    assert "permissions" not in check
    assert check["strategy"]["matrix"]["image"] == publish["strategy"]["matrix"]["image"] == ["gpu", "cpu", "runpod"]
    text = " ".join(step.get("run", "") for step in steps(check))
    assert "docker/build.sh" in text
    assert "push" not in text and "login" not in text
    assert not any("secrets." in str(step) for step in steps(check))


def test_main_publishes_what_it_has_built():
    found = workflow("images.yml")
    assert found["on"]["push"]["branches"] == ["main"]
    assert "workflow_dispatch" in found["on"]
    publish = found["jobs"]["publish"]
    assert publish["if"] == "github.event_name != 'pull_request' && github.ref == 'refs/heads/main'"
    assert publish["permissions"] == {"contents": "read", "packages": "write"}
    built = [step.get("name") for step in steps(publish)]
    assert built.index("Build") < built.index("Publish")
    assert steps(publish)[: len(built) - 1] == steps(found["jobs"]["check"]), "what was checked is what is published"


def test_the_tags_are_latest_main_and_the_commit(tmp_path):
    step = next(step for step in steps(workflow("images.yml")["jobs"]["publish"]) if step.get("name") == "Publish")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n[ "$1" = login ] && cat > {tmp_path}/token\necho "$@" >> {tmp_path}/calls\n')
    docker.chmod(0o755)
    given = {"GITHUB_REPOSITORY_OWNER": "Some-Owner", "GITHUB_SHA": "abc", "GITHUB_ACTOR": "me", "IMAGE": "gpu"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOKEN": "secret", **given}
    subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, check=True)
    calls = (tmp_path / "calls").read_text()
    pushed = re.findall(r"^push (\S+)$", calls, re.MULTILINE)
    assert pushed == [f"ghcr.io/some-owner/llm-ocr-gpu:{tag}" for tag in ("latest", "main", "sha-abc")]
    assert "secret" not in calls and (tmp_path / "token").read_text().strip() == "secret"


def test_base_image_comes_from_repository_or_workflow_input():
    found = workflow("images.yml")
    assert found["env"]["VLLM_BASE_IMAGE"] == "${{ inputs.vllm_base_image || vars.VLLM_BASE_IMAGE }}"
    assert found["on"]["workflow_dispatch"]["inputs"]["vllm_base_image"]["required"] is False


def test_push_to_main_makes_a_pre_release_unless_it_opts_out():
    found = workflow("runpod-release.yml")
    assert found["on"]["push"]["branches"] == ["main"]
    assert "workflow_dispatch" in found["on"] and "pull_request" not in found["on"]
    (job,) = found["jobs"].values()
    assert "!contains(github.event.head_commit.message, '[skip runpod]')" in job["if"]
    assert job["if"].startswith("github.event_name == 'workflow_dispatch' ||"), "a manual run always makes one"
    assert job["permissions"] == {"contents": "write"}
    assert "gh release create" in steps(job)[0]["run"] and "--prerelease" in steps(job)[0]["run"]
