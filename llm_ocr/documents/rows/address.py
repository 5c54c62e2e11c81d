"""URLs of dataset rows, and the options that select rows."""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

# Where a row is: the URL that a plan keeps of it, by which any machine can read its images.


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


# Rows that name a file instead of holding an image.


#: A file of a dataset repository on the Hub, as `datasets` and the Hub's pages name it.
_HUB = re.compile(
    r"(?:hf://datasets/(?P<a>[^/@]+/[^/@]+)(?:@[^/]+)?|https://[^/]+/datasets/(?P<b>[^/]+/[^/]+)/resolve/[^/]+)/(?P<path>.+)"
)


def in_repository(file: DataFile, reference: str) -> list[str]:
    """Where in the repository the file may be that a row of `file` names; empty for what is elsewhere.

    A relative path is looked for from the root, then beside the data file. Nothing outside the repository is ever
    fetched because a row names it.
    """
    found = _HUB.fullmatch(reference)
    if found is not None:
        same = (found["a"] or found["b"]) == file.repository
        path = unquote(found["path"]) if found["b"] else found["path"]
        return [path] if same and _is_inside(path) else []
    if "://" in reference or reference.startswith("/"):
        return []
    path = reference.removeprefix("./")
    folder = file.path.rpartition("/")[0]
    return [one for one in dict.fromkeys((path, f"{folder}/{path}" if folder else path)) if _is_inside(one)]


def _is_inside(path: str) -> bool:
    return all(part not in ("", ".", "..") for part in path.split("/"))


# Which rows the user means.


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """As `--dataset` and the settings beside it; None for what was left open."""

    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    image_column: str | None = None
    id_column: str | None = None
