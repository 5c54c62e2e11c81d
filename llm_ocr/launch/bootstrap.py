"""Prepare a job's container (the library, CUDA on older drivers), then run the job's command.

A launcher passes the source of this file to `python3 -c` in a stock image. Its argument is a JSON object: `wheel` (the
wheel's URL in the workspace, "" if the image contains the library), `sha256`, `extras`, `command`, and `keep` (whether
the packages of the image must not change, because vLLM needs them). The image needs Python and pip. Before the
installation, only the standard library is imported.
"""

import contextlib
import hashlib
import json
import os
import re
import site
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib import invalidate_caches
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

#: The content of a Google Cloud key file, as a secret of jobs outside Google. Google's libraries accept only a file.
GOOGLE_KEY = "GOOGLE_APPLICATION_CREDENTIALS_JSON"
#: Client of a workspace's store: its module and its name for pip.
CLIENTS = {"s3": ("boto3", "boto3"), "gs": ("google.cloud.storage", "google-cloud-storage")}
#: Versions that pip can read. System packages of Debian have others, for example `1.1build1`.
VERSION = "[0-9]+([.][0-9]+)*((a|b|rc)[0-9]+)?([.]post[0-9]+)?([.]dev[0-9]+)?([+][A-Za-z0-9.]+)?"
TRIES = 3
#: What a container shows of the NVIDIA driver, and the folder of an image's CUDA versions.
DRIVER, CUDA = "/proc/driver/nvidia", "/usr/local"
#: First release of the driver with CUDA 13.
CUDA_13_DRIVER = 580
#: Makes vLLM load the image's own CUDA driver libraries.
COMPATIBILITY = "VLLM_ENABLE_CUDA_COMPATIBILITY"
#: Data-center GPUs, by the driver's names. On other GPUs, the compatibility libraries fail (CUDA error 804).
DATA_CENTER = "Tesla |NVIDIA ([ABHL][0-9]|T4$|G[BH][0-9])|.*Server Edition"


class Failed(Exception):
    """The command cannot be run; the message is the reason."""


def constraints() -> str:
    """Return pins for every package of the image, so that pip changes none; the first of equal names is imported."""
    found: dict[str, str] = {}
    for package in distributions():
        found.setdefault(re.sub("[-_.]+", "-", str(package.metadata["Name"])).lower(), package.version)
    readable = {name: version for name, version in found.items() if re.fullmatch(VERSION, version)}
    return "".join(f"{name}=={version}\n" for name, version in readable.items() if name != "llm-ocr")


def install(requirement: str, folder: str, keep: bool = True) -> None:
    """Install a requirement with pip; print the output of pip, and its whole message on failure."""
    pins = Path(folder, "installed.txt")
    pins.write_text(constraints() if keep else "")
    words = [sys.executable, "-m", "pip", "install", "--progress-bar=off", "--constraint", str(pins), requirement]
    variables = {**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    run = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = []
    for line in run.stdout or ():
        if not line.startswith("Requirement already satisfied"):
            sys.stdout.write(line)
            output.append(line.strip())
    if run.wait():
        start = next((number for number, line in enumerate(output) if line.startswith("ERROR")), -8)
        words = [line for line in output[start:] if line]
        how = " without changing the packages of this image" if keep else ""
        raise Failed("\n".join([f"pip cannot install llm-ocr{how}:", *words]))
    # Without root, pip installs into the user's folder, which may not have existed when Python started.
    site.addsitedir(site.getusersitepackages())
    invalidate_caches()


def download(url: str, path: str) -> None:
    """Download the wheel from the workspace with the credentials of the stage."""
    scheme, _, place = url.partition("://")
    bucket, _, key = place.partition("/")
    endpoint, region = os.environ.get("LLM_OCR_WORKSPACE_ENDPOINT"), os.environ.get("LLM_OCR_WORKSPACE_REGION")
    if scheme == "s3":
        import boto3

        # Servers other than Amazon's accept any region, but the client requires one.
        region = region or os.environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
        boto3.client("s3", endpoint_url=endpoint, region_name=region).download_file(bucket, key, path)
    elif scheme == "gs":
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        emulator = {"credentials": AnonymousCredentials(), "client_options": {"api_endpoint": endpoint}}
        client = storage.Client(project="unused", **(emulator if endpoint else {}))
        client.bucket(bucket).blob(key).download_to_filename(path)
    else:
        kind, namespace, name, file = place.split("/", 3)
        name, _, revision = name.partition("@")
        resolve = "resolve" if kind == "buckets" else "resolve/" + (revision or "main")
        server = (endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        request = urllib.request.Request(f"{server}/{kind}/{namespace}/{name}/{resolve}/{file}")
        # For the Hub only: the storage behind its redirect refuses a request that is signed twice.
        request.add_unredirected_header("Authorization", "Bearer " + os.environ.get("HF_TOKEN", ""))
        with urllib.request.urlopen(request, timeout=60) as answer:
            Path(path).write_bytes(answer.read())


def importable(module: str) -> bool:
    """Return whether the image has a module."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def fetch(url: str, sha256: str, folder: str, keep: bool = True) -> str:
    """Return the path of the wheel after a check of its hash."""
    module, package = CLIENTS.get(url.partition(":")[0], ("json", ""))
    if not importable(module):
        install(package, folder, keep)
    path = f"{folder}/{url.rpartition('/')[2]}"
    for number in range(1, TRIES + 1):
        try:
            download(url, path)
            break
        except Exception as error:
            if number == TRIES:
                raise Failed(f"the llm-ocr wheel cannot be downloaded from {url}: {error}") from error
            time.sleep(number)
    if hashlib.sha256(Path(path).read_bytes()).hexdigest() != sha256:
        raise Failed(f"the llm-ocr wheel at {url} has changed since the launch: its sha256 differs")
    return path


def prepare(wheel: str, sha256: str, extras: list[str], keep: bool) -> None:
    """Make the library importable, or raise `Failed`."""
    if sys.version_info < (3, 11):
        raise Failed(f"llm-ocr needs Python 3.11 or newer, but this image has {sys.version.split()[0]}")
    folder = tempfile.mkdtemp(prefix="llm-ocr-")
    if GOOGLE_KEY in os.environ:
        # Only this user can access the folder.
        os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = path = f"{folder}/google.json"
        Path(path).write_text(os.environ[GOOGLE_KEY])
    if wheel:
        install(fetch(wheel, sha256, folder, keep) + (f"[{','.join(extras)}]" if extras else ""), folder, keep)


def use_cuda_compatibility() -> None:
    """Let vLLM of an image with CUDA 13 run on an older driver, where NVIDIA supports it; print the decision."""
    version, about = Path(DRIVER, "version"), list(Path(DRIVER, "gpus").glob("*/information"))
    release = re.search(r"Kernel Module.*?\s([0-9]{3,})[.][0-9]", version.read_text()) if version.is_file() else None
    folders = [*Path(CUDA).glob("cuda-1[3-9]*/compat")]
    if release is None or int(release[1]) >= CUDA_13_DRIVER or not folders or COMPATIBILITY in os.environ:
        return
    models = [re.search(r"Model:\s*(.*\S)", file.read_text()) for file in about]
    names = sorted({model[1] for model in models if model})
    older = f"the NVIDIA driver {release[1]} is older than CUDA 13 of this image ({CUDA_13_DRIVER})"
    if names and all(re.match(DATA_CENTER, name) for name in names):
        os.environ[COMPATIBILITY] = "1"
        sys.stdout.write(f"{older}: vLLM uses the compatibility libraries in {folders[0]} ({COMPATIBILITY}=1)\n")
    else:
        hint = "use a machine with a newer driver, or an image built for CUDA 12"
        lacks = f"{', '.join(names) or 'this GPU'} does not support its compatibility libraries"
        sys.stdout.write(f"{older}, and {lacks}: {hint}\n")


def main() -> None:
    """Run the job's command in place of this program; exit with 1 and the reason if the library is unavailable."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    job = json.loads(sys.argv[1])
    try:
        prepare(job["wheel"], job.get("sha256", ""), job.get("extras", []), job.get("keep", True))
    except Failed as error:
        # The platform shows this file. Without root, it may not be writable; the log has the reason, too.
        with contextlib.suppress(OSError):
            Path(os.environ.get("LLM_OCR_ERROR_FILE", os.devnull)).write_text(str(error)[:1000])
        sys.exit(f"llm-ocr: {error}")
    use_cuda_compatibility()
    # Some images have no `python`.
    words = [sys.executable if word == "python" else word for word in job["command"]]
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
