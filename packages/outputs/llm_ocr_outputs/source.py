"""Dataset files of an assembled workspace, as the source of exports."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from llm_ocr.documents.remote import shown
from llm_ocr.errors import DatasetDamaged, PageFailure, StageMissing, UsageError
from llm_ocr.models.registry import find_profile
from llm_ocr.results.dataset import FOLDER, DatasetRow, dataset_file
from llm_ocr.results.documents import DocumentNames, name_claims
from llm_ocr.results.schema import Images
from llm_ocr.scheduling.scanner import PlannedItems
from llm_ocr.stages.assemble import markers_of, paths_of
from llm_ocr.types import DocumentPart, PageRecord, Reason, Status
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.items import Item, is_damaged, items, note_of_views
from llm_ocr.workspace.keys import ASSEMBLE, DESCRIBE, EXTRACT, VIEW_NOTES, assembled_key, key_settings
from llm_ocr.workspace.publish import CompactedMarkers, find_marker, iter_markers
from llm_ocr.workspace.published import (
    choose,
    chosen_rows,
    finished_pages,
    published_figures,
    published_pages,
)
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.stored import OF_MODELS, REMEMBERED, remembered_in
from llm_ocr_outputs.exports.card import CardFacts
from llm_ocr_outputs.exports.shards import Source, relative_source

#: Form of a language tag. Models name languages in any form.
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")


def identity_of(workspace: Workspace) -> str:
    """Return the workspace's own id, which survives copying; empty if nothing is planned."""
    found = generations(workspace)
    return found[0].attempt if found else ""


def provenance(workspace: Workspace, key: str) -> dict[str, Any]:
    """Return the provenance of the results under a key of Assemble, as JSON values.

    `workspace`: its id. `version`: the version of llm-ocr that created it. `extract`, `describe` and `assemble`: their
    `key`. The first two also have `engine` (embedded or model), `model` and `revision`, null for the embedded engine;
    `describe` has its `mode`. `transform` names a user's own stage and its `key`, null if none has changed the pages.
    """
    made = key_settings(workspace, ASSEMBLE, key)
    stage, source = str(made.get("pages_from", EXTRACT)), str(made.get("extract", ""))
    read = source if stage == EXTRACT else str(key_settings(workspace, stage, source).get("extract", ""))
    described = str(made.get("describe", ""))
    reader = key_settings(workspace, DESCRIBE, described).get("reader", {})
    return {
        "workspace": identity_of(workspace),
        "version": str(workspace.run.get("created_by", "")),
        "extract": _reader(read, key_settings(workspace, EXTRACT, read).get("reader", {})),
        "describe": {**_reader(described, reader), "mode": reader.get("mode")},
        "assemble": {"key": key},
        "transform": None if stage == EXTRACT else {"stage": stage, "key": source},
    }


def _reader(key: str, reader: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, **{name: reader.get(name) for name in ("engine", "model", "revision")}}


@dataclass(frozen=True, slots=True)
class Document:
    """Document with all its rows, in page order.

    `names` are those of its files below `documents/` in the workspace, without `.md`; several if there are copies.
    `page_total` is the number of pages of the file, of which `rows` may be a selection. If the plan only estimated it,
    `page_total` is the number of rows; 0 for a document that could not be opened. `part` has the source as planned.
    """

    id: str
    source: str
    names: tuple[str, ...]
    page_total: int
    rows: tuple[DatasetRow, ...]
    part: DocumentPart

    @property
    def failure(self) -> PageFailure | None:
        """Why the source could not be opened when the document was read; None if it has pages."""
        if not self.rows or any(row.record.page_number is not None for row in self.rows):
            return None
        record = self.rows[0].record
        return PageFailure(record.reason or Reason.UNREADABLE, record.detail)

    @property
    def error_rate(self) -> float:
        """Share 0..1 of the rows that failed, or that a fallback read instead of the requested model."""
        bad = sum(row.record.status is Status.FAILED or row.record.is_fallback for row in self.rows)
        return bad / len(self.rows) if self.rows else 0.0


def language_of(record: PageRecord) -> str:
    """Return the language of a page as a BCP 47 tag; "" if it is unknown, or named in another form."""
    language = str(record.notes.get("primary_language") or "")
    return language if _LANGUAGE.fullmatch(language) else ""


class AssembledRows:
    """Rows and documents of the items of a workspace, as Assemble processed them under one of its keys."""

    def __init__(self, workspace: Workspace, key: str, source_folder: str = "") -> None:
        """Read the whole plan, one part at a time.

        Args:
            workspace: The workspace.
            key: The key of Assemble.
            source_folder: The folder to which sources on this machine are relative; empty for whole paths.

        Raises:
            StageMissing: there is no plan, or no such key.
        """
        self._workspace = workspace
        self._source_folder = source_folder
        made = key_settings(workspace, ASSEMBLE, key)
        if not made:
            raise StageMissing(
                f"{workspace.url} has no assembled results", hint=f"Run first: llm-ocr assemble -w {workspace.url}"
            )
        self._extracted = markers_of(workspace, made.get("pages_from", EXTRACT), made["extract"])
        self._described = markers_of(workspace, DESCRIBE, made["describe"])
        self._planned = PlannedItems(workspace)
        claims = (claim for i in self._planned.read() for part in i.parts for claim in name_claims(part))
        self._names = DocumentNames.of_plan(claims)

    def item(self, place: int) -> Item:
        """Return the item at this position of the plan, from 0."""
        return self._planned[place]

    def rows(self, item: Item, images: Images = Images.NONE) -> Iterator[DatasetRow]:
        """Yield the item's rows in the order of the dataset, with the requested images, a few in memory at a time.

        Raises:
            StageMissing: a unit of the item is not finished.
            StorageError: data could not be read.
        """
        pages = partial(self._pages, item)
        chosen: dict[str, str] | None = None
        if item.newer:
            chosen = choose(item.unit_ids, item.documents, pages, self._extracted)
            rows, units = chosen_rows(item.layers, chosen, pages, images=images), dict.fromkeys(chosen.values())
        else:  # all rows are effective, and one pass is enough
            units = dict.fromkeys(item.unit_ids)
            rows = (record for unit in units for record in pages(unit, images))
        figures = published_figures(self._workspace, map(self._described, units), chosen)
        wanted = Images.FIGURES if images is Images.FIGURES else Images.NONE
        yield from finished_pages(rows, figures, images=wanted)  # never ALL: no boxes are needed

    def documents(self, item: Item) -> Iterator[Document]:
        """Yield the item's documents in the order of the plan, without image bytes; their texts are in memory."""
        rows: dict[str, list[DatasetRow]] = {}
        for row in self.rows(item):
            rows.setdefault(row.record.document_id, []).append(row)
        totals = page_totals(item)
        for document, parts in groupby(item.parts, key=lambda part: part.document_id):
            first, *rest = parts
            paths = dict.fromkeys(path for part in (first, *rest) for path in paths_of(part))
            names = tuple(dict.fromkeys(self._names.of(document, path) for path in paths))
            ordered = sorted(rows.pop(document, ()), key=lambda row: row.record.page_number or 0)
            known = totals[document] or sum(row.record.page_number is not None for row in ordered)
            source = relative_source(shown(first.source), self._source_folder)
            if self._source_folder:
                ordered = [replace(row, record=replace(row.record, source=source)) for row in ordered]
            yield Document(document, source, names, known, tuple(ordered), first)

    def _pages(self, item: Item, unit: str, images: Images) -> Iterator[PageRecord]:
        return published_pages(self._workspace, self._extracted(unit), images, item.unit(unit))


def page_totals(item: Item) -> dict[str, int]:
    """Return the pages of each document's file by the plan; a retry may have opened a document that failed before."""
    totals: dict[str, int] = {}
    for unit in (*item.units, *item.newer):
        for part in unit.parts:
            totals[part.document_id] = max(totals.get(part.document_id, 0), part.page_total)
    return totals


@dataclass(frozen=True, slots=True)
class Assembled:
    """Dataset of a workspace: `key` is Assemble's, `identity` the workspace's id, which survives copying.

    `sources` are the files of its items in the order of the plan. `damaged` are the keys of files known to differ from
    the files that Assemble wrote.
    """

    key: str
    identity: str
    sources: tuple[Source, ...]
    damaged: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(source.rows for source in self.sources)


def undamaged(workspace: Workspace, source_folder: str = "") -> Assembled:
    """Return the dataset, as `assembled` does.

    Raises:
        DatasetDamaged: files are known to be damaged.
    """
    found = assembled(workspace, source_folder)
    if found.damaged:
        raise DatasetDamaged(workspace.url, found.damaged)
    return found


def assembled(workspace: Workspace, source_folder: str = "") -> Assembled:
    """Return the dataset after a check that it is complete and of a single key.

    Args:
        workspace: The workspace.
        source_folder: The folder to which an export names sources on this machine relative; empty for whole paths.

    Raises:
        StageMissing: items are not assembled.
    """
    files = {info.key: info for info in workspace.store.list(f"{FOLDER}/")}
    notes: Mapping[str, dict[str, Any]] = {}
    made: Mapping[tuple[str, str], tuple[str, int]] = {}  # hash and number of rows of finished items, by key and name
    if newest := assembled_key(workspace):
        versions = {info.key: info.version for info in workspace.store.list(VIEW_NOTES)}
        notes = CompactedMarkers(workspace.store, ASSEMBLE, newest).among(versions)
        markers = iter_markers(workspace, ASSEMBLE, newest)
        made = {(newest, marker.unit): (marker.sha256, marker.counts.expected) for marker in markers}

    def find(item: Item) -> tuple[str, Source, bool] | None:
        """Return the key that wrote an item's file, the file, and whether it is damaged; None if not assembled."""
        info = files.get(dataset_file(item.id))
        note = note_of_views(workspace, item, notes) if info else None
        known = made.get((note.key, item.name)) if note else None
        if note and known is None and (marker := find_marker(workspace, ASSEMBLE, note.key, item.name)):
            known = marker.sha256, marker.counts.expected
        if info is None or note is None or known is None:
            return None
        digest, rows = known
        # Published results never change: the key, and the item's generation in its name, identify the content.
        content = f"{note.key} {item.name} {digest} {info.size}"
        if source_folder:
            content += f" sources relative to {source_folder}"
        version, sha256 = info.version, note.sha256
        source = Source(info.key, info.size, content, version, sha256=sha256, folder=source_folder, rows=rows)
        return note.key, source, is_damaged(workspace, note, info)

    found = list(codec.read_ahead(find, items(workspace), "export"))
    keys = Counter(file[0] for file in found if file)
    key = keys.most_common(1)[0][0] if keys else ""
    whole = [file for file in found if file and file[0] == key]
    if len(whole) < len(found) or not found:
        raise StageMissing(
            f"{len(found) - len(whole)} of {len(found)} items are not assembled in {workspace.url}",
            hint=f"Run first: llm-ocr assemble -w {workspace.url}",
        )
    damaged = tuple(source.key for _, source, is_wrong in whole if is_wrong)
    return Assembled(key, identity_of(workspace), tuple(source for _, source, _ in whole), damaged)


def facts(workspace: Workspace, dataset: Assembled, title: str) -> CardFacts:
    """Return the facts for the card; the same state of the workspace gives the same facts."""
    made = key_settings(workspace, ASSEMBLE, dataset.key)
    read = key_settings(workspace, EXTRACT, made.get("extract", "")).get("reader", {})
    described = key_settings(workspace, DESCRIBE, made.get("describe", "")).get("reader", {})
    status = run_status(workspace, describe=made.get("describe", ""))
    model = str(read.get("model") or "")
    licence = notice = ""
    with contextlib.suppress(UsageError):  # of an unknown model
        profile = find_profile(model)
        licence, notice = profile.licence, profile.notice
    describer = str(described.get("model") or described.get("engine") or "")
    if describer and described.get("mode"):
        describer = f"{describer} ({described['mode']})"
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
        describe=describer,
        settings=kept,
    )
