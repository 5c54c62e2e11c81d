"""What is missing or cannot work ends a launch with exit code 2 before anything is uploaded."""

import boto3
import pytest
from sagemaker_account import REPOSITORY, opened

from llm_ocr.cli import main
from tests.fakes.cloud_run import running as run_running
from tests.fakes.gcs import running as gcs_running

ELSEWHERE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/llm-ocr:1"


@pytest.fixture(scope="module")
def account():
    with opened() as found:
        yield found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], ("role", "--role ARN")),
        (["--role", "arn:aws:iam::ACCOUNT:role/llm-ocr-job"], ("ACCOUNT is a placeholder", "Replace it")),
        (["--role", "ROLE", "--image", "vllm/vllm-openai:v0.33.0"], ("only runs images from ECR",)),
        (["--role", "ROLE", "--image", f"{ELSEWHERE}@sha256:DIGEST"], ("DIGEST is a placeholder",)),
        (["--role", "ROLE", "--image", ELSEWHERE], ("is in eu-west-1", "would run in us-east-1", "--region eu-west-1")),
        (["--role", "ROLE", "--region", "cn-north-1"], ("no vLLM image in cn-north-1", "--image")),
        (["--role", "ROLE", "--wheel", "image"], ("stock images do not contain llm-ocr", "--image")),
        (["--role", "ROLE", "--wheel", "llm-ocr==1.0"], ("must be a wheel file",)),
        (["--role", "ROLE", "--namespace", "me"], ("--namespace has no effect on sagemaker",)),
    ],
)
def test_sagemaker(account, given, words, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    flags = [account.role if word == "ROLE" else word for word in given]
    code = main(["launch", "sagemaker", "pipeline", "examples/", "-w", "s3://bucket/first", "--wait", *flags])
    said = capsys.readouterr().err
    assert code == 2, said
    assert all(word in said for word in words), said
    assert "KeyCount" in (found := boto3.client("s3").list_objects_v2(Bucket="bucket", Prefix="first/uploads"))
    assert found["KeyCount"] == 0


def test_a_workspace_whose_keys_the_job_gets_too_late_is_refused(account, capsys):
    flags = ["--role", account.role, "--secret", "AWS_ACCESS_KEY_ID=x"]
    assert main(["launch", "sagemaker", "extract", "-w", "s3://bucket/first", *flags]) == 2
    assert "cannot install llm-ocr from s3://bucket/first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--project", "my-project"], ("region", "--region REGION")),
        (["--project", "PROJECT", "--region", "us-central1"], ("PROJECT is a placeholder",)),
        (["--project", "my-project", "--region", "us-central1", "--image", "<image>"], ("<image> is a placeholder",)),
    ],
)
def test_cloud_run(given, words, capsys, monkeypatch):
    pytest.importorskip("google.cloud.run_v2")
    monkeypatch.chdir(REPOSITORY)
    with gcs_running("bucket") as gcs, run_running() as run:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        monkeypatch.setenv("LLM_OCR_PLATFORM_ENDPOINT", run.url)
        code = main(["launch", "cloud-run", "pipeline", "examples/", "-w", "gs://bucket/run", "--wait", *given])
        assert not run.requests
    said = capsys.readouterr().err
    assert code == 2, said
    assert all(word in said for word in words), said
