"""Nodes and Jobs of the fake cluster (`fake_kubernetes`): pods are scheduled, and run as subprocesses."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from tests.fakes.container import Container

Json = dict[str, Any]

GPU = "nvidia.com/gpu"


class Cluster(Protocol):
    """Part of the cluster that pods use."""

    nodes: list["Node"]
    images: set[str] | None
    environment: dict[str, str]
    forbids: str
    hurry: float
    grace: float
    lock: threading.RLock

    def used(self, node: "Node") -> int: ...

    def variables(self, namespace: str, env: Sequence[Json]) -> dict[str, str]: ...


@dataclass(frozen=True, slots=True)
class Node:
    """Machine. Taints have the effect NoSchedule."""

    name: str = "node-1"
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""  # `providerID`

    def json(self) -> Json:
        allocatable = {"cpu": "8", "memory": "32Gi", **({GPU: str(self.gpus)} if self.gpus else {})}
        taints = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in self.taints.items()]
        return {
            "metadata": {"name": self.name, "labels": dict(self.labels)},
            "spec": {**({"providerID": self.provider} if self.provider else {}), "taints": taints},
            "status": {"allocatable": allocatable},
        }

    def refusal(self, pod: Json, used: int) -> str:
        """Return why a pod does not fit, in the scheduler's words; `used` GPUs are in use."""
        tolerations = pod.get("tolerations", ())
        for key, value in self.taints.items():
            if not any(
                one["key"] == key and (one.get("operator") == "Exists" or one.get("value") == value)
                for one in tolerations
            ):
                return f"node(s) had untolerated taint {{{key}: {value}}}"
        terms = (
            pod.get("affinity", {})
            .get("nodeAffinity", {})
            .get("requiredDuringSchedulingIgnoredDuringExecution", {})
            .get("nodeSelectorTerms", [{"matchExpressions": []}])
        )
        chosen = all(self.labels.get(key) == value for key, value in pod.get("nodeSelector", {}).items())
        if not chosen or not any(
            all(self.labels.get(one["key"]) in one["values"] for one in term["matchExpressions"]) for term in terms
        ):
            return "node(s) didn't match Pod's node affinity/selector"
        limits = pod["containers"][0].get("resources", {}).get("limits", {})
        return f"Insufficient {GPU}" if int(limits.get(GPU, 0)) > self.gpus - used else ""


class Pod:
    """Pod of a Job, run by a thread from its creation to its end."""

    def __init__(self, cluster: Cluster, job: "Job", index: int) -> None:
        self.index, self.name = index, f"{job.name}-{index}-{index + 10000:x}"
        self.phase, self.reason, self.message = "Pending", "", ""
        self.waiting: Json | None = None
        self.unschedulable = ""
        self.disruption: Json | None = None
        self.container: Container | None = None
        self.node: Node | None = None
        self.killed_as = ""  # external reason of its container's end
        self.over = threading.Event()
        self.job, self._cluster = job, cluster
        threading.Thread(target=self._live, name=self.name, daemon=True).start()

    def stop(self, *, reason: str = "", message: str = "", disruption: Json | None = None) -> None:
        """End it as the kubelet does: SIGTERM, and SIGKILL after the grace."""
        self.reason, self.message, self.disruption = reason, message, disruption
        self.over.set()
        if self.container is not None:
            self.container.stop()

    def json(self) -> Json:
        """Return the pod as in the API."""
        scheduled = {"type": "PodScheduled", "status": "False" if self.unschedulable else "True"}
        if self.unschedulable:
            scheduled |= {"reason": "Unschedulable", "message": self.unschedulable}
        conditions = [scheduled, *([self.disruption] if self.disruption else [])]
        status: Json = {"phase": self.phase, "conditions": conditions}
        if self.reason:
            status |= {"reason": self.reason, "message": self.message}
        if state := self._state():
            image = self.job.container["image"].partition(":")[0]
            pulled = f"docker.io/{image}@sha256:{'0' * 64}"
            status["containerStatuses"] = [{"name": self.job.container["name"], "state": state, "imageID": pulled}]
        labels = {"batch.kubernetes.io/job-name": self.job.name}
        return {
            "metadata": {
                "name": self.name,
                "namespace": self.job.namespace,
                "labels": labels,
                "annotations": {"batch.kubernetes.io/job-completion-index": str(self.index)},
            },
            "spec": self.job.pod,
            "status": status,
        }

    def lines(self) -> list[str]:
        return [] if self.container is None else self.container.lines()

    def _state(self) -> Json:
        if self.container is None:
            return {"waiting": self.waiting} if self.waiting else {}
        started = {"startedAt": _stamp(self.container.started)}
        code = self.container.exit_code
        if code is None or self.phase == "Running":
            return {"running": started}
        reason = self.killed_as or ("Error" if code else "Completed")
        ended = {**started, "finishedAt": _stamp(self.container.ended or time.time()), "reason": reason}
        # terminationMessagePolicy FallbackToLogsOnError: at most 80 lines or 2048 bytes.
        said = "\n".join(self.lines()[-80:])[-2048:] if code else ""
        return {"terminated": {**ended, "exitCode": code if code >= 0 else 128 - code, "message": said}}

    def _live(self) -> None:
        if self._placed() and self._made():
            container = self.container
            assert container is not None
            self.phase = "Running"
            code = container.wait()
            if container.timed_out:
                self.reason = "DeadlineExceeded"
                self.message = "Pod was active on the node longer than the specified deadline"
            failed = code or self.reason or self.disruption
            self.phase = "Failed" if failed else "Succeeded"
        self.over.set()
        self.job.look()

    def _placed(self) -> bool:
        """Wait for a node."""
        while not self.over.wait(0.02):
            with self._cluster.lock:
                why: Counter[str] = Counter()
                for node in self._cluster.nodes:
                    refusal = node.refusal(self.job.pod, self._cluster.used(node))
                    if not refusal:
                        self.node, self.unschedulable = node, ""
                        return True
                    why[refusal] += 1
                words = ", ".join(f"{count} {refusal}" for refusal, count in why.items())
                self.unschedulable = f"0/{len(self._cluster.nodes)} nodes are available: {words}."
        return False

    def _made(self) -> bool:
        """Start the container; wait forever if it cannot be created."""
        about, images = self.job.container, self._cluster.images
        if images is not None and about["image"] not in images:
            message = f'Back-off pulling image "{about["image"]}": not found'
            self.waiting = {"reason": "ImagePullBackOff", "message": message}
            return self.over.wait() and False
        try:
            variables = self._cluster.variables(self.job.namespace, about.get("env", ()))
        except KeyError as error:
            message = f"secret {error.args[0]!r} not found"
            self.waiting = {"reason": "CreateContainerConfigError", "message": message}
            return self.over.wait() and False
        seconds = float(self.job.pod.get("activeDeadlineSeconds") or 1e6) * self._cluster.hurry
        own = {"JOB_COMPLETION_INDEX": str(self.index), **variables}
        command = [*about.get("command", ()), *about.get("args", ())]
        made = {**self._cluster.environment, **own}
        self.container = Container(command, made, time_limit=seconds, grace=self._cluster.grace)
        if self.over.is_set():
            self.container.stop()
        return True


class Job:
    """Job and its pods."""

    def __init__(self, cluster: Cluster, namespace: str, body: Json) -> None:
        self.namespace, self.name, self.body = namespace, body["metadata"]["name"], body
        self.pod: Json = body["spec"]["template"]["spec"]
        self.container: Json = self.pod["containers"][0]
        self.end: Json | None = None
        self.removed: list[int] = []  # indexes that failed with their pods deleted
        self.started = time.time()
        self._lock = threading.RLock()
        self.pods: list[Pod] = []
        if not cluster.forbids:
            with self._lock:
                self.pods = [Pod(cluster, self, index) for index in range(body["spec"]["completions"])]

    def look(self) -> None:
        """Update the state as the controller does: check whether the Job is over."""
        with self._lock:
            if self.end is not None or any(pod.phase not in ("Succeeded", "Failed") for pod in self.pods):
                return
            if self._failed():
                self._over("Failed", "FailedIndexes", "Job has failed indexes")
            else:
                self._over("Complete", "CompletionsReached", "Reached expected number of succeeded pods")

    def remove(self, index: int) -> None:
        """Drain the node of a pod: the pod is deleted."""
        with self._lock:
            pod = next(one for one in self.pods if one.index == index)
            self.pods.remove(pod)
            self.removed.append(index)
        pod.stop()
        self.look()

    def patch(self, change: Json) -> None:
        """Merge metadata, and end the Job if its deadline has passed."""
        with self._lock:
            self.body["metadata"].setdefault("annotations", {}).update(change["metadata"]["annotations"])
            self.body["spec"] |= change["spec"]
            if self.end is None:
                self._over("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
                active = [pod for pod in self.pods if pod.phase in ("Pending", "Running")]
                self.pods = [pod for pod in self.pods if pod not in active]
                for pod in active:
                    threading.Thread(target=pod.stop, daemon=True).start()

    def json(self) -> Json:
        """Return the Job as in the API."""
        with self._lock:
            failed = self._failed()
            status: Json = {"startTime": _stamp(self.started), "conditions": [self.end] if self.end else []}
            status |= {"active": sum(one.phase in ("Pending", "Running") for one in self.pods)}
            if failed:
                status["failedIndexes"] = ",".join(map(str, failed))
            return {"kind": "Job", **self.body, "status": status}

    def _failed(self) -> list[int]:
        return sorted([*self.removed, *(pod.index for pod in self.pods if pod.phase == "Failed")])

    def _over(self, kind: str, reason: str, message: str) -> None:
        now = _stamp(time.time())
        self.end = {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def _stamp(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
