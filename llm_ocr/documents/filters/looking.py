"""Documents looked at by the filters: opened and judged in the renderer's process, the language in another."""

from typing import Self

from llm_ocr.documents.filters import FilterOptions, LeftOut
from llm_ocr.documents.filters.languages import Languages
from llm_ocr.documents.rendering import Judged, Renderer
from llm_ocr.errors import PageFailure, WorkerDied, WorkerError

#: Documents named of those that could not be looked at.
_NAMED = 3


class Filters:
    """The filters of one planning. What they cannot look at stays, and is counted in `trouble`."""

    def __init__(self, renderer: Renderer, options: FilterOptions, *, confined: bool = True) -> None:
        self.options = options
        self.trouble: int = 0
        self._named: list[str] = []
        self._renderer = renderer
        self._languages = Languages(options.languages, confined=confined)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._languages.close()

    async def look(self, path: str, kind: str, source: str) -> tuple[int, LeftOut | None]:
        """The number of pages of a local file, and why its document is left out; `source` is how it is named.

        Raises `PageFailure` when it cannot be opened.
        """
        try:
            found = await self._renderer.judge(path, kind, self.options)
        except PageFailure as failure:
            # The document may be at fault, or only what a filter did with it.
            pages = await self._renderer.open(path, kind)
            self._keep(source, str(failure))
            return pages, None
        if found.trouble:
            self._keep(source, found.trouble)
        return found.pages, found.left_out or await self._other_language(found, source)

    async def _other_language(self, found: Judged, source: str) -> LeftOut | None:
        if not found.text:
            return None
        try:
            return await self._languages.judge(found.text)
        except (WorkerDied, WorkerError) as error:
            self._keep(source, f"language: {error}")
            return None

    def _keep(self, source: str, why: str) -> None:
        self.trouble += 1
        if len(self._named) < _NAMED:
            self._named.append(f"{source} ({why.splitlines()[0]})")

    def said(self) -> str:
        """What could not be looked at, in words; empty for nothing."""
        if not self.trouble:
            return ""
        documents = "document" if self.trouble == 1 else "documents"
        named = ", ".join(self._named) + (", ..." if self.trouble > len(self._named) else "")
        return f"{self.trouble} {documents} kept because a filter could not look: {named}"
