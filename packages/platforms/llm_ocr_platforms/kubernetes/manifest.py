"""Job of a stage for the Kubernetes API. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.launch import GPU_STAGES, PIPELINE, JobSpec, Plan, Request, cpu_or_gpus, gpus_of
from llm_ocr.launch.library import CPU_IMAGE, GPU_IMAGE, job_command, library_notes

CREATE = "BatchV1Api.create_namespaced_job"
#: Label of llm_ocr's Jobs: the launch.
LABEL = "llm-ocr/launch"
#: Placeholder for the namespace of the kubeconfig's context.
NAMESPACE = "<namespace>"
#: Secret for the secrets without a given place: its keys are the names of their variables.
SECRET = "llm-ocr"
#: Seconds of one pod without an estimate, and seconds for which the cluster keeps a finished Job.
TIME_LIMIT, KEPT = 12 * 3600, 7 * 24 * 3600

GPU = "nvidia.com/gpu"
#: Cores and GiB that a pod requests: per GPU, and without one. They fit the smallest GPU machines of the clouds
#: (g2-standard-4, g4dn.xlarge: 4 cores, 16 GiB), of which Kubernetes reserves a part.
_PER_GPU, _WITHOUT = (3, 12), (2, 8)
#: For vLLM's processes (https://docs.vllm.ai/en/stable/deployment/k8s.html, read 2026-11); 64 MiB otherwise.
_SHARED_MEMORY = "2Gi"
#: Limit of an Indexed Job that counts failures per index
#: (https://kubernetes.io/docs/concepts/workloads/controllers/job/).
_MOST_SHARDS = 100_000

#: Labels of spot machines, read 2026-11. GKE: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/spot-vms
#: EKS: https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
#: AKS: https://learn.microsoft.com/azure/aks/spot-node-pool
#: Karpenter: https://karpenter.sh/docs/concepts/scheduling/
SPOT: Mapping[str, str] = {
    "cloud.google.com/gke-spot": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "karpenter.sh/capacity-type": "spot",
}

_SECRET = re.compile(r"(?P<name>[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(/(?P<key>[A-Za-z0-9._-]+))?")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"


def make_plan(platform: str, spec: JobSpec) -> Plan:
    """Return the plan; see `Launcher.plan`."""
    hardware = spec.hardware or cpu_or_gpus(spec.stage)
    gpus = gpus_of(hardware)
    if gpus is None:
        hint = "Choose the type of GPU with --node-selector, for example cloud.google.com/gke-accelerator=nvidia-l4."
        raise UsageError(f"--hardware {hardware}: must be cpu or gpu:N", hint=hint)
    if spec.shards > _MOST_SHARDS:
        raise UsageError(f"--shards {spec.shards}: a Job has at most {_MOST_SHARDS} pods", hint="Use fewer --shards.")
    namespace = spec.options.get("namespace") or NAMESPACE
    labels = {"app.kubernetes.io/name": "llm-ocr", LABEL: spec.launch, "llm-ocr/stage": spec.stage}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": spec.shards,
            "parallelism": spec.shards,
            # The launch decides whether another attempt is worth its money. A failed share ends no other share.
            "backoffLimitPerIndex": 0,
            "ttlSecondsAfterFinished": KEPT,
            "template": {"metadata": {"labels": labels}, "spec": _pod(spec, gpus)},
        },
    }
    # In clouds other than the Hub, a service account may have an identity.
    lacks = spec.workspace.startswith("hf:") and "HF_TOKEN" not in spec.secrets
    needs = {"<token>": "--secret HF_TOKEN"} if lacks else {}
    notes = library_notes(spec, gpus)
    if namespace == NAMESPACE:
        notes.append(f"{NAMESPACE} is the namespace of the kubeconfig's context; --namespace sets another")
    if not spec.secrets and not spec.workspace.startswith("hf:"):
        notes.append(
            f"pods access {spec.workspace} with their service account; if it lacks access, pass keys with --secret"
        )
    return Plan(platform, spec, (Request(CREATE, {"namespace": namespace, "body": job}),), needs, tuple(notes))


def secrets_of(spec: JobSpec) -> dict[str, tuple[str, str]]:
    """Return the Secret and its key for each secret variable, or raise `UsageError` for impossible names."""
    found = {}
    for variable, where in sorted(spec.secrets.items()):
        match = _SECRET.fullmatch(where or SECRET)
        if match is None:
            hint = f"Use --secret {variable}=SECRET or --secret {variable}=SECRET/KEY."
            raise UsageError(f"--secret {variable}: {where!r} is not a valid name of a Kubernetes Secret", hint=hint)
        found[variable] = (match["name"], match["key"] or variable)
    return found


def _pod(spec: JobSpec, gpus: int) -> dict[str, Any]:
    """Return the pod's specification. The time limit does not include the wait for a machine."""
    options, selects = spec.options, spec.stage in GPU_STAGES  # Assemble needs no node with a GPU
    tolerations = [{"key": GPU, "operator": "Exists"}] if gpus else []
    for key, value in _pairs("--toleration", options.get("toleration"), bare=True).items():
        tolerations.append({"key": key, **({"value": value} if value else {"operator": "Exists"})})
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in SPOT.items()]
    spots = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pull, spot = options.get("image_pull_secret"), bool(options.get("spot"))
    pod = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": spec.time_limit or TIME_LIMIT,
        "serviceAccountName": options.get("service_account"),
        "automountServiceAccountToken": spec.stage == PIPELINE,  # stages need no access to the cluster
        "enableServiceLinks": False,
        "imagePullSecrets": [{"name": pull}] if pull else [],
        "nodeSelector": _pairs("--node-selector", options.get("node_selector")) if selects else {},
        "affinity": spots if spot and selects else {},
        "tolerations": tolerations + [{"key": key, "value": value} for key, value in SPOT.items() if spot],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(spec, gpus)],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY}}] if gpus else [],
    }
    return {name: value for name, value in pod.items() if value is False or value}


def _container(spec: JobSpec, gpus: int) -> dict[str, Any]:
    command = job_command(spec, gpus=gpus)
    # Kubernetes numbers the pods, but does not provide their total.
    variables = {**spec.environment, "LLM_OCR_SHARD_COUNT": str(spec.shards)}
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in sorted(variables.items())]
    for variable, (secret, key) in secrets_of(spec).items():
        env.append({"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    cores, gib = (gpus * _PER_GPU[0], gpus * _PER_GPU[1]) if gpus else _WITHOUT
    given = spec.options if spec.stage in GPU_STAGES else {}
    memory = given.get("memory")
    # Memory has a limit only if the user gave one.
    limits = {**({"memory": memory} if memory else {}), **({GPU: str(gpus)} if gpus else {})}
    requests = {"cpu": str(given.get("cpu") or cores), "memory": memory or f"{gib}Gi"}
    return {
        "name": spec.stage,
        "image": spec.image or (GPU_IMAGE if gpus else CPU_IMAGE),
        # Images need not have a `python`.
        "command": ["python3", *command[1:]] if command[0] == "python" else command,
        "env": env,
        "resources": {"requests": requests, **({"limits": limits} if limits else {})},
        # The images run as root, which pip needs; other privileges are unnecessary.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # The status of a failed pod contains the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **({"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]} if gpus else {}),  # noqa: S108
    }


def _pairs(flag: str, given: Sequence[str] | None, *, bare: bool = False) -> dict[str, str]:
    """Return `KEY=VALUE` texts as a mapping, or raise `UsageError`; `bare` allows a key alone."""
    found = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not re.fullmatch(_LABEL, key) or not (value if equals else bare) or not re.fullmatch(f"({_LABEL})?", value):
            raise UsageError(f"{flag} {text}: must be {'KEY or ' if bare else ''}KEY=VALUE")
        found[key] = value
    return found
