"""Define the URLs of dataset rows and the options that select rows."""

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from llm_ocr.documents.manifests import is_file, is_folder

_ROW = re.compile(
    r"(?:hf://datasets/(?P<repository>[^/@]+/[^/@]+)@(?P<commit>[0-9a-f]{40})/(?P<path>.+)"
    r"|file://(?P<local>.+)@(?P<version>[0-9a-f]{40}))"
    r"#row=(?P<row>\d+)&column=(?P<column>[^&]*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """Parquet file of a dataset repository at a commit, or on this machine.

    Attributes:
        repository: namespace/name; "" for a file on this machine.
        commit: The commit; of a file on this machine, its `local_version`.
        path: Path in the repository, or the absolute path.
        below: Path below the folder that the user named, for a file on this machine.
    """

    repository: str
    commit: str
    path: str
    below: str = field(default="", compare=False)

    @property
    def url(self) -> str:
        """Return the URL in the format of stores."""
        if not self.repository:
            return f"file://{self.path}@{self.commit}"
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
        return f"{self.file.below or self.file.path}/{self.row:06d}"

    @property
    def version(self) -> str:
        """Return the version from commit, file, and row: two rows are never copies of each other."""
        return f"{self.file.commit}/{self.file.below or self.file.path}#{self.row}"


def row_address(source: str) -> RowAddress | None:
    """Return the row address in a document's source; None for other sources."""
    found = _ROW.fullmatch(source)
    if found is None:
        return None
    file = DataFile(found["repository"] or "", found["commit"] or found["version"], found["path"] or found["local"])
    return RowAddress(file, int(found["row"]), unquote(found["column"]))


def local_version(path: Path) -> str:
    """Return 40 hex digits of a Parquet file's size and footer, which contains the places of all its values.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FOOTER))
        return hashlib.sha256(b"%d\0" % size + file.read()).hexdigest()[:40]


#: Bytes at the end of a Parquet file that contain at least the end of its footer.
_FOOTER = 1 << 20

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
    return [name for name in dict.fromkeys((path, f"{folder}/{path}" if folder else path)) if _is_inside(name)]


def _is_inside(path: str) -> bool:
    return all(part not in ("", ".", "..") for part in path.split("/"))


#: Endings of the names of Parquet files.
PARQUET = (".parquet", ".geoparquet", ".gpq")


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """Settings of `dataset` and its related settings; None for unset ones."""

    name: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    image_column: str | None = None
    id_column: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the name is a folder or files on this machine, and not a dataset of the Hub."""
        marked = self.name.startswith(("/", "./", "../", "~", "file://")) or self.name.lower().endswith(PARQUET)
        return marked or bool(self.name and (is_folder(Path(self.name)) or is_file(Path(self.name))))
