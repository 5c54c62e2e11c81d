"""Cost per page and memory of few and of many pages: what stays flat can go on for ever."""

import shutil
import sys
from collections.abc import Sequence
from typing import Any

import embedded_report
import page_lists
from timed_tools import LlmOcr, Sample, Stand


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
    return [{"pages": size, **embedded_report.whole_runs(samples[size], size)} for size in sizes]
