"""What must be true of a round's workspace. Each breach is a line of words; counts are facts for the report."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ != "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / "faults" / "stores")]

from fault_checking import Attempts, copied, problems
from soak_documents import Corpus, Template

from llm_ocr.runs import Run
from llm_ocr.scheduling.leases import is_lease
from llm_ocr.simulator.answers import data_url, image_hash
from llm_ocr.storage import ObjectStore
from llm_ocr.types import PageRecord, Status
from llm_ocr.workspace import Workspace

#: What the faults of the mix may do to a page that the calm run read: all its tries were spoilt by the servers.
EXPLAINED = ("server error", "truncated", "malformed answer", "empty answer", "quarantined", "engine timeout")
#: More than this share of the pages at other answers than in calm would be no weather.
_MOST_SPOILT = 0.01
_SHOWN = 5  # lines of one kind


@dataclass(frozen=True, slots=True)
class Page:
    """One page as it was read."""

    status: str
    reason: str
    markdown: str
    image: str  # hash of the data URL, as the simulator names it


@dataclass(frozen=True, slots=True)
class Read:
    """A round's results by what they show. Ids of documents are taken out of the texts."""

    pages: Mapping[tuple[str, int], tuple[Page, ...]]  # by template and number, a page of each copy
    documents: Mapping[str, tuple[str, ...]]  # by template: the texts of all copies
    figures: int
    problems: list[str] = field(default_factory=list)

    def counts(self) -> Counter[str]:
        return Counter(page.status for many in self.pages.values() for page in many)


def read(store: ObjectStore, corpus: Corpus) -> Read:
    """All rows and documents of a finished workspace."""
    found: list[str] = []
    pages: dict[tuple[str, int], list[Page]] = {}
    crops: set[str] = set()
    seen, sound, figures = Counter[str](), dict[str, bool](), 0
    with Workspace.on(copied(store)) as workspace:
        run = Run(workspace)
        for row in run.pages():
            template = _template(corpus, row.source)
            number = row.page_number or 0
            seen[row.page_id] += 1
            figures += len(row.figures)
            crops.update(figure.id for figure in row.figures)
            pages.setdefault((template.name, number), []).append(_page(row))
            sound[row.source] = sound.get(row.source, True) and row.status is Status.OK
            found += _misread(row, template)
        documents: dict[str, list[str]] = {}
        texts = {one.path: one for one in run.documents()}
        if len(texts) != len(corpus.documents):
            found.append(f"{len(texts)} documents have a text, of {len(corpus.documents)}")
        stored = {Path(info.key).stem for info in workspace.store.list("documents/")}
        found += [f"the image of figure {one} is missing" for one in sorted(crops - stored)][:_SHOWN]
        for one in texts.values():
            if sound.get(one.source, False):
                text = one.markdown.replace(one.document_id, "ID").replace(Path(one.source).stem, "NAME")
                documents.setdefault(_template(corpus, one.source).name, []).append(text)
        found += _statuses(run, corpus, seen)
    return Read(
        {place: tuple(many) for place, many in pages.items()},
        {name: tuple(texts) for name, texts in documents.items()},
        figures,
        found,
    )


def _template(corpus: Corpus, source: str) -> Template:
    return corpus.documents[Path(source).stem]


def _page(row: PageRecord) -> Page:
    image = image_hash(data_url(row.image)) if row.image is not None else ""
    markdown = row.markdown.replace(row.document_id, "ID")
    return Page(row.status.value, row.reason.value if row.reason else "", markdown, image)


def _misread(row: PageRecord, template: Template) -> Iterator[str]:
    """Bad documents fail for their own reason, pages of good ones have a number that is theirs."""
    reason = row.reason.value if row.reason else ""
    name, state = Path(row.source).name, f"{row.status.value} ({reason}: {row.detail})"
    if template.reason and (row.status is not Status.FAILED or reason != template.reason):
        yield f"{name}: {state}, not failed ({template.reason})"
    if not template.reason and not (row.page_number and 1 <= row.page_number <= template.pages):
        yield f"{name}: page {row.page_number} of {template.pages}: {state}"


def _statuses(run: Run, corpus: Corpus, seen: Counter[str]) -> Iterator[str]:
    """Conservation, counted three times: from the templates, from the markers, from the rows."""
    counts = run.status.pages
    if not corpus.pages == counts.expected == counts.ok + counts.degraded + counts.failed == len(seen) == seen.total():
        yield f"{corpus.pages} pages are expected; status has {counts}, the rows {seen.total()}, {len(seen)} different"
    if any(many != 1 for many in seen.values()):
        yield f"rows twice: {[one for one, many in seen.items() if many != 1][:_SHOWN]}"


def compared(now: Read, calm: Read) -> tuple[list[str], dict[str, Any]]:
    """Breaches, and what the faults changed, against the calm run: where a page is ok in both its text is the same."""
    found: list[str] = []
    changed = Counter[str]()
    for (name, number), many in now.pages.items():
        before = calm.pages.get((name, number), ())
        if not before:
            found.append(f"{name} page {number} is not in the calm run")
            continue
        for page in many:
            if page == before[0]:
                continue
            if page.status == before[0].status == "ok":
                found.append(f"{name} page {number} has another text or image than in calm")
                continue
            changed[f"{before[0].status} to {page.status}: {page.reason or before[0].reason}"] += 1
            if page.status != "ok" and page.reason not in EXPLAINED:
                found.append(f"{name} page {number} is {page.status} ({page.reason}); in calm {before[0].status}")
    total = now.counts().total()
    if changed.total() > max(3, _MOST_SPOILT * total):
        found.append(f"{changed.total()} of {total} pages came out otherwise than in calm: {dict(changed)}")
    texts, same = _texts(now, calm)
    return [*_few(found), *texts], {"other_than_calm": dict(changed), "documents_as_in_calm": same}


def _texts(now: Read, calm: Read) -> tuple[list[str], int]:
    """Documents whose pages are all ok, and their figures described, read as in calm, captions and all."""
    found, same = [], 0
    for name, texts in now.documents.items():
        before = calm.documents.get(name)
        for text in texts if before else ():
            if before and text == before[0]:
                same += 1
            else:
                found.append(f"the Markdown of a copy of {name} is not as in calm: {_difference(before, text)}")
    return _few(found), same


def _difference(before: tuple[str, ...] | None, text: str) -> str:
    lines = zip((before or ("",))[0].splitlines(), text.splitlines(), strict=False)
    return next((f"{old[:120]!r}, now {new[:120]!r}" for old, new in lines if old != new), "its length")


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more of this kind"]


def stood(store: ObjectStore, corpus: Corpus, figures: int, before: Attempts, killed: set[int]) -> list[str]:
    """Breaches in what is stored: markers, hashes, data set, documents, leases, leftovers. Cleans the workspace."""
    found = [*_leases(store, killed)]
    return found + _few(problems(store, pages=corpus.pages, figures=figures, before=before))


def _leases(store: ObjectStore, killed: set[int]) -> Iterator[str]:
    """Only who was killed may leave a lease behind."""
    for info in store.list():
        if is_lease(info.key):
            worker = str(json.loads(store.get(info.key))["worker"])
            pid = re.search(r"(\d+)$", worker)
            if pid is None or int(pid[1]) not in killed:
                yield f"the lease {info.key} is still there, of {worker}, who ended by itself"


def asked_again(asked: Counter[str], now: Read, calm: Read, calm_asked: Counter[str]) -> int:
    """How many requests for pages there were beyond those that the calm run would have made."""
    again = 0
    by_image = Counter[str]()
    calm_times = Counter[str]()
    for many in now.pages.values():
        by_image.update(page.image for page in many if page.image)
    for many in calm.pages.values():
        calm_times.update(page.image for page in many if page.image)
    for image, times in by_image.items():
        ideal = times * calm_asked[image] / max(calm_times[image], 1)
        again += max(0, round(asked[image] - ideal))
    return again


@dataclass(frozen=True, slots=True)
class Direct:
    """The round's store, without the weather before it."""

    url: str
    endpoint: str

    def __enter__(self) -> ObjectStore:
        from llm_ocr.storage import StoreOptions
        from llm_ocr.storage.s3 import S3Store
        from llm_ocr.storage.s3.client import parse_url

        return S3Store(parse_url(self.url), StoreOptions(endpoint=self.endpoint))

    def __exit__(self, *_: object) -> None:
        pass


def unfinished(store: ObjectStore) -> list[str]:
    """The stages that are not done."""
    with Workspace.on(store) as workspace:
        return [name for name, stage in Run(workspace).status.stages.items() if not stage.finished]


def remove_all(store: ObjectStore) -> None:
    """Nothing of the workspace is kept: the server holds it in memory."""
    for info in list(store.list()):
        store.delete(info.key)
