"""Lists and manifests that stand on a store or on the web, read line by line from a local copy."""

import asyncio
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from llm_ocr.documents.manifests import ManifestEntry, UniqueIds, entry_of
from llm_ocr.documents.remote.http import WebClient
from llm_ocr.documents.remote.options import RemoteOptions
from llm_ocr.documents.remote.stores import Stores
from llm_ocr.documents.remote.urls import is_web, shown, split
from llm_ocr.errors import ObjectNotFound, PageFailure, UsageError


class ListFile:
    """A local copy of a list, for as long as the block lasts. Blocking. Raises `UsageError` when there is no list."""

    def __init__(self, url: str, options: RemoteOptions, stores: Stores) -> None:
        self._url = url
        self._folder = tempfile.TemporaryDirectory(prefix="llm-ocr-list-")
        self.path = Path(self._folder.name, "list")
        try:
            if is_web(url):
                with ThreadPoolExecutor(1) as thread:  # the caller's may have a running loop
                    thread.submit(asyncio.run, _fetch(url, self.path, options)).result()
            else:
                place = split(url)
                stores.at(place.root).download(place.key, self.path)
        except (PageFailure, ObjectNotFound) as error:
            self._folder.cleanup()
            raise UsageError(str(error.args[0]), hint=error.hint) from error
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def lines(self) -> Iterator[str]:
        """Paths and URLs: one a line, `#` begins a comment line, empty lines are skipped."""
        for _, line in self._numbered():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip()

    def entries(self, ids: UniqueIds) -> Iterator[ManifestEntry]:
        """The documents of a manifest. Raises `UsageError` that names the line and what is wrong."""
        for number, line in self._numbered():
            if line.strip():
                yield entry_of(line, f"{shown(self._url)} line {number}", ids)

    def _numbered(self) -> Iterator[tuple[int, str]]:
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line.rstrip("\r\n")


class _AnyRoom:
    """A list is no document: it takes no place among them."""

    async def take(self, size: int) -> None:
        """At once."""

    def resize(self, size: int) -> None:
        """Without limit; the download has one."""


async def _fetch(url: str, path: Path, options: RemoteOptions) -> None:
    web = WebClient(options)
    try:
        await web.fetch(url, "", path, _AnyRoom())
    finally:
        await web.close()
