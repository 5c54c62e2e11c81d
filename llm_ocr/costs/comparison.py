"""Compare machines and providers for the same pages, by measured rates or by a calibration."""

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.costs.estimates import (
    EMBEDDED_MODEL,
    HERE,
    SLICES,
    Estimate,
    Span,
    Stored,
    estimate,
    fits,
    known_model,
    mean_span,
    measured_speed,
    no_measurement,
    share_span,
    stored_of,
)
from llm_ocr.costs.prices import Machine, Price, Provider, providers, token_cost
from llm_ocr.errors import UsageError
from llm_ocr.models.registry import find_profile
from llm_ocr.types import Status, plural

Row = Sequence[str]
#: Head and rows.
Table = tuple[Row, Sequence[Row]]
DOLLARS = "USD"


class Tables(ABC):
    """Tables with a title and notes, as text, as Markdown, and as HTML for notebooks."""

    __slots__ = ()

    @property
    @abstractmethod
    def title(self) -> str:
        """Return what the tables are about."""

    @abstractmethod
    def content(self) -> tuple[Sequence[Table], Sequence[str]]:
        """Return the tables and the notes."""

    def __str__(self) -> str:
        return self._text()

    def _text(self, more: str = "") -> str:
        """Return the tables with aligned columns, and a line `more` below them."""
        tables, notes = self.content()
        parts = [self.title]
        for head, rows in tables:
            widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
            lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows))
            parts.append("\n".join(lines))
        parts[-1] += more and f"\n{more}"
        return "\n\n".join([*parts, "\n".join(notes)]).rstrip()

    def _repr_markdown_(self) -> str:
        """Return Markdown; bars and line ends in cells are escaped."""

        def line(row: Row) -> str:
            cells = (cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for cell in row)
            return "| " + " | ".join(cells) + " |"

        tables, notes = self.content()
        shown = ["\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)]) for head, rows in tables]
        return "\n\n".join([f"**{self.title}**", *shown, "\n".join(f"- {note}" for note in notes)]).rstrip()

    def _repr_html_(self) -> str:
        """Return HTML; all text is escaped."""

        def cells(row: Row, tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

        tables, notes = self.content()
        shown = "".join(
            f"<table><thead>{cells(head, 'th')}</thead><tbody>{''.join(cells(row, 'td') for row in rows)}</tbody>"
            "</table>"
            for head, rows in tables
        )
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        return f"<p><b>{html.escape(self.title)}</b></p>{shown}<ul>{listed}</ul>"


def money_text(value: float, currency: str = DOLLARS) -> str:
    """Return `$0.0165`, `$4.12`, `4.12 EUR`: two digits after the point, four for small amounts."""
    digits = 2 if value >= 1 or value == 0 else 4
    return f"${value:,.{digits}f}" if currency == DOLLARS else f"{value:,.{digits}f} {currency}"


def money_span(span: Span) -> str:
    """Return `$4.74 ($3.08 to $10.31)`, or one number for an exact range."""
    low, likely, high = (money_text(value) for value in (span.low, span.likely, span.high))
    return likely if span.low == span.high else f"{likely} ({low} to {high})"


def time_span(span: Span) -> str:
    """Return seconds as hours, or as minutes for short times: `1.9 h (1.2 to 4.1)`."""
    unit, name = (3600, "h") if span.likely >= 3600 else (60, "min")
    low, likely, high = (f"{seconds / unit:,.1f}" for seconds in (span.low, span.likely, span.high))
    return f"{likely} {name}" if low == high else f"{likely} {name} ({low} to {high})"


def share_text(share: float | None) -> str:
    """Return `13 %`, or `-`."""
    return "-" if share is None else f"{100 * share:.0f} %"


_RATES = (
    "rate: reported (published, or measured by us, for this model on this GPU), guessed (that of a close relative, or "
    "of other cores), or measured (now, on this machine)"
)


@dataclass(frozen=True, slots=True)
class Option:
    """Machine or provider that can read the pages. `cost` is None without a price or a rate.

    Providers have no `estimate`. Machines without a measurement have none either, and `missing` is the note about it.
    Options of the engine `hybrid` differ in `share`, the share 0..1 of the pages that the model reads, and in
    `threshold`, the probability from which it reads a page.
    """

    name: str
    model: str
    cost: Span | None
    price: str  # as text
    source: str  # source of the price
    estimate: Estimate | None = None
    missing: str = ""
    share: Span | None = None
    threshold: float | None = None

    def row(self) -> Row:
        """Return the row for a table."""
        cost = "not known" if self.cost is None else money_span(self.cost)
        if self.missing:
            return self.name, cost, "not known", "-", "-", "no measurement", self.price
        if self.estimate is None:
            return self.name, cost, "-", "-", "-", "by tokens", self.price
        found, likely = self.estimate, self.estimate.rate.likely
        rate = f"{likely:.3g}" if likely < 1000 else f"{likely:,.0f}"
        known = "measured" if found.measured else "reported" if found.known else "guessed"
        return self.name, cost, time_span(found.wall), rate, share_text(found.startup_share), known, self.price

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        provider = self.estimate is None and not self.missing
        return {
            "name": self.name,
            "kind": "provider" if provider else "machine",
            "model": self.model,
            "cost": None if self.cost is None else self.cost.to_json(),
            "currency": DOLLARS,
            "price": self.price,
            "price_source": self.source,
            **({} if self.share is None else {"model_share": self.share.to_json(), "model_threshold": self.threshold}),
            **({} if provider else {"estimate": self.estimate.to_json() if self.estimate else None}),
        }


@dataclass(frozen=True, slots=True)
class Comparison(Tables):
    """Options for reading `pages` pages, the cheapest first, those without a price last; `notes` are for the reader.

    `stage` and `model` are empty if only tokens were given.
    """

    stage: str
    model: str
    pages: int
    options: tuple[Option, ...]
    notes: tuple[str, ...] = ()
    stored: Stored | None = None
    tokens: tuple[Span, Span] | None = None  # of prompts and of answers, if measured
    left_out: int = 0  # options that `best` removed

    @property
    def title(self) -> str:
        """Return `extract of 10,000 pages with deepseek-ocr, the cheapest first`."""
        if not self.stage:
            return "tokens at providers, the cheapest first"
        if any(option.share for option in self.options):
            return f"{self.stage} of {plural(self.pages, 'page')} with {self.model}, by the share that the model reads"
        measured = any(option.estimate and option.estimate.measured for option in self.options)
        order = "measured here, then the cheapest first" if measured else "the cheapest first"
        return f"{self.stage} of {plural(self.pages, 'page')} with {self.model}, {order}"

    @property
    def assumptions(self) -> list[str]:
        """Return the assumptions of the numbers as text, each once."""
        lines = [line for option in self.options if option.estimate for line in option.estimate.assumptions]
        rates = [_RATES] if lines else []
        stored = [str(self.stored)] if self.stored else []
        missing = [option.missing for option in self.options if option.missing]
        sources = [option.source for option in self.options]
        return list(dict.fromkeys([*self.notes, *missing, *stored, *rates, *lines, *sources]))

    def best(self, count: int) -> "Comparison":
        """Return the comparison with its first `count` options, and the number of the others."""
        return replace(self, options=self.options[:count], left_out=max(0, len(self.options) - count))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        ins, outs = self.tokens or (Span.of(0), Span.of(0))
        return {
            "stage": self.stage,
            "model": self.model,
            "pages": self.pages,
            "options": [option.to_json() for option in self.options],
            "stored": None if self.stored is None else self.stored.to_json(),
            "tokens": None if self.tokens is None else {"in": ins.to_json(0), "out": outs.to_json(0)},
            "assumptions": self.assumptions,
        }

    def content(self) -> tuple[Sequence[Table], Sequence[str]]:
        """Return the table and its assumptions."""
        head = ("where", "cost", "time", "pages/min", "start-up", "rate", "price")
        return [(head, [option.row() for option in self.options])], self.assumptions

    def __str__(self) -> str:
        return self._text(f"{plural(self.left_out, 'more option')}: add `all_options`" if self.left_out else "")


#: Tokens of a page: of the answer without a measurement, and the maximum of either kind.
_ANSWER, _MOST = 1000, 5000
#: Cores of the machine on which the CPU rates were measured.
_MEASURED_CORES = 2
#: Factor that widens a range from the measured number of cores to another one.
_OTHER_CORES = 1.5

EMBEDDED_HERE = (
    "here: text layer and OCR on the CPU, without a model. The rate depends on the share of scans; `engine=embedded` "
    "and `calibrate` measure the rate of your pages"
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of prompts and answers, for all pages; `words` state the source of the numbers."""

    prompts: Span
    answers: Span
    words: str

    def cost(self, price_in: float, price_out: float) -> Span:
        """Return dollars at prices per million tokens."""
        ins, outs = self.prompts, self.answers
        pairs = ((ins.low, outs.low), (ins.likely, outs.likely), (ins.high, outs.high))
        return Span(*(token_cost(prompt, answer, price_in, price_out) for prompt, answer in pairs))


def on_machines(
    stage: str,
    model: str,
    pages: int,
    chosen: Sequence[Machine],
    *,
    count: int = 1,
    prices: Mapping[tuple[str, str], Price] | None = None,
) -> tuple[list[Option], list[str]]:
    """Return an option per machine, and the labels of machines that cannot run the model.

    An option without a measurement has no time and no cost. `prices` by platform and name have precedence over those of
    the file.
    """
    options, left_out = [], []
    for machine in chosen:
        found = estimate(stage, model, machine, pages, machines=count)
        missing = ""
        if found is None:
            if not machine.gpu or model == EMBEDDED_MODEL or not fits(known_model(model), machine.gpu):
                left_out.append(machine.label)
                continue
            missing = no_measurement(stage, model, machine.gpu)
        name = machine.label + (f" x {count}" if count > 1 else "")
        price = (prices or {}).get((machine.platform, machine.name)) or machine.price
        cost, shown, source = None, "not known", "price unknown: set `price_per_hour`"
        if price is not None:
            cost = found.cost(price) if found else None
            shown = f"{money_text(price.per_hour)} an hour"
            source = f"prices of {machine.platform}: {price.words}"
        options.append(Option(name, model, cost, shown, source, found, missing))
    return options, left_out


def on_own_cores(stage: str, pages: int, cores: int) -> Option | None:
    """Return the CPU engine on this machine, without rent; None for a stage of unknown rate.

    Args:
        stage: Stage of the pipeline.
        pages: Pages to be read.
        cores: Cores that this process may use.
    """
    found = estimate(stage, EMBEDDED_MODEL, Machine(HERE, f"this machine ({cores} cores)"), pages)
    if found is None:
        return None
    rate, basis = found.rate, f"{cores} cores, as on the measured machine"
    if cores != _MEASURED_CORES:
        rate = (rate * (cores / _MEASURED_CORES)).wider(_OTHER_CORES)
        basis = f"scaled from {_MEASURED_CORES} cores to {cores}, since each core reads a separate page"
    measured, startup = found.assumptions
    found = replace(
        found,
        rate=rate,
        work=rate.needed(pages) * 60,
        assumptions=(measured, f"{HERE}: {basis}", f"{HERE}: {startup}"),
        known=cores == _MEASURED_CORES,
    )
    name = f"{HERE}, {EMBEDDED_MODEL} ({cores} cores)"
    return Option(name, EMBEDDED_MODEL, Span.of(0), "no rent", f"{HERE}: no rent; power is not included", found)


def at_providers(tokens: Tokens, chosen: Sequence[Provider] | None = None) -> list[Option]:
    """Return an option for each provider, or for the `chosen` ones."""
    return [
        Option(
            f"{provider.name} ({provider.model})" if provider.model else provider.name,
            provider.model,
            tokens.cost(provider.price_in, provider.price_out),
            f"${provider.price_in:g} in, ${provider.price_out:g} out",
            "providers' prices, per million tokens: "
            + (f"{provider.source}, {provider.date}" if provider.date else provider.source),
        )
        for provider in (providers() if chosen is None else chosen)
    ]


def tokens_of(pages: int, *, model: str = "") -> Tokens:
    """Return the tokens for pages, by the profile of the model ("": the model of the providers).

    The likely value is a full page with an answer of 1,000 tokens. The low value, half of that, is a guess.
    """
    name = known_model(model or providers()[0].model)
    try:
        page = max(find_profile(name).page_tokens, 2 * _ANSWER)
    except UsageError:
        name, page = "an unknown model:", 5 * _ANSWER
    prompt = page - _ANSWER
    return Tokens(
        Span(prompt / 2, prompt, max(_MOST, prompt)) * pages,
        Span(_ANSWER / 2, _ANSWER, _MOST) * pages,
        f"tokens of a page: {prompt:,} in and {_ANSWER:,} out (a full page, by the profile of {name}); at most "
        f"{_MOST:,} each, from a count of a user of olmOCR in October 2025; the minimum, half of that, is a guess",
    )


def cheapest_first(options: Sequence[Option]) -> tuple[Option, ...]:
    """Return the options by likely cost; those without a price are last, ordered by time."""

    def rank(option: Option) -> tuple[bool, float, str]:
        seconds = option.estimate.seconds if option.estimate else math.inf
        return option.cost is None, seconds if option.cost is None else option.cost.likely, option.name

    return tuple(sorted(options, key=rank))


#: Minimum relative errors of a mean, for samples of any uniformity. Time: the speed of a machine varies. Tokens: models
#: do not repeat answers exactly. Bytes: pages are packed with different ones each time. All three are guesses.
_LEAST_TIME, _LEAST_TOKENS, _LEAST_BYTES = 0.15, 0.03, 0.03
#: Factor for the start-up time of another run: a guess.
_STARTUP = Span(0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class SampledPage:
    """One page of the sample.

    Attributes:
        ended: Seconds after the clock started; negative for a page before that.
        tokens_in: Prompt tokens.
        tokens_out: Answer tokens.
        images: Bytes of its images.
        status: The status of the page.
        gain: Probability 0..1 that a model would read it better; 0 if a model read it.
    """

    ended: float
    tokens_in: int
    tokens_out: int
    images: int
    status: Status
    gain: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Results of a sample.

    Attributes:
        pages: The pages.
        startup: Seconds until the clock started, including the first pages.
        parallel: Pages that the engine processes concurrently.
        stored: Bytes of the Parquet files.
        where: The machine or the servers, for example "this machine (4 cores)".
        seed: The seed of the random choice.
    """

    pages: tuple[SampledPage, ...]
    startup: float
    parallel: int
    stored: int
    where: str
    seed: int


def calibrated(
    others: Comparison,
    sample: Calibration,
    *,
    price_in: float | None = None,
    price_out: float | None = None,
    price_per_hour: float | None = None,
    planned: float = 0.0,
    machines: int = 1,
) -> Comparison:
    """Return the comparison with the estimate from a sample of its pages as the first option.

    Args:
        others: The other options for the same pages.
        sample: Measurements of a sample.
        price_in: Dollars per million prompt tokens. None means unknown.
        price_out: Dollars per million answer tokens, likewise.
        price_per_hour: Dollars per hour of one machine, likewise.
        planned: Seconds of planning.
        machines: Number of machines like that of the sample.
    """
    pages, read = others.pages, len(sample.pages)
    share = min(1.0, read / pages) if pages else 1.0
    ends = [page.ended for page in sample.pages if page.ended >= 0]  # later than the clock's start
    each, once = measured_speed(ends, sample.parallel, share, least=_LEAST_TIME)
    startup = _STARTUP * (planned + sample.startup)
    failures = sum(page.status is Status.FAILED for page in sample.pages)
    failed = f", {failures} of them failed" if failures else ""
    words = (
        f"here: measured now on {sample.where}: {read:,} of {pages:,} pages{failed}, a random sample (seed "
        f"{sample.seed}), {len(ends):,} of them timed in {max(ends):.0f} s",
        f"range: a 95 % t-interval over {SLICES} slices of the sample, narrowed by the sampled share of all pages, and "
        f"at least {_LEAST_TIME:.0%} in both directions for changes in the speed of the machine",
        f"start-up of {startup.likely:.0f} s: measured time of plan, engine, and first pages; the range of half to "
        "twice is a guess",
    )
    found = Estimate(
        "extract",
        others.model,
        Machine(HERE, sample.where),
        pages,
        startup,
        each * pages + Span.of(once),
        each.needed(60),
        words,
        known=True,
        count=machines,
        measured=True,
    )

    prompts = mean_span([page.tokens_in for page in sample.pages], share, least=_LEAST_TOKENS)
    answers = mean_span([page.tokens_out for page in sample.pages], share, least=_LEAST_TOKENS)
    tokens = Tokens(Span.of(0), Span.of(0), "no tokens: no requests to a model")
    if answers.likely:
        ins, outs = (f"{span.likely:,.0f} ({span.low:,.0f} to {span.high:,.0f})" for span in (prompts, answers))
        tokens = Tokens(prompts * pages, answers * pages, f"tokens of a page, measured here: {ins} in and {outs} out")

    cost: Span | None = None
    shown = []
    if price_in is not None or price_out is not None:
        cost = tokens.cost(price_in or 0.0, price_out or 0.0)
        shown.append(f"${price_in or 0:g} in, ${price_out or 0:g} out")
    if price_per_hour is not None:
        hours = found.billed * (price_per_hour / 3600)
        cost = hours if cost is None else cost + hours
        shown.append(f"{money_text(price_per_hour)} an hour")
    source = "here: prices as given"
    if cost is None:
        source = "here: price unknown: set `price_per_hour`, or `price_in` and `price_out`"
    name = HERE + (f" x {machines}" if machines > 1 else "")
    option = Option(name, others.model, cost, "; ".join(shown) or "not known", source, found)

    images = [page.images for page in sample.pages]
    stored = Span.of(sample.stored / read)
    if sum(images):
        stored = mean_span(images, share, least=_LEAST_BYTES) * (sample.stored / sum(images))
    return replace(
        others,
        options=(option, *others.options),
        notes=(*others.notes, tokens.words),
        stored=stored_of("extract", others.model, pages, stored),
        tokens=(tokens.prompts, tokens.answers) if tokens.answers.likely else None,
    )


_ABOUT_SHARES = (
    "share: pages of the sample from the threshold on, with a 95 % Wilson interval; `model_threshold` sets the "
    "threshold, and `model_share` limits the share",
    "time: start-up of the model's machine, then the longer one of the CPU engine here and the model; the machine is "
    "rented for all of it. At a provider: the CPU engine alone",
)


def by_threshold(
    here: Comparison, alone: Option, gains: Sequence[float], thresholds: Mapping[float, str]
) -> Comparison:
    """Return the engine `hybrid` at several thresholds, between the CPU engine and the model alone.

    Args:
        here: The CPU engine for all pages, by a sample, as its only option.
        alone: The model for all pages, on a machine or at a provider.
        gains: Probability 0..1 of each page of the sample that the model would read it better.
        thresholds: Probabilities from which a page goes to the model, with words about them.
    """
    (first,) = here.options
    cpu, model = first.estimate, alone.estimate
    source = f"{HERE}: no rent; power is not included"
    options = [
        replace(first, name="0 %: the CPU engine", cost=Span.of(0), price="no rent", source=source, share=Span.of(0))
    ]
    for threshold, words in thresholds.items():
        sent = sum(gain >= threshold for gain in gains)
        share = share_span(sent, len(gains), min(1.0, len(gains) / here.pages))
        likely, low, high = (share_text(part) for part in (share.likely, share.low, share.high))
        found, cost = cpu, alone.cost.times(share) if alone.cost else None
        if model is not None and cpu is not None:
            work = model.work.times(share).longer(cpu.work * model.count)
            found = replace(model, work=work, rate=work.needed(60 * here.pages * model.count), measured=False)
            cost = found.billed * (alone.cost.likely / model.billed.likely) if alone.cost else None
        name = f"{likely} ({low} to {high}), threshold {threshold:g}{words}"
        options.append(replace(alone, name=name, cost=cost, estimate=found, share=share, threshold=threshold))
    options.append(replace(alone, name="100 %: the model alone", share=Span.of(1)))
    notes = (*here.notes, *_ABOUT_SHARES, f"the model: {alone.name}, the cheapest for all pages")
    return replace(here, model=f"hybrid ({alone.model})", options=tuple(options), notes=notes)
