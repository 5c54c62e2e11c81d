"""How right other programs are on the pages and by the labels of `accuracy.py`, beside the embedded engine.

    python benchmarks/accuracy_peers.py ../shared/data/pdfs [--output benchmarks/results/accuracy_peers.json]

Every program gets the same files, one PDF a labelled page. Phrases, their order and running text on digital pages and
on scans, relations of cells, and characters wrong where digital pages are read as images. Nothing is asserted.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import accuracy
import embedded
import embedded_report
import peer_answers
import proctree
from accuracy import Key
from peer_answers import Answers
from peers_embedded import DIGITAL, PEERS, SCANNED, Installed
from reporting import keep, tell
from timed_tools import Stand

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
    ours = peer_answers.by_us(arguments.folder, wanted, scratch)
    answers: dict[str, Answers] = {OURS: ours.alone, IN_DOCUMENT: ours.in_document}
    for peer in peers:
        tell(f"{len(wanted)} pages by {peer.peer.name}")
        answers[peer.peer.name] = peer_answers.by_peer(stand, peer, ours, wanted)
    ocr = {OURS, IN_DOCUMENT, *(peer.peer.name for peer in peers if SCANNED in peer.peer.kinds)}
    digital = {OURS, IN_DOCUMENT, *(peer.peer.name for peer in peers if DIGITAL in peer.peer.kinds)}
    report: dict[str, Any] = {
        "command": embedded_report.without_folders("python benchmarks/accuracy_peers.py " + " ".join(sys.argv[1:])),
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
    pictures = peer_answers.as_images(folder, [key for key in chosen if key[0] not in accuracy.NO_CER], stand.scratch)
    rows = {OURS: peer_answers.errors(pictures, pictures.ours)}
    for peer in (peer for peer in peers if SCANNED in peer.peer.kinds):
        tell(f"{len(pictures.truth)} digital pages as images by {peer.peer.name}")
        rows[peer.peer.name] = peer_answers.errors(pictures, peer_answers.of_images(stand, peer, pictures))
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
