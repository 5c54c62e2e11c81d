"""Bodies of CreateTrainingJob for a job. Pure functions.

Limits are those of botocore's service model (1.44.5).
"""

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.config.environment import ERROR_FILE
from llm_ocr.costs.estimates import gpus_by_size
from llm_ocr.errors import UsageError
from llm_ocr.launch import JobSpec, Plan, Request
from llm_ocr.launch.library import installs, job_command, library_notes, serves

CALL = "create_training_job"

ROLE, IMAGE, OUTPUT = "<role>", "<image>", "<output>"
_HOW = {
    ROLE: "--role ARN (sagemaker/README.md)",
    IMAGE: "--image ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY:TAG",
    OUTPUT: "--training-output s3://BUCKET/PREFIX",
}

#: AWS's newest image with vLLM, an image without CUDA for the other jobs, and the accounts that hold both, as
#: sagemaker-core 2.27.0 (October 2026) lists them. SageMaker takes no image from Docker Hub.
_VLLM = "vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
_CPU = "pytorch-training:2.8.0-cpu-py312-ubuntu22.04-sagemaker"
_ACCOUNTS: Mapping[str, str] = {
    **dict.fromkeys(("us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1"), "763104351884"),
    **dict.fromkeys(("eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3"), "763104351884"),
    **dict.fromkeys(("ap-northeast-1", "ap-northeast-2", "ap-south-1"), "763104351884"),
    **dict.fromkeys(("ap-southeast-1", "ap-southeast-2"), "763104351884"),
    **{"af-south-1": "626614931356", "ap-east-1": "871362719292", "ap-east-2": "975050140332"},
    **{"ap-northeast-3": "364406365360", "ap-south-2": "772153158452", "ap-southeast-3": "907027046896"},
    **{"ap-southeast-4": "457447274322", "ap-southeast-5": "550225433462", "ap-southeast-6": "633930458069"},
    **{"ap-southeast-7": "590183813437", "ca-west-1": "204538143572", "eu-central-2": "380420809688"},
    **{"eu-south-1": "692866216735", "eu-south-2": "503227376785", "il-central-1": "780543022126"},
    **{"me-central-1": "914824155844", "me-south-1": "217643126080", "me-west-1": "124382933778"},
    "mx-central-1": "637423239942",
}
LOADER = 'import base64, sys, zlib; exec(zlib.decompress(base64.b64decode("".join(sys.argv[1:]))))'

#: AWS Secrets Manager secrets that a job fetches: NAME=ID, separated by commas.
SECRETS = "LLM_OCR_SECRETS"

#: Seconds. SageMaker's own default for training jobs.
DEFAULT_TIME_LIMIT = 86_400
_LONGEST = 2_419_200
#: File whose text is part of a job's description.
_FAILURE = "/opt/ml/output/failure"
_LONGEST_VALUE = 512
_MOST_VARIABLES = 100
_MOST_SUBNETS, _MOST_GROUPS = 16, 5
_LARGEST_DISK = 16_384  # GB
#: Number of restarts of a job by SageMaker after an internal error.
_RETRIES = 3

_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+")
_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?"
    r"/(?P<repository>[a-z0-9][a-z0-9._/-]*)(?::(?P<tag>[\w.-]{1,128}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SECRET = re.compile(r"[\w/+=.@:-]{1,200}", re.ASCII)


def default_image(spec: JobSpec, region: str) -> str:
    """Return the address of AWS's image for a job in a region. Raises `UsageError` where AWS has none."""
    account = _ACCOUNTS.get(region)
    if account is None:
        raise UsageError(f"AWS has no vLLM image in {region}", hint=f"Mirror one there, and set {_HOW[IMAGE]}.")
    return f"{account}.dkr.ecr.{region}.amazonaws.com/{_stock(spec)}"


def _stock(spec: JobSpec) -> str:
    return _VLLM if serves(spec, gpus_of(spec.hardware)) else _CPU


def compressed(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return entrypoint and arguments that run `python3 -c SOURCE ARGUMENT…` within SageMaker's limits.

    SageMaker accepts 100 arguments of 256 characters each, without line breaks.
    """
    program = f"import sys\nsys.argv[1:] = {list(command[3:])!r}\n{command[2]}"
    text = base64.b64encode(zlib.compress(program.encode(), 9)).decode()
    return [*command[:2], LOADER], [text[start : start + 256] for start in range(0, len(text), 256)]


def parsed_image(image: str) -> Mapping[str, str | None] | None:
    """Return account, region, repository, tag, and digest of an image in ECR; None for any other image."""
    match = _IMAGE.fullmatch(image)
    return match.groupdict() if match and len(image) <= 255 else None


def make_plan(platform: str, spec: JobSpec) -> Plan:
    """Return the plan.

    Raises:
        UsageError: SageMaker can never accept the job.
    """
    _check(spec)
    body = _body(spec)
    here = {ROLE: body["RoleArn"], OUTPUT: _output(spec)}
    missing = {placeholder: _HOW[placeholder] for placeholder, value in here.items() if value == placeholder}
    notes = library_notes(spec, gpus_of(spec.hardware))
    if not spec.image:
        notes.append(f"{IMAGE} is the AWS image {_stock(spec)} in the region of the job")
    notes.append(f"SageMaker writes its own files to {_output(spec)}")
    if spec.options.get("kms_key") and has_local_disks(spec.hardware):
        notes.append(f"--kms-key has no effect on the disks of {spec.hardware}, which have hardware encryption")
    return Plan(platform, spec, (Request(CALL, body),), missing, tuple(notes))


def _body(spec: JobSpec) -> dict[str, Any]:
    seconds, key, folder = spec.time_limit or DEFAULT_TIME_LIMIT, spec.options.get("kms_key"), _output(spec)
    image = spec.image or (default_image(spec, spec.options["region"]) if spec.options.get("region") else IMAGE)
    stops: dict[str, int] = {"MaxRuntimeInSeconds": seconds}
    machines = {
        "InstanceCount": spec.shards,
        "InstanceType": spec.hardware,
        "VolumeSizeInGB": spec.options.get("volume_size") or 100,
    }
    if key and not has_local_disks(spec.hardware):
        machines["VolumeKmsKeyId"] = key
    # Entrypoint and arguments in exec form: a shell in between would not pass on SIGTERM.
    wrapper = ("python", "-m", "llm_ocr.launch.sagemaker.entry")
    command = job_command(spec, gpus=gpus_of(spec.hardware), wrapper=wrapper)
    container = {"ContainerEntrypoint": command}
    if installs(spec):
        container = {"ContainerEntrypoint": command[:3], "ContainerArguments": command[3:]}
    body: dict[str, Any] = {
        "TrainingJobName": spec.name,
        "ResourceConfig": machines,
        "StoppingCondition": stops,
        "AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File", **container},
        "Environment": _environment(spec),
        "RoleArn": spec.options.get("role") or ROLE,
        "OutputDataConfig": {"S3OutputPath": folder, **({"KmsKeyId": key} if key else {})},
        # The folder stays empty, since the workspace holds the progress. Without it, SageMaker waits less for spot
        # machines.
        "CheckpointConfig": {"S3Uri": f"{folder}/{spec.name}/checkpoints", "LocalPath": "/opt/ml/checkpoints"},
        "RetryStrategy": {"MaximumRetryAttempts": _RETRIES},
        # The bill can be split by these tags.
        "Tags": [{"Key": "llm-ocr-launch", "Value": spec.launch}, {"Key": "llm-ocr-stage", "Value": spec.stage}],
    }
    if spec.options.get("spot"):
        body["EnableManagedSpotTraining"] = True
        stops["MaxWaitTimeInSeconds"] = min(2 * seconds, _LONGEST)
    if subnets := spec.options.get("subnet"):
        groups = list(spec.options.get("security_group") or ())
        body["VpcConfig"] = {"SecurityGroupIds": groups, "Subnets": list(subnets)}
    return body


def _environment(spec: JobSpec) -> dict[str, str]:
    variables = {**spec.environment, ERROR_FILE: _FAILURE}
    if not spec.secrets:
        return variables
    secrets = ",".join(f"{name}={where or name}" for name, where in spec.secrets.items())
    # Not AWS_DEFAULT_REGION, which would also apply to the workspace's store.
    image = parsed_image(spec.image) or {}
    region = spec.options.get("region") or image.get("region")
    return {**variables, SECRETS: secrets, **({"AWS_REGION": region} if region else {})}


def _output(spec: JobSpec) -> str:
    """Return an S3 folder for SageMaker's output.

    SageMaker writes to Amazon's S3 only, but the workspace may be on another server.
    """
    given = spec.options.get("training_output")
    if given:
        return str(given).rstrip("/")
    if spec.workspace.startswith("s3://") and "LLM_OCR_WORKSPACE_ENDPOINT" not in spec.environment:
        return f"{spec.workspace.rstrip('/')}/launches/{spec.launch}/sagemaker"
    return OUTPUT


def _check(spec: JobSpec) -> None:
    """Raise `UsageError` for a job that SageMaker can never accept."""
    role, output = spec.options.get("role"), spec.options.get("training_output")
    if role and not _ROLE.fullmatch(role):
        raise UsageError(f"--role {role}: must be the ARN of a role", hint="Example: arn:aws:iam::ACCOUNT:role/NAME")
    if spec.image and parsed_image(spec.image) is None:
        hint = f"Mirror it (sagemaker/README.md), and set {_HOW[IMAGE]}"
        raise UsageError(f"--image {spec.image}: SageMaker only runs images from ECR", hint=hint)
    if output and not re.fullmatch(r"s3://[^/]+(/.*)?", output):
        raise UsageError(f"--training-output {output}: must be s3://BUCKET/PREFIX")
    for name, where in spec.secrets.items():
        if not _SECRET.fullmatch(where or name):
            raise UsageError(
                f"--secret {name}={where}: must be the name or ARN of a secret in AWS Secrets Manager",
                hint="Use the name, not the value. Create the secret with aws secretsmanager create-secret.",
            )
    # The library is downloaded before the job has its secrets, and thus with the role alone.
    keys = any(name.startswith("AWS_") for name in spec.secrets)
    if installs(spec) and (keys or not spec.workspace.startswith("s3://")):
        raise UsageError(
            f"jobs on SageMaker cannot install llm-ocr from {spec.workspace}: their role only grants access to s3://",
            hint="Use a workspace on s3://, or an image that contains llm-ocr: --wheel image --image IMAGE.",
        )
    if (spec.time_limit or 0) > _LONGEST:
        hint = "Use a shorter limit: the next job continues the stage."
        raise UsageError(f"--time-limit {spec.time_limit} s: a job can run for at most {_LONGEST} s", hint=hint)
    if (size := spec.options.get("volume_size") or 0) > _LARGEST_DISK:
        raise UsageError(f"--volume-size {size}: the maximum is {_LARGEST_DISK} GB")
    subnets, groups = spec.options.get("subnet") or (), spec.options.get("security_group") or ()
    if bool(subnets) != bool(groups):
        raise UsageError("--subnet requires --security-group, and vice versa")
    if len(subnets) > _MOST_SUBNETS or len(groups) > _MOST_GROUPS:
        raise UsageError(f"at most {_MOST_SUBNETS} --subnet and {_MOST_GROUPS} --security-group are allowed")
    variables = _environment(spec)
    if len(variables) > _MOST_VARIABLES:
        raise UsageError(f"a SageMaker job can have at most {_MOST_VARIABLES} variables, not {len(variables)}")
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"{name!r} is not a valid variable name on SageMaker")
        if len(value) > _LONGEST_VALUE:
            raise UsageError(
                f"{name} has {len(value)} characters: a job on SageMaker allows {_LONGEST_VALUE}",
                hint="Use fewer secrets, or shorter names for them." if name == SECRETS else "Shorten it.",
            )


#: Accelerated families that are not counted here: their content is unknown, or is not an NVIDIA GPU.
_OTHERS = ("p2", "p3", "p6e", "trn", "inf", "dl")


def gpus_of(hardware: str) -> int | None:
    """Return the GPUs of one machine; None for an unknown name."""
    family, size = _parts(hardware)
    if not size:
        return None
    if sizes := gpus_by_size(f"ml.{family}"):
        return sizes.get(size)
    return None if family.startswith(_OTHERS) else 0


def has_local_disks(hardware: str) -> bool:
    """Return whether the machine has local disks, encrypted by hardware, as all with GPUs have; they accept no key."""
    family = _parts(hardware)[0]
    return family == "r5d" or bool(gpus_by_size(f"ml.{family}"))


def _parts(hardware: str) -> tuple[str, str]:
    """Return family and size of `ml.FAMILY.SIZE`; empty for other names."""
    parts = hardware.split(".")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "ml" else ("", "")
