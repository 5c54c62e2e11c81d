"""Runs of a client against the simulated server: what the server saw, beside the best that any client could get."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdfium2
from page_lists import Selection, copies, find_pdfs, write_manifest
from proctree import Usage, measure

import llm_ocr
from llm_ocr_simulator import running

#: The share of requests, in the order of their ends, between which the window is steadily full.
STEADY = (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Served:
    """One run. Overheads are fractions above the oracle's makespan: the same requests with infinite backlog."""

    requests: int
    tokens: int
    oracle: float  # seconds
    server: float  # first request to last end
    steady: float  # within the middle of the run
    job: float  # start of the process to its end
    usage: Usage
    simulator_share: float  # of one core

    def as_json(self, pages: int) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "output_tokens": self.tokens,
            "oracle_s": round(self.oracle, 3),
            "server_overhead": round(self.server, 4),
            "steady_overhead": round(self.steady, 4),
            "job_overhead": round(self.job, 4),
            "wall_s": round(self.usage.wall, 3),
            "cpu_s_per_page": round(self.usage.cpu / pages, 4),
            "pss_mib": round(self.usage.pss / 2**20),
            "simulator_core_share": round(self.simulator_share, 3),
            "elsewhere_cores": round(self.usage.elsewhere, 2),
        }


def is_one_request(page: pypdfium2.PdfPage) -> bool:
    """Whether the page is one request: a tall page is read in slices, and a blank one is never sent."""
    width, height = page.get_size()
    darkest, lightest = page.render(scale=0.3, grayscale=True).to_pil().getextrema()
    return height <= 2.5 * width and lightest - darkest > 16


def corpus(folders: Sequence[Path], pages: int, folder: Path) -> Path:
    """A manifest of `pages` pages: the documents again and again, each copy with a name and content of its own."""
    selections = []
    for path in find_pdfs(folders):
        try:
            with pypdfium2.PdfDocument(path) as document:
                total = len(document)
                comparable = all(map(is_one_request, document))
        except pypdfium2.PdfiumError:
            continue  # encrypted or damaged: nothing of it would reach the server
        if comparable:
            selections.append(Selection(path, tuple(range(1, total + 1)), total, (0.0,) * total))
    made = copies(selections, pages, folder)
    manifest = folder / "manifest.jsonl"
    write_manifest(made, manifest)
    return manifest


def extract_command(manifest: Path, workspace: Path, url: str, options: Sequence[str]) -> list[str]:
    """`llm-ocr extract` as a user starts it."""
    program = str(Path(sys.executable).with_name("llm-ocr"))
    return [program, "extract", str(manifest), "-w", str(workspace), "--server-url", url, "--quiet", *options]


def serve(command: Any, folder: Path, simulator: Mapping[str, Any], timeout: float = 3600.0) -> Served:
    """Start a simulator, run `command(url)` against it; what the server saw. Raises SystemExit if it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    with running(**simulator) as server:
        usage = measure(
            command(server.url),
            folder=folder,
            environment={**os.environ, "HOME": str(folder)},
            timeout=timeout,
            log=folder / "log",
        )
        log = server.log()
    if usage.code not in (0, 3):
        raise SystemExit(f"the client ended with {usage.code}: {usage.tail}")
    return summary(log, usage)


def summary(log: Mapping[str, Any], usage: Usage) -> Served:
    """What the server saw, and what it cost."""
    worked = [one for one in log["requests"] if one["oracle_end"] is not None]
    ends, ideal = sorted(one["end"] for one in worked), sorted(one["oracle_end"] for one in worked)
    first, last = (int(share * (len(worked) - 1)) for share in STEADY)
    steady = (ends[last] - ends[first]) / (ideal[last] - ideal[first]) - 1
    return Served(
        requests=len(log["requests"]),
        tokens=sum(one["output_tokens"] for one in worked),
        oracle=log["oracle"],
        server=log["measured"] / log["oracle"] - 1,
        steady=steady,
        job=usage.wall / log["oracle"] - 1,
        usage=usage,
        simulator_share=log["cpu_seconds"] / log["measured"],
    )


def check_rows(workspace: Path, pages: int) -> dict[str, int]:
    """Counts of rows by status; raises SystemExit unless each page has exactly one."""
    seen: dict[str, str] = {}
    for row in llm_ocr.open(str(workspace)).pages(images=False):
        if row.page_id in seen:
            raise SystemExit(f"{row.page_id} has two rows")
        seen[row.page_id] = row.status.value
    if len(seen) != pages:
        raise SystemExit(f"{len(seen)} rows for {pages} pages")
    return {status: list(seen.values()).count(status) for status in sorted(set(seen.values()))}
