"""The files in docs/batch: valid for each service, and their commands really run, each machine with its share."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from wheels import make_wheel

import llm_ocr
from llm_ocr.launch.library import GPU_IMAGE
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import EXTRACT, required_key
from llm_ocr.workspace.publish import markers
from tests.fakes.container import Container

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "batch"
SKYPILOT = yaml.safe_load((FOLDER / "skypilot.yaml").read_text())
AWS = json.loads((FOLDER / "aws-batch-job-definition.json").read_text())
AWS_JOB = json.loads((FOLDER / "aws-batch-job.json").read_text())
GOOGLE = json.loads((FOLDER / "google-batch-job.json").read_text())


def aws_errors(operation, values):
    session = pytest.importorskip("botocore.session").get_session()
    from botocore.validate import ParamValidator

    shape = session.get_service_model("batch").operation_model(operation).input_shape
    return ParamValidator().validate(values, shape).generate_report()


def test_aws_batch_takes_the_definition_and_the_job():
    assert aws_errors("RegisterJobDefinition", AWS) == ""
    assert aws_errors("SubmitJob", AWS_JOB) == ""
    assert AWS_JOB["jobDefinition"] == AWS["jobDefinitionName"]
    # Batch itself fills in $(NAME).
    assert "$(" not in json.dumps(AWS)


def test_google_batch_takes_the_job():
    batch = pytest.importorskip("google.cloud.batch_v1")
    from google.protobuf.json_format import ParseError

    job = batch.Job.from_json(json.dumps(GOOGLE), ignore_unknown_fields=False)
    assert job.task_groups[0].task_spec.runnables[0].container.image_uri == GPU_IMAGE
    with pytest.raises(ParseError, match="taskcounts"):
        batch.Job.from_json(json.dumps({**GOOGLE, "taskcounts": 1}), ignore_unknown_fields=False)


def test_skypilot_takes_the_task():
    schemas = pytest.importorskip("sky.utils.schemas", reason="SkyPilot's schema needs its package and 60 others")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(SKYPILOT, schemas.get_task_schema())
    jsonschema.validate(SKYPILOT["resources"], schemas.get_resources_schema())
    with pytest.raises(jsonschema.ValidationError, match="node_count"):
        jsonschema.validate({**SKYPILOT, "node_count": 2}, schemas.get_task_schema())


def test_the_images_are_the_stock_images():
    assert SKYPILOT["resources"]["image_id"] == f"docker:{GPU_IMAGE}"
    (pin,) = re.findall(r"vllm==(\S+)", AWS["containerProperties"]["command"][-1])
    assert f"vllm/vllm-openai:v{pin}" == GPU_IMAGE


def test_nothing_needs_a_program_that_the_images_lack():
    """The images of vLLM, CUDA, and Python contain no Git."""
    for path in (path for path in FOLDER.iterdir() if path.suffix != ".md"):
        assert not re.search(r"git\+|\bgit ", path.read_text()), path.name


def test_the_page_names_every_file():
    page = (FOLDER / "README.md").read_text()
    assert all(f"]({path.name})" in page for path in FOLDER.iterdir() if path.suffix != ".md")


def of_skypilot(index, count):
    script = f"{SKYPILOT['setup']}\n{SKYPILOT['run']}"
    numbered = {"SKYPILOT_NODE_RANK": str(index), "SKYPILOT_NUM_NODES": str(count)}
    managed = {"SKYPILOT_JOB_RANK": "0", "SKYPILOT_NUM_JOBS": "None"}
    return ["bash", "-c", script], {**SKYPILOT["envs"], **numbered, **managed}


def of_aws(index, count):
    properties = AWS["containerProperties"]
    numbered = {"AWS_BATCH_JOB_ARRAY_INDEX": str(index), "AWS_BATCH_JOB_ARRAY_SIZE": str(count)}
    return properties["command"], {one["name"]: one["value"] for one in properties["environment"]} | numbered


def of_google(index, count):
    task = GOOGLE["taskGroups"][0]["taskSpec"]
    container = task["runnables"][0]["container"]
    numbered = {"BATCH_TASK_INDEX": str(index), "BATCH_TASK_COUNT": str(count)}
    return [container["entrypoint"], *container["commands"]], task["environment"]["variables"] | numbered


@pytest.fixture
def programs(tmp_path) -> Path:
    """The programs of an image: its Python is this one, and it has no packages to fetch."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"python3": f'exec "{sys.executable}" "$@"', "apt-get": "exit 0"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("service", [of_skypilot, of_aws, of_google])
def test_commands_install_the_library_and_do_a_share(service, programs, wheel, digital, tmp_path):
    workspace = tmp_path / "w"
    llm_ocr.plan(digital, workspace=workspace, pages_per_unit=1, engine="embedded")
    make_wheel(tmp_path, "vllm", "0.33.0", files={})
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    image = {"PATH": f"{programs}:/usr/bin:/bin", "PIP_FIND_LINKS": str(tmp_path), "PIP_NO_DEPS": "1"}
    command, variables = service(1, 2)
    filled = {"PACKAGE": wheel, "LLM_OCR_WORKSPACE": str(workspace), "LLM_OCR_ENGINE": "embedded"}
    # A new environment, as the definition for AWS makes one, sees the packages of this one.
    own = {"PYTHONPATH": packages, "PIP_TARGET": ""} if service is of_aws else {}
    container = Container(command, {**variables, **filled, **image, **own})
    code, lines = container.wait(240), container.lines()
    container.remove()
    assert code == 0, "\n".join(lines)
    assert any("Successfully installed" in line and "llm-ocr-" in line for line in lines), lines
    # The second machine of two does the second of three units, and no other.
    with Workspace.open(str(workspace)) as opened:
        units = sorted(unit.id for unit in read_units(opened))
        assert set(markers(opened, EXTRACT, required_key(opened, EXTRACT))) == {units[1]}
