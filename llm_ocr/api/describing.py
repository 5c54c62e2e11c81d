"""The Describe stage over a workspace."""

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

from llm_ocr.api.extracting import shard_of
from llm_ocr.api.threads import stepwise
from llm_ocr.api.wiring import embedded_reader
from llm_ocr.engines.embedded.describe import EmbeddedFigureReader
from llm_ocr.errors import StageMissing
from llm_ocr.results.schema import Images, figures_to_parquet, pages_from_parquet
from llm_ocr.settings.models import DescribeSettings, RunSettings
from llm_ocr.stages import Progress
from llm_ocr.stages.describe import Describe
from llm_ocr.types import Counts, FigureRecord, PageRecord
from llm_ocr.work.claim import Shard, claim
from llm_ocr.work.generations import read_units
from llm_ocr.work.keys import DESCRIBE, EXTRACT, claim_key, required_key
from llm_ocr.work.publish import Marker, iter_markers, markers, publish, read_data
from llm_ocr.work.summary import figures_summary
from llm_ocr.work.workspace import Workspace


async def describe(workspace: Workspace, settings: DescribeSettings | RunSettings, progress: Progress) -> None:
    """Describe the figures of this worker's units that have no marker yet.

    Raises `StageMissing` when Extract has not finished all units.
    """
    pages = embedded_reader(settings)
    reader = EmbeddedFigureReader(settings.describe_mode, read_inside=pages.read_figure)
    try:
        source = await asyncio.to_thread(required_key, workspace, EXTRACT)
        extracted = await asyncio.to_thread(finished_units, workspace, EXTRACT, source)
        identity = {"extract": source, "reader": dict(reader.identity())}
        key = await asyncio.to_thread(claim_key, workspace, DESCRIBE, identity)
        shard = shard_of(settings)
        await asyncio.to_thread(_begin, workspace, key, extracted, shard, progress)
        units = claim(workspace, DESCRIBE, key, read_units(workspace), shard)

        async def with_pages() -> AsyncIterator[tuple[str, Sequence[PageRecord]]]:
            async for unit in stepwise(units):
                yield unit.id, await asyncio.to_thread(_pages, workspace, extracted[unit.id])

        publisher = _publisher(workspace, key, extracted)
        stage = Describe(reader, settings.describe_mode, publisher, progress, in_flight=2 * pages.workers)
        await stage.run(with_pages())
    finally:
        await pages.close()
    progress.end()


def finished_units(workspace: Workspace, stage: str, key: str) -> dict[str, Marker]:
    """The markers of a stage; raises StageMissing "12 of 40 units not extracted" unless all units have one."""
    done = markers(workspace, stage, key)
    total = missing = 0
    for unit in read_units(workspace):
        total += 1
        missing += unit.id not in done
    if missing:
        past = {"extract": "extracted", "describe": "described"}[stage]
        raise StageMissing(
            f"{missing} of {total} units not {past}", hint=f"Run first: llm-ocr {stage} -w {workspace.url}"
        )
    return done


def _pages(workspace: Workspace, marker: Marker) -> list[PageRecord]:
    if not marker.figures.expected:
        return []
    return pages_from_parquet(io.BytesIO(read_data(workspace, marker)), images=Images.FIGURES)


def _begin(workspace: Workspace, key: str, extracted: dict[str, Marker], shard: Shard, progress: Progress) -> None:
    mine = {unit.id: extracted[unit.id].figures.expected for unit in shard.of(read_units(workspace))}
    done = sum((marker.figures for marker in iter_markers(workspace, DESCRIBE, key) if marker.unit in mine), Counts())
    progress.begin(DESCRIBE, sum(mine.values()), done)


def _publisher(workspace: Workspace, key: str, extracted: dict[str, Marker]) -> Any:
    def write(unit: str, figures: Sequence[FigureRecord]) -> None:
        summary = figures_summary(extracted[unit].figures.expected, figures)
        publish(workspace, DESCRIBE, key, unit, figures_to_parquet(figures), summary)

    async def publish_unit(unit: str, figures: Sequence[FigureRecord]) -> None:
        await asyncio.to_thread(write, unit, figures)

    return publish_unit
