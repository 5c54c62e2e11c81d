"""What grows with the number of pages, and what must not: the three stages at 1,000 to 100,000 pages.

    python benchmarks/growth_pages.py [--pages 1000,10000,100000] [--documents 1000000] [--output FILE]

The real commands and stores, over small made-up PDFs and the simulated server. Requests are counted at an S3 server
for the smaller sizes. Then very many documents are listed and planned. See README.md.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import proctree
from growth_listing import measured
from growth_requests import BUCKET, CREDENTIALS, counting
from growth_runs import DESCRIBER, SMALL, Place, checked, conserved, files, make_documents, run, stage
from growth_runs import stopped_in_the_middle as extract_in_halves
from reporting import keep, tell

from llm_ocr.simulator import running

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
        "command": "python benchmarks/growth_pages.py " + " ".join(sys.argv[1:]),
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
        found: dict[str, Any] = {"pages": pages, "extract": extract_in_halves(place, extract, pages, server)}
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
