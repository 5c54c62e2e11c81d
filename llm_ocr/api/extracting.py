"""The Extract stage over a workspace."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.api.threads import stepwise
from llm_ocr.api.wiring import PartRenderer, embedded_reader, passwords, render_options
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import PageReader
from llm_ocr.results.schema import pages_to_parquet
from llm_ocr.settings.models import ExtractSettings, RunSettings
from llm_ocr.stages import Progress
from llm_ocr.stages.extract import Extract
from llm_ocr.types import Counts, PageRecord, Unit
from llm_ocr.work.claim import WHOLE, Shard, claim
from llm_ocr.work.generations import read_units
from llm_ocr.work.keys import EXTRACT, claim_key
from llm_ocr.work.publish import iter_markers, publish
from llm_ocr.work.summary import pages_summary
from llm_ocr.work.workspace import Workspace


async def extract(workspace: Workspace, settings: ExtractSettings | RunSettings, progress: Progress) -> None:
    """Read the pages of this worker's units that have no marker yet."""
    shard = shard_of(settings)
    secrets = passwords(settings.password, settings.password_file)
    options = render_options(settings, secrets)
    reader = embedded_reader(settings)
    async with Renderer(options) as renderer:
        try:
            key = await asyncio.to_thread(claim_key, workspace, EXTRACT, identity(renderer, reader))
            await asyncio.to_thread(_begin, workspace, key, shard, progress)
            units = claim(workspace, EXTRACT, key, read_units(workspace), shard)
            stage = Extract(
                PartRenderer(renderer),
                reader,
                _publisher(workspace, key),
                progress,
                in_flight=2 * (options.workers + reader.workers),
            )
            await stage.run(stepwise(units))
        finally:
            await reader.close()
    progress.end()


def identity(renderer: Renderer, reader: PageReader) -> Mapping[str, Any]:
    """What Extract's key is made of."""
    return {"reader": dict(reader.identity()), "render": dict(renderer.identity())}


def shard_of(settings: object) -> Shard:
    """The worker's share of the units; all of them for commands without shards."""
    count = getattr(settings, "shard_count", 1)
    return Shard(getattr(settings, "shard_index", 0), count) if count > 1 else WHOLE


def _begin(workspace: Workspace, key: str, shard: Shard, progress: Progress) -> None:
    expected = {unit.id: unit.expected for unit in shard.of(read_units(workspace))}
    done = sum((marker.counts for marker in iter_markers(workspace, EXTRACT, key) if marker.unit in expected), Counts())
    progress.begin(EXTRACT, sum(expected.values()), done)


def _publisher(workspace: Workspace, key: str) -> Any:
    def write(unit: Unit, pages: Sequence[PageRecord]) -> None:
        publish(workspace, EXTRACT, key, unit.id, pages_to_parquet(pages), pages_summary(unit, pages))

    async def publish_unit(unit: Unit, pages: Sequence[PageRecord]) -> None:
        await asyncio.to_thread(write, unit, pages)

    return publish_unit
