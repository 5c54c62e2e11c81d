"""Input and result of an export."""

from dataclasses import dataclass

from llm_ocr.config.models import ExportSettings
from llm_ocr.exports.output import Output
from llm_ocr.stages import Progress
from llm_ocr.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Running export."""

    workspace: Workspace
    output: Output
    settings: ExportSettings
    progress: Progress


@dataclass(frozen=True, slots=True)
class Exported:
    """Content of the output after an export: `files` of `size` bytes with `rows` in all, `written` of them new.

    `load` is a line of Python or of a shell that opens it. `unit` is the name of a row, `pages` or `documents`.
    `dropped` documents were excluded for their bad pages.
    """

    url: str
    files: int
    size: int
    rows: int
    written: int
    load: str
    unit: str = "rows"
    dropped: int = 0
