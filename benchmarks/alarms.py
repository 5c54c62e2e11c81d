"""Measure the alarm of the quality score on scans whose text is known: false alarms, and misses.

    python benchmarks/alarms.py ../shared/data/pdfs DOCUMENTS --folder FOLDER --pages 400 --seed 7

Pages with a true text layer become images, which are spoiled as scans are (`KINDS`). The words that the embedded engine
reads are compared with the layer. The error of a page is the larger share of the words that were not read, or that are
not on the page. A page is wrong above 0.1, and right below 0.03. A false alarm is a right page that is not `ok`. A miss
is a wrong page that is `ok`; pages on which nothing was read are left out. The documents form two halves. Limits may be
tuned on the first half only. The folder keeps the images and the readings: remove them after a change of the engine.
"""

import argparse
import io
import json
import random
import re
import unicodedata
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import pypdfium2
from PIL import Image
from reporting import keep

import llm_ocr
from llm_ocr.types import PageRecord, Status

KINDS = (
    "clean",
    "few pixels",
    "out of focus",
    "half out of focus",
    "motion",
    "noise",
    "jpeg",
    "fax",
    "faint",
    "uneven light",
    "skew",
    "curl",
    "bleed-through",
    "ink spread",
    "ink erosion",
    "dot matrix",
    "stretched",
    "mixed",
)
HALVES = ("tuning", "held-out")
#: Errors below which a page is right, and above which it is doubtful and wrong.
RIGHT, DOUBTFUL, WRONG = 0.03, 0.05, 0.1
#: Fewest and most words of a page with a true layer, and pages of one document. Longer pages only take longer.
ENOUGH, LONGEST, MOST = 60, 420, 3
#: Pixels per inch of a page before it is spoiled.
DPI = 150
_TAGS = re.compile(r"</?[a-z]+[^<>]*>")


def main() -> None:
    """Make the pages, read them, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of PDFs")
    parser.add_argument("--folder", type=Path, required=True, help="the images and the workspaces")
    parser.add_argument("--pages", type=int, default=400)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    images = arguments.folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    truth: dict[str, PageRecord] = {}
    sources = [file for folder in arguments.sources for file in sorted(folder.glob("*.pdf"))]
    while len(truth) < arguments.pages:
        for row in true_pages(sources, arguments.folder / "layers", rng):
            kind = KINDS[len(truth) % len(KINDS)]
            name = f"{len(truth):04d}-{kind.replace(' ', '-')}.png"
            truth[name] = row
            if not (images / name).exists():
                with pypdfium2.PdfDocument(row.source) as pdf:
                    page = pdf[(row.page_number or 1) - 1].render(scale=DPI / 72, grayscale=True).to_pil()
                spoiled(page, kind, random.Random(name)).save(images / name, compress_level=1)
            if len(truth) == arguments.pages:
                break
    run = llm_ocr.extract([str(images)], workspace=arguments.folder / "scans", engine="embedded", max_failed_rate=1.0)
    read = [(row, truth[Path(row.source).name]) for row in run.pages(images=False) if words(row)]
    # Formulas are LaTeX in the truth, and pictures on scans.
    read = [(row, true) for row, true in read if not any("$" in block.text for block in true.blocks)]
    report: dict[str, object] = {"seed": arguments.seed, "llm_ocr": llm_ocr.__version__, "pages": len(read)}
    for half in HALVES:
        report[half] = counted([(row, true) for row, true in read if half_of(true) == half])
    keep(report, arguments.output)
    print(json.dumps(report, indent=1))


def true_pages(sources: Sequence[Path], workspace: Path, rng: random.Random) -> Iterator[PageRecord]:
    """Yield pages with a true layer in a random order, at most `MOST` of a document."""
    run = llm_ocr.extract(list(map(str, sources)), workspace=workspace, engine="embedded", max_failed_rate=1.0)
    rows = [row for row in run.pages(images=False) if row.text_source == "text-layer" and row.status is Status.OK]
    rows.sort(key=lambda row: (row.source, row.page_number or 0))
    rng.shuffle(rows)
    seen: Counter[str] = Counter()
    for row in rows:
        # Text of two scripts, and pictures with text of their own, make the truth uncertain.
        plain = not row.rotation and row.quality is not None and row.quality > 0.9
        if plain and ENOUGH <= words(row).total() <= LONGEST and seen[row.source] < MOST:
            seen[row.source] += 1
            yield row


def half_of(row: PageRecord) -> str:
    """Return the half of a page's document."""
    return HALVES[zlib.crc32(Path(row.source).stem.encode()) % 2]


def spoiled(page: Image.Image, kind: str, rng: random.Random) -> Image.Image:  # noqa: PLR0915 - one case per kind
    """Return a gray page of `DPI` as a bad scan."""
    if kind == "mixed":
        for part in rng.sample(KINDS[1:-1], 2):
            page = spoiled(page, part, rng)
        return page
    if kind in ("few pixels", "jpeg", "fax"):
        low, high = {"few pixels": (45, 110), "jpeg": (80, 150), "fax": (90, 150)}[kind]
        share = rng.uniform(low, high) / DPI
        page = page.resize((round(page.width * share), round(page.height * share)), Image.Resampling.BILINEAR)
    if kind == "stretched":
        return page.resize((round(page.width * rng.choice((0.5, 0.7, 1.5))), page.height), Image.Resampling.BILINEAR)
    if kind == "skew":
        return page.rotate(rng.choice((-1, 1)) * rng.uniform(1, 5), Image.Resampling.BICUBIC, fillcolor=255)
    noise = np.random.default_rng(rng.getrandbits(64))
    pixels = np.asarray(page, np.float32)
    height, width = pixels.shape
    across, down = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    if kind == "out of focus":
        pixels = cv2.GaussianBlur(pixels, (0, 0), rng.uniform(0.9, 3.2))
    elif kind == "half out of focus":
        middle, blurred = height // rng.choice((2, 3)), cv2.GaussianBlur(pixels, (0, 0), rng.uniform(1.8, 3.2))
        pixels = np.concatenate((pixels[:middle], blurred[middle:]))
    elif kind == "motion":
        length = rng.randrange(3, 13, 2)
        kernel = np.eye(length) if rng.random() < 0.5 else np.eye(1, length, length // 2).repeat(length, 0).T
        pixels = cv2.filter2D(pixels, -1, (kernel / kernel.sum()).astype(np.float32))
    elif kind == "noise":
        pixels = pixels * 0.8 + 25 + noise.normal(0, rng.uniform(25, 110), pixels.shape)
    elif kind == "jpeg":
        out = io.BytesIO()
        page.save(out, "JPEG", quality=rng.randint(4, 25))
        return Image.open(out).convert("L")
    elif kind == "fax":
        pixels = 255 * (pixels + noise.normal(0, rng.uniform(0, 40), pixels.shape) > rng.uniform(70, 220))
    elif kind == "faint":
        pixels = 255 - (255 - pixels) * rng.uniform(0.05, 0.2) + noise.normal(0, rng.uniform(3, 9), pixels.shape)
    elif kind == "uneven light":
        shade = 1 - rng.uniform(0.5, 0.95) * (across / width * rng.random() + down / height * rng.random()).clip(0, 1)
        pixels = pixels * shade + noise.normal(0, rng.uniform(2, 12), pixels.shape)
    elif kind == "curl":
        moved = rng.uniform(0.01, 0.035) * height * np.sin(np.pi * (across / width) ** rng.uniform(0.5, 2))
        pixels = cv2.remap(pixels, across, down - moved, cv2.INTER_LINEAR, borderValue=255)
    elif kind == "bleed-through":
        behind = cv2.GaussianBlur(np.roll(pixels[:, ::-1], rng.randint(9, 60), 0), (0, 0), 1.5)
        pixels = pixels * (1 - rng.uniform(0.2, 0.7) * (1 - behind / 255))
    elif kind in ("ink spread", "ink erosion"):
        size = rng.choice((2, 2, 3))
        change = cv2.erode if kind == "ink spread" else cv2.dilate
        patches = cv2.GaussianBlur(noise.normal(0, 1, pixels.shape).astype(np.float32), (0, 0), 8)
        some = patches > np.quantile(patches, rng.uniform(0, 0.7))
        pixels = np.where(some, change(pixels, np.ones((size, size), np.uint8)), pixels)
        pixels = cv2.GaussianBlur(pixels, (0, 0), 0.7)
    elif kind == "dot matrix":
        step = rng.choice((2, 3, 4))
        dots = cv2.GaussianBlur(((across % step < 1) & (down % step < 1)).astype(np.float32), (0, 0), step / 3.5)
        pixels = cv2.GaussianBlur(255 - (255 - pixels) * (dots / dots.max()), (0, 0), 0.6)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def counted(pages: Sequence[tuple[PageRecord, PageRecord]]) -> dict[str, object]:
    """Return the counts of each kind of damage, and the rank correlation of score and error over all pages."""
    errors = {row.page_id: error(row, true) for row, true in pages}
    report: dict[str, object] = {}
    for kind in (*KINDS, ""):
        rows = [row for row, _ in pages if not kind or Path(row.source).stem[5:] == kind.replace(" ", "-")]
        right = [row for row in rows if errors[row.page_id] < RIGHT]
        doubtful = [row for row in rows if DOUBTFUL < errors[row.page_id] <= WRONG]
        wrong = [row for row in rows if errors[row.page_id] > WRONG]
        report[kind or "all"] = {
            "right": len(right),
            "false alarms": sum(row.status is not Status.OK for row in right),
            "doubtful": len(doubtful),
            "doubtful and ok": sum(row.status is Status.OK for row in doubtful),
            "wrong": len(wrong),
            "misses": sum(row.status is Status.OK for row in wrong),
        }
    ranks = [ranked([row.quality or 0.0 for row, _ in pages]), ranked([-errors[row.page_id] for row, _ in pages])]
    return {**report, "rank correlation": round(float(np.corrcoef(*ranks)[0, 1]), 3)}


def ranked(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal values have their mean rank."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in values]


def words(row: PageRecord, *, inside: bool = True) -> Counter[str]:
    """Return the words of all blocks; `inside`: also of those in figures. Captions are blocks of their own.

    Each Chinese or Japanese character is a word.
    """
    text = " ".join(part for block in row.blocks for part in (block.text, block.inside if inside else "") if part)
    plain = unicodedata.normalize("NFKC", _TAGS.sub(" ", text)).casefold()
    return Counter(re.findall("[\u2e80-\u9fff]|[^\\W_\u2e80-\u9fff]+", plain))


def error(read: PageRecord, true: PageRecord) -> float:
    """Return the larger share of the words that were not read, and of those that are not on the page.

    Words in figures need not be read.
    """
    got, demanded = words(read), words(true, inside=False)
    recall = (got & demanded).total() / max(1, demanded.total())
    return 1 - min(recall, (got & words(true)).total() / max(1, got.total()))


if __name__ == "__main__":
    main()
