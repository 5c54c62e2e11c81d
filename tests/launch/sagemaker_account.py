"""An account of AWS for tests of SageMaker: the fake, with a role, an image and a bucket in it."""

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from store_servers import AWS

from llm_ocr.launch import Job, JobSpec, JobStatus
from llm_ocr.launch.library import with_library
from llm_ocr.launch.sagemaker import SageMaker
from llm_ocr.workspace import Workspace
from tests.fakes.sagemaker import ACCOUNT, REGION, FakeSageMaker, running

NUMBERS = itertools.count()  # moto keeps one state for the whole process
REPOSITORY = Path(__file__).resolve().parents[2]
#: For jobs on a busy machine.
TIMEOUT = 300.0


@dataclass
class Account:
    """Where things are; `launcher` asks often."""

    fake: FakeSageMaker
    launcher: SageMaker
    role: str
    image: str
    number: int

    @property
    def workspace(self) -> str:
        return f"s3://bucket/runs/{self.number}"

    def client(self, service: str) -> Any:
        import boto3

        return boto3.client(service)

    def spec(self, stage: str = "extract", **more: Any) -> JobSpec:
        """A job of a launch of its own, on a machine without GPUs; its image holds the library."""
        launch = f"20260101-{self.number:06d}-abcd"
        given = {"LLM_OCR_WORKSPACE": self.workspace, **more.pop("environment", {})}
        values = {"hardware": "ml.c5.xlarge", "image": self.image, **more}
        values["options"] = {"role": self.role, "volume_size": 30, "wheel": "image", **more.get("options", {})}
        return JobSpec(stage, self.workspace, launch, environment=given, **values)

    def submit(self, spec: JobSpec) -> Job:
        plan = self.launcher.plan(spec)
        assert not plan.missing
        with Workspace.open(self.workspace, True) as workspace:
            (job,) = self.launcher.submit(with_library(plan, workspace))
        return job

    def status(self, job: Job) -> JobStatus:
        (found,) = self.launcher.status([job])
        return found

    def until(self, job: Job, wanted: Callable[[JobStatus], bool]) -> JobStatus:
        """Its status when that is so; fails the test when the job is over before."""
        found: JobStatus = until(lambda: self.status(job), lambda status: status.state.over or wanted(status))
        assert wanted(found), found
        return found

    def ended(self, job: Job) -> JobStatus:
        return self.until(job, lambda status: status.state.over)

    def markers(self, stage: str) -> list[str]:
        """Units that are published."""
        prefix = f"runs/{self.number}/{stage}/"
        found = self.client("s3").list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", ())
        return [one["Key"] for one in found if one["Key"].endswith(".done")]


def until(ask: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """Return the answer once it is as wanted."""
    deadline = time.monotonic() + TIMEOUT
    while not wanted(found := ask()):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)  # asking can be a whole command
    return found


@contextlib.contextmanager
def signed_in(url: str) -> Iterator[None]:
    """The environment of a user with credentials whose AWS is the server at this URL."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LLM_OCR_"))}
    ours = {**AWS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": url}
    with mock.patch.dict(os.environ, {**kept, **ours}, clear=True):
        yield


@contextlib.contextmanager
def opened() -> Iterator[Account]:
    """A fresh account."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    number = next(NUMBERS)
    with running("bucket") as fake, signed_in(fake.url):
        trust = (REPOSITORY / "sagemaker" / "trust-policy.json").read_text()
        role = boto3.client("iam").create_role(RoleName=f"llm-ocr-{number}", AssumeRolePolicyDocument=trust)
        ecr = boto3.client("ecr")
        ecr.create_repository(repositoryName=f"llm-ocr-{number}")
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"}
        ecr.put_image(
            repositoryName=f"llm-ocr-{number}",
            imageTag="1",
            imageManifest=json.dumps({**manifest, "config": {"digest": "sha256:" + "0" * 64}, "layers": []}),
        )
        image = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/llm-ocr-{number}:1"
        yield Account(fake, SageMaker(pause=0.05), role["Role"]["Arn"], image, number)
