"""Define the URLs of dataset rows and the options that select rows."""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

# Address of a row: the URL in a plan, by which any machine can read the row's images.


_ROW = re.compile(
    r"hf://datasets/(?P<repository>[^/@]+/[^/@]+)@(?P<commit>[0-9a-f]{40})/(?P<path>.+)"
    r"#row=(?P<row>\d+)&column=(?P<column>[^&]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """Parquet file of a dataset repository at a commit. `repository` is namespace/name."""

    repository: str
    commit: str
    path: str

    @property
    def url(self) -> str:
        """Return the URL in the format of stores."""
        return f"hf://datasets/{self.repository}@{self.commit}/{self.path}"


@dataclass(frozen=True, slots=True)
class RowAddress:
    """Row, counted from 0 in its file, and the column with its image or images."""

    file: DataFile
    row: int
    column: str

    @property
    def url(self) -> str:
        """Return the source of the row's document."""
        return f"{self.file.url}#row={self.row}&column={quote(self.column, safe='')}"

    @property
    def relative(self) -> str:
        """Return the path below the source root: the file's path, and the row in at least six digits."""
        return f"{self.file.path}/{self.row:06d}"

    @property
    def version(self) -> str:
        """Return the version from commit, file, and row: two rows are never copies of each other."""
        return f"{self.file.commit}/{self.file.path}#{self.row}"


def row_address(source: str) -> RowAddress | None:
    """Return the row address in a document's source; None for other sources."""
    found = _ROW.fullmatch(source)
    if found is None:
        return None
    file = DataFile(found["repository"], found["commit"], found["path"])
    return RowAddress(file, int(found["row"]), unquote(found["column"]))


# Rows that reference a file instead of containing an image.


#: File of a dataset repository on the Hub, as written by `datasets` and by the Hub's pages.
_HUB = re.compile(
    r"(?:hf://datasets/(?P<a>[^/@]+/[^/@]+)(?:@[^/]+)?|https://[^/]+/datasets/(?P<b>[^/]+/[^/]+)/resolve/[^/]+)/(?P<path>.+)"
)


def in_repository(file: DataFile, reference: str) -> list[str]:
    """Return candidate paths in the repository for a file that a row of `file` references; empty for external files.

    A relative path is looked up from the root, then next to the data file. Files outside the repository are never
    fetched on behalf of a row.
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


# Selection of rows.


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Settings of `dataset` and its related settings; None for unset ones."""

    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    image_column: str | None = None
    id_column: str | None = None
