"""The folder of local copies: removed when its process ends, and by the next process when that was killed."""

from pathlib import Path

from llm_ocr.storage.own_folder import OwnFolder

_PREFIX = "llm-ocr-documents-"


class CopyFolder(OwnFolder):
    """A folder of this process's own below `parent`, locked for as long as the process lives."""

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__(_PREFIX, parent)
