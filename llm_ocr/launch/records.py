"""Records of a launch in its workspace, from which any machine can continue to watch. A record never changes.

launches/<id>/launch.json               launch: platform, stages, the settings that jobs read, specs, limits
launches/<id>/<stage>-<n>.spec.json     before the n-th submission of a stage: its spec
launches/<id>/<stage>-<n>.jobs.json     after the submission: the jobs that the platform created
launches/<id>/<stage>-<n>.end.json      after the end of the jobs: their states and their cost
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llm_ocr.config.environment import environment
from llm_ocr.config.groups import without_credentials
from llm_ocr.errors import WorkspaceError
from llm_ocr.launch import FIELDS, PIPELINE, REPAIR, Job, JobSpec, JobStatus, is_installed
from llm_ocr.launch.specs import LaunchRequest
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.stored import LAUNCHES, launch_key, launch_reference

#: Names of launches and jobs, and the ids of jobs on platforms: never a path out of a folder, never a flag of a
#: program.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")
_LOOPBACK = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")
_ENDPOINT = "LLM_OCR_PLATFORM_ENDPOINT"
_FILE = re.compile(r"(?P<stage>[a-z]+)-(?P<number>\d+)\.(?P<kind>spec|jobs|end)\.json")


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission of a stage. `jobs` is None between the decision and the platform's response."""

    platform: str
    spec: JobSpec
    jobs: tuple[Job, ...] | None = None
    end: Mapping[str, Any] | None = None
    done: int | None = None  # finished units of the stage at the decision
    decided: float = 0.0  # seconds since 1970

    @property
    def over(self) -> bool:
        return self.end is not None


def write_launch(workspace: Workspace, launched: LaunchRequest) -> str:
    """Write the record of a launch, and return the reference that its jobs receive."""
    value = asdict(launched)
    del value["reference"]
    value["specs"] = {stage: value["specs"][stage] for stage in launched.stages}  # without the coordinator's
    workspace.create_json(launch_key(launched.id), value)
    return launch_reference(launched.id, codec.dump(value, indent=2))


def launch_from(value: Mapping[str, Any], reference: str) -> LaunchRequest:
    """Return the launch in a record. Older versions recorded no specs and no limits."""
    specs = {stage: JobSpec(**spec) for stage, spec in value.get("specs", {}).items()}
    return LaunchRequest(**{**value, "stages": tuple(value["stages"]), "specs": specs, "reference": reference})


def read_launches(workspace: Workspace) -> list[LaunchRequest]:
    """Return all launches of a workspace, the oldest first."""
    found = []
    for info in workspace.store.list(f"{LAUNCHES}/"):
        if info.key.endswith("/launch.json"):
            data = workspace.store.get(info.key)
            value = codec.load(data, f"{workspace.url}: {info.key}")
            found.append(launch_from(value, launch_reference(str(value["id"]), data)))
    return found


def write_spec(workspace: Workspace, platform: str, spec: JobSpec, done: int | None) -> None:
    """Record the decision to submit; `done` is the number of finished units of the stage, None without a plan."""
    value = {"platform": platform, "spec": asdict(spec), "done": done, "decided": time.time()}
    workspace.create_json(_key(spec, "spec"), value)


def write_jobs(workspace: Workspace, spec: JobSpec, jobs: Sequence[Job]) -> None:
    """Record the jobs that the platform created."""
    workspace.create_json(_key(spec, "jobs"), {"jobs": [asdict(job) for job in jobs]})


def write_end(workspace: Workspace, spec: JobSpec, statuses: Sequence[JobStatus], bill: Mapping[str, Any]) -> None:
    """Record the ends of the jobs; `bill` contains the known costs."""
    starts = [status.started for status in statuses if status.started is not None]
    ends = [status.ended for status in statuses if status.ended is not None]
    jobs = [
        {"id": status.job.id, "state": status.state.value, "reason": status.reason, "image": status.image}
        for status in statuses
    ]
    value = {
        "stage": spec.stage,
        "hardware": spec.hardware,
        "started": min(starts, default=None),
        "ended": max(ends, default=None),
        **bill,
        "jobs": jobs,
    }
    workspace.create_json(_key(spec, "end"), value)


def submissions(workspace: Workspace, launch: str = "") -> list[Submission]:
    """Return the submissions of one launch, or of all, in their order.

    Raises:
        WorkspaceError: A record could name a folder, a flag of a program, or another server.
    """
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for info in workspace.store.list(f"{LAUNCHES}/{launch}"):
        folder, _, name = info.key.removeprefix(f"{LAUNCHES}/").rpartition("/")
        match = _FILE.fullmatch(name)
        if match:
            parts = found.setdefault((folder, match["stage"], int(match["number"])), {})
            parts[match["kind"]] = codec.load(workspace.store.get(info.key), f"{workspace.url}: {info.key}")
    order = {PIPELINE: -1, "extract": 0, "describe": 1, "assemble": 2, FIELDS: 3, REPAIR: 3}
    read = []
    for where in sorted(found, key=lambda key: (key[0], order.get(key[1], 4), key[2])):
        parts = found[where]
        if "spec" not in parts:
            continue
        about = parts["spec"]
        platform, spec = about["platform"], JobSpec(**about["spec"])
        jobs = tuple(Job(**job) for job in parts["jobs"]["jobs"]) if "jobs" in parts else None
        place = f"{LAUNCHES}/{where[0]}/{where[1]}-{where[2]}"
        if (spec.launch, spec.stage, spec.submission) != where or not _NAME.fullmatch(spec.launch):
            raise codec.damaged(place, "this is the record of another submission")
        for job in jobs or ():
            if not _NAME.fullmatch(job.name) or not _ID.fullmatch(job.id) or ".." in job.id:
                raise codec.damaged(place, f"{job.id!r:.80} and {job.name!r:.80} are not a valid ID and name of a job")
            if is_installed(platform):  # jobs of removed platforms are never asked for
                _check_server(place, str(job.place.get("endpoint") or ""))
        read.append(Submission(platform, spec, jobs, parts.get("end"), about["done"], about.get("decided", 0.0)))
    return read


def _check_server(place: str, server: str) -> None:
    """Raise `WorkspaceError` for a server that the user has not named: it would receive the keys of the platform."""
    variables = environment()
    # "" is the platform's own server.
    known = ("", "https://huggingface.co", variables.get(_ENDPOINT, ""), variables.get("HF_ENDPOINT", ""))
    if server.rstrip("/") in {url.rstrip("/") for url in known}:
        return
    if not _LOOPBACK.match(server):
        server = without_credentials(server)
        raise WorkspaceError(
            f"{place} sets {server} as the platform's server, but a workspace must not determine where keys are sent",
            hint=f"If you trust this server, set {_ENDPOINT}={server}",
        )


def _key(spec: JobSpec, kind: str) -> str:
    return f"{LAUNCHES}/{spec.launch}/{spec.stage}-{spec.submission}.{kind}.json"
