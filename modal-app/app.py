"""The Modal app: `modal deploy` it for launches, `modal run` it with a manifest for a batch (README.md)."""

import sys
from pathlib import Path
from typing import Any, Literal

import modal

from llm_ocr.launch.modal.functions import run_stage
from llm_ocr.launch.modal.launcher import LONGEST, Modal
from llm_ocr.launch.modal.names import CACHE, DATA, MODELS, board_name, names_from
from llm_ocr.settings.environment import environment as environment_now

NAMES = names_from(environment_now())
GPU = NAMES.gpu or Modal().hardware("extract")
SECRETS = [modal.Secret.from_name(name.strip()) for name in NAMES.secrets.split(",") if name.strip()]

if NAMES.image:
    image = modal.Image.from_registry(NAMES.image).entrypoint([])
else:
    checkout = Path(__file__).resolve().parent.parent
    image = (
        modal.Image.debian_slim(python_version="3.12")
        .pip_install_from_pyproject(
            str(checkout / "pyproject.toml"), ["vllm", "embedded", "datasets", "filters", "s3", "gcs", "modal"]
        )
        .add_local_python_source("llm_ocr", copy=True, ignore=[])  # data files, too
    )
image = image.env({"HF_HOME": f"{MODELS}/huggingface", "VLLM_CACHE_ROOT": CACHE, **NAMES.environment()})

app = modal.App(NAMES.app, image=image, secrets=SECRETS)
VOLUMES = {
    DATA: modal.Volume.from_name(NAMES.data, create_if_missing=True),
    MODELS: modal.Volume.from_name(NAMES.models, create_if_missing=True),
    CACHE: modal.Volume.from_name(NAMES.cache, create_if_missing=True),
}
COMMITS = [volume.commit for volume in VOLUMES.values()]
BOARD = modal.Dict.from_name(board_name(NAMES.app), create_if_missing=True)


@app.function(volumes=VOLUMES, cpu=8, memory=32768, timeout=LONGEST, single_use_containers=True)
def stage(
    index: int, count: int, argv: list[str], environment: dict[str, str], limit: int = LONGEST, name: str = ""
) -> dict[str, Any]:
    """One share of a stage; the launcher calls it with a GPU, a time limit and secrets."""
    note = (lambda what, value: BOARD.put(f"{name}/{what}", value, skip_if_exists=True)) if name else None
    return run_stage(index, count, argv, environment, limit=limit, note=note, commits=COMMITS)


@app.function(volumes=VOLUMES, cpu=8, memory=32768, gpu=GPU, timeout=LONGEST, single_use_containers=True)
def batch(flags: dict[str, Any]) -> dict[str, int]:
    """All documents of a manifest, on one machine."""
    from llm_ocr.api.modal_batch import run_batch

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
    """Paths are those of the container: /data is the data volume."""
    flags = dict(locals())
    wanted = flags.pop("gpu") or (f"{GPU}:{tensor_parallel_size}" if tensor_parallel_size > 1 else None)
    function = batch.with_options(gpu=wanted) if wanted else batch
    sys.stdout.write("{succeeded} pages read, {failed} failed\n".format(**function.remote(flags)))
