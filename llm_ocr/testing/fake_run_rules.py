"""What the stand-in for Cloud Run refuses, in words like the platform's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

_GPUS = {"nvidia-l4": (4, 16), "nvidia-rtx-pro-6000": (20, 80)}
_MOST_TASKS = 10_000


class Refused(Exception):
    """An error to answer with."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status, self.message = code, status, message

    def json(self) -> Json:
        return {"error": {"code": self.code, "status": self.status, "message": self.message}}


@dataclass(slots=True)
class Account:
    """What there is in the projects; None: everything that is asked for. All may be changed while the server runs."""

    secrets: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)  # of secrets' versions, where not ENABLED
    unreadable: set[str] = field(default_factory=set)  # secrets that the jobs' account may not read
    images: set[str] | None = None
    accounts: set[str] | None = None
    quota: dict[str, int] = field(default_factory=dict)  # accelerator -> GPUs; not in it: enough
    regions: set[str] | None = None

    def check(self, name: str, job: Mapping[str, Any]) -> None:
        """Raises `Refused` for a job that cannot be made."""
        self.check_place(name)
        template = job.get("template", {})
        inner = template.get("template", {})
        self._check_tasks(template)
        self._check_machine(template, inner)
        account = inner.get("serviceAccount")
        if self.accounts is not None and account and account not in self.accounts:
            raise _invalid(f"template.service_account: Service account {account} does not exist.")
        for container in inner.get("containers", ()):
            image = container.get("image", "")
            if self.images is not None and image not in self.images:
                raise _invalid(f"template.containers[0].image: Image '{image}' not found.")
            for variable in container.get("env", ()):
                self._check_secret((variable.get("valueSource") or {}).get("secretKeyRef"))

    def check_place(self, name: str) -> None:
        region = name.split("/")[3]
        if self.regions is not None and region not in self.regions:
            raise Refused(404, "NOT_FOUND", f"Location {region} is not found or access is unauthorized.")

    def _check_tasks(self, template: Mapping[str, Any]) -> None:
        tasks, parallel = int(template.get("taskCount") or 1), int(template.get("parallelism") or 0)
        if tasks > _MOST_TASKS:
            raise _invalid(f"template.task_count: must be between 1 and {_MOST_TASKS}.")
        if parallel > tasks:
            raise _invalid("template.parallelism: must be less than or equal to task_count.")

    def _check_machine(self, template: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
        limits = inner["containers"][0].get("resources", {}).get("limits", {})
        accelerator = inner.get("nodeSelector", {}).get("accelerator")
        if (accelerator is None) != ("nvidia.com/gpu" not in limits):
            raise _invalid("template.node_selector: an accelerator and a limit nvidia.com/gpu go together.")
        if accelerator is None:
            return
        if accelerator not in _GPUS:
            raise _invalid(f"template.node_selector.accelerator: unsupported accelerator {accelerator}.")
        cpu, memory = _GPUS[accelerator]
        if int(limits["cpu"]) < cpu or int(limits["memory"].removesuffix("Gi")) < memory:
            raise _invalid(f"template.containers[0].resources.limits: {accelerator} needs {cpu} CPU and {memory}Gi.")
        wanted = int(template.get("parallelism") or template.get("taskCount") or 1)
        if wanted > self.quota.get(accelerator, wanted):
            raise Refused(
                400,
                "FAILED_PRECONDITION",
                "You do not have quota for using GPUs without zonal redundancy: "
                f"{accelerator} requested: {wanted} allowed: {self.quota[accelerator]}.",
            )

    def _check_secret(self, reference: Mapping[str, str] | None) -> None:
        if reference is None:
            return
        secret, version = reference["secret"], reference.get("version", "latest")
        if secret not in self.secrets:
            raise _invalid(f"Secret projects/1/secrets/{secret}/versions/{version} was not found")
        if secret in self.unreadable:
            raise Refused(403, "PERMISSION_DENIED", f"Permission denied on secret: projects/1/secrets/{secret}")


def _invalid(message: str) -> Refused:
    return Refused(400, "INVALID_ARGUMENT", message)
