"""Worker of a serverless endpoint on RunPod: documents in requests.

`main()` is the entry point of `runpod-serverless/handler.py` and of `python -m llm_ocr_platforms.runpod`.
"""

import logging
import sys
from pathlib import Path
from typing import Any

from llm_ocr.config.environment import environment
from llm_ocr.config.loading import load
from llm_ocr.config.models import WorkerSettings
from llm_ocr.errors import LlmOcrError, MissingExtra
from llm_ocr_platforms.runpod.variables import translated, usual_model

__all__ = ["main", "worker_settings"]


_log = logging.getLogger("llm_ocr")


def main() -> None:
    """Handle jobs until RunPod ends the worker; with `--test_input` or `--rp_serve_api`, jobs of this machine.

    The program exits with a message for invalid settings and without the package `runpod`.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    _log.setLevel(logging.INFO)
    try:
        _start(worker_settings())
    except LlmOcrError as error:
        _log.error("%s", error)
        sys.exit(error.exit_code)


def worker_settings() -> WorkerSettings:
    """Return the settings from the environment, also by the names of GLM-OCR's worker.

    Raises:
        UsageError: A setting is invalid.
    """
    variables = translated(environment())
    loaded = load(
        WorkerSettings, {}, config=None, environ=variables, dotenv=Path(".env"), stored=usual_model(variables)
    )
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    return loaded.settings


def _start(settings: WorkerSettings) -> None:
    try:
        import runpod
    except ImportError as error:
        raise MissingExtra("the worker needs runpod", install="runpod") from error
    from llm_ocr_platforms.runpod.inputs import advised
    from llm_ocr_platforms.runpod.worker import Worker

    held = environment()
    if not (held.get("RUNPOD_LOG_LEVEL") or held.get("RUNPOD_DEBUG_LEVEL")):
        runpod.serverless.log.level = "INFO"  # the default level logs all replies, including the text of pages
    worker = Worker(settings, held, runpod.serverless.progress_update)

    async def handler(job: dict[str, Any]) -> dict[str, Any]:
        try:
            return await worker.handle(job)
        except LlmOcrError as error:
            _log.warning("job %s: %s", job.get("id"), error)
            return {"error": advised(str(error))}  # FAILED; a raised error includes a traceback, which only bugs need

    runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda now: settings.worker_concurrency})
