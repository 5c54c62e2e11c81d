"""A whole run over a folder of bad files with good ones among them, and what must be true when it is over."""

import random
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from mutated_pdfs import plain_pdf
from running import FRUGAL, own_process, unfinished

import llm_ocr
from llm_ocr.types import PageRecord, Status

#: Names of Python's errors are nothing for users.
_PROGRAMMERS = re.compile(r"\b[A-Z]\w*(Error|Exception|Warning)\b: |Traceback")
_LONGEST_REASON = 400  # characters


@dataclass(frozen=True, slots=True)
class Ran:
    """`faults` should be empty."""

    faults: list[str]
    seconds: float
    slowest: tuple[float, str] = (0.0, "")  # seconds of a page, and the document's name
    pages: dict[str, int] = field(default_factory=dict)  # by status
    reasons: dict[str, int] = field(default_factory=dict)


def fault_of_reason(detail: str) -> str:
    """What is wrong with the words that say why something failed."""
    if not detail.strip():
        return "no reason is given"
    if _PROGRAMMERS.search(detail):
        return f"a programmer's reason: {detail[:120]}"
    return f"a reason of {len(detail)} characters: {detail[:120]}" if len(detail) > _LONGEST_REASON else ""


def put_good(documents: Path, chance: random.Random, count: int) -> dict[str, str]:
    """Write `count` good documents among the others; the text of each by its name."""
    texts = {}
    for number in range(count):
        seed = chance.randrange(10**9)
        name = f"good {number}.pdf"
        (documents / name).write_bytes(plain_pdf(random.Random(seed)))
        texts[name] = seed_text(seed)
    return texts


def seed_text(seed: int) -> str:
    """What `plain_pdf` writes with this seed, without white space."""
    chance = random.Random(seed)
    chance.randrange(2)
    return "".join(f"Line{line},number{chance.randrange(10**9)}oftheharbour." for line in range(4))


def run_over(folder: Path, good: dict[str, str], *more: str, command: str = "extract", timeout: float = 600) -> Ran:
    """Run `llm-ocr` over `folder/documents` into `folder/w`, and judge what is there afterwards."""
    temporary = folder / "tmp"
    temporary.mkdir()
    before = _tree(folder)
    start = time.monotonic()
    arguments = (command, "documents", "-w", "w", *FRUGAL, "--quiet", *more)
    run = own_process(*arguments, cwd=folder, env={"TMPDIR": str(temporary), "HOME": str(temporary)}, timeout=timeout)
    seconds = time.monotonic() - start
    faults = []
    if run.returncode not in (0, 3) or "Traceback" in run.stderr:
        faults.append(f"exit {run.returncode}: {run.stdout[-200:]} {run.stderr[-600:]}")
    faults += _left_behind(folder, before)
    if run.returncode not in (0, 3):
        return Ran(faults, seconds)
    rows = list(llm_ocr.open(str(folder / "w")).pages(images=False))
    status = llm_ocr.open(str(folder / "w")).status
    counts = status.pages
    if not counts.expected == counts.ok + counts.degraded + counts.failed == len(rows):
        faults.append(f"pages do not add up: {counts}, {len(rows)} rows")
    faults += _not_named(folder / "documents", rows, sum(status.skipped.values()))
    faults += [fault for row in rows for fault in _faults_of_row(row)]
    faults += _good_ones(rows, good)
    reasons: dict[str, int] = {}
    for row in rows:
        if row.reason:
            reasons[row.reason.value] = reasons.get(row.reason.value, 0) + 1
    slowest = max(((row.seconds, Path(row.source).name) for row in rows), default=(0.0, ""))
    return Ran(
        faults, seconds, slowest, {"ok": counts.ok, "degraded": counts.degraded, "failed": counts.failed}, reasons
    )


def _faults_of_row(row: PageRecord) -> list[str]:
    if row.status is not Status.FAILED:
        return []
    said = fault_of_reason(row.detail)
    return [f"{row.source!r}: {said}"] if said or not row.reason else []


def _good_ones(rows: list[PageRecord], good: dict[str, str]) -> list[str]:
    texts: dict[str, str] = {}
    for row in rows:
        name = Path(row.source).name
        if name in good:
            texts[name] = texts.get(name, "") + "".join(row.markdown.split()) + ("" if row.status is Status.OK else "?")
    return [
        f"{name}: {texts.get(name)!r} instead of {text!r}" for name, text in good.items() if texts.get(name) != text
    ]


def _not_named(documents: Path, rows: list[PageRecord], skipped: int) -> list[str]:
    """Files that stand in no row: there may be as many as were skipped, and as there are copies."""
    named = {row.source for row in rows}
    every = {str(path): path.read_bytes() for path in documents.glob("[!.]*") if path.is_file()}  # none is hidden
    read = {every[source] for source in named if source in every}
    lost = [path for path, data in every.items() if path not in named and data not in read]
    speakable = [path for path in lost if path.encode("utf-8", "replace").decode() not in named]
    return [f"{len(speakable)} files in no row, {skipped} skipped: {speakable[:3]}"] if len(speakable) > skipped else []


def _tree(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if not path.is_relative_to(folder / "w")}


def _left_behind(folder: Path, before: set[str]) -> list[str]:
    """Files outside of the workspace, temporary files in it, and processes that run on."""
    faults = [f"left: {path}" for path in sorted(_tree(folder) - before - {str(folder / "w")})]
    faults += [f"half written: {path}" for path in unfinished(folder / "w")]
    faults += [f"changed or gone: {path}" for path in sorted(before - _tree(folder))]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:  # workers stay where the program was started
                faults.append(f"a process runs on: {(process / 'cmdline').read_bytes()[:200]!r}")
        except OSError:
            continue
    return faults
