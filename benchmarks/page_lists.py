"""The pages that are timed: sorted into digital and scanned by what llm-ocr did with them, and put into files."""

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pypdfium2
from peers_embedded import DIGITAL, SCANNED

import llm_ocr

KIND_OF = {"text-layer": DIGITAL, "ocr": SCANNED}


@dataclass(frozen=True, slots=True)
class Selection:
    """Pages, from 1, of one PDF; `total` is how many it has, `seconds` what the engine took for each of `pages`."""

    path: Path
    pages: tuple[int, ...]
    total: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PageList:
    """What is timed in one go: for llm-ocr a manifest, for the others PDF files or page images of the same pages."""

    kind: str
    selections: tuple[Selection, ...]
    manifest: Path
    files: tuple[Path, ...]
    images: tuple[Path, ...]  # scanned pages only

    @property
    def pages(self) -> int:
        return sum(len(selection.pages) for selection in self.selections)


def find_pdfs(corpus: Iterable[Path]) -> list[Path]:
    """PDF files, and those below folders, in a fixed order."""
    found: list[Path] = []
    for path in corpus:
        below = path.rglob("*") if path.is_dir() else [path]
        found += sorted(file for file in below if file.suffix.lower() == ".pdf")
    return [path.resolve() for path in found]


def sort_pages(workspace: Path) -> tuple[dict[str, list[Selection]], dict[str, int]]:
    """Digital and scanned pages of a finished Extract, and how many pages were left out, by reason."""
    chosen: dict[str, dict[Path, dict[int, float]]] = {DIGITAL: defaultdict(dict), SCANNED: defaultdict(dict)}
    left_out: Counter[str] = Counter()
    for page in llm_ocr.open(str(workspace)).pages(images=False):
        kind = KIND_OF.get(page.text_source)
        if kind is None or page.page_number is None or page.status == "failed":
            left_out[str(page.reason or page.status)] += 1
        else:
            # A blank page would not show what the start costs: nothing has to be loaded for it.
            chosen[kind][Path(page.source)][page.page_number] = math.inf if page.blank else page.seconds
    totals = {path: _page_total(path) for pages in chosen.values() for path in pages}
    lists = {
        kind: [_selection(path, numbers, totals[path]) for path, numbers in sorted(pages.items())]
        for kind, pages in chosen.items()
    }
    return lists, dict(left_out)


def limited(selections: Sequence[Selection], count: int | None) -> list[Selection]:
    """At most `count` pages, taken from all documents in turn."""
    if count is None:
        return list(selections)
    turns = [[(selection, page) for page in _seconds(selection).items()] for selection in selections]
    in_turn = [item for row in itertools.zip_longest(*turns) for item in row if item is not None][:count]
    kept: dict[Path, dict[int, float]] = defaultdict(dict)
    for selection, (page, seconds) in in_turn:
        kept[selection.path][page] = seconds
    return [_selection(one.path, kept[one.path], one.total) for one in selections if one.path in kept]


def _selection(path: Path, seconds: Mapping[int, float], total: int) -> Selection:
    pages = tuple(sorted(seconds))
    return Selection(path, pages, total, tuple(seconds[page] for page in pages))


def _seconds(selection: Selection) -> dict[int, float]:
    return dict(zip(selection.pages, selection.seconds, strict=True))


def cheapest_page(selections: Sequence[Selection]) -> list[Selection]:
    """The page that cost least, as a list of its own: it takes the start-up and little more."""
    best = min(selections, key=lambda selection: min(selection.seconds))
    page, seconds = min(_seconds(best).items(), key=lambda item: item[1])
    return [_selection(best.path, {page: seconds}, best.total)]


def make_list(kind: str, selections: Sequence[Selection], folder: Path, workspace: Path | None) -> PageList:
    """Write the manifest and the files; `workspace` is the finished Extract that has the images of scanned pages."""
    folder.mkdir(parents=True)
    manifest = folder / "pages.jsonl"
    write_manifest(selections, manifest)
    files = tuple(_file_of(index, selection, folder) for index, selection in enumerate(selections))
    images = _images_of(selections, workspace, folder) if workspace and kind == SCANNED else ()
    return PageList(kind, tuple(selections), manifest, files, images)


def write_manifest(selections: Sequence[Selection], path: Path) -> None:
    """One line a document, as `llm-ocr extract` reads it."""
    rows = [
        {"id": f"{index:05d}-{selection.path.stem}", "pdf_path": str(selection.path), "pages": list(selection.pages)}
        for index, selection in enumerate(selections)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def copies(selections: Sequence[Selection], count: int, folder: Path) -> list[Selection]:
    """`count` pages of documents taken in turn, each copy with a name and content of its own: none is an alias."""
    folder.mkdir(parents=True)
    made: list[Selection] = []
    left = count
    for number, selection in enumerate(itertools.cycle(selections)):
        if left <= 0:
            return made
        part = dict(list(_seconds(selection).items())[:left])
        copy = folder / f"{number:05d}.pdf"
        # A comment after the end of the file: readers look for the end within the last KiB.
        copy.write_bytes(selection.path.read_bytes() + f"\n% copy {number}\n".encode())
        made.append(_selection(copy, part, selection.total))
        left -= len(part)
    return made


def _file_of(index: int, selection: Selection, folder: Path) -> Path:
    """The document itself where all its pages are meant, else a PDF of just those pages: not all peers can choose."""
    path = folder / f"{index:05d}.pdf"
    if len(selection.pages) == selection.total:
        path.symlink_to(selection.path)
        return path
    with pypdfium2.PdfDocument(selection.path) as document, pypdfium2.PdfDocument.new() as part:
        part.import_pages(document, [page - 1 for page in selection.pages])
        part.save(path)
    return path


def _images_of(selections: Sequence[Selection], workspace: Path, folder: Path) -> tuple[Path, ...]:
    """The images that llm-ocr made of these pages, upright, in the encoding that it chose."""
    wanted = {(selection.path, page) for selection in selections for page in selection.pages}
    found: list[Path] = []
    for page in llm_ocr.open(str(workspace)).pages(images=True):
        if (Path(page.source), page.page_number) in wanted and page.image is not None:
            path = folder / f"{len(found):05d}.{page.image.media_type.rpartition('/')[2]}"
            path.write_bytes(page.image.data)
            found.append(path)
    return tuple(found)


def _page_total(path: Path) -> int:
    with pypdfium2.PdfDocument(path) as document:
        return len(document)
