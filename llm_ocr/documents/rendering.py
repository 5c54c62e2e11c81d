"""Render pages of documents in limited worker processes: images, text layers, and objects."""

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from llm_ocr.config.environment import cores
from llm_ocr.config.groups import EMBEDDED
from llm_ocr.documents.filters import FilterOptions, LeftOut
from llm_ocr.documents.furniture import REACH, EdgeLine, edge_lines, marked
from llm_ocr.documents.images import longest_side
from llm_ocr.documents.open_fd import Proofs
from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.errors import PageFailure, WorkerDied, WorkerError, unexpected_as_failure
from llm_ocr.plugins import ENGINES
from llm_ocr.sandbox.pool import Limits, WorkerPool
from llm_ocr.types import Box, EncodedImage, Evidence, Page, PageContent, Reason

MODULE = "llm_ocr.documents.renderer"
#: Increased when text layers or pixels change, so that results of different versions do not mix.
REVISION = 3
#: Operations on whole documents, which `page_timeout` does not limit.
_OF_DOCUMENTS = ("open", "judge")
#: Time limit in seconds for reading neighbors' margins, which only show whether a header recurs.
_EDGES_TIMEOUT = 10.0
#: Time limit in seconds for opening several documents together; a slow document is then opened alone with `timeout`.
_TOGETHER_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Options of page images.

    `image_size` is the longest side in pixels, `memory` is in bytes per worker. `timeout` is in seconds for opening a
    document, and for each page. `page_timeout` bounds what the engine may take for a page, and so its rendering.
    `scan_size` is the longest side of scans and image files, which are never enlarged; 0: `image_size`.
    """

    image_size: int = 1540
    scan_size: int = 0
    image_format: str = "png"  # or "jpeg"
    quality: int = 90  # of JPEG
    text_layer: bool = True
    renderer: str = "pdfium"  # or "poppler"
    timeout: float = 60.0
    page_timeout: float = math.inf
    memory: int = 2 << 30
    passwords: tuple[str, ...] = field(default=(), repr=False)
    workers: int = field(default_factory=cores)
    confined: bool = True  # off: workers keep network, files, and programs
    engine: str = EMBEDDED  # engine that reads the text of PDF pages
    module: str = ""  # of the workers, with the operations of `MODULE` and more; empty: `MODULE`
    keep_invisible: bool = False  # text layers have the words that the page image does not show


class Renderer:
    """Renderer of pages. A page that hangs, exhausts memory, or crashes its worker affects only that page."""

    def __init__(self, options: RenderOptions, before: "Renderer | None" = None) -> None:
        """Create the renderer; processes start on demand.

        Args:
            options: The options.
            before: A renderer whose documents are all read. Its processes are used again if they have the same limits.
        """
        self._options = options
        self.workers = options.workers
        engine = ENGINES.find(options.engine)
        self._page_text = engine.page_text if engine else ""
        package = self._page_text.partition(".")[0]
        limits = Limits(memory=options.memory, confined=options.confined, package=package)
        self._pool = WorkerPool(options.module or MODULE, workers=options.workers, limits=limits)
        if before is not None and before._pool.may_replace(self._pool):
            self._pool = before._pool
        self._edges = EdgeCache(self._read_edges)
        self._proofs = Proofs()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def identity(self) -> dict[str, Any]:
        """Return the settings that change pixels or text, as JSON values."""
        options = self._options
        about: dict[str, Any] = {
            "revision": REVISION,
            "renderer": options.renderer,
            "image_size": options.image_size,
            **({"scan_size": options.scan_size} if options.scan_size else {}),
            "image_format": options.image_format,
            "text_layer": options.text_layer,
            **({"invisible_text": "keep"} if options.keep_invisible else {}),
        }
        return {**about, "quality": options.quality} if options.image_format == "jpeg" else about

    async def open(self, source: str, kind: str = "", version: str = "") -> int:
        """Return the number of pages. With a version, the file must be of it.

        Raises:
            PageFailure: The document cannot be opened, or is of another version.
        """
        with unexpected_as_failure():
            reply = await self._call(
                "open", self._payload(source, kind), source, "the document was not opened", version
            )
            return int(reply["pages"])

    async def open_all(self, documents: Sequence[tuple[str, str, int]]) -> list[int | PageFailure]:
        """Open documents by source, kind, and descriptor of the opened file in one request; see `open`."""
        payload = {"documents": [self._payload(source, kind) for source, kind, _ in documents]}
        files = [file for *_, file in documents]
        deadline = min(self._options.timeout, _TOGETHER_TIMEOUT)
        try:
            with unexpected_as_failure():
                reply = await self._pool.call("open_all", payload, deadline=deadline, files=files)
                return [
                    result
                    if isinstance(result, int)
                    else PageFailure(Reason(result["reason"]), result["detail"], hint=result["hint"])
                    for result in reply["opened"]
                ]
        except (WorkerDied, WorkerError, PageFailure):
            # Each document alone, which isolates failures.
            opened: list[int | PageFailure] = []
            for source, kind, _ in documents:
                try:
                    opened.append(await self.open(source, kind))
                except PageFailure as failure:
                    opened.append(failure)
            return opened

    async def judge(self, source: str, kind: str, filters: FilterOptions) -> tuple[int, LeftOut | None, str, str]:
        """Open a document and run the filters.

        Returns:
            The number of pages; why the document is excluded; the text for the language check; the filters' errors.

        Raises:
            PageFailure: The document cannot be opened, or a filter exceeds the limits.
        """
        payload = self._payload(source, kind) | {"filters": asdict(filters)}
        with unexpected_as_failure():
            reply = await self._call("judge", payload, source, "the document was not looked at")
            left_out = LeftOut(*reply["left_out"]) if reply["left_out"] else None
            return int(reply["pages"]), left_out, reply["text"], reply["trouble"]

    async def page(
        self, source: str, kind: str, number: int, *, page_id: str, document_id: str, version: str = ""
    ) -> Page:
        """Return page `number`, from 1, made of one version of the document.

        Args:
            source: The local file.
            kind: Kind of the file if its content and name are inconclusive; may be empty.
            number: The page, from 1.
            page_id: The id of the page.
            document_id: The id of the document.
            version: The SHA-256 that the file must have during rendering; empty: any.

        Raises:
            PageFailure: The page cannot be rendered, or the file is of another version.
        """
        options = self._options
        payload = self._payload(source, kind) | {
            "number": number,
            "image_format": options.image_format,
            "quality": options.quality,
            "text_layer": options.text_layer,
        }
        with self._edges.coming(source, number) if options.text_layer else contextlib.nullcontext():
            reply = await self._call("page", payload, source, f"page {number} was not rendered", version)
            content = await self._content_of(reply, source, version, number)
        image, evidence = from_wire(EncodedImage, reply["image"]), from_wire(Evidence, reply["evidence"])
        content = replace(content, undrawn=evidence.undrawn) if content else None
        # Scans and image files may be larger than other pages.
        size = options.image_size if content and not evidence.pictured else max(options.image_size, options.scan_size)
        tall = image.height > size and longest_side(image.width, image.height, size) > size
        made = Page(page_id, document_id, number, image, content, source, evidence, version=version)
        return replace(made, stands_for=reply["stands_for"], damage=reply["damage"], slice_height=size * tall)

    async def content(self, source: str, kind: str, number: int, page: Page, version: str = "") -> Page:
        """Return the page with its text layer and objects if it was rendered without them. Raises as `page`."""
        if page.content is not None:
            return page
        payload = self._payload(source, kind) | {"number": number}
        reply = await self._call("text", payload, source, f"the text layer of page {number} was not read", version)
        content = await self._content_of(reply, source, version, number)
        undrawn = page.evidence.undrawn if page.evidence else 0.0
        return replace(page, content=replace(content, undrawn=undrawn) if content else None)

    async def crop(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """Return the parts of a page image under relative boxes in the same format. Raises `PageFailure`."""
        if not boxes:
            return ()
        payload = {"image": to_wire(image), "boxes": list(map(to_wire, boxes)), "quality": self._options.quality}
        reply = await self._call("crop", payload, "", "figures were not cut out")
        return tuple(from_wire(EncodedImage, crop) for crop in reply["crops"])

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """Return the image with its sides multiplied by `scale` in the same format. Raises `PageFailure`."""
        return await self._changed(image, "an image was not resized", scale=scale)

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """Return the image turned clockwise by 90, 180, or 270 degrees. Raises `PageFailure`."""
        return await self._changed(image, "an image was not turned", degrees=degrees)

    async def _changed(
        self, image: EncodedImage, failing: str, *, scale: float = 1.0, degrees: int = 0
    ) -> EncodedImage:
        payload = {"image": to_wire(image), "scale": scale, "degrees": degrees, "quality": self._options.quality}
        reply = await self._call("change", payload, "", failing)
        return from_wire(EncodedImage, reply["image"])

    async def blank(self, image: EncodedImage) -> bool:
        """Return whether the image has no ink; see `ink_of`. Raises `PageFailure`."""
        reply = await self._call("blank", {"image": to_wire(image)}, "", "an image was not looked at")
        return bool(reply["blank"])

    async def rate(self, payload: dict[str, Any]) -> Mapping[str, Any]:
        """Send an answer to be rated; see `results.quality.worker`. Raises `PageFailure`."""
        return await self._call("rate", payload, "", "an answer was not rated")

    async def close(self) -> None:
        """End the workers at once."""
        await self._pool.close()

    def _payload(self, source: str, kind: str) -> dict[str, Any]:
        options = self._options
        look = {
            "size": options.image_size,
            "scan_size": options.scan_size,
            "renderer": options.renderer,
            "timeout": options.timeout,
            "memory": options.memory,
            "page_text": self._page_text,
            "keep_invisible": options.keep_invisible,
        }
        return {"source": source, "kind": kind, "passwords": list(options.passwords), "look": look}

    async def _call(
        self, operation: str, payload: dict[str, Any], source: str, failing: str, version: str = ""
    ) -> dict[str, Any]:
        """Send a request, and repeat it on another worker after a crash; deaths of workers become `PageFailure`."""
        options = self._options
        deadline = options.timeout if operation in _OF_DOCUMENTS else min(options.timeout, options.page_timeout)
        for last in (False, True):
            try:
                return await self._ask(operation, payload, source, version, deadline)
            except WorkerDied as death:
                if death.timed_out:
                    setting = "render_timeout" if deadline == options.timeout else "page_timeout"
                    hint = f"If you trust the document, increase `{setting}`."
                    raise PageFailure(Reason.RENDER_TIMEOUT, f"{failing} in {deadline:g} s", hint=hint) from death
                if death.out_of_memory:
                    hint = "If you trust the document, increase `render_memory`."
                    detail = f"{failing} with {options.memory >> 20} MiB"
                    raise PageFailure(Reason.RENDER_LIMIT, detail, hint=hint) from death
                if last:
                    detail = f"{failing}: the renderer {death}"
                    raise PageFailure(Reason.RENDER_CRASHED, detail, retryable=True) from death
            except WorkerError as error:
                raise PageFailure(Reason.RENDER_CRASHED, f"{failing}: {error}") from error
        raise AssertionError("unreachable")

    async def _ask(
        self, operation: str, payload: dict[str, Any], source: str, version: str, deadline: float
    ) -> dict[str, Any]:
        """Send one request; a document is passed as an open file, because workers may not open files."""
        if not source:
            return await self._pool.call(operation, payload, deadline=deadline)
        async with self._proofs.given(source, version) as file:
            return await self._pool.call(operation, payload, deadline=deadline, affinity=source, files=(file,))

    async def _content_of(self, reply: Mapping[str, Any], source: str, version: str, number: int) -> PageContent | None:
        """Return a worker's page content with lines marked that recur on neighboring pages."""
        content = from_wire(PageContent, reply["content"]) if reply["content"] else None
        if content is None or not content.lines:
            return content
        return marked(content, await self._edges.around(source, version, number, reply["pages"], content))

    async def _read_edges(self, source: str, version: str, number: int) -> list[EdgeLine]:
        """Read the margins of a page that has not been rendered; a page that kills its worker has none."""
        payload = self._payload(source, "") | {"number": number}
        deadline = min(self._options.timeout, self._options.page_timeout, _EDGES_TIMEOUT)
        try:
            reply = await self._ask("edges", payload, source, version, deadline)
        except (PageFailure, WorkerDied, WorkerError):
            return []  # the page reports its own failure when it is rendered
        return [from_wire(EdgeLine, line) for line in reply["edges"]]


ReadEdges = Callable[[str, str, int], Awaitable[list[EdgeLine]]]
_Future = asyncio.Future[list[EdgeLine] | None]  # None: the page was planned, but not rendered

#: Pages with kept margins.
_MOST_MARGINS = 4096


class EdgeCache:
    """Margins by document and page number. Each page's margins are read once for all its neighbors."""

    def __init__(self, read: ReadEdges) -> None:
        self._read = read
        self._known: OrderedDict[tuple[str, int], _Future] = OrderedDict()

    async def around(
        self, source: str, version: str, number: int, total: int, content: PageContent
    ) -> dict[int, list[EdgeLine]]:
        """Return the margins of the pages next to `number` by distance; its own `content` is known."""
        own = self._known.get((source, number)) or self._announced(source, number)
        if not own.done():
            own.set_result(edge_lines(content))
        wanted = [page for page in range(number - REACH, number + REACH + 1) if page != number and 1 <= page <= total]
        wanted.sort(key=lambda page: (source, page) in self._known)  # others may still be reading these: they come last
        return {page - number: await self._lines(source, version, page) for page in wanted}

    @contextlib.contextmanager
    def coming(self, source: str, number: int) -> Iterator[None]:
        """Announce a page whose processing ends in `around`; its neighbors wait for it instead of reading it."""
        if (source, number) in self._known:
            yield
            return
        future = self._announced(source, number)
        try:
            yield
        finally:
            if not future.done():
                future.set_result(None)  # the page failed, or has no text: waiting callers read the margins themselves

    async def _lines(self, source: str, version: str, page: int) -> list[EdgeLine]:
        while future := self._known.get((source, page)):
            found = await asyncio.shield(future)  # shared with other callers
            if found is not None:
                return found
            if self._known.get((source, page)) is future:
                del self._known[source, page]
        future = self._announced(source, page)
        lines: list[EdgeLine] = []
        try:
            lines = await self._read(source, version, page)
        finally:
            if not future.done():
                future.set_result(lines)
        return lines

    def _announced(self, source: str, page: int) -> _Future:
        while len(self._known) >= _MOST_MARGINS:
            self._known.popitem(last=False)
        future: _Future = asyncio.get_running_loop().create_future()
        self._known[source, page] = future
        return future
