"""Measure the alarm of the quality score on scans whose text is known: false alarms, and misses.

    python benchmarks/alarms.py ../shared/data/pdfs --folder FOLDER --pages 56 --seed 7

Pages with a true text layer become images, which are spoiled as scans are: of few pixels, out of focus, faint, or with
a lower half that is out of focus. The words that the embedded engine reads are compared with the layer. The text is
right if recall and precision are 0.95 or more, and wrong if one of them is below 0.8. A false alarm is a right page
that is not `ok`. A miss is a wrong page that is `ok`; pages on which nothing was read are left out.
"""

import argparse
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
from PIL import Image, ImageChops, ImageFilter
from reporting import keep

import llm_ocr
from llm_ocr.types import PageRecord, Status

KINDS = ("few pixels", "out of focus", "faint", "half out of focus")
RIGHT, WRONG = 0.95, 0.8
#: Words of a page with a true layer, and pages of one document.
ENOUGH, MOST = 60, 3
_TAGS = re.compile(r"</?t[a-z]+[^<>]*>")


def main() -> None:
    """Make the pages, read them, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder of PDFs")
    parser.add_argument("--folder", type=Path, required=True, help="the images and the workspaces")
    parser.add_argument("--pages", type=int, default=130)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    images = arguments.folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    truth: dict[str, Counter[str]] = {}
    for row in true_pages(arguments.source, arguments.folder / "layers", rng):
        with pypdfium2.PdfDocument(row.source) as pdf:
            page = pdf[(row.page_number or 1) - 1].render(scale=150 / 72).to_pil().convert("L")
        for kind in rng.sample(KINDS, 2):
            name = f"{kind.replace(' ', '-')}-{len(truth):04d}.png"
            spoiled(page, kind, rng).save(images / name)
            truth[name] = words(row)
        if len(truth) >= arguments.pages:
            break
    run = llm_ocr.extract([str(images)], workspace=arguments.folder / "scans", engine="embedded", max_failed_rate=1.0)
    report: dict[str, object] = {"seed": arguments.seed, "llm_ocr": llm_ocr.__version__, "pages": len(truth)}
    rows = [row for row in run.pages(images=False) if words(row)]
    for kind in (*KINDS, ""):
        chosen = [row for row in rows if Path(row.source).name.startswith(kind.replace(" ", "-"))]
        worst = {row.page_id: min(shares(words(row), truth[Path(row.source).name])) for row in chosen}
        right = [row for row in chosen if worst[row.page_id] >= RIGHT]
        wrong = [row for row in chosen if worst[row.page_id] < WRONG]
        report[kind or "all"] = {
            "right": len(right),
            "false alarms": sum(row.status is not Status.OK for row in right),
            "wrong": len(wrong),
            "misses": sum(row.status is Status.OK for row in wrong),
        }
    keep(report, arguments.output)
    print(*(f"{name}: {value}" for name, value in report.items()), sep="\n")


def true_pages(source: Path, workspace: Path, rng: random.Random) -> Iterator[PageRecord]:
    """Yield pages with a true layer in a random order, at most `MOST` of a document."""
    run = llm_ocr.extract([str(source)], workspace=workspace, engine="embedded", max_failed_rate=1.0)
    rows = [row for row in run.pages(images=False) if row.text_source == "text-layer" and row.status is Status.OK]
    rng.shuffle(rows)
    seen: Counter[str] = Counter()
    for row in rows:
        # Text of two scripts, and pictures with text of their own, make the truth uncertain.
        plain = not row.rotation and row.quality is not None and row.quality > 0.9
        if plain and words(row).total() >= ENOUGH and seen[row.source] < MOST:
            seen[row.source] += 1
            yield row


def spoiled(page: Image.Image, kind: str, rng: random.Random) -> Image.Image:
    """Return the page as a bad scan of 150 dpi."""
    if kind == "few pixels":
        dpi = rng.choice((45, 55, 65))
        return page.resize((page.width * dpi // 150, page.height * dpi // 150), Image.Resampling.BILINEAR)
    if kind == "out of focus":
        return page.filter(ImageFilter.GaussianBlur(rng.choice((2.0, 2.6, 3.2))))
    if kind == "faint":
        ink = rng.choice((0.08, 0.12))
        faint = page.point([int(255 - (255 - value) * ink) for value in range(256)])
        return ImageChops.add(faint, Image.effect_noise(page.size, 6), 1, -128)
    half = page.copy()
    lower = page.crop((0, page.height // 2, page.width, page.height))
    half.paste(lower.filter(ImageFilter.GaussianBlur(3.2)), (0, page.height // 2))
    return half


def words(row: PageRecord) -> Counter[str]:
    """Return the words of all blocks, also inside figures."""
    text = " ".join(part for block in row.blocks for part in (block.text, block.inside, block.caption) if part)
    plain = unicodedata.normalize("NFKC", _TAGS.sub(" ", text)).casefold()
    return Counter(re.findall(r"[^\W_]+", plain))


def shares(read: Counter[str], true: Counter[str]) -> tuple[float, float]:
    """Return recall and precision."""
    same = (read & true).total()
    return same / max(1, true.total()), same / max(1, read.total())


if __name__ == "__main__":
    main()
