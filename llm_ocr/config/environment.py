"""The only reader of the process environment."""

import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

#: File whose text a job's platform shows as the reason of a failure; launchers set the variable.
ERROR_FILE = "LLM_OCR_ERROR_FILE"

#: Variables that a worker process needs to start; none can be a secret.
_FOR_WORKERS = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV"),
    "CUDA_VISIBLE_DEVICES",  # for the layout detector on a GPU
)

#: Variables that a model server may need: paths, caches, proxies, and settings of its libraries.
_FOR_SERVERS = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TMP", "TEMP", "HOSTNAME"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CC", "CXX", "MAX_JOBS"),
        *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHASHSEED", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    ]
)
_PREFIXES_FOR_SERVERS = (
    *("CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "VLLM_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_"),
    *("TRANSFORMERS_", "TOKENIZERS_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "FLASHINFER_", "OMP_"),
    *("MKL_", "KMP_", "GOMP_", "OPENBLAS_", "HIP_", "ROCR_", "ROCM_", "HSA_", "RAY_", "XDG_", "LC_", "CONDA_"),
    *("DOCKER_", "TQDM_"),
)
#: The user's key for another server, which must not become the key of a started server.
_NOT_FOR_SERVERS = frozenset({"VLLM_API_KEY"})


def environment() -> Mapping[str, str]:
    """Return the current environment."""
    return dict(os.environ)


def leave_error(text: str) -> None:
    """Write the reason of a failure into the file that LLM_OCR_ERROR_FILE names, if set.

    The job's platform shows this file.

    Args:
        text: The error; SageMaker shows 1,024 bytes of the text.
    """
    file = os.environ.get(ERROR_FILE)
    # A container without root may lack permission to write the file. The log has the error, too.
    with contextlib.suppress(OSError):
        Path(file or os.devnull).write_bytes(text.encode(errors="replace")[:1024].decode(errors="ignore").encode())


def quiet_ray(*, alone: bool) -> None:
    """Configure Ray before its import: no usage reports, and no output on standard output.

    Args:
        alone: A new cluster has this machine only, and listens on loopback only.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
    if alone:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")


class OwnProcess:
    """Whether this process belongs to the console program, so that libraries may be configured for all of it."""

    begun = False


class _NoPandas:
    """Finder of modules for `sys.meta_path` that refuses pandas to the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise `ModuleNotFoundError` for pandas; leave other modules to the other finders."""
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("pyarrow does not need it here", name=name)


@cache
def pyarrow_without_pandas() -> None:
    """Make pyarrow decide now, in an own process, that there is no pandas, unless it is loaded.

    pyarrow looks for pandas once, before its first array, which takes half a second and 40 MB. Without it, pyarrow
    takes a `Series` for any other sequence until a table is converted to pandas.
    """
    import pyarrow

    if OwnProcess.begun and "pandas" not in sys.modules:
        sys.meta_path.insert(0, finder := _NoPandas())
        try:
            pyarrow.array(())
        finally:
            sys.meta_path.remove(finder)


def cache_folder() -> Path:
    """Return the user's folder for downloaded files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "llm-ocr"


def cores() -> int:
    """Return the number of cores that this process may use, by its affinity and its container's limit (cgroup v2)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(allowed, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return allowed


def worker_environment() -> dict[str, str]:
    """Return an environment for worker processes: a few harmless names and this process's import path."""
    kept = {name: os.environ[name] for name in _FOR_WORKERS if name in os.environ}
    ours = str(Path(__file__).parents[2])  # path of this package, also if found in the current folder
    entries = [os.path.abspath(entry) for entry in (*sys.path, ours) if entry]  # noqa: PTH100 - keeps links
    path = os.pathsep.join(dict.fromkeys(entries))
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**kept, **threads, "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}


def server_environment() -> dict[str, str]:
    """Return an environment for a model server.

    The environment contains paths, caches, proxies, and settings of CUDA, NCCL, vLLM, and Hugging Face. The Hugging
    Face token is included, since the server downloads the model. Cloud keys and llm_ocr's own settings are excluded.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if (name.upper() in _FOR_SERVERS or name.startswith(_PREFIXES_FOR_SERVERS)) and name not in _NOT_FOR_SERVERS
    }
