"""Whether the size of units costs time: the same documents in units of 5 to 500 pages, against the simulated server.

    python benchmarks/unit_size.py ../shared/data/pdfs [--output benchmarks/results/unit_size.json]

Documents of 15, 50 and 100 pages; makespans should lie within 3 % of each other. See README.md.
"""

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import proctree
import pypdfium2
from page_lists import find_pdfs
from reporting import keep
from served import check_rows, extract_command, serve


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs")
    add("--lengths", default="15,50,100", metavar="N,N", help="pages of the documents (default 15,50,100)")
    add("--units", default="5,10,33,500", metavar="N,N", help="pages of a unit (default 5,10,33,500)")
    add("--pages", type=int, default=500, metavar="N", help="pages in all for each length (default 500)")
    add("--slots", type=int, default=64, help="sequences that the server runs at once (default 64)")
    add("--repeats", type=int, default=1, metavar="N")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-units-", dir=arguments.scratch) as scratch:
        report = run(arguments, Path(scratch).resolve())
    print(table(report))
    keep(report, arguments.output)
    return 0


def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    units = [int(size) for size in arguments.units.split(",")]
    report: dict[str, Any] = {
        "command": "python benchmarks/unit_size.py ../shared/data/pdfs " + " ".join(sys.argv[2:]),
        "machine": proctree.machine(),
        "pages": arguments.pages,
        "slots": arguments.slots,
        "lengths": {},
    }
    for length in map(int, arguments.lengths.split(",")):
        folder = scratch / f"documents-{length}"
        make_documents(find_pdfs(arguments.corpus), length, arguments.pages // length, folder)
        samples: dict[int, list[dict[str, float]]] = {size: [] for size in units}
        for size in itertools.chain.from_iterable(itertools.repeat(units, arguments.repeats)):
            print(f"documents of {length} pages, units of {size}", file=sys.stderr, flush=True)
            samples[size].append(one_run(folder, size, arguments.pages // length * length, arguments.slots, scratch))
        shutil.rmtree(folder)
        report["lengths"][length] = {
            size: {name: round(statistics.median(one[name] for one in taken), 4) for name in taken[0]}
            for size, taken in samples.items()
        }
    return report


def one_run(documents: Path, size: int, pages: int, slots: int, scratch: Path) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    options = ["--pages-per-unit", str(size)]
    served = serve(
        lambda url: extract_command(documents, folder / "workspace", url, options),
        folder,
        {"preset": "a100", "max_num_seqs": slots, "seed": 0},
    )
    check_rows(folder / "workspace", pages)
    shutil.rmtree(folder)
    makespan = served.oracle * (1 + served.server)
    return {"makespan_s": makespan, "job_s": served.usage.wall, "oracle_s": served.oracle}


def make_documents(sources: Sequence[Path], length: int, count: int, folder: Path) -> None:
    """PDFs of `length` pages each, taken from the corpus in turn."""
    folder.mkdir()
    pages = endless_pages(sources)
    for number in range(count):
        with pypdfium2.PdfDocument.new() as made:
            for source, page in itertools.islice(pages, length):
                with pypdfium2.PdfDocument(source) as document:
                    made.import_pages(document, [page])
            made.save(folder / f"{number:03d}.pdf")


def endless_pages(sources: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Every page of every document that opens, again and again."""
    found: list[tuple[Path, int]] = []
    for source in sources:
        try:
            with pypdfium2.PdfDocument(source) as document:
                found += [(source, page) for page in range(len(document))]
        except pypdfium2.PdfiumError:
            continue  # encrypted or damaged
    return itertools.cycle(found)


def spread(makespans: Sequence[float]) -> float:
    """How much longer the longest is than the shortest."""
    return max(makespans) / min(makespans) - 1


def table(report: dict[str, Any]) -> str:
    lines = ["document  unit  makespan s  job s  oracle s"]
    for length, sizes in report["lengths"].items():
        lines += [
            f"{length:>8}  {size:>4}  {one['makespan_s']:>10.2f}  {one['job_s']:>5.1f}  {one['oracle_s']:>8.2f}"
            for size, one in sizes.items()
        ]
        lines.append(f"          spread {spread([one['makespan_s'] for one in sizes.values()]):.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
