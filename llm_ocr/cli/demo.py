"""llm-ocr demo: the three stages on the documents that are part of the library."""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from llm_ocr.cli.output import aligned, write_line
from llm_ocr.cli.pipeline import finish
from llm_ocr.cli.progress import shown_progress
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import DemoSettings, RunSettings, ViewSettings
from llm_ocr.documents.files import SUFFIXES
from llm_ocr.errors import LlmOcrError, WorkspaceMismatch
from llm_ocr.plugins import COMMANDS
from llm_ocr.types import Viewed, plural

if TYPE_CHECKING:
    from llm_ocr.runs import Document


def run_demo(command: str, settings: DemoSettings) -> int:
    """Run the stages on the examples and print the location of the results; return the exit code."""
    from llm_ocr.stages.execute import execute

    documents = example_documents()
    sources = tuple(str(path) for path in documents)
    run_settings = RunSettings(sources=sources, engine="embedded", **dict(settings))
    with shown_progress(settings) as progress:
        progress.say(
            f"This demo reads {plural(len(sources), 'document')} in {documents[0].parent} with the CPU of this "
            "machine: Extract (pages to Markdown), Describe (figures), and Assemble (documents and dataset)."
        )
        progress.say("It takes less than a minute. Nothing is downloaded, and nothing leaves this machine.")
        try:
            run = execute("run", run_settings, progress)
        except WorkspaceMismatch as error:
            error.hint = f"Remove {settings.workspace} of the earlier demo, or choose another folder with `workspace`."
            raise
    if not settings.quiet:
        write_line(where_to_look(run.documents(), settings.workspace))
    code = finish("run", run_settings, run, sys.stdout)
    folder = Path(settings.workspace)
    view = None if settings.quiet else COMMANDS.find("view")
    if view is not None and (folder / "dataset").is_dir():
        site = {"workspace": settings.workspace, "output": str(folder / "site")}
        viewed: Viewed = view.load()(settings_from(ViewSettings, "view", site), None)
        write_line(f"Open the pages and their text in a browser: {viewed.index.absolute().as_uri()}")
    return code


def example_documents() -> list[Path]:
    """Return the example documents: in the installed package, or next to the package in a checkout.

    Raises:
        LlmOcrError: No documents exist.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "examples", package.parent / "examples"):
        found = sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)
        if found:
            return found
    raise LlmOcrError("this installation has no example documents", hint="Use any PDF: llm-ocr run report.pdf")


def where_to_look(documents: "Iterable[Document]", workspace: str) -> str:
    """Return a text on the results of the demo, the limits of this engine, and the next steps."""
    lines = ["", "Results:"]
    for document in documents:
        path, count = document.path, document.markdown.count("![")
        if not path.startswith((workspace, "/")) and "://" not in path:
            path = f"{workspace}/{path}"
        lines.append(f"  {path}  ({plural(count, 'figure')})" if count else f"  {path}")
    activation: list[tuple[str, str]] = []
    activate = Path(sys.prefix) / "bin" / "activate"
    if not shutil.which("llm-ocr") and activate.is_file():  # the shell does not find the program: after `make demo`
        place = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
        activation.append((f"source {quote(str(place))}", "Let your shell find llm-ocr"))
    following = (
        *activation,
        ("llm-ocr run your.pdf -w out", "Read your own documents"),
        (f"llm-ocr status -w {quote(workspace)}", "Show progress, failures, and their reasons"),
        ("llm-ocr doctor", "Check what works on this machine"),
        ("llm-ocr run --help", "Show the most used settings"),
    )
    return "\n".join(
        [
            *lines,
            f"  {workspace}/dataset  (one row per page: image, Markdown, figures, page with its boxes drawn)",
            f'    python -c "from datasets import load_dataset; print(load_dataset({workspace + "/dataset"!r}))"',
            "",
            "Limits of the CPU engine: only certain formulas become LaTeX, a figure is described only by sentences",
            "inside it, and handwriting is not read.",
            "",
            "Next:",
            *(f"  {line}" for line in aligned(following)),
            "",
        ]
    )
