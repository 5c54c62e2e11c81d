"""Languages of texts, identified in processes with limits: the model takes 110 MB and is not loaded where none asks."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Self

from llm_ocr.documents.filters import LANGUAGE, LeftOut
from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.processes import Limits, WorkerPool
from llm_ocr.settings.environment import cores

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
