"""Estimate time and cost before a run: count pages, calibrate, and compare machines."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from llm_ocr.config.environment import cores
from llm_ocr.config.fields import lists_settings
from llm_ocr.config.groups import EMBEDDED, HYBRID, SERVER, VLLM
from llm_ocr.config.loading import Sources, settings_from, sources_keyword
from llm_ocr.config.models import EstimateSettings, ExtractSettings, PlanSettings
from llm_ocr.costs.comparison import (
    EMBEDDED_HERE,
    Calibration,
    Comparison,
    Option,
    SampledPage,
    Tokens,
    at_providers,
    by_threshold,
    calibrated,
    cheapest_first,
    on_machines,
    on_own_cores,
    tokens_of,
)
from llm_ocr.costs.estimates import EMBEDDED_MODEL, HERE, Span, known_model, machine_named, stored_of
from llm_ocr.costs.prices import Machine, Price, Provider, live_prices, machines
from llm_ocr.engines import Load
from llm_ocr.engines.vllm.sizing import gpus
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.plugins import PLATFORMS
from llm_ocr.results.routing import THRESHOLD, gain_probability
from llm_ocr.session import Session
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.engine_choice import pages_per_unit
from llm_ocr.stages.execute import execute
from llm_ocr.stages.loop import run_blocking
from llm_ocr.types import Counts, DocumentPart, PageRecord, Unit, plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.status import RunStatus, run_status
from llm_ocr.workspace.stored import stored_settings, workspace_options

if TYPE_CHECKING:
    from llm_ocr.config.keywords import EstimateKeywords


_OWN = "your provider"
_GIVE_PAGES = "Name documents (llm-ocr estimate SOURCE), a `workspace` with a plan, or `page_count=N`."


@dataclass(frozen=True, slots=True)
class _Pages:
    count: int
    message: str
    status: RunStatus | None = None  # of their workspace
    sample: Sequence[DocumentPart] = ()  # for a calibration
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
    keywords = {**settings, **sources_keyword(sources)}
    if workspace is not None:
        keywords["workspace"] = workspace
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
    stage = settings.stage
    has_documents = bool(settings.sources or settings.dataset or settings.workspace)
    sampled = "`engine=hybrid`" if settings.engine == HYBRID else "`calibrate`" if settings.calibrate else ""
    if sampled and stage != "extract":
        raise UsageError(f"{sampled} supports only extract, not {stage}")
    if sampled and (settings.page_count or not has_documents):
        raise UsageError(
            f"{sampled}: there are no documents to read",
            hint="Name sources, or a `workspace` with a plan.",
        )
    if not has_documents and not settings.page_count:
        if (tokens := _tokens_as_given(settings)) is None:
            raise UsageError("nothing to estimate", hint=_GIVE_PAGES)
        return Comparison("", "", 0, cheapest_first(at_providers(tokens, _own_provider(settings, "") or None)))

    progress = progress or Silent()
    chosen = [_machine(name) for name in settings.hardware]
    if settings.engine == HYBRID:
        return _hybrid(settings, chosen or [machine for machine in machines() if machine.gpus], progress)
    pages = _pages(settings, progress)
    model = _model(settings)
    sample = _calibrate(settings, pages.sample, progress) if settings.calibrate else None

    if not chosen:
        without_gpu = stage == "assemble" or model == EMBEDDED_MODEL
        chosen = [machine for machine in machines() if bool(machine.gpus) != without_gpu]
    prices, messages = _prices(settings, chosen)
    options, left_out = on_machines(stage, model, pages.count, chosen, count=settings.shards, prices=prices)
    if left_out and settings.hardware:
        raise UsageError(
            f"{stage} with {model} cannot run on {', '.join(left_out)}: no GPU, or one with too little memory",
            hint="Remove `hardware` to see all known machines.",
        )
    notes = [pages.message, *messages]
    if left_out:
        notes.append(f"not listed, because the model does not fit: {', '.join(left_out)}")
    if not settings.hardware:
        notes += dict.fromkeys(f"not listed: {option.missing}" for option in options if option.missing)
        options = [option for option in options if not option.missing]

    # The CPU engine on this machine is an option unless other hardware is named or a model can be served here.
    served = model != EMBEDDED_MODEL and (settings.engine != "auto" or settings.server_url or gpus())
    if not (settings.hardware or sample or served) and (own := on_own_cores(stage, pages.count, cores())):
        options.append(own)
        notes.append(EMBEDDED_HERE)
        if model != EMBEDDED_MODEL and (stored := stored_of(stage, EMBEDDED_MODEL, pages.count)):
            notes.append(f"{HERE}: {stored}")
    if stage == "extract" and model != EMBEDDED_MODEL and not settings.hardware:
        words, bought = _bought(settings, pages)
        options += bought
        notes.append(words)
    found = Comparison(stage, model, pages.count, cheapest_first(options), tuple(notes))
    if sample is None:
        return replace(found, stored=stored_of(stage, model, pages.count))
    return calibrated(
        found,
        sample,
        price_in=settings.price_in,
        price_out=settings.price_out,
        price_per_hour=settings.price_per_hour,
        planned=pages.seconds,
        machines=settings.shards,
    )


#: Size of the sample for the engine `hybrid`, unless it is set.
_ROUTED_PAGES, _ROUTED_SECONDS = 24, 30.0
_THRESHOLDS = {0.5: "", THRESHOLD: " (default)", 0.1: ""}


def _hybrid(settings: EstimateSettings, chosen: Sequence[Machine], progress: Progress) -> Comparison:
    """Compare shares of the pages that a model reads. The CPU engine reads a sample here; the model reads nothing."""
    if settings.model == EMBEDDED_MODEL:
        raise UsageError("`engine=hybrid` needs a model that reads pages", hint="Choose another `model`.")
    model = known_model(settings.model)
    limits = {"calibrate_pages": _ROUTED_PAGES, "calibrate_seconds": _ROUTED_SECONDS}
    limits = {name: value for name, value in limits.items() if name not in settings.model_fields_set}
    sampling = settings.model_copy(update={"calibrate": True, "engine": EMBEDDED, "server_url": (), **limits})
    pages = _pages(sampling, progress)
    prices, messages = _prices(settings, chosen)
    options, _ = on_machines("extract", model, pages.count, chosen, count=settings.shards, prices=prices)
    if own := _own_provider(settings, model):
        tokens = _tokens_as_given(settings) or tokens_of(pages.count, model=model)
        options, messages = at_providers(tokens, own), [*messages, tokens.words]
    if not options:
        where = ", ".join(settings.hardware) or "any known machine"
        raise UsageError(
            f"extract with {model} cannot run on {where}: no GPU, or one with too little memory",
            hint="Remove `hardware` to use the cheapest known machine, or set `price_in` and `price_out`.",
        )
    sample = _calibrate(sampling, pages.sample, progress)
    here = calibrated(Comparison("extract", EMBEDDED_MODEL, pages.count, ()), sample, planned=pages.seconds)
    here = replace(here, notes=(pages.message, *messages))
    return by_threshold(here, cheapest_first(options)[0], [page.gain for page in sample.pages], _THRESHOLDS)


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


def _pages(settings: EstimateSettings, progress: Progress) -> _Pages:
    """Return the pages: as given, counted in the sources, or those of the workspace's plan."""
    in_sources = bool(settings.sources or settings.dataset)
    status: RunStatus | None = None
    sample: Sequence[DocumentPart] = ()
    if settings.workspace is not None:
        with Workspace.open(settings.workspace, options=workspace_options(settings)) as workspace:
            status = run_status(workspace)
            if settings.calibrate and status.documents and not in_sources:
                sample = sample_of(read_units(workspace), settings.calibrate_pages, settings.seed)
    if settings.page_count:
        return _Pages(settings.page_count, f"{plural(settings.page_count, 'page')}, as given", status)
    if in_sources:
        return replace(_counted(settings, progress), status=status)
    if status is None or not status.documents:
        raise UsageError(f"no plan in {settings.workspace}", hint=_GIVE_PAGES)
    planned = status.pages.expected
    left = planned - status.pages.ended
    if settings.stage != "extract" or left <= 0:
        return _Pages(planned, f"all {plural(planned, 'page')} of the workspace's plan", status, sample)
    message = f"{left:,} of {planned:,} pages of the workspace's plan are not read yet"
    return _Pages(left, message, status, sample)


def _counted(settings: EstimateSettings, progress: Progress) -> _Pages:
    """Count the pages as `plan` does, in a temporary folder."""
    own = {
        *("workspace", "workspace_profile", "workspace_endpoint", "workspace_region"),
        *("model", "engine", "quiet"),
    }
    shared: dict[str, Any] = {name: value for name, value in settings if name in PlanSettings.model_fields.keys() - own}
    sample: Sequence[DocumentPart] = ()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
        status = execute("plan", PlanSettings(**{**shared, "workspace": folder}), progress).status
        seconds = time.monotonic() - began
        if settings.calibrate and status.pages.expected:
            with Workspace.open(folder) as workspace:
                sample = sample_of(read_units(workspace), settings.calibrate_pages, settings.seed)
    about = "about " if status.estimated else ""
    pages, documents = plural(status.pages.expected, "page"), plural(status.documents, "document")
    message = f"{about}{pages} in {documents}, counted like Plan"
    return _Pages(status.pages.expected, message, sample=sample, seconds=seconds)


def _machine(name: str) -> Machine:
    """Return the machine named `PLATFORM:NAME`, or by a name that only one platform has.

    Raises:
        UsageError: The name is unknown. The hint lists similar names.
    """
    known = {machine.label: machine for machine in machines()}
    alike = [machine for machine in known.values() if machine.name == name]
    if len(alike) == 1:
        return alike[0]
    platform, _, hardware = name.partition(":")
    if hardware and platform in PLATFORMS.names() and (found := machine_named(platform, hardware)):
        return found
    near = [label for label in known if name in label] or get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
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
        return {(machine.platform, machine.name): price for machine in chosen}, []
    if not settings.live_prices:
        return {}, []
    found: dict[tuple[str, str], Price] = {}
    messages = []
    for platform in dict.fromkeys(machine.platform for machine in chosen):
        prices, message = live_prices(platform, endpoint=settings.platform_endpoint)
        found |= {(platform, name): price for name, price in prices.items()}
        messages.append(message)
    return found, messages


def _tokens_as_given(settings: EstimateSettings) -> Tokens | None:
    if settings.tokens_in is None and settings.tokens_out is None:
        return None
    return Tokens(Span.of(settings.tokens_in or 0), Span.of(settings.tokens_out or 0), "tokens: as given")


def _own_provider(settings: EstimateSettings, model: str) -> list[Provider]:
    """Return the provider whose prices the user gives."""
    if settings.price_in is None and settings.price_out is None:
        return []
    return [Provider(_OWN, model, settings.price_in or 0.0, settings.price_out or 0.0, "as given", "")]


def _bought(settings: EstimateSettings, pages: _Pages) -> tuple[str, list[Option]]:
    """Return the source of the tokens, and the options at providers and at the user's own provider."""
    own = [] if settings.calibrate else _own_provider(settings, settings.model)  # a calibration includes its price
    tokens = mine = _tokens_as_given(settings)
    if tokens is None or mine is None:
        tokens = mine = tokens_of(pages.count)
        status = pages.status
        extract = status.stages["extract"] if status else None
        if own and status and extract and extract.tokens_out:  # the average of the workspace's finished pages
            done = status.pages.ended
            each = pages.count / max(done, 1)
            ins, outs = Span.of(extract.tokens_in * each), Span.of(extract.tokens_out * each)
            mine = Tokens(ins, outs, f"tokens, from {plural(done, 'page')} of this workspace")
        elif own:
            mine = tokens_of(pages.count, model=settings.model)
    words = tokens.words if mine.words == tokens.words else f"{tokens.words}; {_OWN}: {mine.words}"
    return words, at_providers(tokens) + at_providers(mine, own)


# Calibration: a random sample of pages is read by the real engine for about a minute, as by Extract. Nothing is kept.


#: Largest share of the sample that is read before the clock starts, so that one-time loading is not measured.
_WARM = 0.1
#: Pages submitted per page that the engine can process concurrently, so that the engine never waits.
_AHEAD = 1.5


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


def _calibrate(settings: EstimateSettings, sample: Sequence[DocumentPart], progress: Progress) -> Calibration:
    """Read the sample, or as much of it as `calibrate_seconds` allows.

    Raises:
        UsageError: The sample is empty.
        ServerError: No server can be started or reached.
    """
    if not sample:
        raise UsageError("`calibrate`: there is no page to read")
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
    chosen = ExtractSettings(**values if engine == EMBEDDED else {**values, "model": settings.model})
    return run_blocking(lambda: _Calibrating(settings, chosen, progress).run(sample))


class _Calibrating(Silent):
    """One calibration.

    It is the progress of its session: it keeps the function that returns the engine's numbers, and passes messages on.
    """

    def __init__(self, settings: EstimateSettings, chosen: ExtractSettings, progress: Progress) -> None:
        self._settings = settings
        self._chosen = chosen
        self._progress = progress
        self._load: Callable[[], Load] | None = None
        self._session = Session.from_settings(chosen, self)
        self._draw = random.Random(settings.seed)
        self._began = time.monotonic()
        self._clock: float | None = None
        self._pages: list[SampledPage] = []
        self._under_way = 0
        self._freed = asyncio.Event()
        self._unpacked: list[PageRecord] = []
        self._stored = 0  # bytes of the Parquet files
        self._packing = asyncio.Lock()

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load

    def say(self, message: str) -> None:
        self._progress.say(message)

    async def run(self, sample: Sequence[DocumentPart]) -> Calibration:
        warm = 0
        if len(sample) > 1:
            warm = max(1, min(round(_WARM * len(sample)), cores() if self._chosen.engine == EMBEDDED else 1))
        self._progress.begin("calibrate", len(sample), Counts())
        try:
            await self._read_all(sample[:warm], until=None)
            self._clock = time.monotonic()
            await self._read_all(sample[warm:], until=self._clock + self._settings.calibrate_seconds)
            await self._pack()
        finally:
            await self._session.close()
        self._progress.end()
        return Calibration(
            tuple(self._pages),
            self._clock - self._began,
            self._parallel(),
            self._stored,
            _where(self._chosen),
            self._settings.seed,
        )

    async def _read_all(self, pages: Sequence[DocumentPart], until: float | None) -> None:
        """Read pages concurrently. After `until`, no page is begun, and pages in progress are finished."""
        async with asyncio.TaskGroup() as tasks:
            for page in pages:
                while self._under_way >= _AHEAD * self._parallel():
                    self._freed.clear()
                    await self._freed.wait()
                if until is not None and time.monotonic() >= until:
                    break
                self._under_way += 1
                tasks.create_task(self._read(page))

    async def _read(self, page: DocumentPart) -> None:
        async def finished(position: int, record: PageRecord) -> None:
            ended = -1.0 if self._clock is None else time.monotonic() - self._clock
            images = len(record.image.data) if record.image else 0
            images += sum(len(figure.image.data) for figure in record.figures)
            gain = gain_probability(record) if self._chosen.engine == EMBEDDED and record.page_number else 0.0
            self._pages.append(SampledPage(ended, record.tokens_in, record.tokens_out, images, record.status, gain))
            self._progress.count(record.status)
            self._unpacked.append(record)
            if len(self._unpacked) >= (self._settings.pages_per_unit or pages_per_unit(self._chosen.engine)):
                await self._pack()

        try:
            if page.estimate:  # of a document that was not counted: a random page of it
                try:
                    total = await self._session.total(page)
                except PageFailure as failure:
                    page = replace(page, estimate=0, reason=failure.reason, detail=failure.detail)
                else:
                    number = self._draw.randint(1, max(1, total))
                    page = replace(page, estimate=0, page_total=total, pages=(number,))
            await self._session.read(page, finished)
        finally:
            self._under_way -= 1
            self._freed.set()

    async def _pack(self) -> None:
        """Add the bytes of a Parquet file, of the size of a unit, with the rows of finished pages."""
        from llm_ocr.results.schema import pages_to_parquet

        rows, self._unpacked = self._unpacked, []
        async with self._packing:
            if rows:
                self._stored += len(await asyncio.to_thread(pages_to_parquet, rows))

    def _parallel(self) -> int:
        """Return the number of pages that the engine processes concurrently."""
        if self._load is not None:
            return max(1, self._load().window)
        workers = (self._chosen.ocr_workers or cores()) + (self._chosen.render_workers or cores())
        return max(1, workers)


def _where(chosen: ExtractSettings) -> str:
    """Return `this machine (4 cores)` or `the server at gpu:8000`, without secrets of the URL."""
    if chosen.engine == SERVER:
        named = [urlsplit(url if "//" in url else f"//{url}") for url in chosen.server_url]
        hosts = ", ".join(server.netloc.rpartition("@")[2] for server in named)
        return f"the server at {hosts}" if len(named) == 1 else f"the servers at {hosts}"
    own = f"this machine ({cores()} cores)"
    return own if chosen.engine == EMBEDDED else f"vLLM on {own}"
