"""Library in a job's container: the stock images, its wheel in the workspace, and the command that installs it.

A job with a stock image first runs `bootstrap`, which installs the wheel that the launch uploaded to the workspace.
`plan` is pure, so the plan contains placeholders for values that are only known at submission. `with_library` replaces
them.
"""

import base64
import csv
import hashlib
import io
import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import FIELDS, GPU_STAGES, JobSpec, Plan, Request
from llm_ocr.launch.bootstrap import GOOGLE_KEY
from llm_ocr.plugins import STORES
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.stored import LAUNCHES

#: Newest release whose packages are compatible with the library (hf-jobs/beside_vllm.py).
GPU_IMAGE = "vllm/vllm-openai:v0.33.0"
#: CUDA version of its libraries: every tag without a suffix since vLLM 0.20. An older driver needs NVIDIA's
#: compatibility libraries. This image contains them and loads them if VLLM_ENABLE_CUDA_COMPATIBILITY is set (vLLM's
#: pull request 33992).
GPU_IMAGE_CUDA = (13, 0)
CPU_IMAGE = "python:3.12-slim"

#: Placeholders of a plan: the source of `bootstrap`, the wheel's URL, and its SHA-256.
BOOTSTRAP, WHEEL, SHA256 = "<bootstrap>", "<wheel>", "<wheel sha256>"

_NAME = re.compile(r"llm_ocr-[A-Za-z0-9.+!_]+-py3-none-any\.whl")
#: Import package of the wheel.
_PACKAGE = re.compile(r"llm_ocr(_[a-z]+)?")
#: Files that an installer adds to those of the wheel.
_ADDED = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
#: Extras for each store of the core, by the scheme of its URLs; entry points have those of packages.
_EXTRAS: Mapping[str, tuple[str, ...]] = {"s3": ("s3",), "gs": ("gcs",)}


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel's file name and content."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def installs(spec: JobSpec) -> bool:
    """Return whether a job installs the library itself. Otherwise its image contains the library (`--wheel image`)."""
    return spec.options.get("wheel") != "image"


def job_command(spec: JobSpec, *, gpus: int | None = None, wrapper: tuple[str, ...] = ()) -> list[str]:
    """Return the command of a container on a machine with `gpus`; `wrapper` is a program that runs the command."""
    command = [*wrapper, *spec.command]
    if not installs(spec) and GOOGLE_KEY not in spec.secrets:
        return command
    # Extras for the workspace's store, for the engine on a machine without GPU, and those of `--extra`.
    engine = ["embedded"] if spec.stage in GPU_STAGES and gpus == 0 and spec.stage != FIELDS else []
    extras = list(dict.fromkeys([*store_extras([spec.workspace]), *engine, *spec.options.get("extra", ())]))
    wheel = {"wheel": WHEEL, "sha256": SHA256, "extras": extras} if installs(spec) else {"wheel": ""}
    keep = {} if serves(spec, gpus) else {"keep": False}
    return ["python3", "-c", BOOTSTRAP, json.dumps({**wheel, **keep, "command": command})]


def serves(spec: JobSpec, gpus: int | None) -> bool:
    """Return whether a job on a machine with `gpus` may start vLLM. Other jobs may change the image's packages."""
    return spec.stage in GPU_STAGES and gpus != 0


def check_library(spec: JobSpec) -> None:
    """Raise `UsageError` if the wheel cannot be used, or if an image must contain the library and none is named."""
    given = spec.options.get("wheel")
    if given == "image" and not spec.image:
        hint = "Set an image that does, for example --image registry.example/llm-ocr:1 (docker/README.md)."
        raise UsageError("--wheel image: the stock images do not contain llm-ocr", hint=hint)
    if given not in (None, "image"):
        check_wheel(given)


def library_notes(spec: JobSpec, gpus: int | None = None) -> list[str]:
    """Return the notes of a plan about the library, for jobs on machines with `gpus`."""
    if not installs(spec):
        return []
    source = spec.options.get("wheel") or "the llm-ocr installed here"
    keep = " without changing the image's packages" if serves(spec, gpus) else ""
    return [
        f"{WHEEL} is {source}, uploaded to the workspace; each job checks its sha256 and installs it{keep} "
        f"({BOOTSTRAP} is llm_ocr/launch/bootstrap.py)"
    ]


def with_library(plan: Plan, workspace: Workspace) -> Plan:
    """Upload the library's wheel if the plan names it, and return the plan without its placeholders."""
    known = {BOOTSTRAP: Path(__file__).with_name("bootstrap.py").read_text(encoding="utf-8")}
    if WHEEL in repr(plan.requests):  # not in the plans of platforms that have the library
        wheel = library_wheel(plan.spec.options.get("wheel"))
        key = f"{LAUNCHES}/{plan.spec.launch}/{wheel.sha256[:16]}/{wheel.name}"
        if workspace.store.stat(key) is None:
            workspace.store.put(key, wheel.data)
            workspace.flush()
        # Placeholders are inside JSON text.
        known |= {WHEEL: json.dumps(f"{workspace.url.rstrip('/')}/{key}")[1:-1], SHA256: wheel.sha256}
    requests = tuple(Request(request.call, filled(request.body, known)) for request in plan.requests)
    return replace(plan, requests=requests)


def filled(value: Any, known: Mapping[str, str]) -> Any:
    """Return a JSON value with its placeholders replaced."""
    if isinstance(value, str):
        for name, text in known.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, Mapping):
        return {name: filled(item, known) for name, item in value.items()}
    return [filled(item, known) for item in value] if isinstance(value, list) else value


def library_wheel(given: str | None = None) -> Wheel:
    """Return the wheel `given` as a file, or a wheel of the installed library, editable or not.

    Raises:
        UsageError: The file is not a wheel of the library.
        LaunchError: The library is imported from a folder without being installed.
    """
    if given is not None:
        path = check_wheel(given)
        return Wheel(path.name, path.read_bytes())
    try:
        installed = distribution("llm-ocr")
    except PackageNotFoundError as error:
        hint = "Install the checkout (pip install -e .), or set --wheel FILE."
        raise LaunchError("llm-ocr is not installed here, so it cannot be packed into a wheel", hint=hint) from error
    # Fixed dates and order: the same files give the same bytes.
    folder = f"llm_ocr-{installed.version}.dist-info"
    files = {name: path.read_bytes() for name, path in sorted(_files(installed, folder))}
    digests = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for name, data in files.items()}
    rows = [(name, f"sha256={digests[name].rstrip(b'=').decode()}", str(len(data))) for name, data in files.items()]
    record = io.StringIO()
    csv.writer(record, lineterminator="\n").writerows([*rows, (f"{folder}/RECORD", "", "")])
    files[f"{folder}/RECORD"] = record.getvalue().encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return Wheel(f"llm_ocr-{installed.version}-py3-none-any.whl", packed.getvalue())


def check_wheel(given: str) -> Path:
    """Return the path of a wheel named by the user, or raise `UsageError` for any other file."""
    path = Path(given).expanduser()
    if path.suffix != ".whl":
        raise UsageError(
            f"--wheel {given}: must be a wheel file (llm_ocr-VERSION-py3-none-any.whl) or 'image'",
            hint="Remove it to send the llm-ocr installed here.",
        )
    if not path.is_file():
        raise UsageError(f"--wheel {given}: the file does not exist")
    if not _NAME.fullmatch(path.name) or not zipfile.is_zipfile(path):
        raise UsageError(f"--wheel {given} is not a wheel of llm-ocr (llm_ocr-VERSION-py3-none-any.whl)")
    return path


def store_extras(urls: Iterable[str]) -> list[str]:
    """Return the extras of the library for the stores of these URLs."""
    schemes = [url.partition(":")[0] for url in urls]
    return [extra for scheme in schemes for extra in (_EXTRAS.get(scheme) or STORES.extras(scheme))]


def _files(installed: Distribution, folder: str) -> Iterator[tuple[str, Path]]:
    """Yield each file of the wheel with its name there; an editable checkout has the package in another folder."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    kept = [folder]
    if project.is_file():
        wheel = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
        for package in (project.parent / name for name in wheel["packages"]):
            for path in package.rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path.relative_to(package.parent).as_posix(), path
        for source, name in wheel["force-include"].items():
            yield name, project.parent / source
    else:
        kept += {file.parts[0] for file in installed.files or () if _PACKAGE.fullmatch(file.parts[0])}
    for file in installed.files or ():
        if file.parts[0] in kept and "__pycache__" not in file.parts and file.name not in _ADDED:
            yield file.as_posix(), Path(str(installed.locate_file(file)))
