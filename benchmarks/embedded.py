"""How fast the embedded engine is, what it costs, and how other programs do on the same pages in the same run.

    python benchmarks/embedded.py ../shared/data/pdfs [--output benchmarks/results/embedded.json] [--grow]

Digital and scanned pages apart; Extract as a user starts it, from the command line to the published Parquet, the image
of every page included. The programs take turns; medians of the repeats are shown. Nothing is asserted. See README.md.
"""

import argparse
import importlib.metadata
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import page_lists
import proctree
from page_lists import PageList
from peers_embedded import DIGITAL, PEERS, SCANNED, Installed, NotRun, install
from reporting import keep, tell
from timed_tools import LlmOcr, PeerTool, Sample, Stand, Tool

# Samples to medians, and medians to a table.


HOW = {
    "wall_s": "from the start of the process to its end: start-up, reading, rendering, writing",
    "cpu_s": "user and system time of the whole process tree",
    "rss_mib": "highest sum of resident sizes over the tree, every 50 ms; shared pages count in each process",
    "pss_mib": "highest sum of proportional sizes over the tree, every 0.25 s or more; shared pages count once",
    "startup_s": "the same command on the one page that costs least, that page included",
    "steady": "the list without that one page, over the difference of the two wall (or CPU) times; "
    "only where that difference is more than twice the start",
    "elsewhere_cores": "cores that the rest of the machine used meanwhile: a quiet machine has almost 0",
    "spread": "of the repeats: first quartile, median, third quartile",
}
QUIET = 0.15  # cores used elsewhere above which the table warns


def summary(samples: Sequence[Mapping[str, Sample]], pages: int) -> dict[str, Any]:
    """One tool on one list."""
    whole, one = [sample["whole"] for sample in samples], [sample["one"] for sample in samples]
    result = _error([*one, *whole]) or whole_runs(whole, pages)
    if "error" in result:
        return result
    startup = _spread(one, lambda sample: sample.usage.wall)
    more_wall = result["wall_s"][1] - startup[1]
    more_cpu = result["cpu_s"][1] - _spread(one, lambda sample: sample.usage.cpu)[1]
    # One page keeps one worker busy: of a list that takes little longer than its start the difference says nothing.
    enough = pages > 1 and more_wall > 2 * startup[1]
    return {
        **result,
        "startup_s": startup,
        "steady_pages_per_s": _rounded((pages - 1) / more_wall) if enough else None,
        "steady_cpu_s_per_page": _rounded(more_cpu / (pages - 1)) if enough else None,
    }


def whole_runs(samples: Sequence[Sample], pages: int) -> dict[str, Any]:
    """Figures of the same list done several times; `error` instead where one did not end well."""
    if error := _error(samples):
        return error
    wall = _spread(samples, lambda sample: sample.usage.wall)
    cpu = _spread(samples, lambda sample: sample.usage.cpu)
    return {
        "pages_per_s": _rounded(pages / wall[1]),
        "cpu_s_per_page": _rounded(cpu[1] / pages),
        "wall_s": wall,
        "cpu_s": cpu,
        "rss_mib": _spread(samples, lambda sample: sample.usage.rss / 2**20),
        "pss_mib": _spread(samples, lambda sample: sample.usage.pss / 2**20),
        "processes": max(sample.usage.processes for sample in samples),
        "elsewhere_cores": _spread(samples, lambda sample: sample.usage.elsewhere),
        "characters_per_page": round(samples[-1].characters / pages),
        "failed": [without_folders(failure) for failure in samples[-1].failed],
    }


def _error(samples: Sequence[Sample]) -> dict[str, Any]:
    for sample in samples:
        if sample.usage.code != 0:
            why = "took too long" if sample.usage.timed_out else f"ended with {sample.usage.code}"
            return {"error": without_folders(f"{why}: {' '.join(sample.usage.tail.splitlines()[-1:])}")}
    return {}


def without_folders(text: str) -> str:
    """Absolute paths cut down to their last part: results are read on other machines."""
    return re.sub(r"(?<![\w.~/])/(?:[^\s/'\"]+/)+", "", text)


def _spread(samples: Sequence[Sample], value: Callable[[Sample], float]) -> list[float]:
    values = [value(sample) for sample in samples]
    quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return [_rounded(quarter) for quarter in quarters]


def _rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


#: Heading, width, key; of spreads the median is shown.
_COLUMNS = (
    ("pages/s", 8, "pages_per_s"),
    ("steady", 8, "steady_pages_per_s"),
    ("start s", 8, "startup_s"),
    ("CPU s/page", 11, "cpu_s_per_page"),
    ("steady", 8, "steady_cpu_s_per_page"),
    ("RSS MiB", 8, "rss_mib"),
    ("PSS MiB", 8, "pss_mib"),
    ("chars/page", 11, "characters_per_page"),
)


def text(report: Mapping[str, Any]) -> str:
    """The whole report for a terminal."""
    machine = report["machine"]
    lines = [
        f"{machine['cores']} cores, {machine['cpu']}, {machine['memory_gib']} GiB; "
        f"medians of {report['repeats']}; whole process trees"
    ]
    for kind, part in report["lists"].items():
        lines += ["", f"{kind}: {part['pages']} pages of {len(part['documents'])} documents"]
        lines += _table(part["tools"])
    if report.get("growth"):
        lines += ["", "growth: digital pages through llm-ocr extract"]
        lines += _table({f"{row['pages']} pages": row for row in report["growth"]})
    lines += [f"not run: {name}: {reason}" for name, reason in report["not_run"].items()]
    if report["left_out"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report["left_out"].items())
        lines.append(f"pages left out: {reasons}")
    return "\n".join(lines)


def _table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    columns = [column for column in _COLUMNS if any(column[2] in row for row in rows.values())]
    lines = [f"{'':20}" + "".join(heading.rjust(width) for heading, width, _ in columns)]
    for name, row in rows.items():
        if "error" in row:
            lines.append(f"{name:20}{row['error']}")
            continue
        cells = "".join(_cell(row.get(key)).rjust(width) for _, width, key in columns)
        lines.append(f"{name:20}{cells}{_remarks(row)}")
    return lines


def _remarks(row: Mapping[str, Any]) -> str:
    found = [f"{len(row['failed'])} failed"] if row["failed"] else []
    if row["elsewhere_cores"][1] > QUIET:
        found.append(f"machine busy: {row['elsewhere_cores'][1]:.2f} cores elsewhere")
    return "  " + "; ".join(found) if found else ""


def _cell(value: Any) -> str:
    if isinstance(value, list):
        value = value[1]
    if value is None:
        return "-"
    if isinstance(value, int) or value >= 100:
        return str(round(value))
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


# Cost per page and memory of few and of many pages: what stays flat can go on for ever.


def measure_growth(
    stand: Stand, digital: Sequence[page_lists.Selection], sizes: Sequence[int], repeats: int
) -> list[dict[str, Any]]:
    """One row a size. Documents are repeated under new names until there are enough pages; the sizes take turns."""
    folder = stand.scratch / "growth"
    manifests = {}
    for size in sizes:
        manifests[size] = folder / f"{size}.jsonl"
        made = page_lists.copies(digital, size, folder / str(size))
        page_lists.write_manifest(made, manifests[size])
    samples: dict[int, list[Sample]] = {size: [] for size in sizes}
    for repeat in range(repeats):
        for size in sizes:
            print(f"growth, {size} pages, {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
            samples[size].append(LlmOcr(stand).run_manifest(manifests[size]))
    shutil.rmtree(folder)
    return [{"pages": size, **whole_runs(samples[size], size)} for size in sizes]


# The command.


LIBRARIES = ("llm-ocr", "pypdfium2", "pillow", "numpy", "pyarrow", "rapidocr", "onnxruntime", "opencv-python-headless")


def main() -> int:
    arguments = parse()
    corpus = page_lists.find_pdfs(arguments.corpus)
    if not corpus:
        print("no PDF in: " + ", ".join(map(str, arguments.corpus)), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="llm-ocr-benchmark-", dir=arguments.scratch) as scratch:
        report = run(arguments, corpus, Path(scratch).resolve())
    print(text(report))
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
        "command": without_folders("python benchmarks/embedded.py " + " ".join(sys.argv[1:])),
        "machine": machine,
        "versions": versions(),
        "measured": HOW,
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
        "tools": {name: summary(taken, whole.pages) for name, taken in samples.items()},
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
