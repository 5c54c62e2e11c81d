"""The settings of launching: what all platforms have, and one group for each platform."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from llm_ocr.config.groups import COUNT, NAME, NAMES, Group, duration

#: Seconds, or text with a unit: 90m, 2h, 1d.
DURATION = Annotated[int, BeforeValidator(duration), Field(ge=60)]


class JobGroup(Group):
    """What a launcher tells its jobs."""

    launch: NAME | None = Field(None, description="take the settings of this launch (launchers set it in their jobs)")


class LaunchGroup(Group):
    """The job."""

    shards: COUNT = Field(1, description="jobs, or machines of one job, that share the units")
    hardware: NAME | None = Field(None, description="the platform's name for the machine (default: the platform's)")
    image: NAME | None = Field(None, description="container image (default: a stock image with vLLM)")
    cpu_image: NAME | None = Field(
        None,
        description="container image of Assemble (default: a stock image with Python, otherwise --image)",
    )
    secret: NAMES = Field(
        (),
        description="name of an environment variable that jobs get as a secret: NAME, or NAME=WHERE it stands on the "
        "platform (repeat it for more)",
        json_schema_extra={"metavar": "NAME[=WHERE]"},
    )
    time_limit: DURATION | None = Field(
        None,
        description="of one job, as 90m or 3h (default: fitted to the estimate)",
        json_schema_extra={"metavar": "TIME"},
    )
    attempts: COUNT = Field(3, description="submissions of a stage: again only while units are missing and some came")
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="the most that all jobs of the workspace may cost: their time limits follow from what is left",
        json_schema_extra={"metavar": "DOLLARS"},
    )
    wait: bool = Field(False, description="stay until the stage is done, with progress; failed jobs are errors")
    detach: bool = Field(
        False, description="pipeline: a small CPU job on the platform submits the stages; nothing runs here"
    )
    dry_run: bool = Field(False, description="print exactly what would be sent; needs no account")


class LibraryGroup(Group):
    """How the library comes into a job's container: hf-jobs, sagemaker, cloud-run, beaker, kubernetes."""

    wheel: NAME | None = Field(
        None,
        description="the library that jobs install: the file of a wheel, or `image` if the image holds the library "
        "(default: the library as it is installed here)",
    )
    extra: NAMES = Field((), description="one more extra of the library that jobs install (repeat it for more)")


class HfJobsGroup(Group):
    """Hugging Face Jobs."""

    namespace: NAME | None = Field(
        None, description="user or organization that pays (default: the token's); on kubernetes, the jobs' namespace"
    )


class SageMakerGroup(Group):
    """Amazon SageMaker."""

    role: NAME | None = Field(None, description="ARN of the role that jobs have", json_schema_extra={"metavar": "ARN"})
    spot: bool = Field(False, description="spot machines: training jobs, which go on where they were interrupted")
    volume_size: COUNT = Field(100, description="disk of each machine in GB")
    subnet: NAMES = Field((), description="subnets of a VPC (repeat it for more)")
    security_group: NAMES = Field((), description="security groups in it (repeat it for more)")
    kms_key: NAME | None = Field(None, description="key that encrypts the machines' disks")
    training_output: NAME | None = Field(
        None,
        description="where SageMaker keeps its files of training jobs, on Amazon's S3 (default: in the workspace)",
        json_schema_extra={"metavar": "URL"},
    )


class CloudRunGroup(Group):
    """Google Cloud Run."""

    project: NAME | None = Field(None, description="Google Cloud project (default: the credentials')")
    service_account: NAME | None = Field(
        None, description="account that jobs run as", json_schema_extra={"metavar": "EMAIL"}
    )
    parallelism: COUNT | None = Field(None, description="tasks at the same time (default: all shards)")
    cpu: COUNT | None = Field(None, description="cores of a task (default: what the GPU needs)")
    memory: NAME | None = Field(None, description="memory of a task, as 32Gi (default: what the GPU needs)")


class PlatformGroup(Group):
    """Where on the platform, and at which price."""

    region: NAME | None = Field(None, description="region of SageMaker, Cloud Run or Modal (default: the SDK's)")
    platform_endpoint: NAME | None = Field(
        None, description="another server for the platform's API", json_schema_extra={"metavar": "URL"}
    )
    price_per_hour: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="what one machine costs, for the bill and --max-cost (default: the platform's list price)",
        json_schema_extra={"metavar": "DOLLARS"},
    )


class ModalGroup(Group):
    """Modal."""

    modal_app: NAME = Field("llm-ocr", description="name of the deployed app (modal-app/README.md)")


class RunPodGroup(Group):
    """RunPod."""

    runpod_endpoint: NAME | None = Field(
        None, description="id of the serverless endpoint (runpod-serverless/README.md)"
    )
    runpod_cpu_endpoint: NAME | None = Field(None, description="another one for Assemble, which needs no GPU")


class SlurmGroup(Group):
    """Slurm."""

    partition: NAME | None = Field(None, description="partition")
    slurm_arg: NAMES = Field(
        (), description="one more argument of sbatch, as it is: --slurm-arg=--account=lab (repeat it for more)"
    )
    slurm_setup: NAMES = Field(
        (),
        description="a shell line that the job runs first, as 'module load cuda' or 'source venv/bin/activate' "
        "(repeat it for more)",
    )


class BeakerGroup(Group):
    """Beaker."""

    beaker_workspace: NAME | None = Field(None, description="Beaker workspace")
    beaker_budget: NAME | None = Field(None, description="budget that pays (default: the workspace's)")
    cluster: NAMES = Field((), description="clusters (repeat it for more)")
    priority: Literal["low", "normal", "high", "urgent"] = Field("normal", description="priority")


class KubernetesGroup(Group):
    """Kubernetes."""

    kube_context: NAME | None = Field(None, description="context of the kubeconfig (default: the current one)")
    node_selector: NAMES = Field(
        (),
        description="label of the nodes for Extract and Describe (repeat it for more)",
        json_schema_extra={"metavar": "KEY=VALUE"},
    )
    toleration: NAMES = Field(
        (),
        description="taint that pods tolerate besides nvidia.com/gpu (repeat it for more)",
        json_schema_extra={"metavar": "KEY[=VALUE]"},
    )
    image_pull_secret: NAME | None = Field(None, description="Secret with which the cluster pulls the images")
    # Other platforms have these fields, too; their help describes them.
    namespace: NAME | None = Field(None)
    service_account: NAME | None = Field(None)
    cpu: COUNT | None = Field(None)
    memory: NAME | None = Field(None)
    spot: bool = Field(False)
