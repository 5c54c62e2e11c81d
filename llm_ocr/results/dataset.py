"""Write the dataset: `dataset/*.parquet`, which `datasets.load_dataset` opens without a script, and its card."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import yaml

from llm_ocr.results.schema import LEDGER_TYPES, Images, block_value, cleaned, image_value, ledger_values, open_writer
from llm_ocr.types import Block, BlockKind, EncodedImage, Figure, FigureRecord, PageRecord

if TYPE_CHECKING:
    import pyarrow as pa

#: Share of a page's text or area above which it counts as a page of tables, or of diagrams.
MOST = 0.5
#: Labels of figures that are drawings with information, not pictures.
_DRAWN = frozenset({"chart", "diagram", "flowchart", "graph", "plot"})
_TAG = re.compile(r"<[^<>]*>")


def page_notes(record: PageRecord) -> dict[str, Any]:
    """Return the dataset's columns on the language, rotation, and kind of a page.

    The columns are primary_language, is_rotation_valid, rotation_correction, rotation, is_table, is_diagram, and
    is_fallback; None for unknown values. `primary_language` is the model's statement, None for models and engines
    without one. `is_rotation_valid` and `rotation_correction` are the model's verdict on the page as finally read.
    `rotation` is the applied rotation. Both are in degrees clockwise.
    """
    notes = record.notes
    is_table = is_diagram = None
    if record.blocks or record.blank:
        is_table = _mostly(record.blocks, lambda block: block.kind is BlockKind.TABLE)
        is_diagram = _mostly(
            record.blocks,
            lambda block: block.kind is BlockKind.FIGURE and block.label.strip().casefold() in _DRAWN,
        )
    return {
        "primary_language": notes.get("primary_language"),
        "is_rotation_valid": notes.get("is_rotation_valid"),
        "rotation_correction": notes.get("rotation_correction"),
        "rotation": record.rotation,
        "is_table": notes.get("is_table", is_table),
        "is_diagram": notes.get("is_diagram", is_diagram),
        "is_fallback": record.is_fallback,
    }


def _mostly(blocks: Sequence[Block], wanted: Callable[[Block], bool]) -> bool:
    """Return whether matching blocks have most of the text or area (the page's area if positions are unknown)."""
    chosen = [block for block in blocks if wanted(block)]
    area = sum(map(_area, blocks)) if all(map(_area, blocks)) else 1.0
    return sum(map(_letters, chosen)) > MOST * sum(map(_letters, blocks)) or sum(map(_area, chosen)) > MOST * area


def _area(block: Block) -> float:
    """Return the relative area; 0 for a block of unknown position, whose box is the whole page."""
    return sum(box.area for box in (block.box, *block.continued)) if block.box.area < 1 else 0.0


def _letters(block: Block) -> int:
    """Count letters and digits, without the markup of tables."""
    return sum(map(str.isalnum, _TAG.sub("", block.text)))


# Files of the dataset, with Image columns. The Arrow schema's metadata has the features as `datasets` writes them;
# lists have the form that its old and new versions read. One row per page, failed pages too; image bytes are those that
# Extract stored.


#: Folder of the dataset in a workspace.
FOLDER = "dataset"

#: Upper limits of rows, and approximately of bytes, in a row group: readers stream one at a time.
GROUP_ROWS = 100
GROUP_BYTES = 100_000_000

_UNIT = re.compile(r"[\d-]+")

_STRING = {"dtype": "string", "_type": "Value"}
_INTEGER = {"dtype": "int64", "_type": "Value"}
_REAL = {"dtype": "float64", "_type": "Value"}
_FLAG = {"dtype": "bool", "_type": "Value"}
_IMAGE = {"_type": "Image"}
_BOX = dict.fromkeys(("x0", "y0", "x1", "y1"), _REAL)
_SPAN = dict.fromkeys(("block", "start", "end"), _INTEGER)
_BLOCK_TEXTS = ("kind", "label", "text", "figure_id", "caption", "inside", "described")
_BLOCK = {**dict.fromkeys(_BLOCK_TEXTS, _STRING), "level": _INTEGER, "box": _BOX, "continued": [_BOX]}

#: Columns in order, with their features as JSON; `[x]` is a list of x.
FEATURES: Mapping[str, Any] = {
    "sample_id": _STRING,
    "dataset_index": _INTEGER,
    "source_image": _IMAGE,
    "document_with_boxes_image": _IMAGE,
    "document_markdown": _STRING,
    "extracted_figures": [_IMAGE],
    "extracted_figures_metadata": [_STRING],
    "document_final_markdown": _STRING,
    "document_id": _STRING,
    "source": _STRING,
    "page_number": _INTEGER,
    "status": _STRING,
    "reason": _STRING,
    "engine": _STRING,
    "blocks": [_BLOCK],
    "tokens_in": _INTEGER,
    "tokens_out": _INTEGER,
    "attempts": [_STRING],
    "primary_language": _STRING,
    "is_rotation_valid": _FLAG,
    "rotation_correction": _INTEGER,
    "rotation": _INTEGER,
    "is_table": _FLAG,
    "is_diagram": _FLAG,
    "is_fallback": _FLAG,
    "quality": _REAL,
    "invisible_chars": _INTEGER,
    **{name: _STRING if type_ == "string" else _REAL for name, type_ in LEDGER_TYPES.items()},
    "unread": [_BOX],
    "unsupported": [_SPAN],
}


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """Page as input of the dataset. `figures` has Describe's rows by figure id, without undescribed figures."""

    record: PageRecord
    final_markdown: str
    figures: Mapping[str, FigureRecord] = field(default_factory=dict)
    boxes: EncodedImage | None = None


def dataset_file(item: str) -> str:
    """Return the key of an item's file. All names contain `train`, because `load_dataset` derives splits from names.

    Unit ids are used verbatim in the name, other ids as a hash.
    """
    name = item if _UNIT.fullmatch(item) else sha256(item.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{FOLDER}/train-{name}.parquet"


def item_of_file(key: str) -> str:
    """Return the id of the file's item; empty if the name does not contain it."""
    name = key.removeprefix(f"{FOLDER}/train-").removesuffix(".parquet")
    return name if _UNIT.fullmatch(name) else ""


class DatasetWriter:
    """Writes rows in groups (at most 100 rows, about 100 MB); a context manager that completes the file.

    `images`: FIGURES omits the page images, NONE all images. The columns remain, null or empty.
    """

    def __init__(self, where: Path | BinaryIO, images: Images = Images.ALL) -> None:
        self._images = images
        self._writer = open_writer(where, dataset_schema())
        self._rows: list[dict[str, object]] = []
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def add(self, row: DatasetRow) -> None:
        """Add a page."""
        self._rows.append(_row(row, self._images))
        if self._images is not Images.NONE:
            self._bytes += sum(len(figure.image.data) for figure in row.record.figures)
        if self._images is Images.ALL:
            self._bytes += sum(len(image.data) for image in (row.record.image, row.boxes) if image)
        if len(self._rows) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=dataset_schema()))
        self._rows, self._bytes = [], 0


@cache
def dataset_schema() -> "pa.Schema":
    """Return the columns of the dataset, with the features of Hugging Face's `datasets` as metadata."""
    import pyarrow as pa

    fields = [(name, _arrow(feature)) for name, feature in FEATURES.items()]
    info = json.dumps({"info": {"features": FEATURES}})
    return pa.schema(fields).with_metadata({"huggingface": info})


def _arrow(feature: Any) -> "pa.DataType":
    import pyarrow as pa

    if isinstance(feature, list):
        return pa.list_(_arrow(feature[0]))
    if feature == _IMAGE:
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    if "_type" in feature:
        return pa.type_for_alias(feature["dtype"])
    return pa.struct([(name, _arrow(inner)) for name, inner in feature.items()])


def _row(row: DatasetRow, images: Images) -> dict[str, object]:
    record, everything = row.record, images is Images.ALL
    page, boxes = (record.image, row.boxes) if everything else (None, None)
    shown = () if images is Images.NONE else record.figures
    values = {
        "sample_id": record.page_id,
        "dataset_index": record.dataset_index,
        "source_image": page and image_value(page, record.page_id),
        "document_with_boxes_image": boxes and image_value(boxes, f"{record.page_id}-boxes"),
        "document_markdown": record.markdown,
        "extracted_figures": [image_value(figure.image, figure.id) for figure in shown],
        "extracted_figures_metadata": [_metadata(figure, record.image, row.figures) for figure in record.figures],
        "document_final_markdown": row.final_markdown,
        "document_id": record.document_id,
        "source": record.source,
        "page_number": record.page_number,
        "status": record.status.value,
        "reason": record.reason.value if record.reason else None,
        "engine": record.engine,
        "blocks": list(map(block_value, record.blocks)),
        "tokens_in": record.tokens_in,
        "tokens_out": record.tokens_out,
        "attempts": [json.dumps(dict(attempt), ensure_ascii=False) for attempt in record.attempts],
        **page_notes(record),
        "quality": record.quality,
        "invisible_chars": record.invisible_chars,
        **ledger_values(record.ledger),
    }
    return {name: cleaned(value) for name, value in values.items()}


def _metadata(figure: Figure, page: EncodedImage | None, described: Mapping[str, FigureRecord]) -> str:
    record = described.get(figure.id)
    pixels = None
    if page is not None:
        box = figure.box.clipped().scaled(page.width, page.height)
        pixels = {"x1": round(box.x0), "y1": round(box.y0), "x2": round(box.x1), "y2": round(box.y1)}
    values = {
        "figure_id": figure.id,
        "label": figure.label,
        "bounding_box_pixels": pixels,
        "description": (record.description if record else "") or None,
        "caption": figure.caption,
        "status": record.status.value if record else None,
        "class": (record.label if record else "") or None,
        "data": (record.data if record else "") or None,
    }
    return json.dumps(values, ensure_ascii=False)


# Dataset card: README.md, whose front matter names the files of the dataset. A card of llm-ocr names its workspace on a
# separate line, so that an export knows which cards it may replace.


#: File name of the card.
CARD = "README.md"
#: File name of the card if there is a README of other origin.
OTHER_CARD = "llm-ocr-card.md"

_MARK = re.compile(r"^<!-- llm-ocr export of ([0-9a-f]+)\b", re.MULTILINE)
#: Files that the card of a workspace may name: the dataset, and its preview until the dataset exists.
_OWN_FILES = re.compile(r"\bpath: (dataset/\*\.parquet|preview/train-[0-9a-f]{12}-\*\.parquet)$", re.MULTILINE)
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
#: Keys of front matter that name files and describe their content.
DATASET_KEYS = ("configs", "dataset_info")


@dataclass(frozen=True, slots=True)
class Standing:
    """Existing README: its front matter, and its workspace, empty if the file is not by llm-ocr.

    `free`: it may be replaced, because it is by llm-ocr, or has only front matter that describes no dataset.
    """

    front: Mapping[str, Any]
    workspace: str
    free: bool


def read_card(text: str) -> Standing:
    """Parse a README."""
    found = _FRONT_MATTER.match(text)
    front: Any = None
    if found is not None:
        try:
            front = yaml.safe_load(found[1])
        except yaml.YAMLError:
            front = None
    mark = _MARK.search(text)
    bare = isinstance(front, dict) and found is not None and not text[found.end() :].strip()
    free = bool(mark) or not text.strip() or (bare and front.keys().isdisjoint(DATASET_KEYS))
    return Standing(front if isinstance(front, dict) else {}, mark[1] if mark else "", free)


def named_files(text: str) -> str | None:
    """Return the files that a README names by a configuration of llm-ocr.

    Empty if it has no configurations, None if they are the user's or the front matter is unreadable.
    """
    found = _FRONT_MATTER.match(text)
    if found is None:
        return ""
    front = read_card(text).front
    if "configs" not in front:
        return None if found[1].strip() and not front else ""
    own = _OWN_FILES.search(found[1])
    return own[1] if own and front["configs"] == configs(own[1]) else None


def with_configs(text: str, pattern: str) -> str:
    """Return a README whose front matter names the files of the dataset; the user's own text is unchanged.

    The files of a configuration of llm-ocr are replaced. Front matter with other configurations, or that is unreadable,
    is unchanged.
    """
    named = named_files(text)
    found = _FRONT_MATTER.match(text)
    ours = yaml.safe_dump({"configs": configs(pattern)}, sort_keys=False)
    if found is None:
        return f"---\n{ours}---\n{text}"
    if named is None:
        return text
    front, rest = text[: found.end(1)], text[found.end(1) :]
    return front.replace(named, pattern) + rest if named else f"{front}{ours}{rest}"


def configs(files: str | list[str]) -> list[dict[str, Any]]:
    """Return the front matter that lets `load_dataset` open the files of a pattern, or these files."""
    return [{"config_name": "default", "data_files": [{"split": "train", "path": files}]}]
