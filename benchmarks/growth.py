"""What grows with the number of pages, and what must not: the three stages at 1,000 to 100,000 pages.

    python benchmarks/growth.py [--pages 1000,10000,100000] [--documents 1000000] [--output FILE]

The real commands and stores, over small made-up PDFs and the simulated server. Requests are counted at an S3 server
for the smaller sizes. Then very many documents are listed and planned. See README.md.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import proctree
from growth_plans import BUCKET, CREDENTIALS, counting, measured
from proctree import Usage, measure
from reporting import keep, tell

import llm_ocr
from llm_ocr_simulator import running
from llm_ocr_simulator.process import Running

# The stages over made-up documents: what a page costs, and what starting, stopping and going on cost.


PAGES_EACH = 16  # of a document: four are a unit
#: Model that describes, as its server names it.
DESCRIBER = "Qwen/Qwen3-VL-8B-Instruct"
#: Small images, so that a page costs what the pipeline costs, and not what pixels cost.
SMALL = ("--image-size", "128")
#: Seconds after which a command is taken for stuck.
_LONGEST = 1800.0
_MIB = 1 << 20


@dataclass(slots=True)
class Place:
    """Where a run takes place. `options` for every command; `count` gives the store's requests since it was asked."""

    workspace: str
    folder: Path  # of logs; for local workspaces that of the workspace, too
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    count: Callable[[], dict[str, int]] = dict

    @property
    def local(self) -> Path | None:
        return None if "://" in self.workspace else Path(self.workspace)


def make_documents(folder: Path, pages: int) -> int:
    """PDFs with a line of text on each page, 500 in a folder; how many pages they have together."""
    for number in range(pages // PAGES_EACH):
        below = folder / f"{number // 500:04d}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number:06d}.pdf").write_bytes(_pdf(f"document {number}"))
    return pages // PAGES_EACH * PAGES_EACH


def _pdf(title: str) -> bytes:
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    pages = []
    for page in range(1, PAGES_EACH + 1):
        text = f"BT /F1 14 Tf 12 120 Td ({title}, page {page}) Tj ET".encode()
        pages.append(f"{len(objects) + 1} 0 R")
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 180 240]/Resources<</Font<</F1 3 0 R>>>>"
            f"/Contents {len(objects) + 2} 0 R>>".encode()
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(text), text))
    objects[1] = f"<</Type/Pages/Count {PAGES_EACH}/Kids[{' '.join(pages)}]>>".encode()
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(data))
    return data + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + end


def run(place: Place, command: Sequence[str], started: Callable[[int], None] | None = None) -> Usage:
    """One command to its end, with what its process tree costs."""
    place.folder.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "llm_ocr", *command, "-w", place.workspace, *place.options, "--quiet"]
    return measure(
        program,
        folder=place.folder,
        environment={**os.environ, **place.environment},
        timeout=_LONGEST,
        log=place.folder / "log",
        started=started,
    )


def checked(usage: Usage, code: int = 0) -> Usage:
    """Raises SystemExit unless the command ended as it must."""
    if usage.code != code:
        raise SystemExit(f"a command ended with {usage.code} instead of {code}: {usage.tail}")
    return usage


def stage(place: Place, command: Sequence[str], pages: int) -> dict[str, Any]:
    """A stage from its beginning to its end, then the same command with nothing left to do."""
    place.count()
    usage = checked(run(place, command))
    about = costs(place, command[0], usage, pages)
    again = checked(run(place, command))
    return {**about, "nothing_left": {"s": round(again.wall, 2), "requests": place.count()}}


def costs(place: Place, name: str, usage: Usage, pages: int) -> dict[str, Any]:
    """What the command cost, in all and for a page."""
    requests = place.count()
    steady, first = _published(place, name, usage)
    return {
        "s": round(usage.wall, 2),
        "ms_per_page": round(1000 * usage.wall / pages, 3),
        "steady_ms_per_page": round(1000 * steady, 3) if steady else None,
        "cpu_ms_per_page": round(1000 * usage.cpu / pages, 3),
        "first_unit_s": first,
        "memory": memory(usage),
        "elsewhere_cores": round(usage.elsewhere, 2),
        **({"requests": requests, "requests_per_page": round(sum(requests.values()) / pages, 4)} if requests else {}),
    }


def memory(usage: Usage) -> dict[str, Any]:
    """Peak, and the medians of the fifths of the run: they must not climb."""
    series = [size / _MIB for _, size in usage.series]
    fifths = [series[len(series) * part // 5 : len(series) * (part + 1) // 5] for part in range(5)]
    return {
        "peak_pss_mib": round(usage.pss / _MIB),
        "fifths_mib": [round(statistics.median(part)) for part in fifths if part],
    }


def _published(place: Place, stage_name: str, usage: Usage) -> tuple[float | None, float | None]:
    """Seconds a page between the command's first and last unit, and from its start to the first."""
    if place.local is None:
        return None, None
    began = time.time() - (time.monotonic() - usage.began)
    times = sorted(path.stat().st_mtime for path in (place.local / stage_name).glob("*/*/*.done"))
    times = [one for one in times if began <= one <= began + usage.wall]
    if len(times) < 2:
        return None, round(times[0] - began, 2) if times else None
    return (times[-1] - times[0]) / (len(times) - 1) / (4 * PAGES_EACH), round(times[0] - began, 2)


def stopped_in_the_middle(place: Place, command: Sequence[str], pages: int, server: Running) -> dict[str, Any]:
    """Extract, ended by SIGTERM when half of the pages are asked for, then the same command again.

    Both halves are measured; the server's log tells when the second one asks for its first page.
    """
    server.reset()
    place.count()
    told: list[float] = []

    def stop_later(process: int) -> None:
        threading.Thread(target=_stop_at, args=(process, place, pages // 2, server, told), daemon=True).start()

    first = checked(run(place, command, stop_later), 4)
    half = _done(place)
    result = {
        "first_half": costs(place, "extract", first, max(half, 1)),
        "pages_of_first_half": half,
        "sigterm_to_exit_s": round(first.began + first.wall - told[0], 2),
    }
    server.reset()
    asked: list[float] = []

    def watch(process: int) -> None:
        threading.Thread(target=_first_request, args=(process, server, asked), daemon=True).start()

    second = checked(run(place, command, watch))
    left = max(pages - half, 1)
    return {
        **result,
        "second_half": costs(place, "extract", second, left),
        "resume_to_first_request_s": round(asked[0] - second.began, 2) if asked else None,
        "answers_in_vain": _answered(server) - pages,
    }


def _done(place: Place) -> int:
    """Pages of published units."""
    return llm_ocr.open(place.workspace, endpoint=_endpoint(place)).status.pages.ok


def _endpoint(place: Place) -> str | None:
    return dict(zip(place.options[::2], place.options[1::2], strict=False)).get("--workspace-endpoint")


def _stop_at(process: int, place: Place, pages: int, server: Running, told: list[float]) -> None:
    while _alive(process):
        if _answered(server) >= pages:
            told.append(time.monotonic())
            os.kill(process, signal.SIGTERM)
            return
        time.sleep(0.1)


def _answered(server: Running) -> int:
    """Answers that the server has given since its start, by its own gauges: its log would be long."""
    import urllib.request

    with urllib.request.urlopen(f"{server.root}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:request_success_total")))


def _first_request(process: int, server: Running, asked: list[float]) -> None:
    while _alive(process):
        log = server.log()
        if log["requests"]:
            asked.append(time.monotonic() - log["uptime"] + log["requests"][0]["arrival"])
            return
        time.sleep(0.05)


def _alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def files(workspace: Path, pages: int) -> dict[str, Any]:
    """Files and bytes by what they belong to, and for a page."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for folder, _, names in os.walk(workspace):
        top = Path(folder).relative_to(workspace).parts[:1]
        for name in names:
            counts[top[0] if top else "."] += 1
            sizes[top[0] if top else "."] += Path(folder, name).stat().st_size
    return {
        "files": dict(sorted(counts.items())),
        "files_per_page": round(counts.total() / pages, 4),
        "bytes_per_page": round(sizes.total() / pages),
    }


def conserved(place: Place, pages: int) -> None:
    """Raises SystemExit unless every page was read and assembled once."""
    status = llm_ocr.open(place.workspace, endpoint=_endpoint(place)).status
    if (status.pages.expected, status.pages.ok) != (pages, pages):
        raise SystemExit(f"of {pages} pages {status.pages.expected} are expected and {status.pages.ok} are ok")


# The command.


#: A server that is never what is waited for; answers of some hundred characters, some with a figure.
SERVER = {
    "preset": "h100",
    "speed": 1000.0,
    "preprocess_seconds": 0.0,
    "max_num_seqs": 256,
    "mean_tokens": 130.0,
    "sigma": 0.6,
    "seed": 0,
    "lifetime": 7200.0,
}


def main() -> int:
    arguments = parse()
    began = time.monotonic()
    report: dict[str, Any] = {
        "command": "python benchmarks/growth.py " + " ".join(sys.argv[1:]),
        "machine": proctree.machine(),
        "sizes": [],
        "requests": [],
    }
    with tempfile.TemporaryDirectory(prefix="llm-ocr-growth-", dir=arguments.scratch) as scratch:
        for pages in numbers(arguments.pages):
            report["sizes"].append(local(pages, Path(scratch) / f"local-{pages}"))
            shutil.rmtree(Path(scratch) / f"local-{pages}")
        for pages in numbers(arguments.requests):
            report["requests"].append(remote(pages, Path(scratch) / f"s3-{pages}"))
        if arguments.documents:
            report["documents"] = measured(arguments.documents, Path(scratch))
    report["took_s"] = round(time.monotonic() - began)
    print(table(report))
    keep(report, arguments.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pages", default="1000,10000,100000", metavar="N,N", help="pages of the runs in a folder; empty: none")
    add("--requests", default="1000,10000", metavar="N,N", help="pages of the runs at an S3 server; empty: none")
    add("--documents", type=int, default=1_000_000, metavar="N", help="documents to list and plan; 0: none")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one]


def local(pages: int, scratch: Path) -> dict[str, Any]:
    """All stages in a folder; Extract is stopped in its middle and goes on."""
    place = Place(str(scratch / "workspace"), scratch)
    pages = make_documents(scratch / "documents", pages)
    with running(**SERVER) as server, running(**SERVER, model=DESCRIBER) as describer:
        extract = ["extract", str(scratch / "documents"), "--server-url", server.url, *SMALL]
        describe = ["describe", "--server-url", describer.url, "--describe-model", "qwen3-vl-8b"]
        tell(f"{pages} pages: extract")
        found: dict[str, Any] = {"pages": pages, "extract": stopped_in_the_middle(place, extract, pages, server)}
        found["extract"]["nothing_left"] = {"s": round(checked(run(place, extract)).wall, 2)}
        tell(f"{pages} pages: describe")
        found["describe"] = stage(place, describe, pages)
        tell(f"{pages} pages: assemble")
        found["assemble"] = stage(place, ["assemble"], pages)
    status = checked(run(place, ["status"]))
    found["status"] = {"s": round(status.wall, 2), "cpu_s": round(status.cpu, 2), "pss_mib": status.pss >> 20}
    conserved(place, pages)
    return {**found, **files(scratch / "workspace", pages)}


def remote(pages: int, scratch: Path) -> dict[str, Any]:
    """All stages at an S3 server that counts; nothing of its time means anything."""
    pages = make_documents(scratch / "documents", pages)
    with counting() as (url, counted), running(**SERVER) as server, running(**SERVER, model=DESCRIBER) as describer:
        options = ("--workspace-endpoint", url)
        place = Place(f"s3://{BUCKET}/run", scratch, options, CREDENTIALS, counted.taken)
        found: dict[str, Any] = {"pages": pages}
        for command in (
            ["extract", str(scratch / "documents"), "--server-url", server.url, *SMALL],
            ["describe", "--server-url", describer.url, "--describe-model", "qwen3-vl-8b"],
            ["assemble"],
        ):
            tell(f"{pages} pages at S3: {command[0]}")
            about = stage(place, command, pages)
            found[command[0]] = {name: about[name] for name in ("s", "requests", "requests_per_page", "nothing_left")}
    return found


def table(report: dict[str, Any]) -> str:
    lines = ["pages    stage          ms/page  steady  CPU ms  peak MiB  fifths of the run, MiB"]
    for size in report["sizes"]:
        rows = [("extract, 1st", size["extract"]["first_half"]), ("extract, 2nd", size["extract"]["second_half"])]
        for name, row in (*rows, ("describe", size["describe"]), ("assemble", size["assemble"])):
            lines.append(
                f"{size['pages']:>7}  {name:<13} {row['ms_per_page']:>8.2f} {row['steady_ms_per_page'] or 0:>7.2f} "
                f"{row['cpu_ms_per_page']:>7.2f}  {row['memory']['peak_pss_mib']:>8}  {row['memory']['fifths_mib']}"
            )
        extract = size["extract"]
        lines.append(
            f"         first unit {extract['first_half']['first_unit_s']} s; SIGTERM to exit "
            f"{extract['sigterm_to_exit_s']} s; going on to first request {extract['resume_to_first_request_s']} s; "
            f"nothing left {extract['nothing_left']['s']} / {size['describe']['nothing_left']['s']} / "
            f"{size['assemble']['nothing_left']['s']} s; status {size['status']['s']} s; "
            f"{size['files_per_page']} files and {size['bytes_per_page']} bytes a page"
        )
    for run_ in report["requests"]:
        for name in ("extract", "describe", "assemble"):
            lines.append(f"{run_['pages']:>7}  {name}: {run_[name]['requests_per_page']} requests a page")
    if wrong := report.get("documents", {}).get("wrong"):
        lines.append(f"more memory than allowed: {', '.join(wrong)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
