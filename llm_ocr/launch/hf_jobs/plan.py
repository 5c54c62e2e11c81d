"""What is sent to Hugging Face Jobs for a stage: each request is a method of `huggingface_hub.HfApi` and its arguments.

What is known only when a job is submitted has a name in pointed brackets: `<namespace>` and `<endpoint>` (whose token,
which Hub), `<wheel>`, `<wheel sha256>`, `<wheel commit>` (the library as it is installed here), `<secret NAME>`.
"""

import re
import shlex
from collections.abc import Mapping
from enum import Enum
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.launch import GPU_STAGES, PIPELINE, JobSpec, Plan, Request
from llm_ocr.launch.hf_jobs.hardware import GPUS
from llm_ocr.launch.hf_jobs.status import OWN_LABELS

PLATFORM = "hf-jobs"
#: `llm-ocr estimate` puts an L40S below an A100 in cost per page.
HARDWARE: Mapping[str, str] = {
    "extract": "l40sx1",
    "describe": "l40sx1",
    "assemble": "cpu-upgrade",
    "pipeline": "cpu-basic",
}

#: The newest release next to which the library was resolved (hf-jobs/beside_vllm.py).
GPU_IMAGE = "vllm/vllm-openai:v0.33.0"
CPU_IMAGE = "python:3.12-slim"
#: Seconds; the Hub's own default is half an hour, in which a large model is hardly loaded.
TIME_LIMIT = 3 * 3600
#: The private repository that holds the wheels of a namespace.
REPOSITORY = "llm-ocr-jobs"
#: The content of a Google Cloud key file; libraries of Google take a file's name only.
GOOGLE_KEY = "GOOGLE_APPLICATION_CREDENTIALS_JSON"

_PINNED = re.compile(r"llm[-_]ocr\s*==\s*([A-Za-z0-9.+!_-]+)")
_EXTRAS = {"s3": ("s3",), "gs": ("gcs",)}

#: The token comes by standard input, since arguments are for all to see. Only the first request carries it: storage
#: refuses what is signed twice.
_FETCH = (
    "import hashlib, sys, urllib.request as web; "
    "asked = web.Request(sys.argv[1]); "
    'asked.add_unredirected_header("Authorization", "Bearer " + sys.stdin.read()); '
    "data = web.urlopen(asked, timeout=60).read(); "
    'hashlib.sha256(data).hexdigest() == sys.argv[2] or sys.exit("this wheel has another sha256"); '
    'open(sys.argv[3], "wb").write(data)'
)

#: A constraint for each installed version, the first of a name; those of system packages that pip cannot read are left
#: out, and our own.
_KEEP = (
    "import re; from importlib.metadata import distributions; kept = {}; "
    '[kept.setdefault(re.sub("[-_.]+", "-", str(one.metadata["Name"])).lower(), one.version) '
    "for one in distributions()]; "
    'print(*(f"{name}=={version}" for name, version in kept.items() if name != "llm-ocr" and re.fullmatch('
    '"[0-9]+([.][0-9]+)*((a|b|rc)[0-9]+)?([.]post[0-9]+)?([.]dev[0-9]+)?([+][A-Za-z0-9.]+)?", version)), sep="\\n")'
)


class Shipping(Enum):
    """How the library comes to a job."""

    HUB = "a wheel in a private repository"
    INDEX = "a release on the package index"
    IMAGE = "in the image"


def shipping(wheel: str | None) -> Shipping:
    """By `--wheel`: nothing or a file's name, `llm-ocr==VERSION`, `image`. Raises `UsageError`."""
    if wheel is None or wheel.endswith(".whl"):
        return Shipping.HUB
    if wheel == "image":
        return Shipping.IMAGE
    if _PINNED.fullmatch(wheel):
        return Shipping.INDEX
    raise UsageError(
        f"--wheel {wheel}: is neither a wheel's file (llm_ocr-….whl), nor llm-ocr==VERSION, nor image",
        hint="Leave it out to ship the library as it is installed here.",
    )


def plan_of(spec: JobSpec) -> Plan:
    """Pure. Raises `UsageError`."""
    ships = shipping(spec.options.get("wheel"))
    image = spec.image or (GPU_IMAGE if _is_gpu(spec) else CPU_IMAGE)
    requests = [Request("run_job", _job(spec, image, shard)) for shard in range(spec.shards)]
    if ships is Shipping.HUB:
        requests[:0] = _upload(namespace_of(spec))
    return Plan(PLATFORM, spec, tuple(requests), notes=_notes(spec, ships))


def namespace_of(spec: JobSpec) -> str:
    """Who pays; a placeholder for the token's own account."""
    return spec.options.get("namespace") or "<namespace>"


def labels_of(spec: JobSpec) -> dict[str, str]:
    """By which all jobs of a submission are found."""
    return dict(zip(OWN_LABELS, (spec.launch, spec.stage, str(spec.submission)), strict=True))


def secrets_of(spec: JobSpec) -> dict[str, str]:
    """Variables that jobs get as secrets -> the variable of this machine that holds the value."""
    needs_token = spec.workspace.startswith("hf:") or shipping(spec.options.get("wheel")) is Shipping.HUB
    return {**({"HF_TOKEN": "HF_TOKEN"} if needs_token else {}), **{k: v or k for k, v in spec.secrets.items()}}


def filled(value: Any, known: Mapping[str, str]) -> Any:
    """A body with its placeholders replaced."""
    if isinstance(value, str):
        for name, text in known.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, Mapping):
        return {name: filled(one, known) for name, one in value.items()}
    return [filled(one, known) for one in value] if isinstance(value, list) else value


def _is_gpu(spec: JobSpec) -> bool:
    return GPUS.get(spec.hardware or HARDWARE[spec.stage], int(spec.stage in GPU_STAGES)) > 0


def _upload(namespace: str) -> list[Request]:
    place = {"repo_id": f"{namespace}/{REPOSITORY}", "repo_type": "dataset"}
    file = {"path_or_fileobj": "<wheel file>", "path_in_repo": "<wheel sha256>/<wheel>", "commit_message": "<wheel>"}
    return [Request("create_repo", {**place, "private": True, "exist_ok": True}), Request("upload_file", place | file)]


def _job(spec: JobSpec, image: str, shard: int) -> dict[str, Any]:
    limit = spec.time_limit or TIME_LIMIT
    numbered = {"LLM_OCR_SHARD_INDEX": str(shard), "LLM_OCR_SHARD_COUNT": str(spec.shards)}
    return {
        "image": image,
        "command": ["sh", "-c", _script(spec)],
        "env": {**spec.environment, "HF_ENDPOINT": "<endpoint>", **(numbered if spec.shards > 1 else {})},
        "secrets": {name: f"<secret {name}>" for name in secrets_of(spec)},
        "flavor": spec.hardware or HARDWARE[spec.stage],
        "timeout": limit,
        # The launch itself submits again, and only while that brings the run forward.
        "attempts": 1,
        "name": f"{spec.name}-{shard}",
        "labels": {**labels_of(spec), "shard": str(shard), "limit": str(limit)},
        "namespace": namespace_of(spec),
    }


def _script(spec: JobSpec) -> str:
    """One line: the library is installed without a change to what the image brings, then the stage takes its place."""
    steps = ["set -eu", "d=$(mktemp -d)"]
    wheel, ships = spec.options.get("wheel"), shipping(spec.options.get("wheel"))
    extras = f"[{','.join(found)}]" if (found := _extras(spec)) else ""
    if ships is Shipping.HUB:
        url = f"<endpoint>/datasets/{namespace_of(spec)}/{REPOSITORY}/resolve/<wheel commit>/<wheel sha256>/<wheel>"
        fetch = f'printf %s "$HF_TOKEN" | python3 -c {shlex.quote(_FETCH)} "{url}" "<wheel sha256>" "$d/<wheel>"'
        steps += ["n=0", f"until {fetch}; do n=$((n+1)); test $n -lt 3; sleep $n; done"]
        steps += _install(f'"$d/<wheel>{extras}"')
    elif ships is Shipping.INDEX and (pinned := _PINNED.fullmatch(str(wheel))):
        steps += _install(f'"llm-ocr{extras}=={pinned[1]}"')
    if GOOGLE_KEY in spec.secrets:
        drop = "" if spec.stage == PIPELINE else f" unset {GOOGLE_KEY};"  # the coordinator passes it on
        steps.append(f'umask 077; printf %s "${GOOGLE_KEY}" > "$d/google.json";{drop} umask 022')
        steps.append('export GOOGLE_APPLICATION_CREDENTIALS="$d/google.json"')
    # Images need not have a `python`.
    command = ["python3" if word == "python" else word for word in spec.command]
    return "; ".join([*steps, f"exec {shlex.join(command)}"])


def _install(requirement: str) -> list[str]:
    return [
        f'python3 -c {shlex.quote(_KEEP)} > "$d/installed.txt"',
        f'PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --constraint "$d/installed.txt" {requirement}',
    ]


def _extras(spec: JobSpec) -> list[str]:
    """Of the workspace's store, of the engine that reads pages where no GPU is, and those asked for."""
    store = _EXTRAS.get(spec.workspace.partition(":")[0], ())
    engine = ("embedded",) if spec.stage in GPU_STAGES and not _is_gpu(spec) else ()
    return list(dict.fromkeys([*store, *engine, *spec.options.get("extra", ())]))


def _notes(spec: JobSpec, ships: Shipping) -> tuple[str, ...]:
    notes = []
    if namespace_of(spec) == "<namespace>":
        notes.append("<namespace> is the account of the token")
    if ships is Shipping.HUB:
        source = spec.options.get("wheel") or "the library as it is installed here"
        notes.append(
            f"<wheel> is {source}, in the private repository {namespace_of(spec)}/{REPOSITORY}; a job checks its sha256"
        )
    named = ", ".join(name if name == where else f"{name} (from {where})" for name, where in secrets_of(spec).items())
    if named:
        notes.append(f"secrets of this machine, which the Hub encrypts: {named}")
    return tuple(notes)
