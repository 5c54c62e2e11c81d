"""Platforms for notebooks: the real client of each against a stand-in whose jobs run, and the documents to read.

Each gives other values of the notebook's parameters, the environment of a user who is signed in, code for the kernel.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from fine_vision import put_fine_vision
from notebook_runs import REPOSITORY
from store_servers import AWS, s3_server

#: One process of each kind, and the engine without a model: machines of stand-ins have no GPU.
FRUGAL = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1, "max_failed_rate": 0.5}


@dataclass(frozen=True)
class Setup:
    """What `notebook_runs.execute` takes."""

    values: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    start: str = ""


Opened = contextlib.AbstractContextManager[Setup]


def documents(work: Path) -> list[str]:
    """A folder of the user's own documents, one of them broken, as a notebook in `work` names it."""
    folder = work / "documents"
    folder.mkdir(parents=True)
    for name in ("paper.pdf", "invoice.png"):
        shutil.copy(REPOSITORY / "examples" / name, folder / name)
    (folder / "unreadable.pdf").write_bytes(b"%PDF-1.7\nthat is all")
    return ["documents"]


def values(work: Path, workspace: str, **settings: Any) -> dict[str, Any]:
    """Parameters for the user's own documents."""
    return {"WORKSPACE": workspace, "DOCUMENTS": documents(work), "SETTINGS": {**FRUGAL, **settings}}


@contextlib.contextmanager
def local(work: Path) -> Iterator[Setup]:
    """The notebook's own process."""
    yield Setup({"DOCUMENTS": documents(work), "SETTINGS": {**FRUGAL, "pages_per_unit": 2}})


@contextlib.contextmanager
def sagemaker(work: Path) -> Iterator[Setup]:
    """Amazon SageMaker and all that is around it."""
    import boto3

    from tests.fakes.sagemaker import REGION, running

    with running("notebook-sagemaker") as fake:
        signed_in = {**AWS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": fake.url}
        with mock.patch.dict(os.environ, signed_in):
            trust = (REPOSITORY / "sagemaker" / "trust-policy.json").read_text()
            role = boto3.client("iam").create_role(RoleName="llm-ocr-notebook", AssumeRolePolicyDocument=trust)
        settings = {"role": role["Role"]["Arn"], "hardware": "ml.c5.xlarge"}
        yield Setup(values(work, "s3://notebook-sagemaker/run-1", **settings), signed_in)


@contextlib.contextmanager
def hf_jobs(work: Path) -> Iterator[Setup]:
    """The Hub, with a bucket of the user's and the dataset that the notebook reads where no documents are named."""
    from huggingface_hub import HfApi

    from tests.fakes.hub import TOKEN, running

    work.mkdir(parents=True)
    with running() as (hub, environment):
        HfApi(endpoint=hub.url, token=TOKEN).create_bucket("tester/ocr", private=True)
        put_fine_vision(hub)
        settings = {**FRUGAL, "hardware": "cpu-upgrade"}
        parameters = {"WORKSPACE": "hf://buckets/tester/ocr/run-1", "DOCUMENTS": [], "SETTINGS": settings}
        yield Setup(parameters, environment)


@contextlib.contextmanager
def cloud_run(work: Path) -> Iterator[Setup]:
    """Google Cloud Run, and Cloud Storage, which its jobs reach by their account."""
    from tests.fakes.cloud_run import running
    from tests.fakes.gcs import running as storage

    with storage("my-bucket") as gcs, running(environment={"STORAGE_EMULATOR_HOST": gcs.url}) as run:
        environment = {"STORAGE_EMULATOR_HOST": gcs.url, "LLM_OCR_PLATFORM_ENDPOINT": run.url}
        settings = {"project": "my-project", "region": "us-central1", "hardware": "cpu"}
        yield Setup(values(work, "gs://my-bucket/run-1", **settings), environment)


#: What a stage writes goes to the log of its call, as on Modal, and not into the notebook, whose process it is in.
_STUB_MODAL = f"""
import sys
from types import SimpleNamespace
import pytest
from llm_ocr_platforms.modal import functions as modal_functions
sys.path.append({str(REPOSITORY / "packages" / "platforms" / "tests")!r})
from stub_modal import StubModal
stub = StubModal()
stub.secrets["aws"] = {dict(list(AWS.items())[:2])!r}
stub.install(pytest.MonkeyPatch())
def write(text):
    list(stub.calls.values())[-1].output += text
modal_functions.sys = SimpleNamespace(executable=sys.executable, stdout=SimpleNamespace(write=write))
"""


@contextlib.contextmanager
def modal(work: Path) -> Iterator[Setup]:
    """A Modal in the notebook's own process, whose calls run the functions of the real app."""
    with s3_server("notebook-modal") as endpoint:
        secrets = ["AWS_ACCESS_KEY_ID=aws", "AWS_SECRET_ACCESS_KEY=aws"]
        made = values(work, "s3://notebook-modal/run-1", secret=secrets, hardware="cpu")
        yield Setup(made, {**AWS, "AWS_ENDPOINT_URL": endpoint}, _STUB_MODAL)


PLATFORMS: Mapping[str, Callable[[Path], Opened]] = {
    "cloud_run": cloud_run,
    "hf_jobs": hf_jobs,
    "local": local,
    "modal": modal,
    "sagemaker": sagemaker,
}
