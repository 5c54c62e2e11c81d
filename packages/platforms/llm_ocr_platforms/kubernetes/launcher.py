"""Kubernetes: a stage as one Indexed Job with its shards as pods, through the official client.

Responses are read as JSON, so that a cluster may be older or newer than the client.
"""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from llm_ocr.config.environment import environment
from llm_ocr.errors import LaunchError, LlmOcrError, MissingExtra
from llm_ocr.launch import Job, JobSpec, JobStatus, Launcher, Plan, State, cpu_or_gpus, gpus_of, moment
from llm_ocr.launch.answers import AGAIN, Refusal, last_words, translated
from llm_ocr.launch.library import filled
from llm_ocr_platforms.kubernetes.manifest import GPU, LABEL, NAMESPACE, TIME_LIMIT, make_plan, secrets_of

Json = dict[str, Any]

#: Annotation with the reason why this program has ended a Job.
ENDED = "llm-ocr/ended"
CANCELLED = "cancelled"
#: Reasons why a container can never start (k8s.io/kubernetes/pkg/kubelet/images and kuberuntime).
_STUCK = (
    *("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)
#: Seconds to connect, and to wait for a response.
_TIMEOUT = (10, 60)
#: Account of a pod, for launches from inside a cluster.
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
#: Rights of a launch in a namespace: API group, resource, subresource, verb.
_RIGHTS = (
    *(("batch", "jobs", "", verb) for verb in ("create", "get", "patch", "delete")),
    *(("", "pods", "", "list"), ("", "pods", "log", "get")),
)
#: `providerID` of nodes outside of clouds; in a cloud, an autoscaler may add nodes with a GPU.
_OWN_MACHINES = ("", "kind", "k3s", "k3d", "minikube")
_HINTS = {
    401: "Sign in to the cluster, and check the account: kubectl auth whoami",
    403: "Request the Role in kubernetes-jobs/README.md, or set another --namespace or --kube-context.",
    404: "Set another --namespace or --kube-context.",
    400: "Kubernetes 1.29 or newer is required.",
}
_LOGIN = "Sign in to the cluster so that kubectl works (KUBECONFIG or ~/.kube/config), or set --kube-context."


class Kubernetes(Launcher):
    """Platform `kubernetes`. Hardware is `cpu` or `gpu:N`; `poll_seconds` is the time between requests for pods."""

    platform = "kubernetes"
    usual_limit = TIME_LIMIT
    poll_seconds = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._clusters: dict[str, _Cluster] = {}

    def hardware(self, stage: str) -> str:
        return cpu_or_gpus(stage)

    def gpus(self, hardware: str) -> int | None:
        return gpus_of(hardware)

    def plan(self, spec: JobSpec) -> Plan:
        return make_plan(self.platform, spec)

    def check(self, plan: Plan) -> None:
        """Check rights, GPUs, and Secrets, and let the cluster validate the Job."""
        cluster = self._cluster(plan.spec.options)
        body = _body(plan, cluster)
        cluster.check_rights(body["namespace"])
        cluster.check_gpus(gpus_of(plan.spec.hardware or cpu_or_gpus(plan.spec.stage)) or 0)
        for secret, key in secrets_of(plan.spec).values():
            cluster.check_secret(body["namespace"], secret, key)
        cluster.create(body, dry_run="All")

    def find(self, spec: JobSpec) -> Sequence[Job]:
        cluster = self._cluster(spec.options)
        job = _job(spec, spec.options.get("namespace") or cluster.namespace, cluster)
        return [job] if cluster.read(job) else []

    def submit(self, plan: Plan) -> Sequence[Job]:
        cluster = self._cluster(plan.spec.options)
        body = _body(plan, cluster)
        cluster.create(body)
        return [_job(plan.spec, body["namespace"], cluster)]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yield the lines of all pods, with `[index]` if there are several; `tail` counts per pod."""
        cluster = self._cluster(job.place)
        about = cluster.read(job)
        if about is None:
            raise LaunchError(f"Kubernetes: {job.id} and its log no longer exist")

        def lines(pod: Json) -> Iterator[str]:
            start = f"[{_index_of(pod)}] " if about["spec"]["completions"] > 1 else ""
            return (start + text for text in cluster.log(pod, follow=follow, tail=tail))

        if follow:
            yield from self._followed(cluster, job, lines)
        else:
            for pod in sorted(filter(_run_of, cluster.pods(job)), key=_index_of):
                yield from lines(pod)

    def _end(self, job: Job) -> None:
        self._cluster(job.place).end(job, CANCELLED)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Delete finished Jobs with their pods and logs."""
        lines = []
        for job in jobs:
            cluster = self._cluster(job.place)
            if (about := cluster.read(job)) is None:
                continue
            if _end_of(about) is None:
                lines.append(f"kept: Job {job.id}, still in progress")
            else:
                cluster.delete(job)
                lines.append(f"deleted: Job {job.id} and its pods")
        return [*lines, "kept: Secrets and workspace"]

    def _status(self, job: Job) -> JobStatus:
        cluster = self._cluster(job.place)
        about = cluster.read(job)
        if about is None and job.place.get("cluster", cluster.host) != cluster.host:
            raise LaunchError(
                f"Kubernetes: {job.id} is on {job.place['cluster']}, but the kubeconfig's cluster is {cluster.host}",
                hint="Switch to its context: kubectl config use-context NAME",
            )
        if about is None:
            return JobStatus(job, State.FAILED, "the cluster no longer has this Job: deleted, or too old")
        pods, over = cluster.pods(job), _end_of(about) is not None
        if not over and not any(pod["status"].get("phase") in ("Running", "Succeeded") for pod in pods):
            waiting = [_container(pod).get("waiting") or {} for pod in pods]
            stuck = next((reason for reason in waiting if reason.get("reason") in _STUCK), None)
            if stuck is not None:
                why = f"{stuck['reason']}: {stuck.get('message')}"
                cluster.end(job, why)  # otherwise its pods would hold their GPUs
                return JobStatus(job, State.FAILED, why)
        return _job_status(job, about, pods, [] if pods or over else cluster.warnings(job))

    def _followed(self, cluster: "_Cluster", job: Job, read: Callable[[Json], Iterator[str]]) -> Iterator[str]:
        """Yield lines as pods write them. A thread reads each pod from its start."""
        lines: queue.SimpleQueue[str | LlmOcrError] = queue.SimpleQueue()
        readers: dict[str, threading.Thread] = {}

        def copy(pod: Json) -> None:
            try:
                for line in read(pod):
                    lines.put(line)
            except LlmOcrError as error:
                lines.put(error)

        over = False
        while not over or not lines.empty() or any(reader.is_alive() for reader in readers.values()):
            about = cluster.read(job)
            over = about is None or _end_of(about) is not None
            for pod in filter(_run_of, cluster.pods(job)):
                if (name := pod["metadata"]["name"]) not in readers:
                    readers[name] = threading.Thread(target=copy, args=(pod,), daemon=True)
                    readers[name].start()
            look = time.monotonic() + self.poll_seconds
            with contextlib.suppress(queue.Empty):
                while (left := look - time.monotonic()) > 0:
                    line = lines.get(timeout=left)
                    if isinstance(line, LlmOcrError):
                        raise line
                    yield line

    def _cluster(self, place: Mapping[str, Any]) -> "_Cluster":
        context = str(place.get("kube_context") or "")
        if context not in self._clusters:
            self._clusters[context] = _Cluster(context)
        return self._clusters[context]


class _Cluster:
    """API server of a context of the kubeconfig, or of the cluster in which this program runs."""

    def __init__(self, context: str) -> None:
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise MissingExtra("launching on Kubernetes needs its client", install="kubernetes") from error
        given = environment().get("KUBECONFIG")
        file, settings = given or str(Path("~/.kube/config").expanduser()), client.Configuration()
        with _asking("sign in"):
            if not given and not Path(file).is_file() and _ACCOUNT.is_file():  # contexts are of other machines
                config.load_incluster_config(client_configuration=settings)
                self.namespace = _ACCOUNT.read_text().strip()
            else:
                config.load_kube_config(file, context or None, settings, persist_config=False)
                contexts, current = config.list_kube_config_contexts(file)
                chosen = next((entry for entry in contexts if entry["name"] == context), current)
                self.namespace = chosen["context"].get("namespace") or "default"
        api = client.ApiClient(settings)
        self.host = str(settings.host)
        self._batch, self._core = client.BatchV1Api(api), client.CoreV1Api(api)
        self._authorization = client.AuthorizationV1Api(api)

    def create(self, body: Json, **more: str) -> None:
        """Create a Job. Its name is that of one submission: an existing Job is from a request with a lost response."""
        call = self._batch.create_namespaced_job
        self._ask("create the Job", call, **body, **more, field_validation="Strict", allow=(409,))

    def read(self, job: Job) -> Json | None:
        """Return the Job, or None. Jobs of other programs do not count, whatever a workspace's records contain."""
        found = self._ask("read the Job", self._batch.read_namespaced_job, *_at(job), allow=(404,))
        return found if LABEL in found.get("metadata", {}).get("labels", {}) else None

    def pods(self, job: Job) -> list[Json]:
        chosen = f"batch.kubernetes.io/job-name={job.name}"
        call = self._core.list_namespaced_pod
        return list(self._ask("list the pods", call, _at(job)[1], label_selector=chosen)["items"])

    def warnings(self, job: Job) -> list[str]:
        """Return why the cluster creates no pods for a Job, for example a quota, as far as this account may read."""
        chosen = f"involvedObject.name={job.name},type=Warning"
        call = self._core.list_namespaced_event
        found = self._ask("list events", call, _at(job)[1], field_selector=chosen, allow=(403,))
        return [str(event.get("message", "")) for event in found.get("items", ())]

    def log(self, pod: Json, *, follow: bool, tail: int | None) -> Iterator[str]:
        """Yield the lines of a pod's log, which may be silent for a long time while it is followed."""
        more: Json = {} if tail is None else {"tail_lines": tail}
        more |= {} if follow else {"_request_timeout": _TIMEOUT}
        place = (pod["metadata"]["name"], pod["metadata"]["namespace"])
        with _asking("read the log"):
            for line in self._core.read_namespaced_pod_log(*place, follow=follow, _preload_content=False, **more):
                yield line.decode(errors="replace").rstrip("\r\n")

    def end(self, job: Job, why: str) -> None:
        """End a Job by its deadline, which removes its running pods and keeps the Job with the reason."""
        change = {"metadata": {"annotations": {ENDED: why[:1000]}}, "spec": {"activeDeadlineSeconds": 1}}
        self._ask("end the Job", self._batch.patch_namespaced_job, *_at(job), change, allow=(404,))

    def delete(self, job: Job) -> None:
        call = self._batch.delete_namespaced_job
        self._ask("delete the Job", call, *_at(job), propagation_policy="Background", allow=(404,))

    def check_rights(self, namespace: str) -> None:
        """Raise `LaunchError` with the rights that this account lacks."""
        denied, names = [], ("group", "resource", "subresource", "verb")
        for right in _RIGHTS:
            review = {"spec": {"resourceAttributes": {"namespace": namespace, **dict(zip(names, right, strict=True))}}}
            call = self._authorization.create_self_subject_access_review
            if not self._ask("check this account's rights", call, review)["status"]["allowed"]:
                denied.append(f"{right[3]} {'/'.join(filter(None, right[1:3]))}")
        if denied:
            raise LaunchError(
                f"Kubernetes: this account lacks permissions in {namespace}: {', '.join(denied)}", hint=_HINTS[403]
            )

    def check_secret(self, namespace: str, secret: str, key: str) -> None:
        """Raise `LaunchError` if a Secret or its key is missing, as far as this account may read."""
        found = self._ask("read Secrets", self._core.read_namespaced_secret, secret, namespace, allow=(403, 404))
        if found.get("code") == 403 or key in (found.get("data") or {}):
            return
        lacks = f"{namespace} has no Secret {secret}" if "code" in found else f"the Secret {secret} has no key {key}"
        hint = f"Create it: kubectl create secret generic {secret} -n {namespace} --from-literal={key}=VALUE"
        raise LaunchError(f"Kubernetes: {lacks}", hint=hint)

    def check_gpus(self, gpus: int) -> None:
        """Raise `LaunchError` if no node can ever have that many GPUs, as far as this account may read."""
        nodes = self._ask("list nodes", self._core.list_node, allow=(403,)).get("items", ()) if gpus else ()
        own = all(node["spec"].get("providerID", "").partition(":")[0] in _OWN_MACHINES for node in nodes)
        most = max((int(node["status"].get("allocatable", {}).get(GPU, 0)) for node in nodes), default=gpus)
        if own and most < gpus:
            raise LaunchError(
                f"Kubernetes: the job needs a node with {gpus} {GPU}, but the nodes have at most {most}",
                hint="Install NVIDIA's device plugin or GPU operator on the nodes, or set another --hardware gpu:N.",
            )

    def _ask(
        self, action: str, call: Callable[..., Any], *arguments: Any, allow: tuple[int, ...] = (), **named: Any
    ) -> Json:
        """Return the response as JSON; for an error whose code is in `allow`, only this `code`."""
        from kubernetes.client.exceptions import ApiException

        with _asking(action):
            try:
                answer = call(*arguments, **named, _preload_content=False, _request_timeout=_TIMEOUT)
            except ApiException as error:
                if error.status in allow:
                    return {"code": error.status}
                raise
            found: Json = json.loads(answer.data)
        return found


def _at(job: Job) -> tuple[str, str]:
    namespace, _, name = job.id.partition("/")
    return name, namespace


def _job(spec: JobSpec, namespace: str, cluster: _Cluster) -> Job:
    place = {"kube_context": str(spec.options.get("kube_context") or ""), "cluster": cluster.host}
    return Job(f"{namespace}/{spec.name}", spec.name, place=place)


def _body(plan: Plan, cluster: _Cluster) -> Json:
    body: Json = filled(plan.requests[0].body, {NAMESPACE: cluster.namespace})
    return body


def _asking(action: str) -> AbstractContextManager[None]:
    return translated(f"Kubernetes: cannot {action}", _explained)


def _explained(error: Exception) -> Refusal | None:
    from urllib3.exceptions import HTTPError

    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import ConfigException

    if isinstance(error, ConfigException):
        return Refusal(str(error), _LOGIN)
    if isinstance(error, ApiException):
        try:
            words = str(json.loads(error.body)["message"])
        except (TypeError, ValueError, KeyError):
            words = f"{error.status} {error.reason}"
        return Refusal(words, _HINTS.get(error.status or 0, ""), error.status or 0)
    if isinstance(error, HTTPError | OSError):
        return Refusal(f"the cluster does not respond: {error}", AGAIN, 0)
    return None


def _job_status(job: Job, about: Json, pods: Sequence[Json], warnings: Sequence[str]) -> JobStatus:
    """Return the status of all pods as one."""
    runs = [run for pod in pods if (run := _run_of(pod)) is not None]
    started = min((start for start, _ in runs), default=None)
    end = _end_of(about)
    if end is None and {pod["status"].get("phase") for pod in pods} & {"Running", "Succeeded", "Failed"}:
        return JobStatus(job, State.RUNNING, started=started)
    if end is None:
        conditions = [condition for pod in pods for condition in pod["status"].get("conditions") or ()]
        for condition in conditions:  # in the scheduler's words
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return JobStatus(job, State.QUEUED, f"{condition.get('reason')}: {condition.get('message')}")
        return JobStatus(job, State.QUEUED, warnings[-1] if warnings else "")
    state, reason = (State.SUCCEEDED, "") if end["type"] == "Complete" else _failure(about, end, pods)
    times = [stop - start for start, stop in runs if stop is not None]
    # The time of pods that were removed with their node is unknown.
    seconds = sum(times) if len(times) == about["spec"]["completions"] else None
    # The image as the node pulled it.
    containers = [container for pod in pods for container in pod["status"].get("containerStatuses") or ()]
    images = (container.get("imageID", "") for container in containers)
    image = next((name for name in images if "@sha256:" in name), "")
    return JobStatus(job, state, reason, started, moment(end.get("lastTransitionTime")), seconds, image)


def _end_of(about: Json) -> Json | None:
    """Return the condition with the end of a Job, or None for an open Job."""
    conditions = about.get("status", {}).get("conditions") or ()
    for condition in conditions:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return dict(condition)
    return None


def _failure(about: Json, end: Json, pods: Sequence[Json]) -> tuple[State, str]:
    if why := (about["metadata"].get("annotations") or {}).get(ENDED):
        return (State.CANCELLED if why == CANCELLED else State.FAILED), why
    ends = {_index_of(pod): _pod_end(pod) for pod in pods if pod["status"].get("phase") == "Failed"}
    for part in filter(None, (about["status"].get("failedIndexes") or "").split(",")):  # `1,3-5`
        first, _, last = part.partition("-")
        for index in range(int(first), int(last or first) + 1):
            ends.setdefault(index, (State.PREEMPTED, "its pod was removed: the node was drained or withdrawn"))
    order = (State.FAILED, State.TIMED_OUT, State.PREEMPTED)
    states = {pod_state for pod_state, _ in ends.values()}
    state = next((candidate for candidate in order if candidate in states), State.FAILED)
    shown = [f"shard {index}: {why}" for index, (pod_state, why) in sorted(ends.items()) if pod_state is state]
    if not shown:
        return state, str(end.get("message") or end.get("reason") or "failed without a reason")
    shards = about["spec"]["completions"]
    if shards == 1:
        return state, shown[0].removeprefix("shard 0: ")
    return state, f"{len(ends)} of {shards} shards failed: {'; '.join([*shown[:3], *(['...'] if shown[3:] else [])])}"


def _pod_end(pod: Json) -> tuple[State, str]:
    """Return the end of a failed pod: by its time limit, with its node, or by its own fault."""
    status = pod["status"]
    reason, message = status.get("reason", ""), status.get("message", "")
    conditions = {item["type"]: item for item in status.get("conditions") or () if item["status"] == "True"}
    if reason == "DeadlineExceeded":
        return State.TIMED_OUT, f"{reason}: {message}"
    if reason == "Evicted":  # for its memory or disk: the next pod would have the same fate
        return State.FAILED, f"{reason}: {message}"
    if taken := conditions.get("DisruptionTarget"):
        return State.PREEMPTED, f"{taken.get('reason')}: {taken.get('message')}"
    ended = _container(pod).get("terminated") or {}
    why = f"exit code {ended.get('exitCode')}" if ended else f"{reason}: {message}"
    if ended.get("reason") not in (None, "Error", "Completed"):
        why = f"{ended['reason']}, {why}"
    return State.FAILED, f"{why}: {last_words((ended.get('message') or '').splitlines())}".removesuffix(": ")


def _container(pod: Json) -> Json:
    """Return the state of a pod's container: waiting, running, or terminated."""
    found: Json = next((item["state"] for item in pod["status"].get("containerStatuses") or ()), {})
    return found


def _run_of(pod: Json) -> tuple[float, float | None] | None:
    """Return the start and the end of a pod's container; None before its start."""
    state = _container(pod).get("running") or _container(pod).get("terminated") or {}
    start = moment(state.get("startedAt"))
    return None if start is None else (start, moment(state.get("finishedAt")))


def _index_of(pod: Json) -> int:
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
