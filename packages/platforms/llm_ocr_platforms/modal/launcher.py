"""Modal: one call of a deployed function per share. `modal-app/app.py` defines its images and volumes.

Modal has neither names nor lists of calls. A Modal Dict of the app contains the id of each call, so that a launch finds
the calls of a launch that crashed. The Dict also contains the start and the end of each call, which determine the bill.
"""

import contextlib
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Launcher, Plan, Request, State, secrets_here
from llm_ocr.launch.answers import Refusal, near, translated
from llm_ocr_platforms.modal.functions import DEFAULT_APP, VARIABLES, board_name

#: GPU -> maximum per container (modal.com/docs/guide/gpu, November 2026; RTX-PRO-6000 is not listed there).
GPUS: Mapping[str, int] = {
    **dict.fromkeys(("T4", "L4", "L40S", "A100", "A100-40GB", "A100-80GB", "RTX-PRO-6000"), 8),
    **dict.fromkeys(("H100", "H100!", "H200", "B200", "B200+"), 8),
    "A10": 4,
}
CPU = "cpu"
#: Seconds: Modal's maximum (modal.com/docs/guide/timeouts, November 2026), and the default.
LONGEST, USUAL = 24 * 3600, 4 * 3600
#: Functions of the app that run a stage, with and without a GPU.
FUNCTION, CPU_FUNCTION = "stage", "stage_cpu"
_DEPLOY = "Deploy it from a checkout: modal deploy modal-app/app.py (modal-app/README.md)"
_SECRET = "Set the variable, or use --secret {name}=SECRET with the name of a secret on Modal."
_UNREACHABLE = "Check the network, and try again."
_CANCELLED = re.compile(r"cancel|terminated by user", re.IGNORECASE)


class Modal(Launcher):
    """Platform `modal`. Hardware is a GPU in Modal's notation (`L40S`, `H100:2`), or `cpu`."""

    platform = "modal"
    usual_limit = USUAL

    def hardware(self, stage: str) -> str:
        return "L40S" if stage in GPU_STAGES else CPU

    def gpus(self, hardware: str) -> int | None:
        if hardware.lower() == CPU:
            return 0
        name, _, count = hardware.partition(":")
        return int(count or 1) if name.upper() in GPUS and (count or "1").isdigit() else None

    def plan(self, spec: JobSpec) -> Plan:
        app, hardware = _app(spec), spec.hardware or self.hardware(spec.stage)
        name, _, count = hardware.partition(":")
        cpu, most = hardware.lower() == CPU, GPUS.get(name.upper())
        if spec.image:
            variable = VARIABLES["cpu_image" if cpu else "image"][0]
            raise UsageError(
                "Modal runs the image of the deployed app; --image and --cpu-image cannot change it",
                hint=f"Deploy it again: {variable}={spec.image} modal deploy modal-app/app.py",
            )
        if spec.time_limit is not None and not 1 <= spec.time_limit <= LONGEST:
            hint = "Use more --shards."
            raise UsageError(f"--time-limit {spec.time_limit} s: Modal allows at most 24 hours", hint=hint)
        if count and (not count.isdigit() or not int(count)):
            raise UsageError(f"--hardware {hardware}: must be a GPU and a number of GPUs, such as {name}:2")
        if most is not None and int(count or 1) > most:
            raise UsageError(f"--hardware {hardware}: the maximum is {name}:{most}", hint="Use more --shards.")

        secrets: list[dict[str, Any]] = [
            {"from_name": where, "required_keys": [variable]} for variable, where in spec.secrets.items() if where
        ]
        if local := {variable: f"<secret {variable}>" for variable, where in spec.secrets.items() if not where}:
            secrets.append({"from_dict": local})
        # The options of the calls' container pool.
        options: dict[str, Any] = {"timeout": spec.time_limit or USUAL}
        if not cpu:
            options["gpu"] = hardware
        if region := spec.options.get("region"):
            options["region"] = region
        if secrets:
            options["secrets"] = secrets
        requests = []
        for index in range(spec.shards):
            body = {
                "app": app,
                "function": CPU_FUNCTION if cpu else FUNCTION,
                "options": options,
                "arguments": {
                    "index": index,
                    "count": spec.shards,
                    "argv": list(spec.command),
                    "environment": dict(spec.environment),
                    "limit": spec.time_limit or USUAL,
                    "name": spec.shard_name(index),
                },
            }
            noted = {"dict": board_name(app), "key": f"{spec.shard_name(index)}/call", "value": "<id of the call>"}
            requests += [Request("Function.spawn", body), Request("Dict.put", noted)]
        notes = ["the image is that of the deployed app"]
        if spec.options.get("platform_endpoint"):
            notes.append("--platform-endpoint has no effect on Modal; set MODAL_SERVER_URL instead")
        return Plan(self.platform, spec, tuple(requests), notes=tuple(notes))

    def check(self, plan: Plan) -> None:
        secrets_here(plan.spec, _SECRET)
        body = plan.requests[0].body
        options = {name: value for name, value in body["options"].items() if name != "secrets"}
        known = {"not_found": _DEPLOY, "invalid": _near(options.get("gpu", ""))}
        with _asking(f"the app {body['app']} on Modal", **known) as modal:
            function = modal.Function.from_name(body["app"], body["function"])
            function.hydrate()
            function.with_options(**options).hydrate()  # Modal validates the hardware now
        for name, where in plan.spec.secrets.items():
            hint = f"Create it: modal secret create {where} {name}=VALUE"
            with _asking(f"the secret {where} on Modal", not_found=hint) as modal:
                if where:
                    modal.Secret.from_name(where, required_keys=[name]).hydrate()

    def find(self, spec: JobSpec) -> Sequence[Job]:
        with _asking("jobs on Modal") as modal:
            board = _board(modal, _app(spec))
            calls = [board.get(f"{spec.shard_name(index)}/call") for index in range(spec.shards)]
        return [_job(spec, index, call) for index, call in enumerate(calls) if call]

    def submit(self, plan: Plan) -> Sequence[Job]:
        spec, jobs, function = plan.spec, list[Job](), None
        values = secrets_here(spec, _SECRET)
        for request in plan.requests:
            body = copy.deepcopy(dict(request.body))
            with _asking("the call on Modal", not_found=_DEPLOY, invalid=_near(spec.hardware)) as modal:
                if request.call == "Dict.put":
                    _board(modal, _app(spec)).put(body["key"], jobs[-1].id)
                    continue
                if function is None:  # one for all shares: each set of options is a pool of containers
                    options = body["options"]
                    if "secrets" in options:
                        options["secrets"] = [
                            modal.Secret.from_name(secret["from_name"], required_keys=secret["required_keys"])
                            if "from_name" in secret
                            else modal.Secret.from_dict({name: values[name] for name in secret["from_dict"]})
                            for secret in options["secrets"]
                        ]
                    function = modal.Function.from_name(body["app"], body["function"]).with_options(**options)
                call = function.spawn(**body["arguments"])
                jobs.append(_job(spec, body["arguments"]["index"], call.object_id))
        return jobs

    def _status(self, job: Job) -> JobStatus:
        with _asking("jobs on Modal") as modal:
            board = _board(modal, job.place["app"])
            begun, ended = board.get(f"{job.name}/begun"), board.get(f"{job.name}/ended")
            state, reason = _outcome(modal, modal.FunctionCall.from_id(job.id), begun, ended)
        if state is State.FAILED and ended and ended.get("timed_out"):
            state = State.TIMED_OUT
        end = float(ended["time"]) if ended and state.over else None
        seconds = end - begun if end is not None and begun is not None else None
        if begun is None and state.over:
            seconds = 0.0  # the call never had a container
        return JobStatus(job, state, reason, begun, end, seconds)

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        with _asking(f"the log of {job.id} on Modal") as modal:
            manager = modal.FunctionCall.from_id(job.id).logs
            if follow:
                entries = manager.stream()
            elif tail is not None:
                entries = manager.tail(tail)
            else:
                begun = _board(modal, job.place["app"]).get(f"{job.name}/begun")
                since = datetime.fromtimestamp(begun, UTC) if begun else datetime.now(UTC)
                entries = manager.fetch(since=since - timedelta(minutes=15))
            rest = ""  # Modal cuts its messages anywhere
            for entry in entries:
                *whole, rest = (rest + entry.message).split("\n")
                yield from whole
            if rest:
                yield rest

    def _end(self, job: Job) -> None:
        with _asking(f"cancelling {job.id} on Modal") as modal:
            modal.FunctionCall.from_id(job.id).cancel()

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        lines = []
        over = [status.job for status in self.status(jobs) if status.state.over]
        with _asking("jobs on Modal") as modal:
            for job in over:
                board = _board(modal, job.place["app"])
                for key in ("call", "begun", "ended"):
                    board.pop(f"{job.name}/{key}", None)
                lines.append(f"deleted: records of {job.name} on Modal")
        for app in dict.fromkeys(job.place["app"] for job in jobs):
            lines.append(f"kept: app {app} (modal app stop {app}) and its volumes (modal volume list)")
        return lines


@contextlib.contextmanager
def _asking(subject: str, *, not_found: str = "", invalid: str = "") -> Iterator[ModuleType]:
    """Yield the package `modal`; its errors become `LaunchError` with Modal's message and a hint."""
    try:
        import modal
        import modal.exception as errors
    except ImportError as error:
        raise MissingExtra("launching on Modal needs modal", install="modal") from error
    hints: Mapping[type[Exception], str] = {
        errors.AuthError: "Log in: modal token new (or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET).",
        errors.NotFoundError: not_found,
        errors.PermissionDeniedError: "Ask an owner of the Modal workspace, or use another token.",
        errors.ResourceExhaustedError: "A limit of the account is reached: use fewer --shards, or request a raise.",
        **dict.fromkeys((errors.ConnectionError, errors.ServiceError), _UNREACHABLE),
        errors.InvalidError: invalid,
    }

    def explain(error: Exception) -> Refusal | None:
        hint = next((hint for kind, hint in hints.items() if isinstance(error, kind)), "")
        return Refusal(str(error), hint) if isinstance(error, errors.Error) else None

    with translated(subject, explain):
        yield modal


def _outcome(modal: ModuleType, call: Any, begun: float | None, ended: Mapping[str, Any] | None) -> tuple[State, str]:
    """Return the state of a call and its reason; `begun` and `ended` are the call's own notes."""
    errors = modal.exception
    try:
        call.get(timeout=0)
    except TimeoutError:  # Python's own: no result yet
        return (State.QUEUED if begun is None else State.RUNNING), ""
    except errors.FunctionTimeoutError as error:
        return State.TIMED_OUT, _message(error, "stopped by its time limit")
    except errors.InputCancellation as error:
        return State.CANCELLED, _message(error, "canceled")
    except errors.OutputExpiredError:  # Modal deletes results; the notes remain
        if ended is None:
            return State.FAILED, "Modal has deleted its result, and its end was not recorded"
        code = ended["exit_code"]
        return (State.FAILED, f"exit code {code}") if code else (State.SUCCEEDED, "")
    except (errors.RemoteError, errors.InternalFailure, errors.ExecutionError) as error:
        message = _message(error, "failed on Modal")
        return (State.CANCELLED if _CANCELLED.search(message) else State.FAILED), message
    except errors.NotFoundError as error:
        return State.FAILED, _message(error, "Modal does not have this call")
    except errors.Error:
        raise  # the request failed, not the job
    except Exception as error:  # noqa: BLE001 - an exception of the job
        return State.FAILED, _message(error, type(error).__name__)
    return State.SUCCEEDED, ""


def _message(error: BaseException, otherwise: str) -> str:
    return " ".join(str(error).split()) or otherwise


def _near(hardware: str) -> str:
    return near(hardware.partition(":")[0].upper(), GPUS, f"Known GPUs: {', '.join(GPUS)}")


def _app(spec: JobSpec) -> str:
    return str(spec.options.get("modal_app") or DEFAULT_APP)


def _board(modal: ModuleType, app: str) -> Any:
    return modal.Dict.from_name(board_name(app), create_if_missing=True)


def _job(spec: JobSpec, index: int, call: str) -> Job:
    return Job(call, spec.shard_name(index), index, f"https://modal.com/id/{call}", {"app": _app(spec)})
