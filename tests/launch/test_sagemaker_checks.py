"""What is wrong with an account, a role, an image, a secret, a quota is said before anything is submitted."""

import json
import logging
import os
import sys

import pytest
from cases_sagemaker import spec
from sagemaker_account import opened, signed_in

from llm_ocr.errors import LaunchError, MissingExtra
from llm_ocr.launch.sagemaker import Clients, SageMaker


@pytest.fixture(scope="module")
def account():
    with opened() as found:
        yield found


def refused(account, *, job=None, **more):
    plan = account.launcher.plan(job or account.spec(**more))
    before = dict(account.fake.jobs)
    with pytest.raises(LaunchError) as error:
        account.launcher.check(plan)
    assert account.fake.jobs == before
    return error.value


def test_an_account_in_order_passes(account):
    account.client("secretsmanager").create_secret(Name="in-order/key", SecretString="geheimnis")
    job = account.spec(secrets={"KEY": "in-order/key"})
    assert account.launcher.check(account.launcher.plan(job)) is None
    assert account.launcher.find(job) == []


def test_no_credentials(account, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    plan = account.launcher.plan(account.spec())
    with pytest.raises(LaunchError, match="sign in to AWS") as error:
        SageMaker().check(plan)
    assert "aws configure" in error.value.hint


def test_no_region(account, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    plan = account.launcher.plan(account.spec())
    with pytest.raises(LaunchError, match="region") as error:
        SageMaker().find(plan.spec)
    assert "--region" in error.value.hint


ABSENT = "sha256:" + "f" * 64


@pytest.mark.parametrize(
    ("more", "words", "hint"),
    [
        ({"hardware": "ml.g6e.2xlrage"}, "ml.g6e.2xlrage", "ml.g6e.2xlarge"),
        ({"options": {"role": "arn:aws:iam::123456789012:role/nobody"}}, "role/nobody", "--role"),
        ({"options": {"role": "arn:aws:iam::210987654321:role/llm-ocr"}}, "in account 210987654321", "--role"),
        ({"image": "{repository}:9"}, "{repository}:9", "sagemaker/README.md"),
        ({"image": "{repository}@" + ABSENT}, "{repository}@" + ABSENT, "sagemaker/README.md"),
        ({"image": "{registry}/nothing:1"}, "RepositoryNotFoundException", "sagemaker/README.md"),
    ],
)
def test_what_an_account_does_not_have_is_named(account, more, words, hint):
    repository = account.image.rpartition(":")[0]
    places = {"repository": repository, "registry": repository.partition("/")[0]}
    filled = {name: value.format(**places) if name == "image" else value for name, value in more.items()}
    error = refused(account, **filled)
    assert words.format(**places) in error.args[0]
    assert hint in error.hint


def test_a_role_that_sagemaker_may_not_take(account):
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    made = account.client("iam").create_role(RoleName="of-ec2", AssumeRolePolicyDocument=document)
    error = refused(account, options={"role": made["Role"]["Arn"]})
    assert "trust policy" in error.args[0]
    assert "sagemaker/trust-policy.json" in error.hint


def test_a_secret_that_is_not_there_or_is_being_deleted(account):
    error = refused(account, secrets={"HF_TOKEN": "absent/token"})
    assert "absent/token" in error.args[0]
    assert "--secret HF_TOKEN" in error.args[0]
    assert "create-secret" in error.hint
    secrets = account.client("secretsmanager")
    secrets.create_secret(Name="deleted/token", SecretString="geheimnis")
    secrets.delete_secret(SecretId="deleted/token")
    assert "restore-secret" in refused(account, secrets={"HF_TOKEN": "deleted/token"}).hint


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({}, "training"),
        ({"options": {"spot": True}}, "spot training"),
    ],
)
def test_too_small_a_quota(account, monkeypatch, more, what):
    job = account.spec(shards=2, **more)
    name = f"{job.hardware} for {what} job usage"
    monkeypatch.setitem(account.fake.quotas, name, 1.0)
    error = refused(account, job=job)
    assert f"the quota {name!r} is 1, but the job needs 2" in error.args[0]
    assert "request-service-quota-increase" in error.hint


def test_what_may_not_be_asked_is_left_to_sagemaker_and_said(account, caplog):
    account.fake.refuse("ListServiceQuotas", "AccessDeniedException", "not authorized")
    with caplog.at_level(logging.WARNING, logger="llm_ocr"):
        account.launcher.check(account.launcher.plan(account.spec()))
    assert "not checked: the quota 'ml.c5.xlarge for training job usage'" in caplog.text


@pytest.mark.parametrize(
    ("code", "words", "hint"),
    [
        ("ResourceLimitExceeded", "account-level service limit 'ml.g6e.2xlarge for training'", "Service Quotas"),
        ("AccessDeniedException", "not authorized to perform: iam:PassRole", "launcher-policy.json"),
        ("ValidationException", "Could not assume role", ""),
        ("UnrecognizedClientException", "security token invalid", "aws configure"),
    ],
)
def test_what_sagemaker_refuses_is_told_in_its_words(account, code, words, hint):
    account.fake.refuse("CreateTrainingJob", code, words)
    with pytest.raises(LaunchError) as error:
        account.launcher.submit(account.launcher.plan(account.spec()))
    assert words in error.value.args[0]
    assert hint in error.value.hint
    assert account.launcher.find(account.spec()) == []


@pytest.mark.slow
def test_throttling_may_be_tried_again(account):
    account.fake.refuse("DescribeTrainingJob", "ThrottlingException", "Rate exceeded", times=99)
    try:
        with pytest.raises(LaunchError) as error:
            account.launcher.find(account.spec())
    finally:
        account.fake.faults.clear()
    assert error.value.retryable


def test_a_server_that_nobody_runs():
    with signed_in("http://127.0.0.1:9"):
        os.environ["AWS_MAX_ATTEMPTS"] = "1"
        with pytest.raises(LaunchError, match="sign in to AWS") as error:
            SageMaker().check(SageMaker().plan(spec(options={"region": "eu-west-1"})))
    assert error.value.retryable


def test_without_boto3_the_pip_line_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtra, match="pip install"):
        Clients().of("sts")
