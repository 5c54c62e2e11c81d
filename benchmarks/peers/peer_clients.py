"""The clients that are compared: how each is installed, called, and asked for what it has read."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import peer_outputs
from peer_outputs import Found

#: olmOCR's pipeline without its `gpu` extra: the server is elsewhere.
OLMOCR = ("olmocr==0.4.27",)
#: What the predecessor's client needs, but for torch, of which it used only the loader of rows.
LOCKSTEP = ("openai==3.54.0", "pypdfium2==5.15.2", "pillow==13.0.0", "datasets==5.2.0")
PROFILE = "olmocr-2"
#: The name under which the server has the model.
SERVED = "olmocr"


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a list of PDFs, a folder of its own, the server, and how many requests it runs at once."""

    listed: Path
    folder: Path
    url: str
    slots: int
    stall: float | None  # seconds until a silent request is given up, where a client has that; None: its default
    prompt: Path

    @property
    def output(self) -> Path:
        return self.folder / "output"


@dataclass(frozen=True, slots=True)
class Client:
    """One way to read the pages."""

    name: str
    what: str
    command: Callable[[Job], list[str]]
    found: Callable[[Path, Mapping[str, int]], Found]
    environment: Mapping[str, str] = field(default_factory=dict)


def shipped_renderers() -> int:
    """How many pages olmOCR renders at once unless told otherwise: `olmocr.pipeline`, pdf_render_max_workers_limit."""
    return max(1, (os.cpu_count() or 1) - 2)


def ours(name: str, options: Sequence[str], what: str) -> Client:
    def command(job: Job) -> list[str]:
        program = str(Path(sys.executable).with_name("llm-ocr"))
        stall = [f"--request-timeout={job.stall:g}"] if job.stall else []
        return [
            *(program, "extract", str(job.listed), "-w", str(job.output), "--server-url", job.url),
            *("--model", PROFILE, "--quiet", *stall, *options),
        ]

    return Client(name, what, command, peer_outputs.of_ours)


def olmocr(python: str, renderers: int | None) -> Client:
    """`renderers`: None as shipped."""

    def command(job: Job) -> list[str]:
        return [
            *(python, "-m", "olmocr.pipeline", str(job.output), "--server", job.url, "--model", SERVED),
            *("--markdown", "--pdfs", str(job.listed)),
        ]

    count = shipped_renderers() if renderers is None else renderers
    name = "olmocr" if renderers is None else f"olmocr-{renderers}"
    said = f"olmOCR's pipeline, {'as shipped: ' if renderers is None else ''}{count} pages rendered at once"
    environment = {} if renderers is None else {"BEAKER_ASSIGNED_CPU_COUNT": str(renderers)}
    return Client(name, said, command, peer_outputs.of_olmocr, environment)


def lockstep(python: str) -> Client:
    program = str(Path(__file__).with_name("lockstep.py"))

    def command(job: Job) -> list[str]:
        stall = ["--timeout", f"{job.stall:g}"] if job.stall else []
        return [
            *(python, program, str(job.listed), str(job.output), "--url", job.url, "--model", SERVED),
            *("--prompt", str(job.prompt), "--batch", str(job.slots), *stall),
        ]

    return Client(
        "lockstep", "the predecessor's shape, batches of as many pages as slots", command, peer_outputs.of_lockstep
    )


def chosen(names: Sequence[str], folder: Path) -> list[Client]:
    """The clients of these names, each installed. `olmocr-N` is left out where it renders as many pages as shipped."""
    clients: list[Client] = []
    for name in names:
        if name == "ours":
            clients.append(ours(name, (), "llm-ocr extract, defaults: figures are cut out and stored, too"))
        elif name == "ours-text":
            clients.append(ours(name, ("--figures-from", "none"), "llm-ocr extract without figures"))
        elif name == "lockstep":
            clients.append(lockstep(installed(LOCKSTEP, folder / "lockstep")))
        elif name == "olmocr":
            clients.append(olmocr(installed(OLMOCR, folder / "olmocr"), None))
        elif name.startswith("olmocr-") and name[7:].isdigit():
            if "olmocr" not in names or int(name[7:]) != shipped_renderers():
                clients.append(olmocr(installed(OLMOCR, folder / "olmocr"), int(name[7:])))
        else:
            raise SystemExit(f"no client {name!r}; there are: ours, ours-text, olmocr, olmocr-N, lockstep")
    return clients


def installed(requirements: Sequence[str], folder: Path) -> str:
    """The Python of an environment with these packages; one that is there from an earlier run is used."""
    python, done = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(requirements)
    if not done.exists() or done.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], check=True
        )
        done.write_text(wanted)
    return str(python)
