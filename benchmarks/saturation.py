"""How close the server comes to its best with our client, beside a lockstep client and an ideal one.

    python benchmarks/saturation.py ../shared/data/pdfs [--output benchmarks/results/saturation.json]

PDFs in, rows out, against the simulated server (an A100 that runs DeepSeek-OCR), a process of its own. See README.md.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import proctree
from reporting import keep, tell
from served import Served, check_rows, corpus, extract_command, serve

import llm_ocr

#: Our clients and their flags. `hybrid` reads each page with the CPU engine first, and sends all of them.
OURS = {
    "png": ("--image-format", "png"),
    "jpeg": ("--image-format", "jpeg"),
    "hybrid": ("--image-format", "png", "--engine", "hybrid", "--model-threshold", "0"),
}
CONTROLS = ("ideal", "lockstep")
SHOWN = ("server_overhead", "steady_overhead", "job_overhead", "cpu_s_per_page", "pss_mib")


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-saturation-", dir=arguments.scratch) as scratch:
        report = run(arguments, Path(scratch).resolve())
    print(table(report))
    keep(report, arguments.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs")
    add("--pages", type=int, default=500, metavar="N", help="pages, documents repeated (default 500)")
    add("--grow", type=int, metavar="N", help="also our client with PNG over so many pages, for memory")
    add("--slots", default="32,128", metavar="N,N", help="sequences that the server runs at once (default 32,128)")
    add(
        "--clients",
        default=",".join(("png", "jpeg", *CONTROLS)),
        metavar="NAMES",
        help="ours: png, jpeg, hybrid; ideal; lockstep",
    )
    add("--preset", default="a100", help="GPU of the simulator (default a100)")
    add("--stream-interval", type=int, default=50, metavar="N", help="tokens in a piece of an answer (default 50)")
    add("--speed", type=float, default=1.0, metavar="X", help="all times of the server divided by X (default 1)")
    add("--repeats", type=int, default=3, metavar="N", help="the clients take turns; medians are shown (default 3)")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    clients = arguments.clients.split(",")
    report: dict[str, Any] = {
        "command": "python benchmarks/saturation.py ../shared/data/pdfs " + " ".join(sys.argv[2:]),
        "machine": proctree.machine(),
        "pages": arguments.pages,
        "preset": arguments.preset,
        "stream_interval": arguments.stream_interval,
        "speed": arguments.speed,
        "slots": {},
    }
    manifest = corpus(arguments.corpus, arguments.pages, scratch / "documents")
    images = page_images(manifest, scratch, arguments) if set(clients) & set(CONTROLS) else scratch
    for slots in map(int, arguments.slots.split(",")):
        samples: dict[str, list[dict[str, Any]]] = {client: [] for client in clients}
        for repeat in range(arguments.repeats):
            for client in clients[repeat % len(clients) :] + clients[: repeat % len(clients)]:
                tell(f"{slots} slots, {repeat + 1} of {arguments.repeats}: {client}")
                samples[client].append(one_run(client, manifest, images, slots, arguments.pages, arguments, scratch))
        report["slots"][slots] = {client: {"median": median(taken), "runs": taken} for client, taken in samples.items()}
    if arguments.grow:
        more = corpus(arguments.corpus, arguments.grow, scratch / "more")
        slots = int(arguments.slots.split(",")[-1])
        report["grown"] = {
            "pages": arguments.grow,
            "slots": slots,
            **one_run("png", more, images, slots, arguments.grow, arguments, scratch),
        }
    return report


def simulator(slots: int, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "preset": arguments.preset,
        "max_num_seqs": slots,
        "stream_interval": arguments.stream_interval,
        "speed": arguments.speed,
        "seed": 0,
    }


def one_run(
    client: str, manifest: Path, images: Path, slots: int, pages: int, arguments: argparse.Namespace, scratch: Path
) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    command: Callable[[str], Sequence[str]]
    if client in OURS:
        options = list(OURS[client])
        command = lambda url: extract_command(manifest, folder / "workspace", url, options)  # noqa: E731
    else:
        program = str(Path(__file__).with_name("control_clients.py"))
        command = lambda url: [sys.executable, program, client, str(images), "--url", url, "--slots", str(slots)]  # noqa: E731
    served = serve(command, folder, simulator(slots, arguments))
    rows = check_rows(folder / "workspace", pages) if client in OURS else {}
    proof(served, pages)
    shutil.rmtree(folder)
    return {**served.as_json(pages), "rows": rows}


def proof(served: Served, pages: int) -> None:
    """A client that asks less, or more, than once a page is not comparable."""
    if served.requests != pages:
        raise SystemExit(f"{served.requests} requests for {pages} pages")


def page_images(manifest: Path, scratch: Path, arguments: argparse.Namespace) -> Path:
    """The images that our client sends, as files in its order, for the clients that render nothing."""
    tell("making page images")
    folder, workspace = scratch / "images", scratch / "for-images"
    folder.mkdir()
    fast = {"preset": "h100", "max_num_seqs": 256, "speed": 20.0, "seed": 0}
    serve(lambda url: extract_command(manifest, workspace, url, ["--image-format", "png"]), scratch / "log", fast)
    for number, page in enumerate(llm_ocr.open(str(workspace)).pages()):
        if page.image is not None:
            (folder / f"{number:06d}.png").write_bytes(page.image.data)
    shutil.rmtree(workspace)
    return folder


def median(samples: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {name: statistics.median(sample[name] for sample in samples) for name in SHOWN}


def table(report: dict[str, Any]) -> str:
    lines = ["slots  client    server   steady      job  CPU s/page  PSS MiB"]
    for slots, clients in report["slots"].items():
        for client, taken in clients.items():
            m = taken["median"]
            lines.append(
                f"{slots:>5}  {client:<8} {m['server_overhead']:>7.1%}  {m['steady_overhead']:>7.1%}  "
                f"{m['job_overhead']:>7.1%}  {m['cpu_s_per_page']:>10.4f}  {m['pss_mib']:>7.0f}"
            )
    if grown := report.get("grown"):
        lines.append(
            f"{grown['pages']} pages at {grown['slots']} slots: job {grown['job_overhead']:.1%}, "
            f"{grown['cpu_s_per_page']:.4f} CPU s/page, {grown['pss_mib']} MiB"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
