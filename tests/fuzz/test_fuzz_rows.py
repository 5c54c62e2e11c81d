"""Datasets of any rows: images, failures of their rows, or a message about the dataset; nothing else."""

import asyncio
import io
import random
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz_counts import COUNTS
from fuzz_runs import fault_of_reason
from mutated_rows import rows_case

from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.listing import RemoteDocuments
from llm_ocr.documents.rows import DatasetOptions, row_address
from llm_ocr.documents.rows.images import RowImages
from llm_ocr.documents.rows.listing import dataset_rows
from llm_ocr.errors import PageFailure, StorageError, UsageError
from llm_ocr.storage import StoreOptions
from tests.fakes.hub import TOKEN


def fault_of(said: str) -> str:
    """What Arrow says of a damaged file stands behind our words, and names its own exceptions."""
    return fault_of_reason(said.partition("cannot be read as Parquet: ")[0])


async def images_of(sources, images):
    """What each row gave: `image`, or how it failed."""
    ends = []
    for source in sources:
        try:
            async with images.open(row_address(source), 1) as (path, _):
                path.read_bytes()
                ends.append("image")
        except PageFailure as failure:
            ends.append(fault_of(failure.detail) or "failed")
        except StorageError as error:
            ends.append(fault_of(str(error.args[0])) or "unreadable dataset")
    return ends


@pytest.mark.slow
def test_datasets_of_any_rows_give_images_or_reasons(hub, tmp_path):
    sources, ends = [], []
    for number in range(COUNTS["rows"]):
        name = f"tester/case{number}"
        data = rows_case(random.Random(f"rows {number}"))
        hub.add(name, {"train.parquet": data})
        try:
            found = list(islice(dataset_rows(DatasetOptions(name)), 4))
            sources += [row.source for row in found if row.reason is None]
            ends.append("listed")
        except (UsageError, StorageError) as error:
            ends.append(fault_of(str(error.args[0])) or "refused")

    async def every():
        options = RemoteOptions(StoreOptions(token=TOKEN), cache_folder=tmp_path / "copies")
        async with RemoteDocuments(options) as others:
            images = RowImages(options, others.open)
            try:
                return await images_of(sources, images)
            finally:
                await images.close()

    ends += asyncio.run(every())
    assert set(ends) <= {"listed", "refused", "image", "failed", "unreadable dataset"}
    assert min(ends.count(one) for one in ("listed", "refused", "image", "failed")) > 3
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "said"), [({}, "no column with images"), ({"image_column": "image"}, "several columns")]
)
def test_columns_of_one_name_are_named(hub, asked, said):
    """Arrow raises a KeyError for such a name."""
    name = f"tester/twice-{len(asked)}"
    schema = pa.schema([pa.field("image", pa.binary()), pa.field("image", pa.binary())])
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array([b"a"])] * 2, schema=schema), out)
    hub.add(name, {"train.parquet": out.getvalue()})
    with pytest.raises(UsageError, match=said):
        list(dataset_rows(DatasetOptions(name, **asked)))
