"""Estimate from a sample read immediately before: time, tokens, bytes, money."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm_ocr.costs.comparison import Comparison, Option, Tokens, money_text, provider_cost
from llm_ocr.costs.estimates import Estimate, Stored, measured_stored
from llm_ocr.costs.prices import Machine
from llm_ocr.costs.throughput import SLICES, Span, mean_span, measured_speed

_HOUR = 3600
_MINUTE = 60
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
    return Calibrated(_option(found, tokens, prices), tokens, measured_stored(stored, pages))


def _words(sample: Sampled, pages: int, startup: Span) -> list[str]:
    read = len(sample.tokens_in)
    failed = f", {sample.failed} of them failed" if sample.failed else ""
    return [
        f"here: measured on {sample.where} just now: {read:,} of {pages:,} pages{failed}, drawn by chance (seed "
        f"{sample.seed}), {len(sample.ends):,} of them against the clock in {sample.seconds:.0f} s",
        f"its range: a 95 % t-interval over {SLICES} slices of the sample, narrowed by the share of all pages that was "
        f"read, and at least {LEAST_TIME:.0%} either way for a machine that is not as fast every minute",
        f"its start-up of {startup.likely:.0f} s: plan, engine and first pages as they just took; half or twice is a "
        "guess",
    ]


def _tokens(sample: Sampled, pages: int, share: float) -> Tokens:
    prompts, answers = (
        mean_span(values, share, least=LEAST_TOKENS) for values in (sample.tokens_in, sample.tokens_out)
    )
    if not answers.likely:
        return Tokens(Span.of(0), Span.of(0), "no tokens: no model was asked")
    words = f"tokens of a page, measured here: {_span(prompts)} in and {_span(answers)} out"
    return Tokens(prompts * pages, answers * pages, words)


def _span(span: Span) -> str:
    return f"{span.likely:,.0f} ({span.low:,.0f} to {span.high:,.0f})"


def _option(found: Estimate, tokens: Tokens, prices: Prices) -> Option:
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
        source = "here: price not known: give it with --price-per-hour, or --price-in and --price-out"
        return Option(name, found.model, None, "not known", source, found)
    return Option(name, found.model, cost, "; ".join(shown), "here: prices as given", found)
