"""What a launch puts into the workspace for its jobs: the library's wheel, and documents of this machine.

A job with a stock image first runs `bootstrap`, which installs the wheel. `plan` is pure, so the plan contains
placeholders for values that are only known at submission. `with_library` replaces them.
"""

import base64
import csv
import hashlib
import io
import json
import os
import re
import stat
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import FIELDS, GPU_STAGES, JobSpec, Plan, Request
from llm_ocr.launch.bootstrap import GOOGLE_KEY
from llm_ocr.plugins import STORES
from llm_ocr.storage.names import split_scheme
from llm_ocr.types import plural
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


class Wheel(NamedTuple):
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


# Documents of this machine.


#: Folder of uploaded documents below the workspace.
UPLOADS = "uploads/documents"
_KINDS = (
    *(".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".tif", ".tiff"),
    *(".gif", ".bmp", ".jp2", ".j2k", ".jpf", ".jpx", ".avif"),
)


def is_local(source: str) -> bool:
    """Return whether a source is on this machine."""
    return split_scheme(source)[0] in ("", "file")


def on_any_folder(url: str) -> str:
    """Return a path as an absolute one, and a URL unchanged."""
    return str(Path(url).expanduser().absolute()) if not split_scheme(url)[0] else url


def uploaded(workspace: Workspace, sources: Sequence[str], say: Callable[[str], object]) -> tuple[str, ...]:
    """Upload files and folders of this machine, except unchanged ones (same path, same size, not newer here).

    Args:
        workspace: Workspace.
        sources: Sources as given by the user.
        say: Receives messages.

    Returns:
        The sources in a form that jobs can read.

    Raises:
        UsageError: A local source is a list or a pattern, or does not exist.
    """
    readable = []
    for source in sources:
        if not is_local(source):
            readable.append(source)
            continue
        root = Path(source.removeprefix("file://")).expanduser().resolve()
        if not root.exists() or (root.is_file() and root.suffix.lower() not in _KINDS):
            hint = "Use files, folders, or s3://, gs://, hf://, and https:// sources; put lists of sources there, too."
            raise UsageError(f"{source}: jobs on other machines cannot read it", hint=hint)
        files = [root] if root.is_file() else sorted(_documents(root, say))
        # Folders with equal names must not overwrite each other: `2023/scans` and `2024/scans`.
        place = f"{UPLOADS}/{hashlib.sha256(os.fsencode(root.parent)).hexdigest()[:8]}"
        sent = 0
        for file in files:
            key = f"{place}/{file.relative_to(root.parent).as_posix()}"
            there, here = workspace.store.stat(key), file.stat()
            # A store that does not record the time of an object returns 0.
            if there is None or there.size != here.st_size or 0 < there.modified < here.st_mtime:
                workspace.store.upload(file, key)
                sent += 1
        workspace.flush()
        say(f"{source}: {sent:,} of {plural(len(files), 'file')} uploaded to {workspace.url}/{place}")
        readable.append(f"{workspace.url}/{place}/{root.name}{'' if root.is_file() else '/'}")
    return tuple(readable)


def remove_wheels(workspace: Workspace) -> list[str]:
    """Remove the wheels that finished launches uploaded, and return lines about them. The next launch uploads its own.

    Raises:
        StorageError: The workspace cannot be read or written.
    """
    wheels = [info for info in workspace.store.list(f"{LAUNCHES}/") if info.key.endswith(".whl")]
    for info in wheels:
        workspace.store.delete(info.key)
    size = plural(sum(info.size for info in wheels), "byte")
    return [f"deleted: {plural(len(wheels), 'wheel')} of llm-ocr, {size}"] if wheels else []


def kept_uploads(workspace: Workspace) -> list[str]:
    """Return a line about uploaded documents, which only the user may remove; empty without such documents.

    Raises:
        StorageError: The workspace cannot be read.
    """
    found = list(workspace.store.list(f"{UPLOADS}/"))
    size = plural(sum(info.size for info in found), "byte")
    where = f"{workspace.url}/{UPLOADS}"
    return [f"kept: {plural(len(found), 'uploaded document')}, {size}, which retries read: {where}"] if found else []


def _documents(folder: Path, say: Callable[[str], object]) -> Iterator[Path]:
    """Yield the documents below a folder; report unreadable ones."""

    def passed_over(error: OSError) -> None:
        say(f"{error.filename} was not uploaded: {error.strerror or error}")

    for place, folders, names in os.walk(folder, onerror=passed_over):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in names if not name.startswith(".")):
            if path.suffix.lower() not in _KINDS:
                continue
            try:
                if stat.S_ISREG(path.stat().st_mode):
                    yield path
            except OSError as error:
                passed_over(error)
