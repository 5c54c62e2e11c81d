"""kubernetes-jobs/README.md, word for word: its commands run in a shell, with a cluster whose pods are processes."""

import os
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from fake_kubernetes import running
from fake_kubernetes_pods import Node
from readme_commands import REPOSITORY, blocks, followed, repository_copy, stand_in
from store_servers import s3_server

from llm_ocr_platforms.kubernetes.launcher import _RIGHTS

pytestmark = pytest.mark.needs("kubernetes.client")

FOLDER = REPOSITORY / "kubernetes-jobs"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_works_in_its_order(tmp_path):
    kubectl = stand_in(Path(__file__).with_name("kubectl_command.py"))
    names = ["kubernetes-jobs", "examples", "llm_ocr", "pyproject.toml"]
    repository_copy(tmp_path, names, {"kubectl": kubectl})
    keys = {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "aws_geheimnis"}
    simulator = {"LLM_OCR_VLLM_COMMAND": f"{shlex.quote(sys.executable)} -m llm_ocr_simulator"}
    with s3_server("my-ocr-bucket") as endpoint:
        reached = {"AWS_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": "us-east-1"}
        with running(environment={**reached, **simulator}) as cluster:
            cluster.nodes = [Node(gpus=1)]
            kubeconfig = {"KUBECONFIG": str(cluster.kubeconfig(tmp_path / "config"))}
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("LLM_OCR_", "AWS_"))}
            commands = "\n".join(blocks((FOLDER / "README.md").read_text()))
            done = followed(commands, tmp_path, {**kept, **kubeconfig, **keys, **reached})
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert "9 ok" in done.stdout, said
    assert done.stdout.count("deleted: Job llm-ocr/") == 3, said
    assert "geheimnis" not in said
    assert cluster.jobs == {}


def test_role_has_the_rights_that_launching_needs_and_no_secrets():
    from kubernetes.client import models

    role = yaml.safe_load((FOLDER / "launcher-role.yaml").read_text())
    models.V1Role.model_validate(role)
    given = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {(group, "/".join(filter(None, (name, part))), verb) for group, name, part, verb in _RIGHTS}
    assert given == needed | {("", "events", "list")}
