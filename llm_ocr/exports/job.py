"""What the formats of `export` get and give."""

from dataclasses import dataclass

from llm_ocr.config.models import ExportSettings
from llm_ocr.exports.output import Output
from llm_ocr.stages import Progress
from llm_ocr.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ExportJob:
    """One export at work."""

    workspace: Workspace
    output: Output
    settings: ExportSettings
    progress: Progress


@dataclass(frozen=True, slots=True)
class Exported:
    """What is at the output now: `files` of `size` bytes with `rows` in all, `written` of them by this export.

    `load` is a line of Python or of a shell that opens it. `unit` is what the rows are, `pages` or `documents`;
    `dropped` documents were left out for their bad pages.
    """

    url: str
    files: int
    size: int
    rows: int
    written: int
    load: str
    unit: str = "rows"
    dropped: int = 0
