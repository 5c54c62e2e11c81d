"""`export --format dataset --drop-over-error-rate`: which files of the dataset lose rows, and the list of what went."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from llm_ocr.api.export_notes import DROPPED
from llm_ocr.api.export_source import Assembled
from llm_ocr.errors import ObjectNotFound
from llm_ocr.results.export.lines import json_line
from llm_ocr.results.export.regroup import bad_documents_of
from llm_ocr.results.export.shards import Source
from llm_ocr.storage import ObjectStore
from llm_ocr.work.workspace import Workspace

#: Files that are looked at side by side, and those whose answers may wait.
_AT_ONCE, _WAITING = 16, 256


@dataclass(frozen=True, slots=True)
class Kept:
    """The dataset without `dropped` documents, of which the file `list` on the local disk tells."""

    dataset: Assembled
    dropped: int
    list: Path


def without_bad_documents(workspace: Workspace, dataset: Assembled, most: float) -> Kept:
    """The dataset without documents whose share of bad pages is beyond `most` (0..1).

    A file that loses rows has other content by that, so that its shards get other names; all others stay as they are.
    Reads five small columns of every file. Raises `StorageError`.
    """
    path = workspace.spool / DROPPED
    sources: list[Source] = []
    counts: list[int] = []
    dropped = 0
    with path.open("wb") as file:
        for source, count, bad in _looked_at(workspace.store, dataset, most):
            file.writelines(map(json_line, bad))
            dropped += len(bad)
            left = count - sum(one["pages"] for one in bad)
            if left:
                sources.append(_without(source, bad, most))
                counts.append(left)
    return Kept(replace(dataset, sources=tuple(sources), counts=tuple(counts)), dropped, path)


def _looked_at(
    store: ObjectStore, dataset: Assembled, most: float
) -> Iterator[tuple[Source, int, list[dict[str, Any]]]]:
    files = iter(zip(dataset.sources, dataset.counts, strict=True))
    look = partial(bad_documents_of, store.read_range, most=most)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="llm-ocr-export") as pool:
        while group := list(islice(files, _WAITING)):
            found = pool.map(look, (source for source, _ in group))
            yield from ((source, count, bad) for (source, count), bad in zip(group, found, strict=True))


def _without(source: Source, bad: list[dict[str, Any]], most: float) -> Source:
    if not bad:
        return source
    ids = "\n".join(sorted(one["document_id"] for one in bad))
    digest = hashlib.sha256(ids.encode("utf-8", "replace")).hexdigest()[:16]
    return replace(source, content=f"{source.content} without {digest}", most=most)


def put_list(store: ObjectStore, kept: Kept | None) -> None:
    """Have the list of what was left out at the output, or none where nothing was."""
    try:
        standing = store.get(DROPPED)
    except ObjectNotFound:
        standing = b""
    data = kept.list.read_bytes() if kept is not None else b""
    if data and data != standing:
        store.put(DROPPED, data)
    elif standing and not data:
        store.delete(DROPPED)
