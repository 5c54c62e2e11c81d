"""Compare machines and providers for the same pages, by measured rates or by a calibration."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llm_ocr.costs.estimates import Estimate, Stored, estimate, measured_stored
from llm_ocr.costs.prices import Machine, Price, Provider, machines, providers, token_cost
from llm_ocr.costs.throughput import (
    EMBEDDED_MODEL,
    MEASURED_CORES,
    SLICES,
    Span,
    fits,
    known_model,
    machine_named,
    mean_span,
    measured_speed,
    no_measurement,
    of_cores,
    startup_here,
    startup_of,
)
from llm_ocr.errors import UsageError
from llm_ocr.models.registry import DEFAULT, find_profile
from llm_ocr.types import plural

# Compare machines and providers for the same pages.


# Tables as text, Markdown, and HTML.


Row = Sequence[str]
_HOUR = 3600
DOLLARS = "USD"


def text_table(head: Row, rows: Sequence[Row]) -> str:
    """Return a table with aligned columns."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def markdown_table(head: Row, rows: Sequence[Row]) -> str:
    """Return a Markdown table; bars and line ends in cells are escaped."""
    return "\n".join([_line(head), "|" + "---|" * len(head), *(_line(row) for row in rows)])


def html_table(head: Row, rows: Sequence[Row]) -> str:
    """Return an HTML table; cells are escaped."""
    titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def money_text(value: float, currency: str = DOLLARS) -> str:
    """Return `$0.0165`, `$4.12`, `4.12 EUR`: two digits after the point, four for small amounts."""
    digits = 2 if value >= 1 or value == 0 else 4
    return f"${value:,.{digits}f}" if currency == DOLLARS else f"{value:,.{digits}f} {currency}"


def money_span(span: Span, currency: str = DOLLARS) -> str:
    """Return `$4.74 ($3.08 to $10.31)`, or one number for an exact range."""
    if span.low == span.high:
        return money_text(span.likely, currency)
    return (
        f"{money_text(span.likely, currency)} ({money_text(span.low, currency)} to {money_text(span.high, currency)})"
    )


def time_span(span: Span) -> str:
    """Return seconds as hours, or as minutes for short times: `1.9 h (1.2 to 4.1)`."""
    unit, name = (_HOUR, "h") if span.likely >= _HOUR else (60, "min")
    low, likely, high = (f"{seconds / unit:,.1f}" for seconds in (span.low, span.likely, span.high))
    return f"{likely} {name}" if low == high else f"{likely} {name} ({low} to {high})"


def share_text(share: float | None) -> str:
    """Return `13 %`, or `-`."""
    return "-" if share is None else f"{100 * share:.0f} %"


def _line(row: Row) -> str:
    cells = (cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ") for cell in row)
    return "| " + " | ".join(cells) + " |"


# Options for reading pages: for terminals, notebooks, and programs.


_HEAD = ("where", "cost", "time", "pages/min", "start-up", "rate", "price")
_RATES = (
    "rate: reported (published, or measured by us, for this model on this GPU), guessed (that of a close relative, or "
    "of other cores), or measured (now, on this machine)"
)


@dataclass(frozen=True, slots=True)
class Option:
    """Machine or provider that can read the pages. `cost` is None without a price or a rate.

    Providers have no `estimate`. Machines without a measurement have none either, and `missing` is the note about it.
    """

    name: str
    model: str
    cost: Span | None
    price: str  # as text
    source: str  # source of the price
    estimate: Estimate | None = None
    currency: str = "USD"
    missing: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        provider = self.estimate is None and not self.missing
        return {
            "name": self.name,
            "kind": "provider" if provider else "machine",
            "model": self.model,
            "cost": None if self.cost is None else self.cost.to_json(),
            "currency": self.currency,
            "price": self.price,
            "price_source": self.source,
            **({} if provider else {"estimate": self.estimate.to_json() if self.estimate else None}),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
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
        here = "measured here, then " if any(one.estimate and one.estimate.measured for one in self.options) else ""
        return f"{self.stage} of {plural(self.pages, 'page')} with {self.model}, {here}the cheapest first"

    @property
    def assumptions(self) -> list[str]:
        """Return the assumptions of the numbers as text, each once."""
        lines = [line for one in self.options if one.estimate for line in one.estimate.assumptions]
        rates = [_RATES] if lines else []
        stored = [str(self.stored)] if self.stored else []
        missing = [one.missing for one in self.options if one.missing]
        sources = [one.source for one in self.options]
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
            "options": [one.to_json() for one in self.options],
            "stored": None if self.stored is None else self.stored.to_json(),
            "tokens": None if self.tokens is None else {"in": ins.to_json(0), "out": outs.to_json(0)},
            "assumptions": self.assumptions,
        }

    def __str__(self) -> str:
        """Return the table and its assumptions, for a terminal."""
        more = [f"{plural(self.left_out, 'more option')}: add `all_options`"] if self.left_out else []
        return "\n".join([self.title, "", text_table(_HEAD, list(self._rows())), *more, "", *self.assumptions])

    def _repr_markdown_(self) -> str:
        lines = "\n".join(f"- {line}" for line in self.assumptions)
        return f"**{self.title}**\n\n{markdown_table(_HEAD, list(self._rows()))}\n\n{lines}"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self.assumptions)
        return f"<p><b>{html.escape(self.title)}</b></p>{html_table(_HEAD, list(self._rows()))}<ul>{lines}</ul>"

    def _rows(self) -> Iterator[Row]:
        for one in self.options:
            cost = "not known" if one.cost is None else money_span(one.cost, one.currency)
            yield (one.name, cost, *_speed(one), one.price)


def _speed(one: Option) -> Row:
    if one.missing:
        return "not known", "-", "-", "no measurement"
    if one.estimate is None:
        return "-", "-", "-", "by tokens"
    found = one.estimate
    rate = f"{found.rate.likely:.3g}" if found.rate.likely < 1000 else f"{found.rate.likely:,.0f}"
    known = "measured" if found.measured else "reported" if found.known else "guessed"
    return time_span(found.wall), rate, share_text(found.startup_share), known


# The same pages on every machine with a price, and at every provider: one table, the cheapest first.


#: Tokens of a page: of the answer without a measurement, and the maximum of either kind.
_ANSWER, _MOST = 1000, 5000
_MINUTE = 60

#: Name of this machine in a table with others.
HERE = "here"
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
        price = (prices or {}).get((machine.platform, machine.name)) or machine.price
        name = machine.label + (f" x {count}" if count > 1 else "")
        if found is not None:
            options.append(_option(name, model, found, price))
        elif machine.gpu and model != EMBEDDED_MODEL and fits(known_model(model), machine.gpu):
            missing = no_measurement(stage, model, machine.gpu)
            options.append(Option(name, model, None, *_priced(machine, price), missing=missing))
        else:
            left_out.append(machine.label)
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
    rate, words = of_cores(found.rate, cores)
    startup, start = startup_here()
    said = f"{HERE}: start-up of {startup.likely:g} s ({startup.low:g} to {startup.high:g}): {start}"
    found = replace(
        found,
        rate=rate,
        work=rate.needed(pages) * _MINUTE,
        startup=startup,
        assumptions=(found.assumptions[0], f"{HERE}: {words}", said),
        known=cores == MEASURED_CORES,
    )
    name = f"{HERE}, {EMBEDDED_MODEL} ({cores} cores)"
    return Option(name, EMBEDDED_MODEL, Span.of(0), "no rent", f"{HERE}: no rent; power is not included", found)


def at_providers(tokens: Tokens, chosen: Sequence[Provider] | None = None) -> list[Option]:
    """Return an option for each provider, or for the `chosen` ones."""
    return [
        Option(
            f"{one.name} ({one.model})" if one.model else one.name,
            one.model,
            provider_cost(tokens, one.price_in, one.price_out),
            f"${one.price_in:g} in, ${one.price_out:g} out",
            f"providers' prices, per million tokens: {_where(one)}",
        )
        for one in (providers() if chosen is None else chosen)
    ]


def provider_cost(tokens: Tokens, price_in: float, price_out: float) -> Span:
    """Return dollars for the tokens at prices per million."""
    pairs = zip(_three(tokens.prompts), _three(tokens.answers), strict=True)
    low, likely, high = (token_cost(ins, outs, price_in, price_out) for ins, outs in pairs)
    return Span(low, likely, high)


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
    return tuple(sorted(options, key=_rank))


def _rank(one: Option) -> tuple[bool, float, str]:
    if one.cost is not None:
        return False, one.cost.likely, one.name
    return True, one.estimate.seconds if one.estimate else math.inf, one.name


def _option(name: str, model: str, found: Estimate, price: Price | None) -> Option:
    shown, source = _priced(found.machine, price)
    if price is None:
        return Option(name, model, None, shown, source, found)
    return Option(name, model, found.cost(price), shown, source, found, price.currency)


def _priced(machine: Machine, price: Price | None) -> tuple[str, str]:
    """Return the price as text, and its source."""
    if price is None:
        return "not known", "price unknown: set `price_per_hour`"
    return f"{money_text(price.per_hour, price.currency)} an hour", f"prices of {machine.platform}: {price.words}"


def _where(one: Provider) -> str:
    return f"{one.source}, {one.date}" if one.date else one.source


def _three(span: Span) -> tuple[float, float, float]:
    return span.low, span.likely, span.high


# Time and cost of the same pages on other hardware.

#: Pages for which the cost without start-up is shown.
PROJECTED = (1_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One machine that reads the pages. `scaled`: from this run's own rate on the same GPU, otherwise a published rate.

    `hours` are billed ones, and `cost` is of this run's pages, both with start-up. `per_thousand` is the cost of 1,000
    pages without start-up.
    """

    hardware: str
    pages_per_minute: float
    hours: float
    cost: Span
    per_thousand: Span
    scaled: bool
    words: str

    def row(self) -> Row:
        """Return the row for a table."""
        return (
            self.hardware,
            f"{self.pages_per_minute:,.1f}",
            f"{self.hours:.3g}",
            money_span(self.cost),
            *(money_text(self.per_thousand.likely * pages / 1000) for pages in PROJECTED),
            "this run, scaled" if self.scaled else "others' runs",
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "hardware": self.hardware,
            "pages_per_minute": round(self.pages_per_minute, 2),
            "hours": round(self.hours, 4),
            "cost": self.cost.to_json(),
            "per_1000_pages": self.per_thousand.to_json(),
            "scaled": self.scaled,
        }


def other_machines(
    hardware: str, model: str, pages: int, working: float | None, billed: float | None
) -> tuple[WhatIf, ...]:
    """Return every machine with a price and a GPU that was measured, by this run or by others, the cheapest first.

    Args:
        hardware: Hardware of Extract ("hf-jobs:a100-large", "" without a job).
        model: Model of the run.
        pages: Pages of the run.
        working: Working seconds of Extract. Machines with the same GPU have this rate times their number of GPUs; the
            others have published rates.
        billed: Billed seconds of Extract.
    """
    platform, _, name = hardware.partition(":")
    here = machine_named(platform, name) if name else None
    seconds = working or billed
    there = [one for one in machines() if one.gpus and one.label != hardware]
    startup = max(0.0, billed - working) if billed and working else None
    found: list[WhatIf | None] = []
    for one in there:
        if here is not None and seconds and here.gpu == one.gpu:
            found.append(_same_gpu(here, one, pages, seconds, startup))
        else:
            found.append(_expected(one, model or DEFAULT, pages))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.cost.likely))


def _same_gpu(here: Machine, there: Machine, pages: int, seconds: float, startup: float | None) -> WhatIf:
    work = seconds * here.gpus / there.gpus
    before = startup_of(there)[0].likely if startup is None else startup
    words = (
        f"this run's rate on {here.label}, proportional to the number of GPUs, with the same start-up; the range is "
        "half to twice"
    )
    doubt, price = Span(work / 2, work, work * 2), _per_hour(there) / _HOUR
    cost, per_thousand = (Span.of(before) + doubt) * price, doubt * (price * 1000 / pages)
    return WhatIf(there.label, 60 * pages / work, (before + work) / _HOUR, cost, per_thousand, True, words)


def _expected(there: Machine, model: str, pages: int) -> WhatIf | None:
    found = estimate("extract", model, there, pages)
    if found is None or there.price is None:
        return None
    words = f"other GPUs: published rates of {model}"
    hours = found.billed.likely / _HOUR
    per_thousand = found.work * (there.price.per_hour / _HOUR * 1000 / pages)
    return WhatIf(there.label, found.rate.likely, hours, found.cost(there.price), per_thousand, False, words)


def _per_hour(machine: Machine) -> float:
    return machine.price.per_hour if machine.price else 0.0


#: Minimum relative errors of a mean, for samples of any uniformity. Time: the speed of a machine varies. Tokens: models
#: do not repeat answers exactly. Bytes: pages are packed with different ones each time. All three are guesses.
LEAST_TIME, LEAST_TOKENS, LEAST_BYTES = 0.15, 0.03, 0.03
#: Factor for the start-up time of another run: a guess.
_STARTUP = Span(0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Measurements of a sample, one number per page; `ends` are seconds since the clock started, without earlier pages.

    `images` are bytes of each page's images, `stored` those of all written files. `startup` are the seconds until the
    clock started; the other numbers include `failed` pages. `where` is, for example, "this machine (4 cores)".
    """

    ends: Sequence[float]
    tokens_in: Sequence[int]
    tokens_out: Sequence[int]
    images: Sequence[int]
    stored: int
    failed: int
    parallel: int
    startup: float
    seconds: float
    where: str
    seed: int


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in dollars; None means unknown. `tokens_in`, `tokens_out` per million, `hour` for one machine."""

    tokens_in: float | None = None
    tokens_out: float | None = None
    hour: float | None = None


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Estimate for all pages, with its tokens and bytes."""

    option: Option
    tokens: Tokens
    stored: Stored

    def first_in(self, others: Comparison) -> Comparison:
        """Return a comparison with this estimate as the first option."""
        spans = (self.tokens.prompts, self.tokens.answers) if self.tokens.answers.likely else None
        options, notes = (self.option, *others.options), (*others.notes, self.tokens.words)
        return replace(others, options=options, notes=notes, stored=self.stored, tokens=spans)


def calibrated(sample: Sampled, model: str, pages: int, prices: Prices, *, planned: float, machines: int) -> Calibrated:
    """Return the estimate for `pages` pages on `machines` machines like that of the sample.

    `planned` are the seconds of planning.
    """
    read = len(sample.tokens_in)
    share = min(1.0, read / pages) if pages else 1.0
    speed = measured_speed(sample.ends, sample.parallel, share, least=LEAST_TIME)
    startup = _STARTUP * (planned + sample.startup)
    found = Estimate(
        "extract",
        model,
        Machine("here", sample.where),
        pages,
        startup,
        speed.each * pages + Span.of(speed.once),
        Span(*(_MINUTE / one for one in (speed.each.high, speed.each.likely, speed.each.low))),
        tuple(_words(sample, pages, startup)),
        known=True,
        count=machines,
        measured=True,
    )
    tokens = _tokens(sample, pages, share)
    each = mean_span(sample.images, share, least=LEAST_BYTES)
    stored = each * (sample.stored / sum(sample.images)) if sum(sample.images) else Span.of(sample.stored / read)
    return Calibrated(_calibrated_option(found, tokens, prices), tokens, measured_stored(stored, pages))


def _words(sample: Sampled, pages: int, startup: Span) -> list[str]:
    read = len(sample.tokens_in)
    failed = f", {sample.failed} of them failed" if sample.failed else ""
    return [
        f"here: measured now on {sample.where}: {read:,} of {pages:,} pages{failed}, a random sample (seed "
        f"{sample.seed}), {len(sample.ends):,} of them timed in {sample.seconds:.0f} s",
        f"range: a 95 % t-interval over {SLICES} slices of the sample, narrowed by the sampled share of all pages, and "
        f"at least {LEAST_TIME:.0%} in both directions for changes in the speed of the machine",
        f"start-up of {startup.likely:.0f} s: measured time of plan, engine, and first pages; the range of half to "
        "twice is a guess",
    ]


def _tokens(sample: Sampled, pages: int, share: float) -> Tokens:
    prompts, answers = (
        mean_span(values, share, least=LEAST_TOKENS) for values in (sample.tokens_in, sample.tokens_out)
    )
    if not answers.likely:
        return Tokens(Span.of(0), Span.of(0), "no tokens: no requests to a model")
    words = f"tokens of a page, measured here: {_span(prompts)} in and {_span(answers)} out"
    return Tokens(prompts * pages, answers * pages, words)


def _span(span: Span) -> str:
    return f"{span.likely:,.0f} ({span.low:,.0f} to {span.high:,.0f})"


def _calibrated_option(found: Estimate, tokens: Tokens, prices: Prices) -> Option:
    cost: Span | None = None
    shown = []
    if prices.tokens_in is not None or prices.tokens_out is not None:
        cost = provider_cost(tokens, prices.tokens_in or 0.0, prices.tokens_out or 0.0)
        shown.append(f"${prices.tokens_in or 0:g} in, ${prices.tokens_out or 0:g} out")
    if prices.hour is not None:
        hours = found.billed * (prices.hour / _HOUR)
        cost = hours if cost is None else cost + hours
        shown.append(f"{money_text(prices.hour)} an hour")
    name = "here" + (f" x {found.count}" if found.count > 1 else "")
    if cost is None:
        source = "here: price unknown: set `price_per_hour`, or `price_in` and `price_out`"
        return Option(name, found.model, None, "not known", source, found)
    return Option(name, found.model, cost, "; ".join(shown), "here: prices as given", found)
