"""Our Extract beside olmOCR's pipeline and a lockstep client: the same documents, the same simulated server.

    python benchmarks/peers/side_by_side.py ../shared/data/pdfs [--output benchmarks/results/peers.json]

See ../README.md. Needs poppler, and PyPI for the first run.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

import pypdfium2
from page_lists import Selection, copies, find_pdfs
from peer_clients import PROFILE, SERVED, chosen
from peer_runs import Task, cases, one_run, turns
from proctree import machine

from llm_ocr.models.registry import find_profile

CASES = "clean,faults,stalls,kill"
CLIENTS = "ours,ours-text,olmocr,olmocr-2,olmocr-4,lockstep"
#: The fault cases leave these out unless they are asked for: what they show is not about how pages are rendered.
CLEAN_ONLY = ("olmocr-",)
#: Above it the simulator would be what is measured.
MOST_SIMULATOR = 0.1
SHOWN = {
    "wall_s": ".1f",
    "pages_per_hour": ".0f",
    "server_overhead": ".1%",
    "steady_overhead": ".1%",
    "job_overhead": ".1%",
    "cpu_s_per_page": ".3f",
    "pss_mib": ".0f",
    "requests_per_page": ".3f",
    "answers_per_page": ".3f",
}
COUNTED = ("text", "fallback", "looped", "failed", "lost", "documents_lost")


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-peers-", dir=arguments.scratch) as scratch:
        report = run(arguments, Path(scratch).resolve())
    print(table(report))
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs")
    add("--pages", type=int, default=100, metavar="N", help="at least so many pages, in whole documents (default 100)")
    add("--kill-pages", type=int, default=250, metavar="N", help="the same of the killed runs (default 250)")
    add("--repeats", type=int, default=3, metavar="N", help="of the clean case; medians are shown (default 3)")
    add("--fault-repeats", type=int, default=1, metavar="N", help="of the other cases (default 1)")
    add("--cases", default=CASES, metavar="NAMES", help=f"default {CASES}")
    add("--clients", metavar="NAMES", help=f"default {CLIENTS}; those with a number in the clean case only")
    add("--slots", type=int, default=32, metavar="N", help="sequences that the server runs at once (default 32)")
    add("--preset", default="h100", help="GPU of the simulator, with DeepSeek-OCR's cost of a token (default h100)")
    add("--speed", type=float, default=1.0, metavar="X", help="all times of the server divided by X (default 1)")
    add("--share", type=float, default=0.1, metavar="X", help="of requests that go wrong (default 0.1)")
    add("--stall", type=float, default=15.0, metavar="S", help="time-out of a silent request, in stalls (default 15)")
    add("--limit", type=float, default=180.0, metavar="S", help="a run that lasts longer is ended: hung (default 180)")
    add("--peer-venvs", type=Path, default=Path.home() / ".cache" / "llm-ocr-peers", metavar="FOLDER")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    names = (arguments.clients or CLIENTS).split(",")
    clients = chosen(names, arguments.peer_venvs.resolve())
    task = prepared(arguments, arguments.pages, scratch / "documents")
    longer = prepared(arguments, arguments.kill_pages, scratch / "more-documents")
    report: dict[str, Any] = {
        "command": "python benchmarks/peers/side_by_side.py ../shared/data/pdfs " + " ".join(sys.argv[2:]),
        "machine": machine(),
        "pages": task.pages,
        "documents": len(task.documents),
        "killed_pages": longer.pages,
        **{name: getattr(arguments, name) for name in ("slots", "speed", "share", "stall", "limit")},
        "simulator": dict(task.simulator),
        "clients": {client.name: client.what for client in clients},
        "cases": {},
    }
    every = cases(arguments.share)
    for name in arguments.cases.split(","):
        clean = name == "clean"
        taking = [one for one in clients if clean or arguments.clients or not one.name.startswith(CLEAN_ONLY)]
        runs: dict[str, list[dict[str, Any]]] = {client.name: [] for client in taking}
        for repeat in range(arguments.repeats if clean else arguments.fault_repeats):
            for client in turns(taking, repeat):
                print(f"{name}, {repeat + 1}: {client.name}", file=sys.stderr, flush=True)
                folder = scratch / f"{name}-{repeat}-{client.name}"
                record = one_run(client, every[name], longer if every[name].kill else task, repeat, folder)
                print(json.dumps(record), file=sys.stderr, flush=True)
                runs[client.name].append(record)
        report["cases"][name] = {client: {**summary(taken), "runs": taken} for client, taken in runs.items()}
    report["sound"] = all(
        one["simulator_core_share"] <= MOST_SIMULATOR
        for found in report["cases"].values()
        for taken in found.values()
        for one in taken["runs"]
    )
    return report


def prepared(arguments: argparse.Namespace, least: int, folder: Path) -> Task:
    """Whole documents, each copy with content of its own, since olmOCR cannot choose pages; at least so many pages."""
    selections, pages = [], 0
    for path in find_pdfs(arguments.corpus):
        try:
            with pypdfium2.PdfDocument(path) as document:
                total = len(document)
        except pypdfium2.PdfiumError:
            continue  # encrypted or damaged: nothing of it would reach the server
        selections.append(Selection(path, tuple(range(1, total + 1)), total, (0.0,) * total))
    order: list[Selection] = []
    while pages < least:
        order.append(selections[len(order) % len(selections)])
        pages += order[-1].total
    made = copies(order, pages, folder)
    listed, prompt = folder / "documents.txt", folder / "prompt.txt"
    listed.write_text("".join(f"{one.path}\n" for one in made))
    profile = find_profile(PROFILE)
    prompt.write_text(profile.prompts[profile.mode])
    simulator = {
        "model": SERVED,
        "preset": arguments.preset,
        "max_num_seqs": arguments.slots,
        "max_model_len": profile.context,
        "speed": arguments.speed,
        "patch": 28,
        "in_order": True,
    }
    documents = {str(one.path): one.total for one in made}
    return Task(listed, prompt, documents, simulator, arguments.slots, arguments.stall, arguments.limit)


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians and quartiles of the numbers that all runs have."""
    found: dict[str, Any] = {"median": {}, "quartiles": {}}
    for name in (*SHOWN, *COUNTED):
        values = [run[name] for run in runs if name in run]
        if len(values) == len(runs):
            found["median"][name] = statistics.median(values)
            if len(values) > 1:
                first, _, third = statistics.quantiles(values, n=4, method="inclusive")
                found["quartiles"][name] = [first, third]
    return found


def table(report: Mapping[str, Any]) -> str:
    """Markdown."""
    lines = []
    for case, clients in report["cases"].items():
        pages = report["killed_pages" if case == "kill" else "pages"]
        lines += ["", f"**{case}**, {pages} pages, {report['slots']} slots"]
        lines += ["", "| client | " + " | ".join((*SHOWN, *COUNTED, "exit")) + " |"]
        lines.append("|---" * (len(SHOWN) + len(COUNTED) + 2) + "|")
        for client, taken in clients.items():
            median = taken["median"]
            cells = [format(median[name], form) if name in median else "-" for name, form in SHOWN.items()]
            cells += [f"{median[name]:g}" for name in COUNTED]
            ends = sorted({"hung" if one["hung"] else str(one["exit"]) for one in taken["runs"]})
            lines.append(f"| {client} | " + " | ".join((*cells, ", ".join(ends))) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
