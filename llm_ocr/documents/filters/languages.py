"""Identify languages in worker processes; py3langid's model needs 110 MB."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Self

from llm_ocr.config.environment import cores
from llm_ocr.documents.filters import LANGUAGE, FilterOptions, LeftOut
from llm_ocr.documents.rendering import Judged, Renderer
from llm_ocr.errors import MissingExtra, PageFailure, UsageError, WorkerDied, WorkerError
from llm_ocr.sandbox import Limits, WorkerPool

# Languages of texts, identified in processes with limits: the model takes 110 MB and is not loaded where none asks.


MODULE = "llm_ocr.documents.filters.language_worker"
#: The model is 65 MiB when it is unpacked, which py3langid does into a file.
_LIMITS = Limits(memory=2 << 30, file_size=256 << 20, requests=100_000)
#: Processes at most, and one for two cores: a text takes 1 to 4 ms, its document more.
_WORKERS = 4
#: Seconds; the first text waits for the model.
_DEADLINE = 60.0


class Languages:
    """Judges texts. Needs `close`."""

    def __init__(self, wanted: Sequence[str], *, confined: bool = True) -> None:
        self._wanted = list(wanted)
        limits = replace(_LIMITS, confined=confined)
        self._pool = WorkerPool(MODULE, workers=max(1, min(_WORKERS, cores() // 2)), limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def check(self) -> None:
        """Raises `MissingExtra` where languages cannot be identified, `UsageError` for a code that is not known."""
        if find_spec("py3langid") is None:
            raise MissingExtra("--filter-language: py3langid is not installed", install="filters")
        known = (await self._pool.call("known", {}, deadline=_DEADLINE))["codes"]
        for code in self._wanted:
            if code not in known:
                near = get_close_matches(code.partition("-")[0], known, n=3, cutoff=0.5)
                meant = f"Did you mean {' or '.join(near)}? " if near else ""
                raise UsageError(
                    f"--filter-language {code}: no language that is known", hint=f"{meant}Known: {', '.join(known)}"
                )

    async def judge(self, text: str) -> LeftOut | None:
        """Why the document of this text is left out. Raises `WorkerDied` and `WorkerError`."""
        payload = {"text": text, "wanted": self._wanted}
        reply = await self._pool.call("judge", payload, deadline=_DEADLINE)
        if not reply["code"]:
            return None
        return LeftOut(LANGUAGE, f"{reply['code']}, {reply['sure']:.0%} sure by {len(text)} characters", reply["code"])

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()


# Documents looked at by the filters: opened and judged in the renderer's process, the language in another.


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
