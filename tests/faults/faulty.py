"""The real command against simulated servers that break, and what must hold afterwards."""

import contextlib
import io
import shlex
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.types import PageRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, newest_key
from llm_ocr.workspace.publish import markers
from llm_ocr_simulator import running
from llm_ocr_simulator.answers import data_url, image_hash
from llm_ocr_simulator.process import Running

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS, PAGES_EACH = 4, 10
PAGES = DOCUMENTS * PAGES_EACH
#: Every fault by chance whose request ends soon; a hang needs a time-out.
QUICK = ("429", "503", "500", "reset", "reset-within", "truncated", "stream-error")
#: Answers of some hundred tokens, within a tenth of a second.
SERVER = {"speed": 50, "max_num_seqs": 16, "mean_tokens": 300}
SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])
#: Small pages, small units; without a fallback nothing hides what the model's server did.
SMALL = {"image_size": 256, "render_workers": 1, "pages_per_unit": 5, "fallback": "none", "request_timeout": 30}
#: So few requests at a time that whole units are done when a trigger acts in the middle.
FEW = {"max_inflight_requests": 4}
#: Requests after which a trigger acts "in the middle": two units and more are done by then.
MIDDLE = 20


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, and all that it wrote."""

    code: int
    said: str


def simulator(**more: Any) -> running:
    """A server for `with`."""
    return running(**{**SERVER, **more})


def words(command: str, *sources: Path, **settings: Any) -> list[str]:
    """The arguments of a command; lists repeat their flag, True is a flag alone."""
    found = [command, *map(str, sources)]
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            found.append(flag)
        else:
            found += [f"{flag}={one}" for one in (value if isinstance(value, list) else [value])]
    return found


def command(name: str, *sources: Path, **settings: Any) -> Ended:
    """Run a command in this process, as the console program does."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words(name, *sources, **settings))
    return Ended(code, said.getvalue())


def extract(documents: Path, workspace: Path, **settings: Any) -> Ended:
    return command("extract", documents, workspace=workspace, **{**SMALL, **settings})


def own_server(*arguments: str, **more: Any) -> dict[str, Any]:
    """Settings for a server of our own; arguments as of the simulator."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**SERVER, **more}.items()]
    return {"engine": "vllm", "vllm_command": SIMULATOR, "offline": True, "vllm_arg": [*flags, *arguments]}


def started(*arguments: str) -> "subprocess.Popen[str]":
    """The console program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "llm_ocr", *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: "subprocess.Popen[str]", seconds: float = 180.0) -> Ended:
    said, _ = process.communicate(timeout=seconds)
    return Ended(process.returncode, said)


def pages(workspace: Path, *, images: bool = False) -> list[PageRecord]:
    return list(llm_ocr.open(str(workspace)).pages(images=images))


def texts(workspace: Path) -> dict[str, str]:
    return {page.page_id: page.markdown for page in pages(workspace)}


def image_hashes(workspace: Path) -> dict[str, str]:
    """How the simulator names the image of each page."""
    found = pages(workspace, images=True)
    return {page.page_id: image_hash(data_url(page.image)) for page in found if page.image is not None}


def accounted(workspace: Path, *, total: int = PAGES, **others: int) -> dict[str, PageRecord]:
    """The rows by page: one for each of `total` pages, all ok but for `others`, and the status says the same."""
    rows = pages(workspace)
    by_page = {row.page_id: row for row in rows}
    assert len(rows) == len(by_page) == total
    counts = Counter(row.status.value for row in rows)
    assert counts == Counter({"ok": total - sum(others.values()), **others}), complaints(rows)
    status = llm_ocr.open(str(workspace)).status.pages
    assert (status.expected, status.ok, status.degraded, status.failed) == (
        total, counts["ok"], counts["degraded"], counts["failed"],
    )  # fmt: skip
    return by_page


def complaints(rows: list[PageRecord]) -> list[tuple[str, str, str]]:
    return [(row.page_id, str(row.reason), row.detail) for row in rows if row.status is not Status.OK]


def same_as(clean: dict[str, str], workspace: Path) -> None:
    """Every page is ok, and its Markdown is that of a run without faults."""
    rows = accounted(workspace)
    assert [page for page, row in rows.items() if row.markdown != clean[page]] == []


def finished_units(workspace: Path) -> dict[str, str]:
    """The attempt of each finished unit of Extract; none before there is a workspace."""
    if not (workspace / "extract" / "key.json").exists():
        return {}
    with Workspace.open(str(workspace)) as opened:
        key = newest_key(opened, EXTRACT)
        return {unit: one.attempt for unit, one in markers(opened, EXTRACT, key).items()} if key else {}


def asked(server: Running) -> Counter[str]:
    """How often each image was asked for, by the server's log.

    It names no image ("") of a request that it refuses unread; an answer without one is to the question whether it is
    back.
    """
    return Counter(one["image"] for one in server.log()["requests"] if one["image"] or one["status"] != 200)


@dataclass(frozen=True)
class Remembered:
    """What a simulator wrote into its state file over all its starts."""

    starts: int
    asked: Counter[str]


def remembered(state: Path) -> Remembered:
    lines = state.read_text().splitlines() if state.exists() else []
    images = [line.split()[1] for line in lines if line.startswith("asked ") and len(line.split()) == 2]
    return Remembered(lines.count("start"), Counter(images))


def simulators_of(root: int) -> list[int]:
    """The simulators among a process's descendants, launchers left out."""
    # -ww: whole lines. Without it ps cuts them at 80 columns, less than the path of a checkout can have.
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    below = {root}
    for _ in rows:
        more = {int(row[0]) for row in rows if int(row[1]) in below} - below
        if not more:
            break
        below |= more
    servers = f"{sys.executable} -m llm_ocr_simulator serve "
    return [int(row[0]) for row in rows if int(row[0]) in below and row[2:] and row[2].startswith(servers)]
