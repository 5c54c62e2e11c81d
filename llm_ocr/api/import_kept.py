"""Descriptions that came with an input: `describe --input` asks for the others only, as the predecessor does.

They wait in a file on the local disk, since nobody knows in which order their figures come.
"""

import asyncio
import io
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_ocr.api.job import Job
from llm_ocr.api.reading import Describing
from llm_ocr.engines import FigureReader, unheard
from llm_ocr.results.schema import figures_from_parquet
from llm_ocr.settings.groups import InputSettings
from llm_ocr.settings.models import FigureCommand
from llm_ocr.types import Figure, FigureRecord, Status
from llm_ocr.work.keys import DESCRIBE, stage_keys
from llm_ocr.work.publish import iter_markers, read_data
from llm_ocr.work.workspace import Workspace

_MODE = "describe"


async def keeping(job: Job[FigureCommand], ready: Describing) -> Describing:
    """`ready`, or the same behind the descriptions of the command's input, where there are some of the mode asked for.

    Without `input` all figures are described anew.
    """
    settings = job.settings
    if not (isinstance(settings, InputSettings) and settings.input) or settings.describe_mode != _MODE:
        return ready
    key = await asyncio.to_thread(_imported_key, job.workspace)
    if not key:
        return ready
    kept = await asyncio.to_thread(_Kept, job.workspace, key)

    async def close() -> None:
        kept.close()
        await ready.close()

    return replace(ready, reader=_KeepingReader(ready.reader, kept, key), close=close)


def _imported_key(workspace: Workspace) -> str:
    """The key of the descriptions that were imported; empty without any."""
    for one in stage_keys(workspace, DESCRIBE):
        if one.settings.get("imported", {}).get("described"):
            return one.key
    return ""


class _Kept:
    """The imported descriptions by figure id."""

    def __init__(self, workspace: Workspace, key: str) -> None:
        self._path: Path = workspace.spool / "kept.sqlite"
        self._path.unlink(missing_ok=True)
        self._table = sqlite3.connect(self._path, check_same_thread=False)  # one thread at a time: first this one
        self._table.execute("CREATE TABLE kept (figure TEXT PRIMARY KEY, engine TEXT, description TEXT) WITHOUT ROWID")
        with self._table:
            for marker in iter_markers(workspace, DESCRIBE, key):
                if marker.figures.ok:
                    records = figures_from_parquet(io.BytesIO(read_data(workspace, marker)))
                    self._table.executemany(
                        "INSERT OR IGNORE INTO kept VALUES (?, ?, ?)",
                        [(one.figure_id, one.engine, one.description) for one in records if one.status is Status.OK],
                    )

    def find(self, figure: str) -> tuple[str, str] | None:
        """Engine and description."""
        found: tuple[str, str] | None = self._table.execute(
            "SELECT engine, description FROM kept WHERE figure = ?", (figure,)
        ).fetchone()
        return found

    def close(self) -> None:
        self._table.close()
        self._path.unlink(missing_ok=True)


class _KeepingReader:
    """Asks the reader for what is not kept."""

    def __init__(self, reader: FigureReader, kept: _Kept, key: str) -> None:
        self._reader = reader
        self._kept = kept
        self._key = key

    @property
    def name(self) -> str:
        """That of the reader."""
        return self._reader.name

    def identity(self) -> Mapping[str, Any]:
        """That of the reader, and what is kept."""
        return {**self._reader.identity(), "kept": self._key}

    async def describe(
        self, figure: Figure, page_id: str, document_id: str, admitted: Callable[[], None] = unheard
    ) -> FigureRecord:
        """The kept description, else the reader's."""
        found = self._kept.find(figure.id)
        if found is None:
            return await self._reader.describe(figure, page_id, document_id, admitted)
        engine, description = found
        return FigureRecord(
            figure_id=figure.id,
            page_id=page_id,
            document_id=document_id,
            status=Status.OK,
            mode=_MODE,
            description=description,
            engine=engine,
        )

    async def close(self) -> None:
        """End the reader."""
        await self._reader.close()
