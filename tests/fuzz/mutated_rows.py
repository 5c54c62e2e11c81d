"""Parquet files of datasets with something wrong, and sound ones of odd kinds. Seeded."""

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from mutated_bytes import spoiled
from mutated_images import image_case

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_TYPES = (
    _IMAGE, _IMAGE, _IMAGE, pa.binary(), pa.large_binary(), pa.list_(_IMAGE), pa.list_(_IMAGE), pa.string(),
    pa.int64(),
    pa.float64(), pa.null(), pa.struct([("bytes", pa.string())]), pa.struct([("path", pa.string())]),
    pa.list_(pa.binary()),
    pa.struct([("bytes", pa.list_(pa.uint8()))]), pa.struct([("bytes", _IMAGE)]), pa.timestamp("ns"), pa.bool_(),
)  # fmt: skip
_NAMES = ("image", "images", "a.b", "", "bytes", "__index_level_0__", "é", "image\0", "x" * 300)
_META = (
    b"",
    b"{",
    b'{"info": {"features": {"image": {"_type": "Image"}}}}',
    b'{"info": {"features": 5}}',
    b"\xff" * 99,
)
_PATHS = (
    None,
    "",
    "../up.png",
    "/etc/passwd",
    "https://h/a.png",
    "none.png",
    "\0",
    "hf://x",
    "a" * 5000,
    "file:///etc/passwd",
)


def _value(kind: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return None
    if pa.types.is_list(kind):
        return [_value(kind.value_type, chance) for _ in range(chance.choice((0, 1, 3)))]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, chance) for field in kind}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return chance.choice((b"", b"\0" * 100, image_case(chance)[2][:60_000], bytes(300_000)))
    if pa.types.is_string(kind):
        return chance.choice(_PATHS)
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    return None if pa.types.is_null(kind) else chance.randrange(2)


def rows_case(chance: random.Random) -> bytes:
    """A Parquet file, spoiled every other time."""
    count = chance.choice((0, 1, 3, 3, 9))
    names = [chance.choice(("image", *_NAMES)) for _ in range(chance.choice((1, 1, 2)))]
    kinds = [chance.choice(_TYPES) for _ in names]
    arrays = [pa.array([_value(kind, chance) for _ in range(count)], kind) for kind in kinds]
    schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])
    if chance.random() < 0.4:
        schema = schema.with_metadata({b"huggingface": chance.choice(_META)})
    out = io.BytesIO()
    packing = chance.choice(("none", "snappy", "zstd"))
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema), out, row_group_size=max(1, count // 2), compression=packing
    )
    data = out.getvalue()
    return spoiled(data, chance)[1] if chance.random() < 0.5 else data
