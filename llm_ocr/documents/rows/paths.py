"""Rows that name a file instead of holding an image."""

import re
from urllib.parse import unquote

from llm_ocr.documents.rows.address import DataFile

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
