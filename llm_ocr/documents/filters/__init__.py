"""Exclude documents from a plan: forms, spam, other languages, and blank documents."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from llm_ocr.config.environment import cores
from llm_ocr.errors import MissingExtra, PageFailure, UsageError, WorkerDied, WorkerError
from llm_ocr.sandbox.pool import Limits, WorkerPool

if TYPE_CHECKING:
    from llm_ocr.documents.rendering import Renderer

# Filters run in the renderer's processes (`judging`), which also extract the text of the first pages. The language is
# identified in separate processes (`language_worker`). `Filters` is the main process's side. A document in doubt stays.


LANGUAGE, FORMS, SPAM, BLANK = "language", "forms", "spam", "blank"
#: Increased when a filter's rule changes, so that documents excluded by an older version are checked again.
REVISION = 1


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Enabled filters. `languages` are the codes of languages to keep, in order; none: every language is kept."""

    languages: tuple[str, ...] = ()
    forms: bool = False
    spam: bool = False
    blank: bool = False

    @property
    def any(self) -> bool:
        """Return whether a filter is enabled."""
        return bool(self.languages or self.forms or self.spam or self.blank)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the excluded documents, as JSON values."""
        return {**asdict(self), "languages": list(self.languages), "revision": REVISION} if self.any else {}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Reason for excluding a document.

    `reason` is the filter's name; `kind` is its finding, such as a language code.
    """

    reason: str
    detail: str
    kind: str = ""

    @property
    def cause(self) -> str:
        """Return the category for counts: `language de`, `forms`."""
        return f"{self.reason} {self.kind}" if self.kind else self.reason


#: Module of the processes that identify languages.
MODULE = "llm_ocr.documents.filters.language_worker"
#: py3langid unpacks the model, 65 MiB, into a file.
_LIMITS = Limits(memory=2 << 30, file_size=256 << 20, requests=100_000)
#: Maximum number of processes, and one per two cores: a text takes 1 to 4 ms, its document more.
_WORKERS = 4
#: Seconds; the first text includes the time to load the model.
_DEADLINE = 60.0


class Languages:
    """Language filter; requires `close`."""

    def __init__(self, wanted: Sequence[str], *, confined: bool = True) -> None:
        self._wanted = list(wanted)
        limits = replace(_LIMITS, confined=confined)
        self._pool = WorkerPool(MODULE, workers=max(1, min(_WORKERS, cores() // 2)), limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def check(self) -> None:
        """Check the installation and the codes.

        Raises:
            MissingExtra: The language identifier is not installed.
            UsageError: A code is unknown.
        """
        if find_spec("py3langid") is None:
            raise MissingExtra("`filter_language` needs py3langid, which is not installed", install="filters")
        known = (await self._pool.call("known", {}, deadline=_DEADLINE))["codes"]
        for code in self._wanted:
            if code not in known:
                near = get_close_matches(code.partition("-")[0], known, n=3, cutoff=0.5)
                meant = f"Did you mean {' or '.join(near)}? " if near else ""
                raise UsageError(
                    f"`filter_language={code}`: unknown language", hint=f"{meant}Known: {', '.join(known)}"
                )

    async def judge(self, text: str) -> LeftOut | None:
        """Return the reason for excluding the document of this text. Raises `WorkerDied` and `WorkerError`."""
        payload = {"text": text, "wanted": self._wanted}
        reply = await self._pool.call("judge", payload, deadline=_DEADLINE)
        if not reply["code"]:
            return None
        return LeftOut(LANGUAGE, f"{reply['code']}, {reply['sure']:.0%} sure by {len(text)} characters", reply["code"])

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()


#: Maximum number of documents named in the summary of errors.
_NAMED = 3


class Filters:
    """Filters of one plan. Documents that cannot be judged stay and are counted in `trouble`."""

    def __init__(self, renderer: "Renderer", options: FilterOptions, *, confined: bool = True) -> None:
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
        """Return the number of pages of a local file, and the reason for excluding its document.

        `source` is the name for messages.

        Raises:
            PageFailure: The document cannot be opened.
        """
        try:
            pages, left_out, text, trouble = await self._renderer.judge(path, kind, self.options)
        except PageFailure as failure:
            # The cause may be the document, or only a filter.
            pages, left_out, text, trouble = await self._renderer.open(path, kind), None, "", str(failure)
        if trouble:
            self._keep(source, trouble)
        if text and left_out is None:
            try:
                left_out = await self._languages.judge(text)
            except (WorkerDied, WorkerError) as error:
                self._keep(source, f"language: {error}")
        return pages, left_out

    def _keep(self, source: str, why: str) -> None:
        self.trouble += 1
        if len(self._named) < _NAMED:
            self._named.append(f"{source} ({why.splitlines()[0]})")

    def said(self) -> str:
        """Return a sentence about documents that could not be judged; "" for none."""
        if not self.trouble:
            return ""
        documents = "document" if self.trouble == 1 else "documents"
        named = ", ".join(self._named) + (", ..." if self.trouble > len(self._named) else "")
        return f"{self.trouble} {documents} kept because a filter failed: {named}"
