"""The Modal app: `modal deploy` it for launches, `modal run` it with a manifest for a batch (README.md)."""

import sys
from pathlib import Path
from typing import Any, Literal

import modal

from llm_ocr.config.environment import environment as environment_now
from llm_ocr.launch.library import GPU_IMAGE
from llm_ocr_platforms.modal.functions import CACHE, DATA, MODELS, board_name, names_from, run_stage
from llm_ocr_platforms.modal.launcher import LONGEST, Modal

#: The release of the stock images.
VLLM = f"vllm=={GPU_IMAGE.rpartition(':v')[2]}"
#: FlashInfer compiles kernels with nvcc when a model starts. vLLM 0.33.0 needs torch 2.14.0, built for CUDA 13.0.
#: vLLM builds its own image on this tag (docker/versions.json). Modal's driver 580.95 has CUDA 13.0
#: (gpu-mode/kernelbot, pull request 510, July 2026).
CUDA_IMAGE = "nvidia/cuda:13.0.2-devel-ubuntu22.04"
PYTHON = "3.12"
EXTRAS = ["embedded", "datasets", "fields", "filters", "s3", "gcs", "modal"]
#: Files and folders of the checkout that the library is built from, as in docker/*.Dockerfile.
SOURCE = ("pyproject.toml", "README.md", "LICENSE", "examples", "llm_ocr", "packages")

NAMES = names_from(environment_now())
GPU = NAMES.gpu or Modal().hardware("extract")
SECRETS = [modal.Secret.from_name(name.strip()) for name in NAMES.secrets.split(",") if name.strip()]


def not_source(path: Path) -> bool:
    """Return whether the library is built without a file, by its path in the checkout."""
    return path.parts[0] not in SOURCE or "__pycache__" in path.parts


def with_library(image: modal.Image, keep: str = "") -> modal.Image:
    """Install the library of this checkout and what it needs; the installed package `keep` does not change."""
    checkout = Path(__file__).resolve().parent.parent
    needs = image.pip_install_from_pyproject(str(checkout / "pyproject.toml"), EXTRAS, extra_options=keep)
    # Entry points are metadata: sources without an installation have no platforms and no export formats.
    return needs.add_local_dir(checkout, "/src", copy=True, ignore=not_source).run_commands(
        "python -m pip install --no-deps /src"
    )


if NAMES.image:
    gpu_image = modal.Image.from_registry(NAMES.image).entrypoint([])
else:
    cuda = modal.Image.from_registry(CUDA_IMAGE, add_python=PYTHON).entrypoint([])
    gpu_image = with_library(cuda.uv_pip_install(VLLM), VLLM)
if NAMES.cpu_image:
    cpu_image = modal.Image.from_registry(NAMES.cpu_image).entrypoint([])
else:
    cpu_image = with_library(modal.Image.debian_slim(python_version=PYTHON))
own = {"HF_HOME": f"{MODELS}/huggingface", **NAMES.environment()}
gpu_image = gpu_image.env({"VLLM_CACHE_ROOT": CACHE, "FLASHINFER_WORKSPACE_BASE": CACHE, **own})
cpu_image = cpu_image.env(own)

app = modal.App(NAMES.app, secrets=SECRETS)
VOLUMES = {
    DATA: modal.Volume.from_name(NAMES.data, create_if_missing=True),
    MODELS: modal.Volume.from_name(NAMES.models, create_if_missing=True),
    CACHE: modal.Volume.from_name(NAMES.cache, create_if_missing=True),
}
COMMITS = [volume.commit for volume in VOLUMES.values()]
BOARD = modal.Dict.from_name(board_name(NAMES.app), create_if_missing=True)
MACHINE: dict[str, Any] = {
    "volumes": VOLUMES,
    "cpu": 8,
    "memory": 32768,
    "timeout": LONGEST,
    "single_use_containers": True,
}


@app.function(image=gpu_image, **MACHINE)
def stage(
    index: int, count: int, argv: list[str], environment: dict[str, str], limit: int = LONGEST, name: str = ""
) -> dict[str, Any]:
    """Run one share of a stage; the launcher calls it with a GPU, a time limit, and secrets."""
    return share(index, count, argv, environment, limit, name)


@app.function(image=cpu_image, **MACHINE)
def stage_cpu(
    index: int, count: int, argv: list[str], environment: dict[str, str], limit: int = LONGEST, name: str = ""
) -> dict[str, Any]:
    """Run one share of a stage that needs no GPU."""
    return share(index, count, argv, environment, limit, name)


def share(
    index: int, count: int, argv: list[str], environment: dict[str, str], limit: int, name: str
) -> dict[str, Any]:
    """Run one share, and note under its name when it began and ended."""
    note = (lambda key, value: BOARD.put(f"{name}/{key}", value, skip_if_exists=True)) if name else None
    return run_stage(index, count, argv, environment, limit=limit, note=note, commits=COMMITS)


@app.function(image=gpu_image, gpu=GPU, **MACHINE)
def batch(flags: dict[str, Any]) -> dict[str, int]:
    """Read all documents of a manifest on one machine."""
    from llm_ocr_platforms.modal.batch import run_batch

    return run_batch(flags, limit=LONGEST, commits=COMMITS)


@app.local_entrypoint()
def main(
    manifest: str,
    output_path: str,
    error_path: str,
    model_name: str = "rednote-hilab/dots.ocr",
    download_dir: str | None = None,
    log_path: str | None = None,
    model_cache_dir: str = MODELS,
    vllm_port: int | None = None,
    prompt_mode: Literal["layout-all", "layout-only", "ocr"] = "layout-all",
    workers: int | None = None,
    pdf_filenames: str | None = None,
    max_concurrent_docs: int | None = None,
    max_inflight_requests: int | None = None,
    max_page_concurrency: int | None = None,
    max_pages_per_doc: int | None = None,
    request_timeout: float = 180.0,
    max_retries: int = 3,
    batch_id: str | None = None,
    tensor_parallel_size: int = 1,
    gpu_memory_utilization: float | None = None,
    max_model_len: int | None = None,
    workspace: str | None = None,
    gpu: str | None = None,
) -> None:
    """Read a batch; paths are those of the container, where /data is the data volume."""
    flags = dict(locals())
    wanted = flags.pop("gpu") or (f"{GPU}:{tensor_parallel_size}" if tensor_parallel_size > 1 else None)
    function = batch.with_options(gpu=wanted) if wanted else batch
    sys.stdout.write("{succeeded} pages read, {failed} failed\n".format(**function.remote(flags)))
