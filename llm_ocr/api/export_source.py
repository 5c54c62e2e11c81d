"""What an export takes: the dataset files that Assemble wrote, in the plan's order, and what is known of them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from llm_ocr.api.views import is_damaged, note_of_views
from llm_ocr.errors import DatasetDamaged, StageMissing, UsageError
from llm_ocr.models.registry import find_profile
from llm_ocr.results.dataset import FOLDER, dataset_file
from llm_ocr.results.export.card import CardFacts
from llm_ocr.results.export.shards import Source
from llm_ocr.storage import ObjectInfo
from llm_ocr.work.generations import generations
from llm_ocr.work.items import Item, items
from llm_ocr.work.keys import ASSEMBLE, DESCRIBE, EXTRACT, key_settings
from llm_ocr.work.publish import find_marker
from llm_ocr.work.status import run_status
from llm_ocr.work.stored import OF_MODELS, REMEMBERED, remembered_in
from llm_ocr.work.workspace import Workspace

#: Small objects that are read at the same time.
_AT_ONCE = 16
#: Items of the plan in memory.
_ITEMS = 256


@dataclass(frozen=True, slots=True)
class Assembled:
    """The dataset of a workspace: `key` is Assemble's, `identity` that of the workspace wherever it is copied to.

    `sources` are the files of its items in the order of the plan, `counts` the rows of each; `damaged` are the keys of
    those that are known not to be as Assemble wrote them.
    """

    key: str
    identity: str
    sources: tuple[Source, ...]
    counts: tuple[int, ...]
    damaged: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class _Found:
    """An item's dataset file, and the key that wrote it."""

    key: str
    source: Source
    rows: int
    damaged: bool


def undamaged(workspace: Workspace) -> Assembled:
    """As `assembled`. Raises `DatasetDamaged` when files are known to be damaged."""
    found = assembled(workspace)
    if found.damaged:
        raise DatasetDamaged(workspace.url, found.damaged)
    return found


def assembled(workspace: Workspace) -> Assembled:
    """The dataset, proved to be whole and of one key. Raises `StageMissing` when items are not assembled."""
    files = {info.key: info for info in workspace.store.list(f"{FOLDER}/")}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="llm-ocr-export") as pool:
        find = partial(_find, workspace, files)
        found = [one for chunk in _chunks(items(workspace)) for one in pool.map(find, chunk)]
    keys = Counter(one.key for one in found if one)
    key = keys.most_common(1)[0][0] if keys else ""
    whole = [one for one in found if one and one.key == key]
    if len(whole) < len(found) or not found:
        raise StageMissing(
            f"{len(found) - len(whole)} of {len(found)} items not assembled in {workspace.url}",
            hint=f"Run first: llm-ocr assemble -w {workspace.url}",
        )
    identity = generations(workspace)[0].attempt
    return Assembled(
        key,
        identity,
        tuple(one.source for one in whole),
        tuple(one.rows for one in whole),
        tuple(one.source.key for one in whole if one.damaged),
    )


def _chunks(found: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(found)
    while chunk := list(islice(rest, _ITEMS)):
        yield chunk


def _find(workspace: Workspace, files: dict[str, ObjectInfo], item: Item) -> _Found | None:
    """None for an item that is not assembled in its newest state."""
    info = files.get(dataset_file(item.id))
    note = note_of_views(workspace, item) if info else None
    marker = find_marker(workspace, ASSEMBLE, note.key, item.name) if note else None
    if info is None or note is None or marker is None:
        return None
    # What a stage published stays as it is: the key and the item's generation, which is in its name, say all of it.
    content = f"{note.key} {item.name} {marker.sha256} {info.size}"
    source = Source(info.key, info.size, content, info.version, sha256=note.sha256)
    return _Found(note.key, source, marker.counts.expected, is_damaged(workspace, note, info))


def facts(workspace: Workspace, dataset: Assembled, title: str) -> CardFacts:
    """What the card tells; the same for the same state of the workspace, whenever and wherever it is asked."""
    made = key_settings(workspace, ASSEMBLE, dataset.key)
    read = key_settings(workspace, EXTRACT, made.get("extract", "")).get("reader", {})
    described = key_settings(workspace, DESCRIBE, made.get("describe", "")).get("reader", {})
    status = run_status(workspace, describe=made.get("describe", ""))
    model = str(read.get("model") or "")
    licence, notice = _terms(model)
    counts = [("Pages", status.pages), ("Figures", status.figures)]
    remembered = remembered_in(workspace)
    kept = {name: value for name in (*REMEMBERED, *OF_MODELS) if (value := remembered.get(name)) is not None}
    return CardFacts(
        workspace=dataset.identity,
        title=title,
        version=str(workspace.run.get("created_by", "")),
        rows=dataset.rows,
        documents=status.documents,
        counts=tuple((name, found.ok, found.degraded, found.failed) for name, found in counts),
        reasons=status.reasons,
        tokens_in=status.tokens_in,
        tokens_out=status.tokens_out,
        engine=str(remembered.get("engine") or read.get("engine") or ""),
        model=model,
        revision=str(read.get("revision") or ""),
        licence=licence,
        notice=notice,
        describe=_describer(described),
        settings=kept,
    )


def _terms(model: str) -> tuple[str, str]:
    """Licence and notice of a model that is known."""
    try:
        profile = find_profile(model)
    except UsageError:
        return "", ""
    return profile.licence, profile.notice


def _describer(reader: dict[str, Any]) -> str:
    about = str(reader.get("model") or reader.get("engine") or "")
    return f"{about} ({reader['mode']})" if about and reader.get("mode") else about
