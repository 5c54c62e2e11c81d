"""What can be known of a SageMaker job before it is submitted. Nothing is created."""

import json
import logging
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Plan
from llm_ocr.launch.sagemaker.client import ABSENT, DENIED, Clients, code_of, translated
from llm_ocr.launch.sagemaker.requests import TRAINING, default_image, kind_of, parsed_image

_LOGGER = logging.getLogger("llm_ocr")

_SERVICE = "sagemaker.amazonaws.com"
_TYPES = {TRAINING: "TrainingInstanceType", "processing": "ProcessingInstanceType"}
_MIRROR = "Mirror it there (sagemaker/README.md), or correct --image."
_MAKE_ROLE = "Make it (sagemaker/README.md), or correct --role."


def check(plan: Plan, clients: Clients) -> None:
    """Credentials, hardware, role, image, secrets, quota. Raises `LaunchError` for what is known to be wrong.

    What this account may not ask for is logged, and left for SageMaker to say.
    """
    account = _account(clients)
    _check_hardware(plan, clients)
    _check_role(plan, clients, account)
    _check_image(plan, clients)
    _check_secrets(plan, clients)
    _check_quota(plan, clients)


def _account(clients: Clients) -> str:
    with translated("sign in to AWS"):
        return str(clients.of("sts").get_caller_identity()["Account"])


def _check_hardware(plan: Plan, clients: Clients) -> None:
    """Against the names that this boto3 knows."""
    hardware = plan.spec.hardware
    known = clients.of("sagemaker").meta.service_model.shape_for(_TYPES[kind_of(plan.spec)]).enum
    if hardware not in known:
        close = get_close_matches(hardware, known, n=3)
        raise LaunchError(
            f"SageMaker has no machine {hardware} for {kind_of(plan.spec)} jobs, as far as this boto3 knows",
            hint=f"Did you mean {', '.join(close)}?" if close else "Give one as ml.g6e.2xlarge, or update boto3.",
        )


def _check_role(plan: Plan, clients: Clients, account: str) -> None:
    arn = str(plan.spec.options["role"])
    owner, name = arn.split(":")[4], arn.rpartition("/")[2]
    if owner != account:
        hint = "A job's role must be of the account that runs it: correct --role, or use other credentials."
        raise LaunchError(f"the role {arn} is of account {owner}, and these credentials are of {account}", hint=hint)
    found = _asked(lambda: clients.of("iam").get_role(RoleName=name), f"the role {arn}", _MAKE_ROLE)
    if found is None:
        return
    # botocore gives the document as an object, or as text where it could not read it.
    if _SERVICE not in json.dumps(found["Role"].get("AssumeRolePolicyDocument", _SERVICE)):
        raise LaunchError(
            f"SageMaker may not take the role {arn}: its trust policy does not name {_SERVICE}",
            hint=f"aws iam update-assume-role-policy --role-name {name} "
            "--policy-document file://sagemaker/trust-policy.json",
        )


def _check_image(plan: Plan, clients: Clients) -> None:
    image = parsed_image(plan.spec.image)
    if image is None:
        default_image(clients.region)  # a UsageError where AWS has none; only AWS may describe its images
        return
    if image["region"] != clients.region:
        raise UsageError(
            f"--image {plan.spec.image} is in {image['region']}, and the job would run in {clients.region}",
            hint=f"Give --region {image['region']}, or an image in {clients.region}.",
        )
    which = {"imageDigest": image["digest"]} if image["digest"] else {"imageTag": image["tag"] or "latest"}
    ecr = clients.of("ecr", region=image["region"])
    arguments = {"registryId": image["account"], "repositoryName": image["repository"], "imageIds": [which]}
    _asked(partial(ecr.describe_images, **arguments), f"the image {plan.spec.image}", _MIRROR)


def _check_secrets(plan: Plan, clients: Clients) -> None:
    for name, where in plan.spec.secrets.items():
        secret = where or name
        hint = f"aws secretsmanager create-secret --name {secret} --secret-string file://FILE"
        ask = partial(clients.of("secretsmanager").describe_secret, SecretId=secret)
        found = _asked(ask, f"the secret {secret} (--secret {name})", hint)
        if found and found.get("DeletedDate"):
            hint = f"aws secretsmanager restore-secret --secret-id {secret}"
            raise LaunchError(f"the secret {secret} (--secret {name}) is being deleted", hint=hint)


def _check_quota(plan: Plan, clients: Clients) -> None:
    spec = plan.spec
    what = "spot training" if spec.options.get("spot") else kind_of(spec)
    wanted = f"{spec.hardware} for {what} job usage"
    quota = _asked(
        lambda: _quota(clients.of("service-quotas"), wanted), f"the quota {wanted!r}", "", absent_is_known=False
    )
    if quota is not None and quota["Value"] < spec.shards:
        raise LaunchError(
            f"the quota {wanted!r} is {quota['Value']:g}, and {spec.shards} are needed",
            hint=f"Ask for more: aws service-quotas request-service-quota-increase --service-code sagemaker "
            f"--quota-code {quota['QuotaCode']} --desired-value {spec.shards}; or take other hardware, fewer --shards.",
        )


def _quota(client: Any, wanted: str) -> Mapping[str, Any] | None:
    for page in client.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker"):
        for quota in page["Quotas"]:
            if quota["QuotaName"].lower() == wanted.lower():
                found: Mapping[str, Any] = quota
                return found
    _LOGGER.info("AWS lists no quota %r: not checked", wanted)
    return None


def _asked(ask: Callable[[], Any], what: str, hint: str, *, absent_is_known: bool = True) -> Any:
    """The answer; None, and a line in the log, where these credentials may not ask."""
    from botocore.exceptions import ClientError

    with translated(f"ask for {what}"):
        try:
            return ask()
        except ClientError as error:
            code = code_of(error)
            if code in DENIED or (code in ABSENT and not absent_is_known):
                _LOGGER.warning("not checked: %s (%s)", what, code)
                return None
            if code in ABSENT:
                raise LaunchError(f"there is no such thing as {what} ({code})", hint=hint) from error
            raise
