"""`modal run modal-app/app.py`: the flags and files of the dots.ocr batch pipeline, with the app's own functions."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import modal
import pytest
from stub_modal import APP, StubModal

from llm_ocr.errors import UsageError
from llm_ocr_platforms.modal.batch import batch_from
from llm_ocr_platforms.modal.functions import names_from
from llm_ocr_simulator import running

pytestmark = pytest.mark.filterwarnings("ignore:The .* function is executing locally")

FLAGS = (
    *("manifest", "output-path", "error-path", "model-name", "download-dir", "log-path", "model-cache-dir"),
    "vllm-port",
    *(
        "prompt-mode",
        "workers",
        "pdf-filenames",
        "max-concurrent-docs",
        "max-inflight-requests",
        "max-page-concurrency",
    ),
    *("max-pages-per-doc", "request-timeout", "max-retries", "batch-id", "tensor-parallel-size"),
    *("gpu-memory-utilization", "max-model-len"),
)
FIELDS = ["document_id", "page", "page_index", "pdf_path", "model", "success", "latency", "usage", "content", "error"]
SETTINGS = {"LLM_OCR_RENDER_WORKERS": "1", "LLM_OCR_OCR_WORKERS": "1"}


@pytest.fixture
def account(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("LLM_OCR_", "DOTS_MODAL_")):
            monkeypatch.delenv(name)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    stub = StubModal()
    stub.install(monkeypatch)
    return stub


@pytest.fixture
def given(examples, tmp_path) -> dict[str, object]:
    """Flags of a batch of two documents, one of which cannot be opened, on volumes that are folders here."""
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    records = [
        {"document_id": "paper", "pdf_path": str(examples / "paper.pdf"), "pages": [1, 2]},
        {"id": "broken", "pdf_path": str(tmp_path / "broken.pdf")},
        {"document_id": "scan", "pdf_path": str(examples / "scan.pdf")},
    ]
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps(record) + "\n" for record in records))
    return {
        "manifest": str(manifest),
        "output_path": str(tmp_path / "data/predictions.jsonl"),
        "error_path": str(tmp_path / "data/errors.jsonl"),
        "model_name": "rednote-hilab/dots.ocr",
        "download_dir": str(tmp_path / "downloads"),
        "log_path": str(tmp_path / "logs/batch.log"),
        "model_cache_dir": str(tmp_path / "models"),
        "pdf_filenames": "paper.pdf, broken.pdf",
    }


def lines(path: object) -> list[dict]:
    return [json.loads(line) for line in Path(str(path)).read_text().splitlines()]


@pytest.mark.slow
def test_every_flag_of_the_pipeline_is_one_of_ours():
    run = subprocess.run([sys.executable, "-m", "modal", "run", str(APP), "--help"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert set(re.findall(r"--([\w-]+)", run.stdout)) >= set(FLAGS)
    required = {name for name, text in re.findall(r"--([\w-]+)(.*)", run.stdout) if "[required]" in text}
    assert required == {"manifest", "output-path", "error-path"}


@pytest.mark.slow
def test_pages_and_failures_fill_two_files_with_pipeline_fields(account, given, monkeypatch):
    monkeypatch.setenv("LLM_OCR_ENGINE", "embedded")
    assert account.app.batch.local({**given, "prompt_mode": "ocr"}) == {"succeeded": 2, "failed": 1}
    good, bad = lines(given["output_path"]), lines(given["error_path"])
    assert [list(line) for line in good + bad] == [FIELDS] * 3
    assert [(line["document_id"], line["page"], line["page_index"]) for line in good] == [
        ("paper", 1, 1),
        ("paper", 2, 2),
    ]
    assert all(line["success"] and line["content"] and line["error"] is None for line in good)
    assert good[0]["pdf_path"].endswith("examples/paper.pdf")
    assert good[0]["usage"].keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
    (failed,) = bad
    assert (failed["document_id"], failed["success"], failed["content"], failed["usage"]) == ("broken", False, None, {})
    assert failed["error"].startswith("unreadable")
    assert set(account.commits) == {"llm-ocr-data", "llm-ocr-models", "llm-ocr-vllm-cache"}


@pytest.mark.slow  # the forms of the content: test_dots_records
@pytest.mark.parametrize(("mode", "texts"), [("layout-all", ["Quay", None]), ("layout-only", [None, None])])
def test_a_layout_mode_gives_boxes_and_a_model_its_tokens(account, given, monkeypatch, tmp_path, mode, texts):
    answer = [
        {"bbox": [100, 120, 900, 180], "category": "Title", "text": "# Quay"},
        {"bbox": [100, 300, 900, 800], "category": "Picture"},
    ]
    (tmp_path / "said.json").write_text(json.dumps({"*": json.dumps(answer)}))
    server = running(said=tmp_path / "said.json", model="rednote-hilab/dots.ocr", max_model_len=65_536, speed=100)
    with server as started:
        monkeypatch.setenv("LLM_OCR_SERVER_URL", started.url)
        account.app.batch.local({**given, "prompt_mode": mode, "batch_id": "march"})
    first = lines(given["output_path"])[0]
    blocks = json.loads(first["content"])
    assert [block["category"] for block in blocks] == ["Title", "Picture"]
    assert [block.get("text") for block in blocks] == texts
    for block, said in zip(blocks, answer, strict=True):
        assert block["bbox"] == pytest.approx(said["bbox"], rel=0.02)
    assert first["usage"]["total_tokens"] == first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] > 0
    assert first["model"] == "dots.ocr"


@pytest.mark.slow
def test_the_same_command_reads_nothing_twice(account, given, monkeypatch):
    monkeypatch.setenv("LLM_OCR_ENGINE", "embedded")
    account.app.batch.local(given)
    workspace = Path(str(given["output_path"])).with_suffix(".llm-ocr")
    before = {path: path.stat().st_mtime_ns for path in workspace.rglob("*.done")}
    Path(str(given["output_path"])).unlink()
    account.app.batch.local(given)
    assert {path: path.stat().st_mtime_ns for path in workspace.rglob("*.done")} == before
    assert len(lines(given["output_path"])) == 2


@pytest.mark.slow
def test_unreadable_batch_writes_no_files_and_fails(account, given, monkeypatch):
    monkeypatch.setenv("LLM_OCR_ENGINE", "nonsense")
    with pytest.raises(RuntimeError, match=r"exit code 2: .*LLM_OCR_ENGINE"):
        account.app.batch.local(given)
    assert not Path(str(given["output_path"])).exists()
    assert account.commits


def test_every_flag_has_an_effect_that_is_ours():
    flags = {name.replace("-", "_"): "7" for name in FLAGS} | {
        "manifest": "/data/m.jsonl",
        "output_path": "/data/out.jsonl",
        "error_path": "/data/bad/err.jsonl",
        "prompt_mode": "layout-only",
        "pdf_filenames": "a b.pdf,c.pdf",
        "download_dir": "/tmp/pdf_files",
        "log_path": "/data/logs/x.log",
        "model_cache_dir": "/models",
    }
    batch = batch_from(flags)
    command = ("python", "-m", "llm_ocr.stages", "extract", "/data/m.jsonl", "-w", "/data/out.llm-ocr")
    assert batch.argv == (*command, "--only=a b.pdf", "--only=c.pdf")
    assert batch.environment == {
        "LLM_OCR_MODEL": "7",
        "LLM_OCR_LOG_FILE": "/data/logs/x.log",
        "LLM_OCR_MODEL_CACHE": "/models",
        "LLM_OCR_VLLM_PORT": "7",
        "LLM_OCR_MODE": "layout-only",
        "LLM_OCR_WORKERS": "7",
        "LLM_OCR_MAX_CONCURRENT_DOCUMENTS": "7",
        "LLM_OCR_MAX_INFLIGHT_REQUESTS": "7",
        "LLM_OCR_MAX_PAGE_CONCURRENCY": "7",
        "LLM_OCR_MAX_PAGES_PER_DOCUMENT": "7",
        "LLM_OCR_REQUEST_TIMEOUT": "7",
        "LLM_OCR_MAX_PAGE_ATTEMPTS": "8",
        "LLM_OCR_BATCH_ID": "7",
        "LLM_OCR_TENSOR_PARALLEL_SIZE": "7",
        "LLM_OCR_GPU_MEMORY_UTILIZATION": "7",
        "LLM_OCR_MAX_MODEL_LEN": "7",
        "TMPDIR": "/tmp/pdf_files",
    }
    assert set(batch.folders) == {"/data", "/data/bad", "/data/logs", "/tmp/pdf_files", "/models"}
    assert batch.content == "layout-only"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"error_path": ""}, "no --error-path"),
        ({"prompt_mode": "markdown"}, "layout-all, layout-only, ocr"),
        ({"colour": "red"}, "unknown flag --colour"),
    ],
)
def test_wrong_flags_are_named(flags, said):
    with pytest.raises(UsageError, match=said):
        batch_from({"manifest": "m", "output_path": "o", "error_path": "e", **flags})


def test_entry_requests_as_many_gpus_as_the_model_is_split_over(account, given, monkeypatch):
    asked = []
    monkeypatch.setattr(modal.Function, "with_options", lambda self, **options: asked.append(options) or self)
    monkeypatch.setattr(
        modal.Function, "remote", lambda self, flags: asked.append(flags) or {"succeeded": 1, "failed": 0}
    )
    account.app.main.info.raw_f(**given, tensor_parallel_size=2)
    assert asked[0] == {"gpu": "L40S:2"}
    assert asked[1]["tensor_parallel_size"] == 2 and "gpu" not in asked[1]


def test_volumes_use_pipeline_variables_but_ours_count_first(account, monkeypatch):
    theirs = {
        "DOTS_MODAL_APP_NAME": "dots-ocr-vllm-batch",
        "DOTS_MODAL_DATA_VOLUME": "dots-ocr-data",
        "DOTS_MODAL_MODEL_VOLUME": "dots-ocr-models",
        "DOTS_MODAL_VLLM_CACHE_VOLUME": "dots-ocr-vllm-cache",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LLM_OCR_MODAL_MODEL_VOLUME", "mine")
    account.install(monkeypatch)
    assert account.app.app.name == "dots-ocr-vllm-batch"
    volumes = {path: volume.name for path, volume in account.app.VOLUMES.items()}
    assert volumes == {"/data": "dots-ocr-data", "/models": "mine", "/vllm-cache": "dots-ocr-vllm-cache"}
    again = names_from(account.app.NAMES.environment())
    assert again == account.app.NAMES  # in a container, where none of those variables is set
