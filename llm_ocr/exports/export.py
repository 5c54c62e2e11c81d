"""`export`: write finished results in the formats of other tools.

A format is a coroutine `export_<format>` that takes an `ExportJob`, a line in `_MODULES`, and a choice of the setting.
"""

import asyncio
from importlib import import_module

from llm_ocr.config.models import ExportSettings
from llm_ocr.errors import DatasetDamaged
from llm_ocr.exports.job import Exported, ExportJob
from llm_ocr.exports.output import Output
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.assemble import rebuild_views
from llm_ocr.stages.loop import run_blocking
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.stored import workspace_options

#: Module of each format; only the module of the chosen format is imported.
_MODULES = {
    "chunks": "llm_ocr.exports.chunks",
    "dataset": "llm_ocr.exports.dataset",
    "dolma": "llm_ocr.exports.dolma",
    "json": "llm_ocr.exports.documents",
    "jsonl": "llm_ocr.exports.documents",
    "markdown": "llm_ocr.exports.documents",
    "olmocr-bench": "llm_ocr.exports.olmocr_bench",
}


def export(settings: ExportSettings, progress: Progress | None = None) -> Exported:
    """Write the results of a workspace in a format. A repeated call after an interruption continues the export.

    Damaged files of the dataset are rebuilt from the results of the stages.

    Raises:
        StageMissing: the workspace is not assembled.
        StorageError: the output cannot be written.
    """
    return run_blocking(lambda: _export(settings, progress or Silent()))


async def _export(settings: ExportSettings, progress: Progress) -> Exported:
    output = Output(settings)
    workspace = await asyncio.to_thread(Workspace.open, settings.workspace, options=workspace_options(settings))
    try:
        make = getattr(import_module(_MODULES[settings.format]), f"export_{settings.format.replace('-', '_')}")
        job = ExportJob(workspace, output, settings, progress)
        rebuilt: set[str] = set()
        while True:
            try:
                done: Exported = await make(job)
                return done
            except DatasetDamaged as damage:
                if not rebuilt.isdisjoint(damage.keys):  # the store does not return the written content
                    raise
                rebuilt.update(damage.keys)
                await asyncio.to_thread(rebuild_views, workspace, damage, progress.say)
    finally:
        workspace.close()
