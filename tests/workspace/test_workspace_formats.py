"""Workspaces of every format that ever was stay readable.

`fixtures/workspace-format-1` was written by version 0.1.0: a plan of four documents, one long and one encrypted;
Extract done with two failed pages; one page of them retried with success; two units described, one item assembled.
"""

import asyncio
import shutil
from pathlib import Path

import pytest

from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Reason
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations, read_units, totals_of
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, claim_key, stage_keys
from llm_ocr.workspace.publish import markers, read_data
from llm_ocr.workspace.retry import plan_retry
from llm_ocr.workspace.status import run_status

FIXTURE = Path(__file__).parent / "fixtures" / "workspace-format-1"


@pytest.fixture
def old(tmp_path):
    shutil.copytree(FIXTURE, tmp_path / "old")
    with Workspace.on(LocalStore(tmp_path / "old"), create=True) as workspace:
        yield workspace


def test_format_1_is_read_as_it_was_written(old):
    assert old.settings == {"image_size": 1540, "pages_per_unit": 4}
    totals = totals_of(generations(old))
    assert (totals.generations, totals.documents, totals.units, totals.items) == (2, 4, 6, 3)
    units = list(read_units(old))
    first = units[0].parts
    assert [(part.relative, part.pages, part.aliases) for part in first] == [
        ("a.pdf", (1, 2), ("copy/a.pdf",)),
        ("日本, [b].pdf", (2, 7), ()),
    ]
    assert [part.reason for part in units[-2].parts] == [Reason.ENCRYPTED]
    assert [item.name for item in items(old)] == ["0001-000000.0002", "0001-000001.0001", "0001-000004.0001"]
    status = run_status(old)
    assert status.pages == Counts(14, 12, 0, 2)
    assert status.reasons == {"encrypted": 1, "render timeout": 1}
    assert status.figures == Counts(12, 3, 1, 0)
    assert {name: (stage.done, stage.total) for name, stage in status.stages.items()} == {
        "extract": (6, 6),
        "describe": (2, 6),
        "assemble": (1, 3),
    }
    (key,) = stage_keys(old, EXTRACT)
    assert key.settings == {"engine": "embedded", "image_size": 1540}
    assert len([read_data(old, marker) for marker in markers(old, EXTRACT, key.key).values()]) == 6


def test_format_1_can_be_gone_on_with(old, made):
    made.root = Path(old.url)
    (described,) = stage_keys(old, DESCRIBE)
    assert claim_key(old, DESCRIBE, described.settings) == described.key

    async def reopen(part):
        return made.document(part.relative, 3)

    retry = plan_retry(old, made.key(old), failed_rows=made.failed_rows, reopen=reopen, pages_per_unit=4)
    assert asyncio.run(retry).replaces == 2
    for unit in read_units(old):
        if unit.generation == 3:
            made.extract(old, unit)
    assert run_status(old).pages == Counts(16, 16, 0, 0)
