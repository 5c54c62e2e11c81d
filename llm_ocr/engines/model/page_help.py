"""What is known of a page beside a model's answer: its text layer, which way up it stands, where its figures are."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_ocr.engines.embedded.regions import Seen
from llm_ocr.engines.model.ahead import Ahead
from llm_ocr.engines.model.anchor import fitted
from llm_ocr.engines.model.backlog import Backlog
from llm_ocr.engines.model.crops import with_crops
from llm_ocr.engines.model.placing import speaks_of_figures, with_seen
from llm_ocr.engines.model.tools import ImageTools, Sight
from llm_ocr.errors import PageFailure
from llm_ocr.types import Block, Page


@dataclass(frozen=True, slots=True)
class FigureRule:
    """Which figures a page gets. `labels`: of what is cut out; None for all that is found on the page."""

    labels: frozenset[str] | None
    from_page: bool = False


class PageHelp:
    """One page, each thing looked up once. What cannot be had is missing, and `doubt` says why."""

    def __init__(self, page: Page, tools: ImageTools, sight: Sight | None, backlog: Backlog) -> None:
        self._page = page
        self._tools = tools
        self._sight = sight
        self._backlog = backlog
        self._text: str | None = None
        self._ahead: Ahead | None = None
        self._doubts: list[str] = []

    @property
    def doubt(self) -> str:
        """What could not be had, and why."""
        return "; ".join(self._doubts)

    async def page(self) -> Page:
        """The page with its text layer. Raises `PageFailure`."""
        if self._page.content is None:
            self._page = await self._tools.content(self._page)
        return self._page

    async def orientation(self) -> int:
        """Degrees clockwise by which the page must be turned to be upright; 0 where that is not known."""
        if self._sight is None:
            return 0
        try:
            return await self._sight.orientation(await self.page())
        except PageFailure as failure:
            self._doubts.append(f"which way up the page stands is not known: {failure.why}")
            return 0

    async def anchor(self, most: int) -> str:
        """The text layer in at most `most` characters; "" without one that can be believed."""
        if self._text is None:
            self._text = ""
            if self._sight is not None:
                try:
                    self._text = fitted(await self._sight.text(await self.page()), most)
                except PageFailure as failure:
                    self._doubts.append(f"the text layer was not read: {failure.why}")
        return self._text

    def look_ahead(self, rule: FigureRule, lane: asyncio.Semaphore) -> None:
        """Begin to look for figures before there is an answer, when the page's turn in the lane comes."""
        if rule.from_page and self._sight is not None and self._ahead is None:
            self._ahead = Ahead(self._look, lane)

    def over(self) -> None:
        """The page is done, however it ended."""
        if self._ahead is not None:
            self._ahead.drop()

    async def with_figures(self, blocks: Sequence[Block], rotation: int, rule: FigureRule) -> tuple[Block, ...]:
        """The answer's blocks with figures by the rule. `rotation`: degrees clockwise by which its image was turned."""
        if rule.from_page and blocks:
            async with self._backlog:
                seen = await self._seen(hinted=speaks_of_figures(blocks))
            turned = tuple(replace(block, box=block.box.turned(rotation)) for block in seen.blocks)
            blocks = with_seen(blocks, replace(seen, blocks=turned))
        return tuple(blocks) if rule.labels is None else with_crops(blocks, rule.labels)

    async def _seen(self, *, hinted: bool) -> Seen:
        if self._sight is None:
            return Seen()
        try:
            seen = await self._ahead.seen() if self._ahead else None
            if seen is None or (hinted and seen.unread):
                seen = await self._look(hinted=hinted)
        except PageFailure as failure:
            self._doubts.append(f"figures were not looked for: {failure.why}")
            return Seen()
        if seen.detail:
            self._doubts.append(seen.detail)
        return seen

    async def _look(self, *, hinted: bool = False) -> Seen:
        assert self._sight is not None  # the callers look
        return await self._sight.see(await self.page(), hinted=hinted)
