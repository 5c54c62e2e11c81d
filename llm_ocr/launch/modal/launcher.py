"""Modal: a call of a deployed function for each share. Its image and volumes are those of the app (`modal-app/app.py`).

Modal has neither names nor lists of calls. A Dict of the app holds the call of each job, so that one which was made
before a crash is found, and when the call began and ended, which tells what it is billed for.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Plan, Request
from llm_ocr.launch.modal.client import asked
from llm_ocr.launch.modal.names import DEFAULT_APP, board_name
from llm_ocr.launch.modal.status import call_status
from llm_ocr.settings.environment import environment

#: GPU -> most of them in one container (modal.com/docs/guide/gpu, read in November 2026; none is said of RTX-PRO-6000).
GPUS: Mapping[str, int] = {
    **dict.fromkeys(("T4", "L4", "L40S", "A100", "A100-40GB", "A100-80GB", "RTX-PRO-6000"), 8),
    **dict.fromkeys(("H100", "H100!", "H200", "B200", "B200+"), 8),
    "A10": 4,
}
CPU = "cpu"
#: Seconds: what Modal allows (modal.com/docs/guide/timeouts), and what a job gets when nothing is known of it.
LONGEST, USUAL = 24 * 3600, 4 * 3600
#: The function of the app that runs a stage.
FUNCTION = "stage"
_DEPLOY = "Deploy it from a checkout: modal deploy modal-app/app.py (modal-app/README.md)"


class Modal:
    """The platform `modal`. Hardware is a GPU as Modal writes it (`L40S`, `H100:2`), or `cpu`."""

    platform = "modal"

    def hardware(self, stage: str) -> str:
        return "L40S" if stage in GPU_STAGES else CPU

    def gpus(self, hardware: str) -> int | None:
        if hardware.lower() == CPU:
            return 0
        name, _, count = hardware.partition(":")
        if name.upper() not in GPUS or not (count or "1").isdigit():
            return None
        return int(count or 1)

    def time_limit(self, spec: JobSpec) -> int:
        return USUAL

    def plan(self, spec: JobSpec) -> Plan:
        app = str(spec.options.get("modal_app") or DEFAULT_APP)
        hardware = spec.hardware or self.hardware(spec.stage)
        _check_spec(spec, hardware)
        requests = []
        for index in range(spec.shards):
            body = {
                "app": app,
                "function": FUNCTION,
                "options": _options(spec, hardware),
                "arguments": _arguments(spec, index),
            }
            noted = {"dict": board_name(app), "key": f"{_name(spec, index)}/call", "value": "<id of the call>"}
            requests += [Request("Function.spawn", body), Request("Dict.put", noted)]
        notes = ["the image is the one that the app was deployed with"]
        if spec.options.get("platform_endpoint"):
            notes.append("--platform-endpoint has no effect on Modal: set MODAL_SERVER_URL")
        return Plan(self.platform, spec, tuple(requests), notes=tuple(notes))

    def check(self, plan: Plan) -> None:
        _from_here(plan.spec)
        body = plan.requests[0].body
        options = {name: value for name, value in body["options"].items() if name != "secrets"}
        with asked(
            f"the app {body['app']} on Modal", not_found=_DEPLOY, invalid=_near(options.get("gpu", ""))
        ) as package:
            function = package.Function.from_name(body["app"], body["function"])
            function.hydrate()
            function.with_options(**options).hydrate()  # Modal looks at the hardware now
        for name, where in plan.spec.secrets.items():
            hint = f"Make it: modal secret create {where} {name}=VALUE"
            with asked(f"the secret {where} on Modal", not_found=hint) as package:
                if where:
                    package.Secret.from_name(where, required_keys=[name]).hydrate()

    def find(self, spec: JobSpec) -> Sequence[Job]:
        app = str(spec.options.get("modal_app") or DEFAULT_APP)
        with asked("jobs on Modal") as package:
            board = _board(package, app)
            calls = [board.get(f"{_name(spec, index)}/call") for index in range(spec.shards)]
        return [_job(spec, app, index, call) for index, call in enumerate(calls) if call]

    def submit(self, plan: Plan) -> Sequence[Job]:
        spec, jobs, call = plan.spec, list[Job](), ""
        here = _from_here(spec)
        made: Any = None
        for request in plan.requests:
            body = copy.deepcopy(dict(request.body))
            with asked("the call on Modal", not_found=_DEPLOY, invalid=_near(spec.hardware)) as package:
                if request.call == "Dict.put":
                    _board(package, body["dict"].removesuffix("-jobs")).put(body["key"], call)
                    continue
                if made is None:  # one for all shares: each set of options is a pool of containers
                    made = _function(package, body, here)
                call = made.spawn(**body["arguments"]).object_id
                jobs.append(_job(spec, body["app"], body["arguments"]["index"], call))
        return jobs

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        return [self._status(job) for job in jobs]

    def _status(self, job: Job) -> JobStatus:
        with asked("jobs on Modal") as package:
            board = _board(package, job.place["app"])
            begun, ended = board.get(f"{job.name}/begun"), board.get(f"{job.name}/ended")
            call = package.FunctionCall.from_id(job.id)
        return call_status(job, call, begun, ended)

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        with asked(f"the log of {job.id} on Modal") as package:
            manager = package.FunctionCall.from_id(job.id).logs
            if follow:
                entries = manager.stream()
            elif tail is not None:
                entries = manager.tail(tail)
            else:
                begun = _board(package, job.place["app"]).get(f"{job.name}/begun")
                since = datetime.fromtimestamp(begun, UTC) if begun else datetime.now(UTC)
                entries = manager.fetch(since=since - timedelta(minutes=15))
            yield from _lines(entry.message for entry in entries)

    def cancel(self, job: Job) -> None:
        if self._status(job).state.over:
            return
        with asked(f"cancelling {job.id} on Modal") as package:
            package.FunctionCall.from_id(job.id).cancel()

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        lines = []
        over = [one.job for one in self.status(jobs) if one.state.over]
        with asked("jobs on Modal") as package:
            for job in over:
                board = _board(package, job.place["app"])
                for what in ("call", "begun", "ended"):
                    board.pop(f"{job.name}/{what}", None)
                lines.append(f"removed what Modal noted of {job.name}")
        for app in dict.fromkeys(job.place["app"] for job in jobs):
            lines.append(f"left: the app {app} (modal app stop {app}) and its volumes (modal volume list)")
        return lines


def _check_spec(spec: JobSpec, hardware: str) -> None:
    """Raises `UsageError` for what can never work."""
    if spec.image:
        raise UsageError(
            "Modal runs the image that the app was deployed with: --image cannot change it",
            hint=f"Deploy it again: LLM_OCR_MODAL_IMAGE={spec.image} modal deploy modal-app/app.py",
        )
    if spec.time_limit is not None and not 1 <= spec.time_limit <= LONGEST:
        raise UsageError(f"--time-limit {spec.time_limit} s: Modal allows 24 hours", hint="Give more --shards.")
    name, _, count = hardware.partition(":")
    most = GPUS.get(name.upper())
    if count and (not count.isdigit() or not int(count)):
        raise UsageError(f"--hardware {hardware}: must be a GPU and how many of them, as {name}:2")
    if most is not None and int(count or 1) > most:
        raise UsageError(f"--hardware {hardware}: at most {name}:{most}", hint="Give more --shards.")


def _options(spec: JobSpec, hardware: str) -> dict[str, Any]:
    """Of the pool of containers that the call runs in."""
    secrets: list[dict[str, Any]] = [
        {"from_name": where, "required_keys": [name]} for name, where in spec.secrets.items() if where
    ]
    if here := {name: f"<secret {name}>" for name, where in spec.secrets.items() if not where}:
        secrets.append({"from_dict": here})
    options: dict[str, Any] = {"timeout": spec.time_limit or USUAL}
    if hardware.lower() != CPU:
        options["gpu"] = hardware
    if region := spec.options.get("region"):
        options["region"] = region
    if secrets:
        options["secrets"] = secrets
    return options


def _arguments(spec: JobSpec, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "count": spec.shards,
        "argv": list(spec.command),
        "environment": dict(spec.environment),
        "limit": spec.time_limit or USUAL,
        "name": _name(spec, index),
    }


def _function(package: Any, body: Mapping[str, Any], here: Mapping[str, str]) -> Any:
    """The deployed function with the options of the plan, secrets filled in."""
    options = dict(body["options"])
    secrets = []
    for one in options.pop("secrets", ()):
        if "from_name" in one:
            secrets.append(package.Secret.from_name(one["from_name"], required_keys=one["required_keys"]))
        else:
            secrets.append(package.Secret.from_dict({name: here[name] for name in one["from_dict"]}))
    if secrets:
        options["secrets"] = secrets
    return package.Function.from_name(body["app"], body["function"]).with_options(**options)


def _from_here(spec: JobSpec) -> dict[str, str]:
    """The secrets that this machine's environment gives. Raises `LaunchError` for one that is not set."""
    found, now = {}, environment()
    for name, where in spec.secrets.items():
        if where:
            continue
        if not now.get(name):
            raise LaunchError(
                f"the secret {name} is not set here",
                hint=f"Set the variable, or give --secret {name}=SECRET with the name of a secret on Modal.",
            )
        found[name] = now[name]
    return found


def _near(hardware: str) -> str:
    close = get_close_matches(hardware.partition(":")[0].upper(), GPUS, n=3)
    return f"Did you mean {' or '.join(close)}?" if close else f"GPUs that are known here: {', '.join(GPUS)}"


def _name(spec: JobSpec, index: int) -> str:
    return f"{spec.name}-{index}"


def _board(package: Any, app: str) -> Any:
    return package.Dict.from_name(board_name(app), create_if_missing=True)


def _job(spec: JobSpec, app: str, index: int, call: str) -> Job:
    return Job(call, _name(spec, index), index, f"https://modal.com/id/{call}", {"app": app})


def _lines(messages: Iterator[str]) -> Iterator[str]:
    """Messages are pieces of output, cut anywhere."""
    rest = ""
    for message in messages:
        *whole, rest = (rest + message).split("\n")
        yield from whole
    if rest:
        yield rest
