"""What faults of the server and of the client cost, and whether anything is lost: real documents, a simulated server.

    python benchmarks/faults.py ../shared/data/pdfs [--output benchmarks/results/faults.json]

Each row is `llm-ocr extract` over the same pages; shares are of requests. The oracle is the best that any client could
get from that server without faults. See README.md.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import proctree
from reporting import keep
from served import corpus, extract_command

import llm_ocr
from llm_ocr.simulator import running
from llm_ocr.simulator.answers import data_url, image_hash
from llm_ocr.simulator.faults import RATES
from llm_ocr.simulator.process import Running
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, newest_key
from llm_ocr.workspace.publish import markers

SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr.simulator"])
CLIENT_KILL = "client kill -9, then again"
#: Columns of the table, with their formats.
SHOWN = {"exit": "", "job_s": ".1f", "over_oracle": ".1%", "requests_per_page": ".3f", "server_starts": ""}
COUNTED = ("ok", "degraded", "failed", "missing", "doubled", "as_clean")


@dataclass(frozen=True, slots=True)
class Case:
    """One row: what goes wrong. `own`: at a server that the command itself starts."""

    name: str
    faults: Mapping[str, Any] = field(default_factory=dict)
    own: bool = False


@dataclass(frozen=True, slots=True)
class Clean:
    """The run without faults: what all others are held against. `seconds` of the oracle."""

    texts: Mapping[str, str]
    images: Mapping[str, str]  # hashes by page, in order
    seconds: float


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-faults-", dir=arguments.scratch) as scratch:
        report = run(arguments, Path(scratch).resolve())
    if arguments.only and arguments.output and arguments.output.exists():
        report = merged(json.loads(arguments.output.read_text()), report)
    print(table(report["cases"]))
    keep(report, arguments.output)
    print("sound" if report["sound"] else "NOT SOUND")
    return 0 if report["sound"] else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs")
    add("--pages", type=int, default=173, metavar="N", help="pages, documents repeated (default 173)")
    add("--unit", type=int, default=16, metavar="N", help="pages of a unit (default 16)")
    add("--slots", type=int, default=64, help="sequences that the server runs at once (default 64)")
    add("--preset", default="a100", help="GPU of the simulator (default a100)")
    add("--speed", type=float, default=1.0, metavar="X", help="all times of the server divided by X (default 1)")
    add("--share", type=float, default=0.1, help="of requests that go wrong (default 0.1)")
    add("--stall", type=float, default=30.0, metavar="S", help="--request-timeout of the command (default 30)")
    add("--only", metavar="TEXT", help="only the cases whose name holds this; put into the output file that is there")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    report: dict[str, Any] = {
        "commands": ["python benchmarks/faults.py ../shared/data/pdfs " + shlex.join(sys.argv[2:])],
        "machine": proctree.machine(),
        **{name: getattr(arguments, name) for name in ("pages", "unit", "slots", "preset", "speed", "share", "stall")},
    }
    manifest = corpus(arguments.corpus, arguments.pages, scratch / "documents")
    bench = Bench(arguments, manifest, scratch)
    clean, first = bench.clean()
    found = {"clean": first}
    for case in cases(arguments.share, arguments.pages, clean):
        if arguments.only is None or arguments.only in case.name:
            found[case.name] = bench.row(case, clean)
            print(table({case.name: found[case.name]}), file=sys.stderr, flush=True)
    report["oracle_s"] = round(clean.seconds, 3)
    report["cases"] = found
    report["sound"] = all(one["sound"] for one in found.values())
    return report


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The old report with the new cases but the clean one, which stays the one that most were held against."""
    found = {**old["cases"], **{name: one for name, one in new["cases"].items() if name != "clean"}}
    commands = [*old["commands"], *new["commands"]]
    return {**old, "commands": commands, "cases": found, "sound": all(one["sound"] for one in found.values())}


def cases(share: float, pages: int, clean: Clean) -> list[Case]:
    """All rows but the clean one; triggers act after half of the pages. The killer's image is on one page only."""
    times = Counter(clean.images.values())
    killer = next(image for image in list(clean.images.values())[pages // 2 :] if times[image] == 1)
    half = pages // 2
    return [
        *(Case(f"{kind} at {share:.0%}", {kind: share}) for kind in RATES),
        Case(f"all kinds, {share:.0%} together", {kind: share / len(RATES) for kind in RATES}),
        Case(f"all kinds, {share:.0%} each", {kind: share for kind in RATES}),
        Case("server without faults, of our own", own=True),
        Case("one death", {"die-after": half, "only-starts": 1}, own=True),
        Case("one hang, /health well", {"hang-after": half, "only-starts": 1}, own=True),
        Case("a page that kills it", {"die-image": killer}, own=True),
        Case(CLIENT_KILL),
    ]


class Bench:
    """Runs the cases; each has a folder of its own, which is removed."""

    def __init__(self, arguments: argparse.Namespace, manifest: Path, scratch: Path) -> None:
        self.given = arguments
        self.manifest = manifest
        self.scratch = scratch
        self.options = ["--pages-per-unit", str(arguments.unit), "--request-timeout", str(arguments.stall)]

    def server(self, state: Path) -> dict[str, Any]:
        given = self.given
        return {"preset": given.preset, "max_num_seqs": given.slots, "speed": given.speed, "state_file": state}

    def clean(self) -> tuple[Clean, dict[str, Any]]:
        """The run that the others are held against."""
        folder = self.folder()
        with running(**self.server(folder / "state")) as server:
            usage = self.measured(self.asking(folder, server), folder)
            oracle = float(server.log()["oracle"])
        rows = list(llm_ocr.open(str(folder / "w")).pages())
        images = {row.page_id: image_hash(data_url(row.image)) for row in rows if row.image is not None}
        clean = Clean({row.page_id: row.markdown for row in rows}, images, oracle)
        return clean, self.account(folder, clean, usage.wall, usage.code)

    def row(self, case: Case, clean: Clean) -> dict[str, Any]:
        folder = self.folder()
        more: dict[str, Any] = {}
        if case.own:
            usage = self.measured(self.starting(folder, case.faults), folder)
            wall, code = usage.wall, usage.code
        else:
            with running(**self.server(folder / "state"), fault=case.faults) as server:
                if case.name == CLIENT_KILL:
                    wall, code, more = self.killed(self.asking(folder, server), folder)
                else:
                    usage = self.measured(self.asking(folder, server), folder)
                    wall, code = usage.wall, usage.code
                spoilt = Counter(one["fault"] for one in server.log()["requests"] if one["fault"])
            more["spoilt_requests"] = dict(sorted(spoilt.items()))
        found = self.account(folder, clean, wall, code)
        found["sound"] = found["sound"] and not more.get("units_done_again")
        shutil.rmtree(folder)
        return {**found, **more}

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="run-", dir=self.scratch))

    def asking(self, folder: Path, server: Running) -> list[str]:
        return extract_command(self.manifest, folder / "w", server.url, self.options)

    def starting(self, folder: Path, faults: Mapping[str, Any]) -> list[str]:
        """The command with a server of its own."""
        server = self.server(folder / "state")
        words = [f"--{name.replace('_', '-')}={value}" for name, value in server.items()]
        words += [f"--fault={kind}={value}" for kind, value in faults.items()]
        program = str(Path(sys.executable).with_name("llm-ocr"))
        return [
            *(program, "extract", str(self.manifest), "-w", str(folder / "w"), "--quiet", *self.options),
            *("--engine", "vllm", "--offline", "--vllm-command", SIMULATOR),
            *(f"--vllm-arg={word}" for word in words),
        ]

    def measured(self, command: Sequence[str], folder: Path) -> proctree.Usage:
        return proctree.measure(
            command, folder=folder, environment={"PATH": "/usr/bin:/bin"}, timeout=1800.0, log=folder / "log"
        )

    def killed(self, command: Sequence[str], folder: Path) -> tuple[float, int, dict[str, Any]]:
        """Kill the command when a third of the units are published, then run it to its end."""
        units = -(-self.given.pages // self.given.unit)
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env={"PATH": "/usr/bin:/bin"})
        until(partial(self.reached, folder, max(1, units // 3)), process)
        process.kill()
        process.wait()
        before = finished(folder / "w")
        usage = self.measured(command, folder)
        after = finished(folder / "w")
        again = sum(after.get(unit) != attempt for unit, attempt in before.items())
        told = {"units_before_kill": len(before), "units": len(after), "units_done_again": again}
        return time.monotonic() - began, usage.code, told

    def reached(self, folder: Path, units: int) -> bool:
        return len(finished(folder / "w")) >= units

    def account(self, folder: Path, clean: Clean, wall: float, code: int) -> dict[str, Any]:
        """What stands in the workspace, and what it took."""
        lines = (folder / "state").read_text().splitlines()
        run = llm_ocr.open(str(folder / "w"))
        rows = list(run.pages(images=False))
        ids = Counter(row.page_id for row in rows)
        counts = Counter(row.status.value for row in rows)
        pages = run.status.pages
        missing, doubled = self.given.pages - len(ids), ids.total() - len(ids)
        whole = pages.expected == pages.ok + pages.degraded + pages.failed == self.given.pages
        requests = sum(line.startswith("asked ") for line in lines)
        return {
            "exit": code,
            "job_s": round(wall, 2),
            "over_oracle": round(wall / clean.seconds - 1, 4),
            "requests_per_page": round(requests / self.given.pages, 4),
            "server_starts": lines.count("start"),
            **{status: counts[status] for status in ("ok", "degraded", "failed")},
            "missing": missing,
            "doubled": doubled,
            "as_clean": sum(row.markdown == clean.texts.get(row.page_id) for row in rows),
            "reasons": dict(run.status.reasons),
            "sound": whole and not missing and not doubled,
        }


def until(true: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait until it is true. Raises SystemExit when the process ends before."""
    while not true():
        if process.poll() is not None:
            raise SystemExit(f"the command ended with {process.returncode} before it could be killed")
        time.sleep(0.02)


def finished(workspace: Path) -> dict[str, str]:
    """The attempt of each published unit."""
    if not (workspace / "extract" / "key.json").exists():
        return {}
    with Workspace.open(str(workspace)) as opened:
        key = newest_key(opened, EXTRACT)
        return {unit: one.attempt for unit, one in markers(opened, EXTRACT, key).items()} if key else {}


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    names = (*SHOWN, *COUNTED)
    rows = [["", *names]]
    for case, one in found.items():
        rows.append([case, *(format(one[name], SHOWN.get(name, "")) for name in names)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
