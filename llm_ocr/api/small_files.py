"""Small local documents, hashed, opened and counted a few at a time: the steps cost more than the files."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llm_ocr.documents.giving import Given, given_all
from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.errors import PageFailure

#: Bytes up to which a file is small, and how many make one step.
_SMALL, _TOGETHER = 4 << 20, 4

#: The version of a document ("" where it cannot be read), and its pages or why it cannot be opened.
Counted = tuple[str, int | PageFailure]


@dataclass(slots=True)
class _Group:
    documents: list[SourceDocument] = field(default_factory=list)
    task: "asyncio.Future[list[Counted]] | None" = None


class SmallFiles:
    """Counts what is asked for at the same time together. `total` tells pages by version, where they are known."""

    def __init__(self, renderer: Renderer, total: Callable[[str], int | None]) -> None:
        self._renderer = renderer
        self._total = total
        self._group: _Group | None = None

    @staticmethod
    def takes(document: SourceDocument) -> bool:
        """Whether it is such a document."""
        return (
            not document.version
            and document.size is not None
            and document.size <= _SMALL
            and not is_remote(document.source)
        )

    async def look(self, document: SourceDocument) -> Counted:
        """Version and pages of one document."""
        group = self._group
        if group is None or len(group.documents) == _TOGETHER:
            group = self._group = _Group()
            # It begins when all that is asked for now has joined: tasks run in the order in which they were made.
            group.task = asyncio.ensure_future(self._counted(group))
        place = len(group.documents)
        group.documents.append(document)
        assert group.task is not None
        return (await asyncio.shield(group.task))[place]

    async def _counted(self, group: _Group) -> list[Counted]:
        if self._group is group:
            self._group = None
        documents = group.documents
        async with given_all([document.source for document in documents]) as files:
            found = [("", file) if isinstance(file, PageFailure) else self._known(file) for file in files]
            places = [place for place, (_, pages) in enumerate(found) if not pages]
            for place, pages in zip(places, await self._opened(documents, files, places), strict=True):
                found[place] = (found[place][0], pages)
        return found

    def _known(self, file: Given) -> Counted:
        return file.version, self._total(file.version) or 0

    async def _opened(
        self, documents: Sequence[SourceDocument], files: Sequence[Given | PageFailure], places: Sequence[int]
    ) -> list[int | PageFailure]:
        chosen = [(documents[place], files[place]) for place in places]
        asked = [(one.source, one.kind, file.descriptor) for one, file in chosen if isinstance(file, Given)]
        return await self._renderer.open_all(asked) if asked else []
