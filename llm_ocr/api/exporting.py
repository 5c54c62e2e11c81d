"""`export`: finished results in the form of what comes next.

A format is a file `export_<format>.py` with a coroutine of the same name that takes an `ExportJob`, and its name among
the choices of the setting.
"""

import asyncio
from importlib import import_module

from llm_ocr.api.assembling import rebuild_views
from llm_ocr.api.export_job import Exported, ExportJob
from llm_ocr.api.export_output import Output
from llm_ocr.api.loop import run_blocking
from llm_ocr.errors import DatasetDamaged
from llm_ocr.settings.models import ExportSettings
from llm_ocr.stages import Progress, Silent
from llm_ocr.work.stored import workspace_options
from llm_ocr.work.workspace import Workspace


def export(settings: ExportSettings, progress: Progress | None = None) -> Exported:
    """Write the results of a workspace in a format. Run again after an interruption, it goes on where it was.

    Damaged files of the dataset are made again from the results of the stages.

    Raises `StageMissing` for a workspace that is not assembled, `StorageError` for a place that cannot be written to.
    """
    return run_blocking(lambda: _export(settings, progress or Silent()))


async def _export(settings: ExportSettings, progress: Progress) -> Exported:
    output = Output(settings)
    workspace = await asyncio.to_thread(Workspace.open, settings.workspace, options=workspace_options(settings))
    try:
        name = f"export_{settings.format.replace('-', '_')}"
        make = getattr(import_module(f"llm_ocr.api.{name}"), name)
        job = ExportJob(workspace, output, settings, progress)
        rebuilt: set[str] = set()
        while True:
            try:
                done: Exported = await make(job)
                return done
            except DatasetDamaged as damage:
                if not rebuilt.isdisjoint(damage.keys):  # the store does not give back what was written
                    raise
                rebuilt.update(damage.keys)
                await asyncio.to_thread(rebuild_views, workspace, damage, progress.say)
    finally:
        workspace.close()
