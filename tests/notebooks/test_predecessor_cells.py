"""The cells of the predecessor's notebooks that name our package, and the job runners that they start."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from fine_vision import put_fine_vision
from notebook_runs import REPOSITORY
from store_servers import AWS, s3_server

from llm_ocr.document import display_markdown, display_samples
from llm_ocr_simulator import running
from tests.fakes.gcs import running as storage
from tests.fakes.hub import running as hub_running

#: What its notebook on SageMaker gives every job; Cloud Run gets a part of it.
BASE = {
    "MODEL_ID": "deepseek-ai/DeepSeek-OCR",
    "SERVED_MODEL_NAME": "deepseek-ocr",
    "HOST": "0.0.0.0",
    "PORT": "8000",
    "MAX_MODEL_LEN": "8192",
    "GPU_MEMORY_UTILIZATION": "0.90",
    "TENSOR_PARALLEL_SIZE": "1",
    "DOC_PROMPT": "<image>\n<|grounding|>Convert this document to Markdown.",
    "DOC_MAX_TOKENS": "4096",
    "DOC_TEMPERATURE": "0.1",
    "FIGURE_PROMPT": "<image>\nDescribe this image in detail.",
    "FIGURE_MAX_TOKENS": "512",
    "FIGURE_TEMPERATURE": "0.6",
    "HF_HUB_ENABLE_HF_TRANSFER": "1",
}
#: Its runners call `main()`, drop the value, and note a success after it.
RUNNER = "from llm_ocr.cli import main as pipeline_main\npipeline_main()\nopen('pipeline_success', 'w')"
Place = tuple[str, dict[str, str]]


@contextlib.contextmanager
def sagemaker() -> Iterator[Place]:
    with s3_server("sagemaker-ocr") as endpoint:
        yield "s3://sagemaker-ocr/deepseek-ocr", {**AWS, "AWS_ENDPOINT_URL": endpoint}


@contextlib.contextmanager
def cloud_run() -> Iterator[Place]:
    pytest.importorskip("google.cloud.storage")
    with storage("cloud-run-ocr") as server:
        yield "gs://cloud-run-ocr/deepseek-ocr", {"STORAGE_EMULATOR_HOST": server.url}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "module", "function", "names"),
    [
        (sagemaker, "sm_io", "load_dataset_from_s3", ("S3_OUTPUT_URI", "S3_INPUT_URI")),
        (cloud_run, "cloudrun_io", "load_dataset_from_gcs", ("GCS_OUTPUT_URI", "GCS_INPUT_URI")),
    ],
    ids=["sagemaker", "cloud run"],
)
def test_stages_run_as_jobs_and_samples_are_shown_after_each(platform, module, function, names, tmp_path, monkeypatch):
    load = getattr(import_module(f"llm_ocr.{module}"), function)
    with (
        platform() as (output, environment),
        hub_running() as (hub, signed_in),
        running(model="deepseek-ocr", speed=50, mean_tokens=1500, sigma=0.1) as server,
    ):
        put_fine_vision(hub)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        url, source = names
        server_is = {"SKIP_SERVER_LAUNCH": "1", "BASE_URL": server.root}
        common = {**BASE, **signed_in, **environment, url: output, "OUTPUT_DIR": "./outputs"}
        rows = {
            "DATASET_NAME": "HuggingFaceM4/FineVision",
            "DATASET_CONFIG": "olmOCR-mix-0225-documents",
            "DATASET_SPLIT": "train",
            "MAX_SAMPLES": "2",
            "EXTRACT_BATCH_SIZE": "128",
        }
        again = {source: f"{output}/dataset"}
        finals = []
        for stage, more in {
            "extract": {**rows, **server_is},
            "describe": {**again, **server_is, "DESCRIBE_BATCH_SIZE": "128"},
            "assemble": {**again, "SKIP_SERVER_LAUNCH": "true"},
        }.items():
            job(tmp_path, {**common, **more, "PIPELINE_STAGE": stage})
            ds = load(f"{output}/dataset")
            shown = display_samples(ds, num_samples=2) or ""
            assert shown.startswith("**2 rows**") and "Sample 2" in shown and "data:image/" in shown
            assert ("not described" in shown) == (stage == "extract")
            finals.append([bool(row["document_final_markdown"]) for row in ds])
        assert finals == [[False, False], [False, False], [True, True]]
        assert "data:image/" in (display_markdown(ds[1]) or "")


def job(folder: Path, environment: dict[str, str]) -> None:
    """Run a stage as the predecessor's job runner does."""
    success = folder / "pipeline_success"
    success.unlink(missing_ok=True)
    own = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-c", RUNNER], cwd=folder, env={**own, **environment}, capture_output=True, text=True
    )
    assert run.returncode == 0 and success.exists(), run.stdout + run.stderr


@pytest.mark.parametrize(
    ("module", "name", "url"), [("sm_io", "save_dataset_to_s3", "s3://"), ("cloudrun_io", "get_gcs_client", "gs://")]
)
def test_functions_that_are_gone_say_what_to_use(module, name, url):
    with pytest.raises(ImportError, match=f"{module} has no {name}.*-w {url}BUCKET/PREFIX.*llm_ocr.open"):
        exec(f"from llm_ocr.{module} import {name}")
