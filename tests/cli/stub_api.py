"""Stands in for `llm_ocr.runs` in tests of the command line: does nothing, and ends as the environment says.

`STUB_API` holds JSON: `pages` and `figures` (expected, ok, degraded, failed), `raises` (what `execute` does instead),
`say` (lines), `documents` (pairs of path and Markdown). What it was called with is written to the file `STUB_CALLS`.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.types import Counts, Status
from llm_ocr.workspace.status import RunStatus, StageStatus
from llm_ocr.workspace.summaries import Example


def planned(name: str, otherwise: Any) -> Any:
    """What STUB_API says of `name`."""
    return json.loads(os.environ.get("STUB_API", "{}")).get(name, otherwise)


@dataclass(frozen=True)
class Run:
    workspace: str
    status: RunStatus
    spent: tuple = ()  # no jobs
    processed: Mapping[str, Counts] = field(default_factory=dict)

    @property
    def known_status(self) -> RunStatus | None:
        return None if self.processed else self.status

    def documents(self):
        found = enumerate(planned("documents", []))
        return [
            SimpleNamespace(document_id=f"id{n}", source=path, path=path, markdown=text) for n, (path, text) in found
        ]


def open(url: str, **where: str | None) -> Run:
    failed = [Example("p", f"/in/{name}", page, reason) for name, page, reason in planned("failed", [])]
    units = planned("units", [0, 1])
    stages = {
        "extract": StageStatus("abc", *units),
        "describe": StageStatus("abc", *units),
        "assemble": StageStatus("", 0, 2),
    }
    status = RunStatus(
        url=url,
        generations=1,
        documents=2,
        pages=Counts(*planned("pages", [10, 10, 0, 0])),
        figures=Counts(*planned("figures", [4, 4, 0, 0])),
        stages=stages,
        reasons=Counter(one.reason for one in failed) | Counter(planned("degraded", [])),
        figure_reasons={},
        examples=tuple(failed),
        skipped={".docx": 2},
    )
    return Run(url, status, processed={stage: Counts(*counts) for stage, counts in planned("processed", {}).items()})


def execute(command: str, settings: Any, progress: Any) -> Run:
    if calls := os.environ.get("STUB_CALLS"):
        Path(calls).write_text(json.dumps({"command": command, **json.loads(settings.model_dump_json())}))
    for line in planned("say", []):
        progress.say(line)
    _raise(planned("raises", ""))
    run = open(settings.workspace)
    progress.begin(command, run.status.pages.expected, Counts())
    for status in Status:
        for _ in range(getattr(run.status.pages, status.value)):
            progress.count(status)
    progress.end()
    return run


def options_of_describe(settings: Any) -> str:
    return ""


def _raise(what: str) -> None:
    if what == "usage":
        raise UsageError("no such file: x.pdf", hint="Accepted: .pdf")
    if what == "limits":
        raise UsageError("`pages=9-` has no page", hint="Correct `pages`, or leave out `max_samples=5`.")
    if what == "library":
        raise LlmOcrError("the disk is full", hint="Make room.")
    if what == "bug":
        raise RuntimeError("first line\nsecond line")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "terminated":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(20)
