"""Other programs that turn the same pages into text: what they are, and how they get onto this machine.

Each that comes from pip gets an environment of its own outside the repository, at the version written here.
`peer_runner.py` says how each is called.
"""

import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RUNNER = Path(__file__).with_name("peer_runner.py")
DIGITAL, SCANNED = "digital", "scanned"


@dataclass(frozen=True, slots=True)
class Peer:
    """`requirement` is what pip installs, empty for a program of the system; `needs` are commands it calls."""

    name: str
    licence: str
    does: str
    kinds: tuple[str, ...] = (DIGITAL,)
    requirement: str = ""
    needs: tuple[str, ...] = ()
    images: bool = False  # reads page images; the others read PDFs
    environment: tuple[tuple[str, str], ...] = ()


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="pdftotext",
            licence="GPL-2.0 or GPL-3.0 (Debian's poppler-utils, called as a program)",
            does="text layer to plain text in reading order; no tables, headings, figures or page images",
            needs=("pdftotext",),
        ),
        Peer(
            name="tesseract",
            licence="Apache-2.0 (Debian's package, English model)",
            does="OCR of page images to plain text; images made beforehand, the same that llm-ocr makes; one thread",
            kinds=(SCANNED,),
            needs=("tesseract",),
            images=True,
            environment=(("OMP_THREAD_LIMIT", "1"),),
        ),
        Peer(
            name="pypdf",
            licence="BSD-3-Clause",
            does="text layer to plain text in the file's order; no tables, headings, figures or page images",
            requirement="pypdf==7.1.0",
        ),
        Peer(
            name="pdfplumber",
            licence="MIT",
            does="text layer to plain text by lines, tables of ruled cells apart; no headings, figures or page images",
            requirement="pdfplumber==0.11.10",
        ),
        Peer(
            name="markitdown",
            licence="MIT (brings a 3 MB model that tells file types)",
            does="text layer to text, form-like tables as Markdown; no headings, figures or page images",
            requirement="markitdown[pdf]==0.1.8",
        ),
        Peer(
            name="kreuzberg",
            licence="MIT",
            does="text layer to Markdown with headings; OCR by a built-in tesseract with Debian's English "
            "model; several threads; no tables, figures or page images",
            kinds=(DIGITAL, SCANNED),
            requirement="kreuzberg==4.10.4",
            needs=("tesseract",),
        ),
        Peer(
            name="pdf-inspector",
            licence="MIT",
            does="text layer to Markdown with headings, columns and tables; no figures or page images",
            requirement="pdf-inspector==1.25.2",
        ),
        Peer(
            name="pdf_oxide",
            licence="MIT or Apache-2.0",
            does="text layer to Markdown with headings and tables; no figures or page images",
            requirement="pdf_oxide==0.3.78",
        ),
        Peer(
            name="opendataloader-pdf",
            licence="Apache-2.0",
            does="text layer to Markdown with columns, headings, lists and ruled tables; raster images as files; "
            "no page images",
            requirement="opendataloader-pdf==2.5.16",
            needs=("java",),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Installed:
    """A peer ready to run; `python` is that of its environment."""

    peer: Peer
    python: str
    versions: Mapping[str, str]

    def command(self, job: Path) -> list[str]:
        return [self.python, str(RUNNER), self.peer.name, str(job)]


class NotRun(Exception):
    """The peer cannot run here; the text says why."""


def install(peer: Peer, folder: Path) -> Installed:
    """Make the peer ready below `folder`, or use what stands there from an earlier run. Raises NotRun."""
    missing = [program for program in peer.needs if shutil.which(program) is None]
    if missing:
        raise NotRun(f"needs {', '.join(missing)}, which is not installed")
    if not peer.requirement:
        return Installed(peer, sys.executable, {peer.name: _program_version(peer.name)})
    home = folder / re.sub(r"[^\w.-]+", "_", peer.requirement)
    python = home / "bin" / "python"
    done = home / "installed"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", peer.requirement])
        done.touch()
    frozen = _run([str(python), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"])
    versions = dict(line.split("==", 1) for line in frozen.splitlines() if "==" in line)
    for unneeded in ("pip", "setuptools"):
        versions.pop(unneeded, None)
    for program in peer.needs:
        versions[program] = _program_version(program)
    return Installed(peer, str(python), versions)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        # The package index of one machine is nothing that a result should name.
        said = re.sub(r"\S+://\S+", "(address)", re.sub(r" \(from versions:.*\)", "", " ".join(lines[-2:])))
        raise NotRun(f"cannot be installed: {said[:300]}")
    return done.stdout


def _program_version(program: str) -> str:
    flag = {"tesseract": "--version", "java": "-version"}.get(program, "-v")
    done = subprocess.run([program, flag], check=False, capture_output=True, text=True)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return found.group() if found else "unknown"
