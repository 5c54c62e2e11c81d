"""sagemaker/README.md, word for word: its commands run in a shell, with a fake AWS and a stand-in for Docker."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from readme_commands import blocks, followed, repository_copy, stand_in
from sagemaker_account import REPOSITORY, signed_in

from llm_ocr.launch import STAGES
from tests.fakes.sagemaker import running
from tests.fakes.sagemaker_jobs import expanded

FOLDER = REPOSITORY / "sagemaker"

SIMULATOR = f"{sys.executable} -m llm_ocr_simulator"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(tmp_path):
    text = (FOLDER / "README.md").read_text()
    aws = stand_in(Path(__file__).with_name("aws_command.py"))
    desk = repository_copy(tmp_path, ["sagemaker", "examples"], {"aws": aws})
    image = {"LLM_OCR_VLLM_COMMAND": SIMULATOR}
    with running(image_environment=image) as fake, signed_in(fake.url):
        run = followed("\n".join(blocks(text)), desk, {**os.environ, "TMPDIR": str(desk)})
        said = f"{run.stdout}\n{run.stderr}"
        assert run.returncode == 0, said
        ends = [(job.name, job.status, [host.message for host in job.hosts]) for job in fake.jobs.values()]
        bodies = [dict(job.body) for job in fake.jobs.values()]
    assert "9 ok" in run.stdout, said
    assert [status for _, status, _ in ends] == ["Completed"] * 3, ends
    assert "hf_geheimnis" not in said + json.dumps(bodies)
    apps = [body["AlgorithmSpecification"] for body in bodies]
    commands = [expanded(one["ContainerEntrypoint"], one["ContainerArguments"]) for one in apps]
    assert all(len(word) <= 256 for one in apps for word in one["ContainerEntrypoint"] + one["ContainerArguments"])
    assert {one["TrainingImage"].partition("/")[0] for one in apps} == {"763104351884.dkr.ecr.us-east-1.amazonaws.com"}
    assert [stage for stage, (_, _, text) in zip(STAGES, commands, strict=True) if f'"{stage}"' in text] == list(STAGES)
    machines = [body["ResourceConfig"]["InstanceType"] for body in bodies]
    assert machines == ["ml.g6e.2xlarge", "ml.g6e.2xlarge", "ml.c5.xlarge"]


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
    calls = set(re.findall(r"\.((?:create|describe|stop)_training_job)\(", code))
    statements = json.loads((FOLDER / "launcher-policy.json").read_text())["Statement"]
    jobs = next(one for one in statements if one["Sid"] == "Jobs")
    allowed = {action.partition(":")[2] for action in jobs["Action"]}
    assert {"".join(word.capitalize() for word in call.split("_")) for call in calls} | {"AddTags"} == allowed
