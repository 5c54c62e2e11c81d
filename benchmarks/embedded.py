"""How fast the embedded engine is, what it costs, and how other programs do on the same pages in the same run.

    python benchmarks/embedded.py ../shared/data/pdfs [--output benchmarks/results/embedded.json] [--grow]

Digital and scanned pages apart; Extract as a user starts it, from the command line to the published Parquet, the image
of every page included. The programs take turns; medians of the repeats are shown. Nothing is asserted. See README.md.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import embedded_report
import page_lists
import proctree
from growth import measure_growth
from page_lists import PageList
from peers_embedded import DIGITAL, PEERS, SCANNED, Installed, NotRun, install
from reporting import keep, tell
from timed_tools import LlmOcr, PeerTool, Stand, Tool

LIBRARIES = ("llm-ocr", "pypdfium2", "pillow", "numpy", "pyarrow", "rapidocr", "onnxruntime", "opencv-python-headless")


def main() -> int:
    arguments = parse()
    corpus = page_lists.find_pdfs(arguments.corpus)
    if not corpus:
        print("no PDF in: " + ", ".join(map(str, arguments.corpus)), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="llm-ocr-benchmark-", dir=arguments.scratch) as scratch:
        report = run(arguments, corpus, Path(scratch).resolve())
    print(embedded_report.text(report))
    keep(report, arguments.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs")
    add("--pages-max", type=int, metavar="N", help="at most N digital and N scanned pages, taken from all documents")
    add("--repeats", type=int, default=3, metavar="N", help="how often each program does each list (default 3)")
    add("--peers", default=",".join(PEERS), metavar="NAMES", help="other programs, by commas; none: llm-ocr alone")
    add("--kinds", default=f"{DIGITAL},{SCANNED}", metavar="NAMES", help="which lists (default both)")
    add("--peer-venvs", type=Path, metavar="FOLDER", help="where they are installed (default: a temporary folder)")
    add("--sorted-in", type=Path, metavar="FOLDER", help="keep the workspace that sorts the pages, use it next time")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--grow", action="store_true", help="also cost per page and memory of few and many digital pages")
    add("--grow-pages", default="100,1000", metavar="N,N", help="how many pages those are (default 100,1000)")
    add("--timeout", type=float, default=3600.0, metavar="SECONDS", help="a run is killed after that")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, corpus: Sequence[Path], scratch: Path) -> dict[str, Any]:
    machine = proctree.machine()
    stand = Stand(scratch, arguments.timeout)
    peers, not_run = prepare_peers(arguments, scratch)
    workspace = (arguments.sorted_in or scratch / "sorted").resolve()
    lists, left_out = sort_pages(stand, corpus, workspace, arguments)
    tools: list[Tool] = [LlmOcr(stand), *(PeerTool(stand, peer) for peer in peers)]
    report: dict[str, Any] = {
        "command": embedded_report.without_folders("python benchmarks/embedded.py " + " ".join(sys.argv[1:])),
        "machine": machine,
        "versions": versions(),
        "measured": embedded_report.HOW,
        "peers": {peer.peer.name: describe(peer) for peer in peers},
        "not_run": not_run,
        "left_out": left_out,
        "repeats": arguments.repeats,
        "lists": {},
    }
    for kind, selections in lists.items():
        whole = page_lists.make_list(kind, selections, scratch / kind, workspace)
        one = page_lists.make_list(kind, page_lists.cheapest_page(selections), scratch / f"{kind}-one", workspace)
        report["lists"][kind] = time_list(whole, one, [tool for tool in tools if kind in tool.kinds], arguments.repeats)
    if arguments.grow and DIGITAL in lists:
        sizes = [int(size) for size in arguments.grow_pages.split(",")]
        report["growth"] = measure_growth(stand, lists[DIGITAL], sizes, arguments.repeats)
    return report


def prepare_peers(arguments: argparse.Namespace, scratch: Path) -> tuple[list[Installed], dict[str, str]]:
    """Those that run here, and of the others why they do not."""
    folder = (arguments.peer_venvs or scratch / "peers").resolve()
    ready, not_run = [], {}
    for name in filter(None, arguments.peers.split(",")):
        if name == "none":
            continue
        if name not in PEERS:
            raise SystemExit(f"--peers: {name} is none of {', '.join(PEERS)}")
        tell(f"preparing {name}")
        try:
            ready.append(install(PEERS[name], folder))
        except NotRun as reason:
            not_run[name] = str(reason)
    return ready, not_run


def sort_pages(
    stand: Stand, corpus: Sequence[Path], workspace: Path, arguments: argparse.Namespace
) -> tuple[dict[str, list[page_lists.Selection]], dict[str, int]]:
    """One untimed run over everything says which pages llm-ocr reads by OCR."""
    tell(f"sorting the pages of {len(corpus)} documents")
    manifest = stand.scratch / "corpus.jsonl"
    manifest.write_text("".join(json.dumps({"id": p.stem, "pdf_path": str(p)}) + "\n" for p in corpus))
    LlmOcr(stand).extract(manifest, workspace)
    lists, left_out = page_lists.sort_pages(workspace)
    kinds = arguments.kinds.split(",")
    chosen = {
        kind: page_lists.limited(found, arguments.pages_max) for kind, found in lists.items() if found and kind in kinds
    }
    return chosen, left_out


def time_list(whole: PageList, one: PageList, tools: Sequence[Tool], repeats: int) -> dict[str, Any]:
    """Every tool does the list and a list of one page, in turns; which of them begins changes with every repeat."""
    samples: dict[str, list[dict[str, Any]]] = {tool.name: [] for tool in tools}
    for repeat in range(repeats):
        start = repeat % len(tools)
        for tool in [*tools[start:], *tools[:start]]:
            tell(f"{whole.kind}, {whole.pages} pages, {repeat + 1} of {repeats}: {tool.name}")
            samples[tool.name].append({"one": tool.run(one), "whole": tool.run(whole)})
    return {
        "pages": whole.pages,
        "documents": {selection.path.name: len(selection.pages) for selection in whole.selections},
        "one_page_of": one.selections[0].path.name,
        "tools": {name: embedded_report.summary(taken, whole.pages) for name, taken in samples.items()},
    }


def describe(installed: Installed) -> dict[str, Any]:
    peer = installed.peer
    return {"does": peer.does, "licence": peer.licence, "versions": dict(installed.versions)}


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "commit": commit()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit() -> str:
    """The revision that is measured; a + says that files differ from it."""
    here = Path(__file__).parent
    name = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True)
    return name.stdout.strip() + ("+" if changed.stdout.strip() else "") or "unknown"


if __name__ == "__main__":
    raise SystemExit(main())
