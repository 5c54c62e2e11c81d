"""Remote documents that the user means: one by one, below a prefix or pattern, and by lists and manifests.

What is below a prefix comes with its version from the listing. What is named one by one in a list or manifest is not
looked at here: whether it is there, and its version, turn out when it is opened.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

from llm_ocr.documents.file_types import ACCEPTED, HEAD_BYTES, kind_by_content, kind_of_head
from llm_ocr.documents.manifests import ManifestEntry, UniqueIds
from llm_ocr.documents.remote.fetched import store_version
from llm_ocr.documents.remote.lists import ListFile
from llm_ocr.documents.remote.matching import hidden, matcher
from llm_ocr.documents.remote.options import RemoteOptions
from llm_ocr.documents.remote.stores import Stores
from llm_ocr.documents.remote.urls import (
    StoreUrl,
    below,
    fixed_part,
    has_magic,
    is_remote,
    is_web,
    joined,
    kind_by_url,
    name_of,
    path_of,
    shown,
    split,
    suffix_of,
    unknown_scheme,
)
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.errors import ObjectNotFound, UsageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Reason

_LISTS = (".txt", ".jsonl")
#: Objects whose first bytes are asked for at a time, where the name says nothing.
_AT_ONCE = 64


class RemoteListing:
    """Finds documents. Blocking, lazy, and with nothing in memory but a page of a listing.

    `skipped` counts what is below prefixes and of no known type, by suffix; `ids` are those of all manifests. Errors of
    a store end a listing: half of it would be a wrong plan.
    """

    def __init__(
        self,
        skipped: Counter[str],
        ids: UniqueIds,
        options: RemoteOptions | None = None,
        *,
        stores: Stores | None = None,
    ) -> None:
        self._skipped = skipped
        self._ids = ids
        self._options = options or RemoteOptions()
        self._stores = stores or Stores(self._options.store)

    def documents(self, source: str) -> Iterator[SourceDocument]:
        """What a remote source of the user means. Raises `UsageError`, `StorageError`, `MissingExtra`."""
        if suffix_of(source) in _LISTS and not source.endswith("/") and (is_web(source) or not has_magic(source)):
            yield from self._list(source)
        elif is_web(source):
            yield SourceDocument(source, name_of(source), kind_by_url(source))
        else:
            yield from self._stored(SourceDocument(source, name_of(source)))

    def line(self, text: str, base: str = "") -> Iterator[SourceDocument]:
        """What a remote line of a list means; `base` is the URL of the list, empty for a local one."""
        found = self._one(text, base)
        if found.reason is None and not is_web(found.source):
            key = split(found.source).key
            if not found.kind or has_magic(key):
                yield from self._stored(found)
                return
        yield found

    def entry(self, entry: ManifestEntry, base: str = "") -> SourceDocument:
        """The document of a manifest's line; `base` is the URL of the manifest, empty for a local one."""
        return replace(self._one(entry.path, base), document_id=entry.document_id, pages=entry.pages)

    def _one(self, text: str, base: str) -> SourceDocument:
        """What is named by itself, nothing asked of its server; what cannot be a document is one that failed.

        Like a local file it keeps its path below the list. What is elsewhere keeps its path in the bucket or web site,
        and has only its name in the id: so it was before it kept its path.
        """
        url = joined(base, text) if base else text
        near = below(base, url)
        relative = near or name_of(url)
        try:
            if not is_remote(url):
                raise unknown_scheme(url) or UsageError("a list from elsewhere names no files of this machine")
            if not is_web(url):
                split(url)
            relative = near or path_of(url)
        except UsageError as error:
            return _failed(url, relative, Reason.UNREADABLE, " ".join(str(error).split("\n")))
        return SourceDocument(url, relative, kind_by_url(url), name_in_id="" if near else name_of(url))

    def _list(self, source: str) -> Iterator[SourceDocument]:
        with ListFile(source, self._options, self._stores) as file:
            if kind_by_content(file.path):
                yield SourceDocument(source, name_of(source), kind_by_content(file.path))
            elif suffix_of(source) == ".jsonl":
                for entry in file.entries(self._ids):
                    yield self.entry(entry, source)
            else:
                for line in file.lines():
                    yield from self.line(line, source)

    def _stored(self, named: SourceDocument) -> Iterator[SourceDocument]:
        """A literal key wins over a pattern and over a folder of the same spelling."""
        place = split(named.source)
        store = self._stores.at(place.root)
        info = store.stat(place.key) if place.key and not place.key.endswith("/") else None
        if info is not None:
            yield self._named(place, info, named)
        elif has_magic(place.key):
            yield from self._matching(place)
        else:
            yield from self._below(place)

    def _named(self, place: StoreUrl, info: ObjectInfo, named: SourceDocument) -> SourceDocument:
        url = place.at(info.key)
        kind = kind_by_url(url) or self._look(place.root, info)
        if not kind:
            return _failed(url, named.relative, Reason.UNKNOWN_TYPE, f"accepted are {ACCEPTED}")
        return replace(named, source=url, kind=kind, version=store_version(url, info), size=info.size)

    def _below(self, place: StoreUrl) -> Iterator[SourceDocument]:
        folder = f"{place.key.rstrip('/')}/" if place.key.strip("/") else ""
        found = self._stores.at(place.root).list(folder)
        first = next(found, None)
        if first is None:
            yield _failed(place.at(place.key), name_of(place.key), Reason.NOT_FOUND, "no object, and nothing below it")
            return
        shown_ones = (info for info in chain([first], found) if not hidden(info.key[len(folder) :]))
        yield from self._kept(place, shown_ones, folder)

    def _matching(self, place: StoreUrl) -> Iterator[SourceDocument]:
        fixed = fixed_part(place.key)
        folder = fixed[: fixed.rfind("/") + 1]
        fits = matcher(place.key[len(folder) :])
        found = (info for info in self._stores.at(place.root).list(fixed) if fits(info.key[len(folder) :]))
        first = next(found, None)
        if first is None:
            yield _failed(place.at(place.key), name_of(place.key), Reason.NOT_FOUND, "no object matches")
            return
        yield from self._kept(place, chain([first], found), folder)

    def _kept(self, place: StoreUrl, infos: Iterable[ObjectInfo], folder: str) -> Iterator[SourceDocument]:
        """Those of a known type, by suffix; by their first bytes where there is none."""
        objects = (info for info in infos if info.size or not info.key.endswith("/"))  # empty ones stand for folders
        with ThreadPoolExecutor(self._options.fetches) as threads:
            while batch := list(islice(objects, _AT_ONCE)):
                unnamed = [info for info in batch if not suffix_of(place.at(info.key))]
                looked = dict(
                    zip(unnamed, threads.map(lambda info: self._look(place.root, info), unnamed), strict=True)
                )
                for info in batch:
                    url = place.at(info.key)
                    kind = kind_by_url(url) or looked.get(info, "")
                    if kind:
                        relative = info.key[len(folder) :] or name_of(url)
                        yield SourceDocument(url, relative, kind, store_version(url, info), size=info.size)
                    else:
                        self._skipped[suffix_of(url)] += 1

    def _look(self, root: str, info: ObjectInfo) -> str:
        try:
            head = self._stores.at(root).read_range(info.key, 0, min(HEAD_BYTES, info.size)) if info.size else b""
        except ObjectNotFound:
            return ""  # removed since it was listed
        return kind_of_head(head)


def _failed(url: str, relative: str, reason: Reason, detail: str) -> SourceDocument:
    return SourceDocument(shown(url), relative, reason=reason, detail=detail)
