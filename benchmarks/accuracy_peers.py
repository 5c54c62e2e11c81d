"""How right other programs are on the pages and by the labels of `accuracy.py`, beside the embedded engine.

    python benchmarks/accuracy_peers.py ../shared/data/pdfs [--output benchmarks/results/accuracy_peers.json]

Every program gets the same files, one PDF a labelled page. Phrases, their order and running text on digital pages and
on scans, relations of cells, and characters wrong where digital pages are read as images. Nothing is asserted.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accuracy
import embedded
import proctree
import pypdfium2
import scoring
from accuracy import PASSWORD, Key
from embedded import without_folders
from peers_embedded import DIGITAL, PEERS, SCANNED, Installed
from reporting import keep, tell
from timed_tools import Stand

import llm_ocr
from llm_ocr.types import BlockKind, PageRecord

# What the embedded engine and the other programs make of labelled pages, each page a file of its own.


@dataclass(frozen=True, slots=True)
class Answer:
    """One page's text or Markdown."""

    markdown: str


@dataclass(frozen=True, slots=True)
class Answers:
    """By page, empty for one that failed."""

    pages: Mapping[Key, Answer]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ours:
    """Our answers to the pages alone and within their documents; the files, and images of the pages as we made them."""

    alone: Answers
    in_document: Answers
    files: Mapping[Key, Path]
    images: Mapping[Key, Path]


@dataclass(frozen=True, slots=True)
class Pictures:
    """Digital pages as images: blocks of the text layer as truth, and our reading."""

    truth: Mapping[Key, tuple[str, ...]]
    images: Mapping[Key, Path]
    ours: Mapping[Key, str]


def by_us(folder: Path, wanted: Sequence[Key], scratch: Path) -> Ours:
    """Cuts the pages out, then reads them."""
    files = {key: _cut(folder, key, scratch / "pages" / f"{index:05d}.pdf") for index, key in enumerate(wanted)}
    rows = [{"id": f"{path.stem}", "pdf_path": str(path)} for path in files.values()]
    by_file = {str(path): key for key, path in files.items()}
    records = {by_file[page.source]: page for page in _extract(rows, scratch / "alone")}
    images = {key: _image(records[key], scratch / "images" / path.stem) for key, path in files.items()}
    whole = accuracy.read(folder, wanted)
    return Ours(_answers(records), _answers(whole), files, images)


def _answers(records: Mapping[Key, PageRecord]) -> Answers:
    failed = [f"{file} {page}" for (file, page), record in records.items() if record.status == "failed"]
    return Answers({key: Answer(record.markdown) for key, record in records.items()}, tuple(failed))


def _cut(folder: Path, key: Key, path: Path) -> Path:
    """A PDF of one page; without the password that the document may have."""
    path.parent.mkdir(exist_ok=True)
    password = PASSWORD if key[0].startswith("encrypted") else None
    with pypdfium2.PdfDocument(folder / key[0], password=password) as whole, pypdfium2.PdfDocument.new() as part:
        part.import_pages(whole, [key[1] - 1])
        part.save(path)
    return path.resolve()


def _extract(rows: Sequence[Mapping[str, str]], workspace: Path, **settings: Any) -> list[PageRecord]:
    manifest = workspace.with_suffix(".jsonl")
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = llm_ocr.extract(str(manifest), workspace=str(workspace), engine="embedded", max_failed_rate=1.0, **settings)
    return list(run.pages(images=True))


def _image(record: PageRecord, path: Path) -> Path:
    """The page as we stored it, upright."""
    assert record.image is not None
    path.parent.mkdir(exist_ok=True)
    path = path.with_suffix("." + record.image.media_type.rpartition("/")[2])
    path.write_bytes(record.image.data)
    return path


def by_peer(stand: Stand, peer: Installed, ours: Ours, wanted: Sequence[Key]) -> Answers:
    """One that reads images gets ours, the others the files."""
    return run_peer(stand, peer, ours.images if peer.peer.images else ours.files, wanted)


def run_peer(stand: Stand, peer: Installed, files: Mapping[Key, Path], wanted: Sequence[Key]) -> Answers:
    """All files in one go, as `peer_runner.py` calls it; one that joins what it reads gets one file at a time."""
    texts: dict[Key, str | None] = {}
    said: list[str] = []
    for group in [[key] for key in wanted] if peer.peer.images else [list(wanted)]:
        found, failure = _texts(stand, peer, [files[key] for key in group])
        texts |= dict(zip(group, found, strict=True))
        said += failure
    failed = [f"{file} {page}" for (file, page), text in texts.items() if text is None]
    return Answers({key: Answer(text or "") for key, text in texts.items()}, (*failed, *said))


def _texts(stand: Stand, peer: Installed, files: Sequence[Path]) -> tuple[list[str | None], list[str]]:
    """A text for each file, None where nothing came out; and how the program ended, where that was not well."""
    folder = stand.folder()
    out = folder / "out"
    out.mkdir()
    job = folder / "job.json"
    job.write_text(json.dumps({"files": [str(path) for path in files], "output": str(out)}))
    usage = stand.measure(peer.command(job), folder, dict(peer.peer.environment))
    texts = [_one(out, index, path) for index, path in enumerate(files)]
    shutil.rmtree(folder)
    return texts, [f"ended with {usage.code}: {' '.join(usage.tail.split()[-20:])}"] if usage.code else []


def _one(out: Path, index: int, given: Path) -> str | None:
    for name in (f"{index:05d}.md", f"{given.stem}.md", "all.md"):
        if (out / name).exists():
            return (out / name).read_text(encoding="utf-8", errors="replace")
    return None


def as_images(folder: Path, chosen: Sequence[Key], scratch: Path) -> Pictures:
    """Those of the pages that have a true text layer and enough text on it, as `accuracy.py` chooses them."""
    layers = accuracy.read(folder, chosen)
    truth = {}
    for key, record in layers.items():
        blocks = (scoring.body(block.text) for block in record.blocks if block.kind is not BlockKind.FIGURE)
        texts = tuple(text for text in blocks if len(text) > 3)
        if record.text_source == "text-layer" and sum(map(len, texts)) >= 200:
            truth[key] = texts
    cut = {key: _cut(folder, key, scratch / "digital" / f"{index:05d}.pdf") for index, key in enumerate(sorted(truth))}
    by_file = {str(path): key for key, path in cut.items()}
    rows = [{"id": path.stem, "pdf_path": str(path)} for path in cut.values()]
    records = {by_file[page.source]: page for page in _extract(rows, scratch / "as-images", text_layer="never")}
    images = {key: _image(record, scratch / "pictures" / cut[key].stem) for key, record in records.items()}
    ours = {key: "\n".join(b.text + "\n" + b.inside for b in record.blocks) for key, record in records.items()}
    return Pictures(truth, images, ours)


def of_images(stand: Stand, peer: Installed, pictures: Pictures) -> dict[Key, str]:
    """The same images by another program."""
    assert SCANNED in peer.peer.kinds
    wanted = sorted(pictures.truth)
    return {key: answer.markdown for key, answer in run_peer(stand, peer, pictures.images, wanted).pages.items()}


def errors(pictures: Pictures, texts: Mapping[Key, str]) -> list[dict[str, Any]]:
    """Share of characters wrong or missed, spaces not counted, worst page first."""
    rows = []
    for (file, page), truth in pictures.truth.items():
        wrong, _ = accuracy._errors(truth, scoring.body(texts[file, page]))
        characters = sum(len(block.replace(" ", "")) for block in truth)
        rows.append({"file": file, "page": page, "cer": round(wrong / characters, 4)})
    return sorted(rows, key=lambda row: -float(row["cer"]))


# The command.


OURS, IN_DOCUMENT = "llm-ocr", "llm-ocr, whole documents"
KINDS = ("order", "present", "absent")


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-benchmark-", dir=arguments.scratch) as scratch:
        report = run(arguments, Path(scratch).resolve())
    print(table(report))
    keep(report, arguments.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("folder", type=Path)
    add("--peers", default=",".join(PEERS), metavar="NAMES", help="other programs, by commas; none: llm-ocr alone")
    add("--peer-venvs", type=Path, metavar="FOLDER", help="where they are installed (default: a temporary folder)")
    add("--no-cer", action="store_true", help="leave out digital pages read as images, the slow part")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--timeout", type=float, default=1800.0, metavar="SECONDS", help="a program is killed after that")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    truth = {
        name: json.loads((accuracy.TRUTH / f"{name}.json").read_text())["pages"]
        for name in ("order", "tables", "figures")
    }
    peers, not_run = embedded.prepare_peers(arguments, scratch)
    stand = Stand(scratch, arguments.timeout)
    wanted = accuracy.keys([truth["order"], truth["tables"]])
    tell(f"{len(wanted)} pages by llm-ocr")
    ours = by_us(arguments.folder, wanted, scratch)
    answers: dict[str, Answers] = {OURS: ours.alone, IN_DOCUMENT: ours.in_document}
    for peer in peers:
        tell(f"{len(wanted)} pages by {peer.peer.name}")
        answers[peer.peer.name] = by_peer(stand, peer, ours, wanted)
    ocr = {OURS, IN_DOCUMENT, *(peer.peer.name for peer in peers if SCANNED in peer.peer.kinds)}
    digital = {OURS, IN_DOCUMENT, *(peer.peer.name for peer in peers if DIGITAL in peer.peer.kinds)}
    report: dict[str, Any] = {
        "command": without_folders("python benchmarks/accuracy_peers.py " + " ".join(sys.argv[1:])),
        "machine": proctree.machine(),
        "versions": embedded.versions(),
        "peers": {peer.peer.name: embedded.describe(peer) for peer in peers},
        "not_run": not_run,
        "pages": len(wanted),
        "programs": {name: score(truth, found, name in digital, name in ocr) for name, found in answers.items()},
    }
    if not arguments.no_cer:
        add_cer(report, arguments.folder, truth, peers, stand)
    return report


def score(truth: Mapping[str, Any], answers: Answers, digital: bool, ocr: bool) -> dict[str, Any]:
    """Both kinds of pages apart; None for a kind that the program does not read at all."""
    found: dict[str, Any] = {"failed": sorted(answers.failed)}
    for kind, does, scanned in ((DIGITAL, digital, False), (SCANNED, ocr, True)):
        text = [page for page in truth["order"] if page["scanned"] is scanned]
        tables = [page for page in truth["tables"] if page["scanned"] is scanned]
        found[kind] = None
        if does:
            pages: Any = answers.pages
            found[kind] = {
                **accuracy.score_text(text, pages),
                "tables": accuracy.score_tables(tables, pages),
                "with_tables": sum(accuracy.scoring.grids(answers.pages[key].markdown) != [] for key in _keys(tables)),
            }
    return found


def _keys(pages: Sequence[Mapping[str, Any]]) -> list[Key]:
    return [(page["file"], page["page"]) for page in pages]


def add_cer(
    report: dict[str, Any], folder: Path, truth: Mapping[str, Any], peers: Sequence[Installed], stand: Stand
) -> None:
    """Digital pages with a true text layer, read as images by the programs that do OCR."""
    chosen = accuracy.keys([[page for page in truth["order"] + truth["figures"] if not page["scanned"]]])
    tell(f"{len(chosen)} digital pages as images by llm-ocr")
    pictures = as_images(folder, [key for key in chosen if key[0] not in accuracy.NO_CER], stand.scratch)
    rows = {OURS: errors(pictures, pictures.ours)}
    for peer in (peer for peer in peers if SCANNED in peer.peer.kinds):
        tell(f"{len(pictures.truth)} digital pages as images by {peer.peer.name}")
        rows[peer.peer.name] = errors(pictures, of_images(stand, peer, pictures))
    for name, pages in rows.items():
        rates = [row["cer"] for row in pages]
        summary = {"pages": len(rates), "cer_median": statistics.median(rates), "cer_mean": statistics.mean(rates)}
        report["programs"][name]["as_images"] = {
            "summary": {key: round(value, 4) for key, value in summary.items()},
            "pages": pages,
        }


def table(report: Mapping[str, Any]) -> str:
    """As Markdown; "-" for what a program does not do."""
    lines = [
        "| program | present | order | absent | tables | scans: present | order | absent | tables | "
        "as images: wrong, median | mean |",
        "|---" * 11 + "|",
    ]
    for name, found in report["programs"].items():
        cells = [cell for kind in (DIGITAL, SCANNED) for cell in _cells(found[kind])]
        ocr = found.get("as_images", {}).get("summary")
        cells += [f"{100 * ocr[key]:.2f} %" for key in ("cer_median", "cer_mean")] if ocr else ["-", "-"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [f"not run: {name}: {reason}" for name, reason in report["not_run"].items()]
    return "\n".join(lines)


def _cells(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["-"] * 4
    text = found["summary"]
    tables = found["tables"]["summary"] if found["with_tables"] else None
    return [_share(text["present"]), _share(text["order"]), _share(text["absent"]), _share(tables)]


def _share(part: Mapping[str, Any] | None) -> str:
    return "-" if part is None else f"{part['passed']}/{part['of']}"


if __name__ == "__main__":
    raise SystemExit(main())
