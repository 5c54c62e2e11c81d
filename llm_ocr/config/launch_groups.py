"""The settings of launching: what all platforms have, and one group for each platform."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from llm_ocr.config.groups import COUNT, NAME, NAMES, Group, duration

#: Seconds, or text with a unit: 90m, 2h, 1d.
DURATION = Annotated[int, BeforeValidator(duration), Field(ge=60)]


class JobGroup(Group):
    """Launched job."""

    launch: NAME | None = Field(
        None, description="ID of the launch whose settings to use (launchers set it in their jobs)"
    )


class LaunchGroup(Group):
    """Jobs."""

    shards: COUNT = Field(1, description="Number of jobs, or of machines in one job, that divide the units")
    hardware: NAME | None = Field(
        None, description="Machine type, by the platform's name for it (default: the platform's)"
    )
    image: NAME | None = Field(None, description="Container image (default: a stock image with vLLM)")
    cpu_image: NAME | None = Field(
        None, description="Container image for Assemble (default: a stock image with Python, otherwise --image)"
    )
    secret: NAMES = Field(
        (),
        description=(
            "Environment variable to pass to jobs as a secret: NAME, or NAME=WHERE with its place on the platform"
            " (repeatable)"
        ),
        json_schema_extra={"metavar": "NAME[=WHERE]"},
    )
    env: NAMES = Field(
        (),
        description="Environment variable of the jobs, readable in plans and on the platform (repeatable)",
        json_schema_extra={"metavar": "NAME=VALUE"},
    )
    time_limit: DURATION | None = Field(
        None,
        description="Time limit of each job, such as 90m or 3h (default: from the estimate)",
        json_schema_extra={"metavar": "TIME"},
    )
    attempts: COUNT = Field(
        3, description=("Maximum submissions of a stage, while units are missing and each submission finishes some")
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Maximum cost of all jobs of the workspace; limits how long they run",
        json_schema_extra={"metavar": "DOLLARS"},
    )
    wait: bool = Field(False, description="Wait until the stage is done, with progress; a failed job is an error")
    detach: bool = Field(
        False, description="pipeline: submit the stages from a small CPU job on the platform, not from here"
    )
    dry_run: bool = Field(False, description="Print the exact requests without sending them; needs no account")


class LibraryGroup(Group):
    """llm-ocr in jobs (hf-jobs, sagemaker, cloud-run, kubernetes)."""

    wheel: NAME | None = Field(
        None,
        description=(
            "Wheel of llm-ocr for jobs to install, or `image` if the image contains llm-ocr (default: the "
            "installed version)"
        ),
    )
    extra: NAMES = Field((), description="Additional extra of llm-ocr for jobs to install (repeatable)")


class HfJobsGroup(Group):
    """Hugging Face Jobs."""

    namespace: NAME | None = Field(
        None, description="User or organization that pays (default: the token's); on kubernetes: namespace of the jobs"
    )


class SageMakerGroup(Group):
    """Amazon SageMaker."""

    role: NAME | None = Field(None, description="ARN of the jobs' role", json_schema_extra={"metavar": "ARN"})
    spot: bool = Field(False, description="Use spot machines (on sagemaker, jobs continue after interruptions)")
    volume_size: COUNT = Field(100, description="Disk size per machine in GB")
    subnet: NAMES = Field((), description="VPC subnet (repeatable)")
    security_group: NAMES = Field((), description="VPC security group (repeatable)")
    kms_key: NAME | None = Field(None, description="KMS key that encrypts the machines' disks")
    training_output: NAME | None = Field(
        None,
        description="S3 URL for SageMaker's own files of its jobs (default: in the workspace)",
        json_schema_extra={"metavar": "URL"},
    )


class CloudRunGroup(Group):
    """Google Cloud Run."""

    project: NAME | None = Field(None, description="Google Cloud project (default: from the credentials)")
    service_account: NAME | None = Field(
        None, description="Service account of the jobs", json_schema_extra={"metavar": "EMAIL"}
    )
    parallelism: COUNT | None = Field(None, description="Maximum concurrent tasks (default: all shards)")
    cpu: COUNT | None = Field(None, description="CPU cores per task (default: what the GPU needs)")
    memory: NAME | None = Field(None, description="Memory per task, such as 32Gi (default: what the GPU needs)")


class PlatformGroup(Group):
    """Region and price."""

    region: NAME | None = Field(None, description="Region of SageMaker, Cloud Run, or Modal (default: the SDK's)")
    platform_endpoint: NAME | None = Field(
        None,
        description="API server of the platform (default: the platform's own)",
        json_schema_extra={"metavar": "URL"},
    )
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Hourly price per machine, for cost reports and --max-cost (default: the platform's list price)",
        json_schema_extra={"metavar": "DOLLARS"},
    )


class ModalGroup(Group):
    """Modal."""

    modal_app: NAME = Field("llm-ocr", description="Name of the deployed app (modal-app/README.md)")


class SlurmGroup(Group):
    """Slurm."""

    partition: NAME | None = Field(None, description="Slurm partition")
    slurm_arg: NAMES = Field((), description="Argument for sbatch, for example --slurm-arg=--account=lab (repeatable)")
    slurm_setup: NAMES = Field(
        (), description="Shell line to run first, such as 'module load cuda' or 'source venv/bin/activate' (repeatable)"
    )


class KubernetesGroup(Group):
    """Kubernetes."""

    kube_context: NAME | None = Field(None, description="Context of the kubeconfig (default: the current one)")
    node_selector: NAMES = Field(
        (), description="Node label for Extract and Describe (repeatable)", json_schema_extra={"metavar": "KEY=VALUE"}
    )
    toleration: NAMES = Field(
        (),
        description="Taint that pods tolerate, in addition to nvidia.com/gpu (repeatable)",
        json_schema_extra={"metavar": "KEY[=VALUE]"},
    )
    image_pull_secret: NAME | None = Field(None, description="Secret for pulling the images")
    # Other platforms have these fields, too; their help describes them.
    namespace: NAME | None = Field(None)
    service_account: NAME | None = Field(None)
    cpu: COUNT | None = Field(None)
    memory: NAME | None = Field(None)
    spot: bool = Field(False)
