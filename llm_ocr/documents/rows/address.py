"""Where a row is: the URL that a plan keeps of it, by which any machine can read its images."""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

_ROW = re.compile(
    r"hf://datasets/(?P<repository>[^/@]+/[^/@]+)@(?P<commit>[0-9a-f]{40})/(?P<path>.+)"
    r"#row=(?P<row>\d+)&column=(?P<column>[^&]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a dataset repository, at a commit. `repository` is namespace/name."""

    repository: str
    commit: str
    path: str

    @property
    def url(self) -> str:
        """As stores name it."""
        return f"hf://datasets/{self.repository}@{self.commit}/{self.path}"


@dataclass(frozen=True, slots=True)
class RowAddress:
    """A row, counted from 0 in its file, and the column with its image or images."""

    file: DataFile
    row: int
    column: str

    @property
    def url(self) -> str:
        """The source of its document."""
        return f"{self.file.url}#row={self.row}&column={quote(self.column, safe='')}"

    @property
    def relative(self) -> str:
        """Its path below the source root: the file's, and the row in six digits or more."""
        return f"{self.file.path}/{self.row:06d}"

    @property
    def version(self) -> str:
        """Names commit, file and row: two rows are never copies of each other."""
        return f"{self.file.commit}/{self.file.path}#{self.row}"


def row_address(source: str) -> RowAddress | None:
    """The row that a document's source names; None for any other source."""
    found = _ROW.fullmatch(source)
    if found is None:
        return None
    file = DataFile(found["repository"], found["commit"], found["path"])
    return RowAddress(file, int(found["row"]), unquote(found["column"]))
