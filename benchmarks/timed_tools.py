"""llm-ocr and the other programs as things that can be run on a list of pages and measured."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from page_lists import PageList
from peers_embedded import DIGITAL, SCANNED, Installed
from proctree import Usage, measure

import llm_ocr


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one tool over one list."""

    usage: Usage
    characters: int
    failed: tuple[str, ...]  # files (llm-ocr: pages) that gave nothing, with the reason


class Tool(Protocol):
    """Something that turns pages into text."""

    name: str
    kinds: tuple[str, ...]

    def run(self, pages: PageList) -> Sample:
        """Do the list once, from a cold process, into a new folder."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the runs take place."""

    scratch: Path
    timeout: float

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="run-", dir=self.scratch))

    def measure(self, command: list[str], folder: Path, extra: Mapping[str, str]) -> Usage:
        """A home of its own for every run: no settings of this user, no cache of the run before."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("LLM_OCR_") and name not in ("PYTHONDONTWRITEBYTECODE", "XDG_CACHE_HOME")
        }
        home = folder / "home"
        home.mkdir()
        environment = {**kept, "HOME": str(home), "TMPDIR": str(home), **extra}
        return measure(command, folder=home, environment=environment, timeout=self.timeout, log=folder / "log")


class LlmOcr:
    """`llm-ocr extract` with the embedded engine and its defaults."""

    name = "llm-ocr"
    kinds: tuple[str, ...] = (DIGITAL, SCANNED)

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._program = str(Path(sys.executable).with_name("llm-ocr"))

    def run(self, pages: PageList) -> Sample:
        return self.run_manifest(pages.manifest)

    def run_manifest(self, manifest: Path) -> Sample:
        folder = self._stand.folder()
        usage = self._extract(manifest, folder / "workspace", folder)
        characters, failed = 0, []
        if usage.code == 0:
            for page in llm_ocr.open(str(folder / "workspace")).pages(images=False):
                characters += len(page.markdown)
                if page.status == "failed":
                    failed.append(f"{page.page_id}: {page.reason}")
        shutil.rmtree(folder)
        return Sample(usage, characters, tuple(failed))

    def extract(self, manifest: Path, workspace: Path) -> None:
        """Not for timing: raises when the run did not end well."""
        folder = self._stand.folder()
        usage = self._extract(manifest, workspace, folder)
        if usage.code != 0:
            raise SystemExit(f"llm-ocr extract ended with {usage.code}: {usage.tail}")

    def _extract(self, manifest: Path, workspace: Path, folder: Path) -> Usage:
        options = ["--engine", "embedded", "--quiet", "--max-failed-rate", "1"]
        command = [self._program, "extract", str(manifest), "--workspace", str(workspace), *options]
        return self._stand.measure(command, folder, {})


class PeerTool:
    """Another program, through `peer_runner.py`."""

    def __init__(self, stand: Stand, installed: Installed) -> None:
        self._stand = stand
        self._installed = installed
        self.name = installed.peer.name
        self.kinds = installed.peer.kinds

    def run(self, pages: PageList) -> Sample:
        peer = self._installed.peer
        folder = self._stand.folder()
        (folder / "out").mkdir()
        files = pages.images if peer.images else pages.files
        job = folder / "job.json"
        job.write_text(json.dumps({"files": [str(path) for path in files], "output": str(folder / "out")}))
        usage = self._stand.measure(self._installed.command(job), folder, dict(peer.environment))
        answer = _last_json((folder / "log").read_text(errors="replace")) if usage.code == 0 else {}
        shutil.rmtree(folder)
        return Sample(usage, answer.get("characters", 0), tuple(answer.get("failed", ())))


def _last_json(text: str) -> dict[str, int]:
    """The line that the runner ended with; the program may have printed anything before and after it."""
    for line in reversed(text.splitlines()):
        if line.startswith('{"characters"'):
            return dict(json.loads(line))
    return {}
