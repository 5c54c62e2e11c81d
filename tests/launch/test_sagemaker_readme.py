"""sagemaker/README.md, word for word: its commands run in a shell, with a fake AWS and a stand-in for Docker."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from readme_commands import blocks, followed, put_programs
from sagemaker_account import REPOSITORY, signed_in

from llm_ocr.testing.fake_sagemaker import running

FOLDER = REPOSITORY / "sagemaker"

AWS = """#!/bin/sh
exec {python} {aws} "$@"
"""
#: Images are not pulled in a test: what was asked for is written down, and what was pushed is in the registry.
DOCKER = """#!{python}
import json, sys
import boto3
with open("docker.log", "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "login":
    assert sys.stdin.read().strip()
if sys.argv[1] == "push":
    repository, _, tag = sys.argv[2].partition("/")[2].partition(":")
    image = {{"schemaVersion": 2, "config": {{"digest": "sha256:" + "0" * 64}}, "layers": []}}
    boto3.client("ecr").put_image(repositoryName=repository, imageTag=tag, imageManifest=json.dumps(image),
        imageManifestMediaType="application/vnd.docker.distribution.manifest.v2+json")
"""
SIMULATOR = f"{sys.executable} -m llm_ocr.testing.simulator"


@pytest.fixture
def desk(tmp_path) -> Path:
    """A folder like the repository's root, with the commands beside it."""
    for name in ("sagemaker", "examples"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "hf-token.txt").write_text("hf_geheimnis\n")
    put_programs(tmp_path, {"aws": AWS, "docker": DOCKER}, aws=str(Path(__file__).with_name("aws_command.py")))
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(desk):
    text = (FOLDER / "README.md").read_text()
    image = {"PYTHONPATH": str(REPOSITORY), "LLM_OCR_VLLM_COMMAND": SIMULATOR}
    with running(image_environment=image) as fake, signed_in(fake.url):
        run = followed("\n".join(blocks(text)), desk, {**os.environ, "TMPDIR": str(desk)})
        said = f"{run.stdout}\n{run.stderr}"
        assert run.returncode == 0, said
        ends = [(job.name, job.status, [host.message for host in job.hosts]) for job in fake.jobs.values()]
        bodies = [dict(job.body) for job in fake.jobs.values()]
    assert "9 ok" in run.stdout, said
    assert [status for _, status, _ in ends] == ["Completed"] * 3, ends
    assert "hf_geheimnis" not in said + json.dumps(bodies)
    assert [body["AppSpecification"]["ContainerEntrypoint"][-1] for body in bodies] == [
        "extract",
        "describe",
        "assemble",
    ]
    machines = [body["ProcessingResources"]["ClusterConfig"]["InstanceType"] for body in bodies]
    assert machines == ["ml.g6e.2xlarge", "ml.g6e.2xlarge", "ml.c5.xlarge"]
    assert [row.split()[0] for row in (desk / "docker.log").read_text().splitlines()] == [
        "login",
        *("pull", "tag", "push"),
        *("pull", "tag", "push"),
    ]


@pytest.mark.parametrize("name", ["job-policy", "job-policy-vpc", "launcher-policy", "trust-policy"])
def test_policies_allow_only_what_they_name(name):
    policy = json.loads((FOLDER / f"{name}.json").read_text())
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not any("*" in action for action in actions), statement
        assert sorted(actions) == actions or statement["Sid"] in ("Jobs", "Workspace", "WorkspaceLists")


def test_what_the_launcher_calls_is_what_its_policy_allows():
    """SageMaker's actions are called as its API's operations are."""
    code = "".join(path.read_text() for path in (REPOSITORY / "llm_ocr/launch/sagemaker").glob("*.py"))
    calls = set(re.findall(r'"((?:create|describe|stop)_(?:processing|training)_job)"', code))
    statements = json.loads((FOLDER / "launcher-policy.json").read_text())["Statement"]
    jobs = next(one for one in statements if one["Sid"] == "Jobs")
    allowed = {action.partition(":")[2] for action in jobs["Action"]}
    assert {"".join(word.capitalize() for word in call.split("_")) for call in calls} | {"AddTags"} == allowed


def test_no_folder_here_is_a_package():
    assert not list(FOLDER.rglob("*.py"))
