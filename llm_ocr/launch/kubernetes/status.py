"""What a Job and its pods say: state, and why it failed or waits."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from llm_ocr.launch import Job, JobStatus, State
from llm_ocr.launch.last_words import last_words

Json = dict[str, Any]

#: The annotation of a Job that this program has ended: why.
ENDED = "llm-ocr/ended"
CANCELLED = "cancelled"
#: What keeps a container from ever starting (k8s.io/kubernetes/pkg/kubelet/images and kuberuntime).
_STUCK = (
    *("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)


def job_status(job: Job, about: Json, pods: Sequence[Json], warnings: Sequence[str]) -> JobStatus:
    """Return the status of all pods as one."""
    runs = [run for pod in pods if (run := run_of(pod)) is not None]
    started = min((start for start, _ in runs), default=None)
    end = end_of(about)
    if end is None and {pod["status"].get("phase") for pod in pods} & {"Running", "Succeeded", "Failed"}:
        return JobStatus(job, State.RUNNING, started=started)
    if end is None:
        return JobStatus(job, State.QUEUED, _waits(pods, warnings))
    state, reason = (State.SUCCEEDED, "") if end["type"] == "Complete" else _failure(about, end, pods)
    times = [stop - start for start, stop in runs if stop is not None]
    # The time of pods that were removed with their node is not known.
    seconds = sum(times) if len(times) == about["spec"]["completions"] else None
    return JobStatus(job, state, reason, started, _moment(end.get("lastTransitionTime")), seconds, _image(pods))


def _image(pods: Sequence[Json]) -> str:
    """Return the image that the node pulled, with its digest."""
    known = (one.get("imageID", "") for pod in pods for one in pod["status"].get("containerStatuses") or ())
    return next((name for name in known if "@sha256:" in name), "")


def end_of(about: Json) -> Json | None:
    """Return the condition that says how a Job ended; None while it is not over."""
    conditions = about.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True"), None)


def _failure(about: Json, end: Json, pods: Sequence[Json]) -> tuple[State, str]:
    if why := (about["metadata"].get("annotations") or {}).get(ENDED):
        return (State.CANCELLED if why == CANCELLED else State.FAILED), why
    ends = {index_of(pod): _pod_end(pod) for pod in pods if pod["status"].get("phase") == "Failed"}
    for index in _indexes(about["status"].get("failedIndexes") or ""):
        ends.setdefault(index, (State.PREEMPTED, "its pod was removed: the node was drained or taken away"))
    order = (State.FAILED, State.TIMED_OUT, State.PREEMPTED)
    state = next((one for one in order if any(one is state for state, _ in ends.values())), State.FAILED)
    told = [f"shard {index}: {why}" for index, (one, why) in sorted(ends.items()) if one is state]
    if not told:
        return state, str(end.get("message") or end.get("reason") or "failed without a reason")
    shards = about["spec"]["completions"]
    if shards == 1:
        return state, told[0].removeprefix("shard 0: ")
    return state, f"{len(ends)} of {shards} shards failed: {'; '.join([*told[:3], *(['...'] if told[3:] else [])])}"


def _pod_end(pod: Json) -> tuple[State, str]:
    """Return how a failed pod ended: by its time limit, with its node, or by its own fault."""
    status = pod["status"]
    reason, message = status.get("reason", ""), status.get("message", "")
    conditions = {one["type"]: one for one in status.get("conditions") or () if one["status"] == "True"}
    if reason == "DeadlineExceeded":
        return State.TIMED_OUT, f"{reason}: {message}"
    if reason == "Evicted":  # for its memory or disk: the next pod would fare the same
        return State.FAILED, f"{reason}: {message}"
    if taken := conditions.get("DisruptionTarget"):
        return State.PREEMPTED, f"{taken.get('reason')}: {taken.get('message')}"
    ended = _container(pod).get("terminated") or {}
    why = f"exit code {ended.get('exitCode')}" if ended else f"{reason}: {message}"
    if ended.get("reason") not in (None, "Error", "Completed"):
        why = f"{ended['reason']}, {why}"
    return State.FAILED, f"{why}: {last_words((ended.get('message') or '').splitlines())}".removesuffix(": ")


def stuck(pods: Sequence[Json]) -> str:
    """Return why no pod can ever start; "" while one has."""
    if any(pod["status"].get("phase") in ("Running", "Succeeded") for pod in pods):
        return ""
    waiting = [_container(pod).get("waiting") or {} for pod in pods]
    return next((f"{one['reason']}: {one.get('message')}" for one in waiting if one.get("reason") in _STUCK), "")


def _waits(pods: Sequence[Json], warnings: Sequence[str]) -> str:
    """Return why pods wait, in the scheduler's words."""
    for pod in pods:
        for one in pod["status"].get("conditions") or ():
            if one["type"] == "PodScheduled" and one["status"] == "False":
                return f"{one.get('reason')}: {one.get('message')}"
    return warnings[-1] if warnings else ""


def _container(pod: Json) -> Json:
    """Return the state of a pod's container: waiting, running, or terminated."""
    found: Json = next((one["state"] for one in pod["status"].get("containerStatuses") or ()), {})
    return found


def run_of(pod: Json) -> tuple[float, float | None] | None:
    """Return when a pod's container started and ended; None if it has not started."""
    state = _container(pod).get("running") or _container(pod).get("terminated") or {}
    start = _moment(state.get("startedAt"))
    return None if start is None else (start, _moment(state.get("finishedAt")))


def index_of(pod: Json) -> int:
    """Return the shard of a pod."""
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def _indexes(text: str) -> Iterator[int]:
    """Yield the numbers of `1,3-5`."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _moment(text: str | None) -> float | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None
