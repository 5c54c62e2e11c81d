"""The pages that `scanned.py` reads: scans, and digital pages as pictures with their text layer as truth."""

import io
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accuracy
import numpy as np
import scoring
from numpy.typing import NDArray
from PIL import Image

import llm_ocr
from llm_ocr.engines.embedded.page import laid_out
from llm_ocr.engines.embedded.rotation import turn
from llm_ocr.engines.embedded.scan_objects import scan_objects
from llm_ocr.types import BlockKind, PageContent, PageRecord

Pixels = NDArray[np.uint8]
SCAN, PICTURE = "scans", "digital as images"


@dataclass(frozen=True, slots=True)
class Given:
    """One page image as the reader gets it. `truth`: normalised blocks of a true text layer, empty for a scan."""

    file: str
    page: int
    image: bytes
    rotation: int  # degrees counter-clockwise by which the stored picture must be turned to be as it was given
    truth: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return PICTURE if self.truth else SCAN

    def pixels(self) -> Pixels:
        """Height x width x 3, RGB."""
        stored: Pixels = np.asarray(Image.open(io.BytesIO(self.image)).convert("RGB"))
        return turn(stored, -self.rotation % 360)


def find(folder: Path, pages_max: int) -> list[Given]:
    """At most `pages_max` pages of each kind: all documents give their first before one gives its second."""
    with tempfile.TemporaryDirectory() as scratch:
        manifest = Path(scratch) / "pages.jsonl"
        documents = [path for path in sorted(folder.glob("*.pdf")) if not path.name.startswith("encrypted")]
        manifest.write_text("".join(json.dumps({"id": p.stem, "pdf_path": str(p.resolve())}) + "\n" for p in documents))
        run = llm_ocr.extract(str(manifest), workspace=f"{scratch}/work", engine="embedded", max_failed_rate=1.0)
        labelled = {(page["file"], page["page"]) for page in _labelled()}
        pages = [given for record in run.pages(images=True) if (given := _given(record, labelled)) is not None]
    return [page for kind in (SCAN, PICTURE) for page in _in_turn([p for p in pages if p.kind == kind], pages_max)]


def _labelled() -> list[dict[str, Any]]:
    return [
        page
        for name in ("order", "figures")
        for page in json.loads((accuracy.TRUTH / f"{name}.json").read_text())["pages"]
        if not page["scanned"] and page["file"] not in accuracy.NO_CER
    ]


def _given(record: PageRecord, labelled: set[tuple[str, int]]) -> Given | None:
    file, number = Path(record.source).name, record.page_number or 0
    if record.image is None or record.status == "failed" or record.blank:
        return None
    if record.text_source == "ocr":
        return Given(file, number, record.image.data, record.rotation or 0)
    if (file, number) not in labelled:
        return None
    texts = (scoring.body(block.text) for block in record.blocks if block.kind is not BlockKind.FIGURE)
    truth = tuple(text for text in texts if len(text) > 3)
    return Given(file, number, record.image.data, 0, truth) if sum(map(len, truth)) >= 200 else None


def _in_turn(pages: Sequence[Given], most: int) -> list[Given]:
    seen: dict[str, int] = {}
    turns = []
    pictures = set()
    for page in pages:
        if (page.image, page.rotation) in pictures:
            continue  # the same page in two files
        pictures.add((page.image, page.rotation))
        seen[page.file] = seen.get(page.file, 0) + 1
        turns.append((seen[page.file], page.file, page))
    return [page for _, _, page in sorted(turns, key=lambda one: one[:2])[:most]]


def text_of(image: Pixels, lines: Any) -> str:
    """The normalised text of the page laid out as the engine does it, text within figures included."""
    objects = scan_objects(image, lines)
    height, width = image.shape[:2]
    blocks = laid_out(PageContent(float(width), float(height), tuple(lines), objects.rasters, objects.paths))
    return scoring.body("\n".join(block.text + "\n" + block.inside for block in blocks))


def wrong(truth: Sequence[str], text: str) -> tuple[int, int]:
    """Characters wrong or missed, and how many there are: each block of truth against its best match."""
    errors, _ = accuracy._errors(truth, text)
    return errors, sum(len(block.replace(" ", "")) for block in truth)
