"""Pages read by a model: a `PageReader` over an engine, a profile and a retry ladder."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from llm_ocr.engines import PageReader, unheard
from llm_ocr.engines.asking import Engine
from llm_ocr.engines.embedded.describe import MODES
from llm_ocr.engines.model.anchor import PLACE
from llm_ocr.engines.model.backlog import Backlog
from llm_ocr.engines.model.ladder import rungs_as_json, rungs_for
from llm_ocr.engines.model.options import ReadOptions
from llm_ocr.engines.model.page_help import FigureRule
from llm_ocr.engines.model.page_reading import SOURCE, PageReading
from llm_ocr.engines.model.questions import json_values, profile_as_json, what_fits
from llm_ocr.engines.model.tools import ImageTools, QualityRule, Sight
from llm_ocr.engines.model.tries import Step
from llm_ocr.errors import UsageError
from llm_ocr.models.parsers import gives_places
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.types import Attempt, Page

#: Raised when a change alters what is made of the same answers, parsers included: it goes into the key.
RESULT_VERSION = 2
#: Pages that may wait to be looked at for figures before no more are asked for: about so many megabytes.
_WAITING = 128
#: Pages at a time that are looked at while the model still reads them. Those whose answers are there do not wait here.
_LOOKING_AHEAD = 1


class ModelReader:
    """A `PageReader`; needs `close()`, which closes `fallback` and `sight`. The engine is shared: its maker closes it.

    A page ends as `ok`, as `degraded` (read by `fallback`, else the best of the answers, loop cut off) or, where
    nothing of any answer is usable, as a `PageFailure` with all its tries. A page that kills servers never comes to
    `fallback`: the server or the settings may be what is wrong. Without `sight`
    pages have the figures of the answers only, and are turned by the model's word only. With a `rule`, a sound answer
    of low quality is asked for again up the ladder, some times at most, and the best sound one counts.
    """

    def __init__(
        self,
        engine: Engine,
        profile: Profile,
        tools: ImageTools,
        options: ReadOptions | None = None,
        fallback: PageReader | None = None,
        sight: Sight | None = None,
        rule: QualityRule | None = None,
    ) -> None:
        """Raises `UsageError` for a mode that the profile does not have, and for help that it does not take."""
        self.engine = engine
        self.profile = profile
        self.tools = tools
        self.options = options or ReadOptions()
        self.fallback = fallback
        self.sight = sight
        self.rule = rule
        self.backlog = Backlog(_WAITING)
        self.lane = asyncio.Semaphore(_LOOKING_AHEAD)
        mode = self.options.mode or profile.mode
        modes = [one for one in profile.prompts if one not in MODES]
        if mode not in modes:
            hint = f"Use one of: {', '.join(modes)}."
            raise UsageError(f"{profile.name} has no mode {mode!r} to read pages with", hint=hint)
        self.rungs = rungs_for(profile, modes=self.options.prompt is None)
        temperature = profile.temperature if self.options.temperature is None else self.options.temperature
        self.first = Step(mode, temperature, what_fits(profile, self.options.max_tokens))
        labels = self.options.figure_labels
        self.figure_labels = profile.figure_labels if labels is None else labels
        if self.options.anchor and not self._anchors(mode):
            takers = [one.name for one in PROFILES if one.anchor]
            raise UsageError(
                f"{profile.name} takes no text of the page in its prompt (--anchor-text) in mode {mode}",
                hint=f"These do: {', '.join(takers)}; or a prompt of your own that holds {PLACE}.",
            )
        if self.options.guided and not self.guides(mode):
            guided = [one.name for one in PROFILES if one.guides]
            raise UsageError(
                f"nothing is known that forces the form of {profile.name}'s answers (--guided) in mode {mode}",
                hint=f"Leave out --guided. Models for which it is known: {', '.join(guided)}.",
            )

    @property
    def name(self) -> str:
        """The model, as users know it."""
        return self.engine.name

    def identity(self) -> Mapping[str, Any]:
        """What changes the attempts; no address, key or cap of the servers."""
        options = self.options
        modes = {self.first.mode, *(rung.mode for rung in self.rungs if rung.mode)}
        about = {
            "engine": SOURCE,
            "result_version": RESULT_VERSION,
            **profile_as_json(self.profile, model=options.model, revision=options.revision),
            "page_settings": json_values(self.profile.page_settings),
            "mode": self.first.mode,
            "prompts": {mode: self.prompt(mode) for mode in sorted(modes)},
            "temperature": self.first.temperature,
            "max_tokens": self.first.max_tokens,
            "max_attempts": options.max_attempts,
            "ladder": rungs_as_json(self.rungs),
            "figure_labels": sorted(self.figure_labels),
            "figures_from": options.figures_from,
            "rotate": options.rotate,
            "fallback": json_values(self.fallback.identity()) if self.fallback else None,
            "sight": json_values(self.sight.identity()) if self.sight else None,
        }
        if options.anchor:
            about["anchor"] = {"characters": options.anchor, "prompt": self.profile.anchor}
        if options.guided:
            about["guides"] = {mode: json_values(self.guides(mode)) for mode in sorted(modes)}
        if self.rule is not None:
            about["min_quality"] = self.rule.identity()
        return about | dict(options.chosen)

    def prompt(self, mode: str) -> str:
        """What is asked in a mode: the user's own prompt, or the profile's."""
        own = self.options.prompt
        return self.profile.prompts[mode] if own is None else own

    def asked(self, mode: str, anchor: str) -> str:
        """The prompt with the page's own text, "" for none."""
        prompt = self.prompt(mode)
        if self.options.prompt is None:
            return self.profile.anchor.replace(PLACE, anchor) if anchor else prompt
        return prompt.replace(PLACE, anchor) if self.options.anchor else prompt

    def anchored(self, step: Step) -> int:
        """Characters of the page's own text for a request: none when one did not fit."""
        fits = step.max_tokens == self.first.max_tokens
        return self.options.anchor if fits and self._anchors(step.mode) else 0

    def guides(self, mode: str) -> Mapping[str, Any]:
        """Settings that force the form of answers in a mode; a prompt of the user's own has its own form."""
        return self.profile.guides.get(mode, {}) if self.options.guided and self.options.prompt is None else {}

    def figures(self, mode: str) -> FigureRule:
        """Where the figures of an answer in a mode come from, and which they are."""
        chosen = self.options.figures_from
        if chosen == "none":
            return FigureRule(frozenset())
        if self.sight is not None and (chosen == "page" or (chosen == "auto" and not has_places(self.profile, mode))):
            return FigureRule(self.options.figure_labels, from_page=True)
        return FigureRule(self.figure_labels)

    def _anchors(self, mode: str) -> bool:
        own = self.options.prompt
        return PLACE in own if own is not None else bool(self.profile.anchor) and mode == self.profile.mode

    async def read(self, page: Page, admitted: Callable[[], None] = unheard) -> Attempt:
        """The best that could be made of a page. Raises `PageFailure`; `ServerError` when no server can be had."""
        return await PageReading(self, page).run(admitted)

    async def close(self) -> None:
        """End the fallback, and what looks at pages."""
        if self.fallback is not None:
            await self.fallback.close()
        if self.sight is not None:
            await self.sight.close()


def has_places(profile: Profile, mode: str) -> bool:
    """Whether the answers in a mode say where figures are."""
    return bool(profile.figure_labels) and gives_places(profile.parsers.get(mode) or profile.parsers[""])
