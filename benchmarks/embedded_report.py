"""Samples to medians, and medians to a table."""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timed_tools import Sample

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
