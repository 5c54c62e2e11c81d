"""Estimate time and cost before a run: count pages, calibrate, and compare machines."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from llm_ocr.config.environment import cores
from llm_ocr.config.keyword_help import lists_settings
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import EstimateSettings, ExtractSettings, PlanSettings
from llm_ocr.costs.comparison import (
    EMBEDDED_HERE,
    HERE,
    Calibrated,
    Comparison,
    Option,
    Prices,
    Sampled,
    Tokens,
    at_providers,
    calibrated,
    cheapest_first,
    on_machines,
    on_own_cores,
    tokens_of,
)
from llm_ocr.costs.estimates import stored_of
from llm_ocr.costs.prices import Machine, Price, Provider, live_prices, machines
from llm_ocr.costs.throughput import EMBEDDED_MODEL, Span, known_model, machine_named
from llm_ocr.engines import Load
from llm_ocr.engines.vllm.hardware import gpus
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.plugins import PLATFORMS
from llm_ocr.session import Session
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.execute import execute
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.servers import EMBEDDED, PAGES_PER_UNIT, SERVER, VLLM
from llm_ocr.types import Counts, DocumentPart, PageRecord, Status, Unit, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.status import RunStatus, run_status
from llm_ocr.workspace.stored import stored_settings, workspace_options

if TYPE_CHECKING:
    from llm_ocr.config.keywords import EstimateKeywords


# Calibration: a random sample of pages is read by the real engine for about a minute. The pages are read and written as
# by Extract, into a temporary folder.


#: Largest share of the sample that is read before the clock starts, so that one-time loading is not measured.
_WARM = 0.1
#: Pages submitted per page that the engine can process concurrently, so that the engine never waits.
_AHEAD = 1.5


@dataclass(frozen=True, slots=True)
class Read:
    """One page of the sample.

    Attributes:
        ended: Seconds after the clock started; negative for a page before that.
        tokens_in: Prompt tokens.
        tokens_out: Answer tokens.
        images: Bytes of its images.
        status: The status of the page.
    """

    ended: float
    tokens_in: int
    tokens_out: int
    images: int
    status: Status


@dataclass(frozen=True, slots=True)
class Calibration:
    """Results of a sample.

    Attributes:
        pages: The pages.
        startup: Seconds until the clock started, including the first pages.
        seconds: Seconds until the last page ended.
        parallel: Pages that the engine processes concurrently.
        stored: Bytes of the Parquet files.
        where: The machine or the servers.
    """

    pages: tuple[Read, ...]
    startup: float
    seconds: float
    parallel: int
    stored: int
    where: str

    @property
    def ends(self) -> list[float]:
        """Seconds at which the pages ended that were measured."""
        return [page.ended for page in self.pages if page.ended >= 0]


def sample_of(units: Iterable[Unit], most: int, seed: int) -> list[DocumentPart]:
    """Return a uniform random sample of pages in random order, one part per page.

    A document that was not counted gives parts that still contain its estimate. Memory holds `most` pages.

    Args:
        units: Units of the plan.
        most: The size of the sample.
        seed: The seed of the random choice.
    """
    draw = random.Random(seed)
    kept: list[DocumentPart] = []
    for seen, page in enumerate(_calibration_pages(units)):
        if len(kept) < most:
            kept.append(page)
        elif (place := draw.randrange(seen + 1)) < most:
            kept[place] = page
    draw.shuffle(kept)
    return kept


def _calibration_pages(units: Iterable[Unit]) -> Iterator[DocumentPart]:
    for unit in units:
        for part in unit.parts:
            if part.estimate and not part.pages:
                yield from [part] * part.estimate
            elif not part.pages:
                yield part  # a document that cannot be opened costs nothing
            else:
                yield from (replace(part, pages=(number,)) for number in part.pages)


def calibrate(settings: EstimateSettings, sample: Sequence[DocumentPart], progress: Progress) -> Calibration:
    """Read the sample, or as much of it as `calibrate_seconds` allows.

    Args:
        settings: The settings of the estimate, which name the engine.
        sample: The pages.
        progress: Receives the progress.

    Raises:
        UsageError: The sample is empty.
        ServerError: No server can be started or reached.
    """
    if not sample:
        raise UsageError("`calibrate`: there is no page to read")
    chosen = _reading(settings)
    return run_blocking(lambda: _Calibrating(settings, chosen, progress).run(sample))


def _reading(settings: EstimateSettings) -> ExtractSettings:
    engine = SERVER if settings.server_url else VLLM
    if EMBEDDED in (settings.engine, settings.model):
        engine = EMBEDDED
    elif settings.engine != "auto":
        engine = settings.engine
    if engine == EMBEDDED and settings.server_url:
        raise UsageError("the CPU engine uses no server", hint="Remove `server_url`, or set the server's `model`.")
    own = {"workspace", "model", "engine", "price_in", "price_out", "price_per_hour", "max_hours", "max_cost"}
    shared = (ExtractSettings.model_fields.keys() & type(settings).model_fields.keys()) - own
    values: dict[str, Any] = {name: value for name, value in settings if name in shared & settings.model_fields_set}
    values |= {"workspace": "-", "engine": engine}
    return ExtractSettings(**values if engine == EMBEDDED else {**values, "model": settings.model})


@dataclass(slots=True)
class _Numbers(Silent):
    """Keeps the function that returns the engine's numbers, and passes messages on."""

    shown: Progress
    load: Callable[[], Load] | None = None

    def measure(self, load: Callable[[], Load]) -> None:
        self.load = load

    def say(self, message: str) -> None:
        self.shown.say(message)


@dataclass(slots=True)
class _Written:
    """Writes the rows of finished pages in Parquet files of the size of units."""

    folder: Path
    pages_per_unit: int
    waiting: list[PageRecord] = field(default_factory=list)
    size: int = 0
    files: int = 0
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def add(self, record: PageRecord) -> None:
        self.waiting.append(record)
        if len(self.waiting) >= self.pages_per_unit:
            await self.write()

    async def write(self) -> None:
        rows, self.waiting = self.waiting, []
        async with self.writing:
            if rows:
                self.files += 1
                self.size += await asyncio.to_thread(_write, self.folder / f"{self.files}.parquet", rows)


def _write(file: Path, rows: Sequence[PageRecord]) -> int:
    from llm_ocr.results.schema import pages_to_parquet

    file.write_bytes(pages_to_parquet(rows))
    size = file.stat().st_size
    file.unlink()  # a long calibration must not fill the disk
    return size


class _Calibrating:
    """One calibration."""

    def __init__(self, settings: EstimateSettings, chosen: ExtractSettings, progress: Progress) -> None:
        self._settings = settings
        self._chosen = chosen
        self._progress = progress
        self._numbers = _Numbers(progress)
        self._session = Session.from_settings(chosen, self._numbers)
        self._draw = random.Random(settings.seed)
        self._began = time.monotonic()
        self._clock: float | None = None
        self._read: list[Read] = []
        self._under_way = 0
        self._freed = asyncio.Event()

    async def run(self, sample: Sequence[DocumentPart]) -> Calibration:
        engine = self._chosen.engine
        warm = max(1, min(round(_WARM * len(sample)), cores() if engine == EMBEDDED else 1)) if len(sample) > 1 else 0
        pages_per_unit = self._settings.pages_per_unit or PAGES_PER_UNIT[engine]
        self._progress.begin("calibrate", len(sample), Counts())
        try:
            with tempfile.TemporaryDirectory(prefix="llm-ocr-calibrate-") as folder:
                written = _Written(Path(folder), pages_per_unit)
                await self._all(sample[:warm], written, until=None)
                self._clock = time.monotonic()
                await self._all(sample[warm:], written, until=self._clock + self._settings.calibrate_seconds)
                await written.write()
        finally:
            await self._session.close()
        self._progress.end()
        seconds = max((page.ended for page in self._read), default=0.0)
        startup = self._clock - self._began
        where = _where(self._chosen)
        return Calibration(tuple(self._read), startup, seconds, self._parallel(), written.size, where)

    async def _all(self, pages: Sequence[DocumentPart], written: _Written, until: float | None) -> None:
        """Read pages concurrently. After `until`, no page is begun, and pages in progress are finished."""
        async with asyncio.TaskGroup() as tasks:
            for page in pages:
                while self._under_way >= _AHEAD * self._parallel():
                    self._freed.clear()
                    await self._freed.wait()
                if until is not None and time.monotonic() >= until:
                    break
                self._under_way += 1
                tasks.create_task(self._one(page, written))

    async def _one(self, page: DocumentPart, written: _Written) -> None:
        async def finished(position: int, record: PageRecord) -> None:
            self._note(record)
            await written.add(record)

        try:
            await self._session.read(await self._counted(page), finished)
        finally:
            self._under_way -= 1
            self._freed.set()

    async def _counted(self, page: DocumentPart) -> DocumentPart:
        """Replace an estimated page by a random page of its document."""
        if not page.estimate:
            return page
        try:
            total = await self._session.total(page)
        except PageFailure as failure:
            return replace(page, estimate=0, reason=failure.reason, detail=failure.detail)
        return replace(page, estimate=0, page_total=total, pages=(self._draw.randint(1, max(1, total)),))

    def _note(self, record: PageRecord) -> None:
        ended = -1.0 if self._clock is None else time.monotonic() - self._clock
        images = len(record.image.data) if record.image else 0
        images += sum(len(figure.image.data) for figure in record.figures)
        self._read.append(Read(ended, record.tokens_in, record.tokens_out, images, record.status))
        self._progress.count(record.status)

    def _parallel(self) -> int:
        """Return the number of pages that the engine processes concurrently."""
        if self._numbers.load is not None:
            return max(1, self._numbers.load().window)
        workers = (self._chosen.ocr_workers or cores()) + (self._chosen.render_workers or cores())
        return max(1, workers)


def _where(chosen: ExtractSettings) -> str:
    """Return `this machine (4 cores)` or `the server at gpu:8000`, without secrets of the URL."""
    if chosen.engine == SERVER:
        named = [urlsplit(url if "//" in url else f"//{url}") for url in chosen.server_url]
        hosts = ", ".join(f"{one.hostname}:{one.port}" if one.port else str(one.hostname) for one in named)
        return f"the server at {hosts}" if len(named) == 1 else f"the servers at {hosts}"
    own = f"this machine ({cores()} cores)"
    return own if chosen.engine == EMBEDDED else f"vLLM on {own}"


# The estimate: pages as `plan` counts them, times rates, times prices.


Sources = str | Path | Iterable[str | Path]

_OWN = "your provider"
_GIVE_PAGES = "Name documents (llm-ocr estimate SOURCE), a `workspace` with a plan, or `page_count=N`."


@dataclass(frozen=True, slots=True)
class _Pages:
    count: int
    message: str
    status: RunStatus | None = None  # of their workspace
    sample: tuple[DocumentPart, ...] = ()  # for a calibration
    seconds: float = 0.0  # that counting took


@lists_settings(EstimateSettings)
def estimate(
    sources: Sources = (),
    *,
    workspace: str | Path | None = None,
    progress: Progress | None = None,
    **settings: "Unpack[EstimateKeywords]",
) -> Comparison:
    """Estimate time and cost of reading documents, on machines and at providers.

    Notebooks display the result as a table.

    Args:
        sources: Files, folders, globs, URLs, lists of paths, or manifests: one or several.
        workspace: The workspace whose plan counts, if no sources are given.
        progress: Receives the progress. By default none is shown.
        **settings: `help()` lists them; `config` is a file of them. Types: `llm_ocr.config.keywords.EstimateKeywords`.

    Returns:
        The options, the cheapest first.

    Raises:
        UsageError: There is nothing to count, or the hardware or a setting is unknown.
        WorkspaceError: There is no such workspace.
    """
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    keywords: dict[str, object] = {**settings}
    if named:
        keywords["sources"] = tuple(str(source) for source in named)
    if workspace is not None:
        keywords["workspace"] = str(workspace)
    chosen = settings_from(EstimateSettings, "estimate", keywords)
    if chosen.workspace is not None and (stored := stored_settings("estimate", chosen)):
        chosen = settings_from(EstimateSettings, "estimate", keywords, stored)
    return compared(chosen, progress)


def compared(settings: EstimateSettings, progress: Progress | None = None) -> Comparison:
    """Compare own machines and providers, the cheapest first. Writes nothing.

    Args:
        settings: The settings of the estimate.
        progress: Receives the progress. By default none is shown.

    Raises:
        UsageError: There is nothing to count, or the hardware is unknown.
        WorkspaceError: There is no such workspace.
    """
    if settings.calibrate:
        _check_calibration(settings)
    if not _has_pages(settings):
        return _of_tokens(settings)
    progress = progress or Silent()
    chosen = [_machine(name) for name in settings.hardware]
    pages = _pages(settings, progress)
    model = _model(settings)
    here = _here(settings, pages, model, progress) if settings.calibrate else None
    chosen = chosen or _usual(settings.stage, model)
    prices, messages = _prices(settings, chosen)
    options, left_out = on_machines(settings.stage, model, pages.count, chosen, count=settings.shards, prices=prices)
    if left_out and settings.hardware:
        raise UsageError(
            f"{settings.stage} with {model} cannot run on {', '.join(left_out)}: no GPU, or one with too little memory",
            hint="Remove `hardware` to see all known machines.",
        )
    notes = [pages.message, *messages]
    if left_out:
        notes.append(f"not listed, because the model does not fit: {', '.join(left_out)}")
    if not settings.hardware:
        notes += dict.fromkeys(f"not listed: {one.missing}" for one in options if one.missing)
        options = [one for one in options if not one.missing]
    if (own := _own_machine(settings, model, pages.count)) is not None:
        options.append(own)
        notes.append(EMBEDDED_HERE)
        if model != EMBEDDED_MODEL and (stored := stored_of(settings.stage, EMBEDDED_MODEL, pages.count)):
            notes.append(f"{HERE}: {stored}")
    if settings.stage == "extract" and model != EMBEDDED_MODEL and not settings.hardware:
        tokens, bought = _bought(settings, pages)
        options += bought
        notes.append(tokens.words)
    found = Comparison(settings.stage, model, pages.count, cheapest_first(options), tuple(notes))
    return here.first_in(found) if here else replace(found, stored=stored_of(settings.stage, model, pages.count))


def _model(settings: EstimateSettings) -> str:
    """Return the profile's name, or `embedded`. Raises `UsageError` for a model with the embedded engine."""
    if settings.model == EMBEDDED_MODEL:
        return EMBEDDED_MODEL
    if settings.engine != EMBEDDED_MODEL:
        return known_model(settings.model)
    if "model" in settings.model_fields_set:
        raise UsageError(
            f"`engine=embedded` has no model, but `model={settings.model}` is set", hint="Remove one of them."
        )
    return EMBEDDED_MODEL


def _own_machine(settings: EstimateSettings, model: str, pages: int) -> Option | None:
    """Return the CPU engine on this machine; None if other hardware is named or a model can be served here."""
    if settings.hardware or settings.calibrate:
        return None
    if model != EMBEDDED_MODEL and (settings.engine != "auto" or settings.server_url or gpus()):
        return None
    return on_own_cores(settings.stage, pages, cores())


def _check_calibration(settings: EstimateSettings) -> None:
    """Raise `UsageError` if nothing can be measured here."""
    if settings.stage != "extract":
        raise UsageError(f"`calibrate` supports only extract, not {settings.stage}")
    if settings.page_count or not (settings.sources or settings.dataset or settings.workspace):
        raise UsageError(
            "`calibrate`: there are no documents to read",
            hint="Name sources, or a `workspace` with a plan.",
        )


def _here(settings: EstimateSettings, pages: _Pages, model: str, progress: Progress) -> Calibrated:
    """Read the sample and extrapolate to all pages."""
    found = calibrate(settings, pages.sample, progress)
    sample = Sampled(
        ends=found.ends,
        tokens_in=[page.tokens_in for page in found.pages],
        tokens_out=[page.tokens_out for page in found.pages],
        images=[page.images for page in found.pages],
        stored=found.stored,
        failed=sum(page.status is Status.FAILED for page in found.pages),
        parallel=found.parallel,
        startup=found.startup,
        seconds=found.seconds,
        where=found.where,
        seed=settings.seed,
    )
    prices = Prices(settings.price_in, settings.price_out, settings.price_per_hour)
    return calibrated(sample, model, pages.count, prices, planned=pages.seconds, machines=settings.shards)


def _has_pages(settings: EstimateSettings) -> bool:
    return bool(settings.sources or settings.dataset or settings.page_count or settings.workspace)


def _of_tokens(settings: EstimateSettings) -> Comparison:
    """Return the cost of tokens without pages."""
    if settings.tokens_in is None and settings.tokens_out is None:
        raise UsageError("nothing to estimate", hint=_GIVE_PAGES)
    tokens = Tokens(Span.of(settings.tokens_in or 0), Span.of(settings.tokens_out or 0), "")
    return Comparison("", "", 0, cheapest_first(at_providers(tokens, _own(settings, "") or None)))


def _own(settings: EstimateSettings, model: str) -> list[Provider]:
    """Return the provider whose prices the user gives."""
    if settings.price_in is None and settings.price_out is None:
        return []
    return [Provider(_OWN, model, settings.price_in or 0.0, settings.price_out or 0.0, "as given", "")]


def _bought(settings: EstimateSettings, pages: _Pages) -> tuple[Tokens, list[Option]]:
    """Return the tokens of the pages, and the options at providers and at the user's own provider."""
    own = [] if settings.calibrate else _own(settings, settings.model)  # a calibration includes its price
    if settings.tokens_in is not None or settings.tokens_out is not None:
        tokens = Tokens(Span.of(settings.tokens_in or 0), Span.of(settings.tokens_out or 0), "tokens: as given")
        return tokens, at_providers(tokens) + at_providers(tokens, own)
    tokens = tokens_of(pages.count)
    if not own:
        return tokens, at_providers(tokens)
    mine = _measured(pages) or tokens_of(pages.count, model=settings.model)
    message = f"{tokens.words}; {_OWN}: {mine.words}" if mine.words != tokens.words else tokens.words
    return replace(tokens, words=message), at_providers(tokens) + at_providers(mine, own)


def _measured(pages: _Pages) -> Tokens | None:
    """Return the tokens by the average of the workspace's finished pages."""
    status = pages.status
    extract = status.stages["extract"] if status else None
    if status is None or extract is None or not extract.tokens_out:
        return None
    done = status.pages.ok + status.pages.degraded + status.pages.failed
    each = pages.count / max(done, 1)
    message = f"tokens, from {plural(done, 'page')} of this workspace"
    return Tokens(Span.of(extract.tokens_in * each), Span.of(extract.tokens_out * each), message)


def _pages(settings: EstimateSettings, progress: Progress) -> _Pages:
    status = _status(settings)
    if settings.page_count:
        return _Pages(settings.page_count, f"{plural(settings.page_count, 'page')}, as given", status)
    if settings.sources or settings.dataset:
        return replace(_counted(settings, progress), status=status)
    if status is None or not status.documents:
        raise UsageError(f"no plan in {settings.workspace}", hint=_GIVE_PAGES)
    sample = _sample_of_plan(settings) if settings.calibrate else ()
    left = status.pages.expected - status.pages.ok - status.pages.degraded - status.pages.failed
    if settings.stage != "extract" or left <= 0:
        message = f"all {plural(status.pages.expected, 'page')} of the workspace's plan"
        return _Pages(status.pages.expected, message, status, sample)
    message = f"{left:,} of {status.pages.expected:,} pages of the workspace's plan are not read yet"
    return _Pages(left, message, status, sample)


def _sample_of_plan(settings: EstimateSettings) -> tuple[DocumentPart, ...]:
    with Workspace.open(str(settings.workspace), options=workspace_options(settings)) as workspace:
        return _sampled(workspace, settings)


def _sampled(workspace: Workspace, settings: EstimateSettings) -> tuple[DocumentPart, ...]:
    return tuple(sample_of(read_units(workspace), settings.calibrate_pages, settings.seed))


def _status(settings: EstimateSettings) -> RunStatus | None:
    if settings.workspace is None:
        return None
    with Workspace.open(settings.workspace, options=workspace_options(settings)) as workspace:
        return run_status(workspace)


def _counted(settings: EstimateSettings, progress: Progress) -> _Pages:
    """Count the pages as `plan` does, in a temporary folder."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
        shared = {name: value for name, value in settings if name in _OF_PLAN}
        run = execute("plan", PlanSettings(**{**shared, "workspace": folder}), progress)
        status = run.status
        seconds = time.monotonic() - began
        sample: tuple[DocumentPart, ...] = ()
        if settings.calibrate and status.pages.expected:
            with Workspace.open(folder) as workspace:
                sample = _sampled(workspace, settings)
    about = "about " if status.estimated else ""
    message = (
        f"{about}{plural(status.pages.expected, 'page')} in {plural(status.documents, 'document')}, counted like Plan"
    )
    return _Pages(status.pages.expected, message, sample=sample, seconds=seconds)


_OF_PLAN = frozenset(PlanSettings.model_fields) - {
    "workspace",
    "workspace_profile",
    "workspace_endpoint",
    "workspace_region",
    "model",
    "engine",
    "quiet",
}


def _usual(stage: str, model: str) -> list[Machine]:
    """Return the machines that suit the stage and the model."""
    without = stage == "assemble" or model == EMBEDDED_MODEL
    return [one for one in machines() if bool(one.gpus) != without]


def _machine(name: str) -> Machine:
    """Return the machine named `PLATFORM:NAME`, or by a name that only one platform has.

    Raises:
        UsageError: The name is unknown. The hint lists similar names.
    """
    known = {one.label: one for one in machines()}
    alike = [one for one in known.values() if one.name == name]
    if len(alike) == 1:
        return alike[0]
    platform, _, hardware = name.partition(":")
    if hardware and platform in PLATFORMS.names() and (found := machine_named(platform, hardware)):
        return found
    near = [one for one in known if name in one] or get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
    raise UsageError(
        f"`hardware={name}` is unknown",
        hint=f"PLATFORM:NAME, for example {', '.join(near[:3])}; on other platforms PLATFORM:GPU, such as modal:L40S.",
    )


def _prices(settings: EstimateSettings, chosen: Sequence[Machine]) -> tuple[Mapping[tuple[str, str], Price], list[str]]:
    """Return the user's price, otherwise live prices of the platforms, and messages about those."""
    if settings.price_per_hour is not None and not settings.calibrate:
        if not settings.hardware:
            raise UsageError("`price_per_hour` needs a machine", hint="Choose it: `hardware=PLATFORM:NAME`")
        price = Price(settings.price_per_hour, "as given", "")
        return {(one.platform, one.name): price for one in chosen}, []
    if not settings.live_prices:
        return {}, []
    found: dict[tuple[str, str], Price] = {}
    messages = []
    for platform in dict.fromkeys(one.platform for one in chosen):
        prices, message = live_prices(platform, endpoint=settings.platform_endpoint)
        found |= {(platform, name): price for name, price in prices.items()}
        messages.append(message)
    return found, messages
