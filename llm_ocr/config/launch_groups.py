"""The settings of launching: what all platforms have, and one group for each platform."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from llm_ocr.config.groups import COUNT, NAME, NAMES, POSITIVE, Group, duration, setting

#: Seconds, or text with a unit: 90m, 2h, 1d.
DURATION = Annotated[int, BeforeValidator(duration), Field(ge=60)]


class JobGroup(Group):
    """Launched job."""

    launch: NAME | None = setting(None, "ID of the launch whose settings to use (launchers set it in their jobs)")


class LaunchGroup(Group):
    """Jobs."""

    shards: COUNT = setting(1, "Number of jobs, or of machines in one job, that divide the units")
    hardware: NAME | None = setting(None, "Machine type, by the platform's name for it (default: the platform's)")
    image: NAME | None = setting(None, "Container image (default: a stock image with vLLM)")
    cpu_image: NAME | None = setting(
        None, "Container image for Assemble (default: a stock image with Python, otherwise --image)"
    )
    secret: NAMES = setting(
        (),
        "Environment variable to pass to jobs as a secret: NAME, or NAME=WHERE with its place on the platform "
        "(repeatable)",
        metavar="NAME[=WHERE]",
    )
    env: NAMES = setting(
        (), "Environment variable of the jobs, readable in plans and on the platform (repeatable)", metavar="NAME=VALUE"
    )
    time_limit: DURATION | None = setting(
        None, "Time limit of each job, such as 90m or 3h (default: from the estimate)", metavar="TIME"
    )
    attempts: COUNT = setting(
        3, "Maximum submissions of a stage, while units are missing and each submission finishes some"
    )
    max_cost: POSITIVE | None = setting(
        None, "Maximum cost of all jobs of the workspace; limits how long they run", metavar="DOLLARS"
    )
    wait: bool = setting(False, "Wait until the stage is done, with progress; a failed job is an error")
    detach: bool = setting(False, "pipeline: submit the stages from a small CPU job on the platform, not from here")
    dry_run: bool = setting(False, "Print the exact requests without sending them; needs no account")


class LibraryGroup(Group):
    """llm-ocr in jobs (hf-jobs, sagemaker, cloud-run, kubernetes)."""

    wheel: NAME | None = setting(
        None,
        "Wheel of llm-ocr for jobs to install, or `image` if the image contains llm-ocr (default: the installed "
        "version)",
    )
    extra: NAMES = setting((), "Additional extra of llm-ocr for jobs to install (repeatable)")


class HfJobsGroup(Group):
    """Hugging Face Jobs."""

    namespace: NAME | None = setting(
        None, "User or organization that pays (default: the token's); on kubernetes: namespace of the jobs"
    )


class SageMakerGroup(Group):
    """Amazon SageMaker."""

    role: NAME | None = setting(None, "ARN of the jobs' role", metavar="ARN")
    spot: bool = setting(False, "Use spot machines (on sagemaker, jobs continue after interruptions)")
    volume_size: COUNT = setting(100, "Disk size per machine in GB")
    subnet: NAMES = setting((), "VPC subnet (repeatable)")
    security_group: NAMES = setting((), "VPC security group (repeatable)")
    kms_key: NAME | None = setting(None, "KMS key that encrypts the machines' disks")
    training_output: NAME | None = setting(
        None, "S3 URL for SageMaker's own files of its jobs (default: in the workspace)", metavar="URL"
    )


class CloudRunGroup(Group):
    """Google Cloud Run."""

    project: NAME | None = setting(None, "Google Cloud project (default: from the credentials)")
    service_account: NAME | None = setting(None, "Service account of the jobs", metavar="EMAIL")
    parallelism: COUNT | None = setting(None, "Maximum concurrent tasks (default: all shards)")
    cpu: COUNT | None = setting(None, "CPU cores per task (default: what the GPU needs)")
    memory: NAME | None = setting(None, "Memory per task, such as 32Gi (default: what the GPU needs)")


class PlatformGroup(Group):
    """Region and price."""

    region: NAME | None = setting(None, "Region of SageMaker, Cloud Run, or Modal (default: the SDK's)")
    platform_endpoint: NAME | None = setting(
        None, "API server of the platform (default: the platform's own)", metavar="URL"
    )
    price_per_hour: POSITIVE | None = setting(
        None,
        "Hourly price per machine, for cost reports and --max-cost (default: the platform's list price)",
        metavar="DOLLARS",
    )


class ModalGroup(Group):
    """Modal."""

    modal_app: NAME = setting("llm-ocr", "Name of the deployed app (modal-app/README.md)")


class SlurmGroup(Group):
    """Slurm."""

    partition: NAME | None = setting(None, "Slurm partition")
    slurm_arg: NAMES = setting((), "Argument for sbatch, for example --slurm-arg=--account=lab (repeatable)")
    slurm_setup: NAMES = setting(
        (), "Shell line to run first, such as 'module load cuda' or 'source venv/bin/activate' (repeatable)"
    )


class KubernetesGroup(Group):
    """Kubernetes."""

    kube_context: NAME | None = setting(None, "Context of the kubeconfig (default: the current one)")
    node_selector: NAMES = setting((), "Node label for Extract and Describe (repeatable)", metavar="KEY=VALUE")
    toleration: NAMES = setting(
        (), "Taint that pods tolerate, in addition to nvidia.com/gpu (repeatable)", metavar="KEY[=VALUE]"
    )
    image_pull_secret: NAME | None = setting(None, "Secret for pulling the images")
    # Other platforms have these fields, too; their help describes them.
    namespace: NAME | None = setting(None)
    service_account: NAME | None = setting(None)
    cpu: COUNT | None = setting(None)
    memory: NAME | None = setting(None)
    spot: bool = setting(False)
