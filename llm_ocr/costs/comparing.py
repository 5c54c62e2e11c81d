"""The same pages on every machine that has a price, and at every provider: one table, the cheapest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llm_ocr.costs.comparison import Option
from llm_ocr.costs.estimates import Estimate, estimate
from llm_ocr.costs.prices import Machine, Price, Provider, providers, token_cost
from llm_ocr.costs.spans import Span
from llm_ocr.costs.tables import money_text
from llm_ocr.costs.throughput import EMBEDDED, MEASURED_CORES, known_model, of_cores, startup_here
from llm_ocr.errors import UsageError
from llm_ocr.models.registry import find_profile

#: Tokens of a page: of the answer where nothing was measured, and the most of either kind.
_ANSWER, _MOST = 1000, 5000
_MINUTE = 60

#: This machine, in a table with others.
HERE = "here"
EMBEDDED_HERE = (
    "here: text layer and OCR on the CPU, without a model. Scans decide the rate; --engine embedded --calibrate "
    "measures it on your own pages"
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of prompts and answers, for all pages; `words` say where the numbers are from."""

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
    """An option for each machine of which a rate is known, and the labels of the others.

    `prices` by platform and name go before those of the file.
    """
    options, left_out = [], []
    for machine in chosen:
        found = estimate(stage, model, machine, pages, machines=count)
        price = (prices or {}).get((machine.platform, machine.name)) or machine.price
        if found is None:
            left_out.append(machine.label)
        else:
            name = machine.label + (f" x {count}" if count > 1 else "")
            options.append(_option(name, model, found, price))
    return options, left_out


def on_own_cores(stage: str, pages: int, cores: int) -> Option | None:
    """Return the CPU engine on this machine, which costs no rent; None for a stage of which no rate is known.

    Args:
        stage: Stage of the pipeline.
        pages: Pages to be read.
        cores: Cores that this process may use.
    """
    found = estimate(stage, EMBEDDED, Machine(HERE, f"this machine ({cores} cores)"), pages)
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
    name = f"{HERE}, {EMBEDDED} ({cores} cores)"
    return Option(name, EMBEDDED, Span.of(0), "no rent", f"{HERE}: no rent; power is not counted", found)


def at_providers(tokens: Tokens, chosen: Sequence[Provider] | None = None) -> list[Option]:
    """An option for each provider, or for the `chosen` ones."""
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
    """Dollars for the tokens at prices per million."""
    pairs = zip(_three(tokens.prompts), _three(tokens.answers), strict=True)
    low, likely, high = (token_cost(ins, outs, price_in, price_out) for ins, outs in pairs)
    return Span(low, likely, high)


def tokens_of(pages: int, *, model: str = "") -> Tokens:
    """What pages take, by the profile of the model ("": the one that the providers serve).

    Likely is a full page with an answer of 1,000 tokens; low, half of that, is a guess.
    """
    name = known_model(model or providers()[0].model)
    try:
        page = max(find_profile(name).page_tokens, 2 * _ANSWER)
    except UsageError:
        name, page = "a model that is not known, as many as", 5 * _ANSWER
    prompt = page - _ANSWER
    return Tokens(
        Span(prompt / 2, prompt, max(_MOST, prompt)) * pages,
        Span(_ANSWER / 2, _ANSWER, _MOST) * pages,
        f"tokens of a page: {prompt:,} in and {_ANSWER:,} out (a full page, by the profile of {name}); at most "
        f"{_MOST:,} each, as a user of olmOCR counted them in October 2025; half of it at least is a guess",
    )


def cheapest_first(options: Sequence[Option]) -> tuple[Option, ...]:
    """By what is likely; those without a price last, the quickest of them first."""
    return tuple(sorted(options, key=_rank))


def _rank(one: Option) -> tuple[bool, float, str]:
    if one.cost is not None:
        return False, one.cost.likely, one.name
    return True, one.estimate.seconds if one.estimate else 0.0, one.name


def _option(name: str, model: str, found: Estimate, price: Price | None) -> Option:
    if price is None:
        return Option(name, model, None, "not known", "price not known: give it with --price-per-hour", found)
    source = f"prices of {found.machine.platform}: {price.words}"
    shown = f"{money_text(price.per_hour, price.currency)} an hour"
    return Option(name, model, found.cost(price), shown, source, found, price.currency)


def _where(one: Provider) -> str:
    return f"{one.source}, {one.date}" if one.date else one.source


def _three(span: Span) -> tuple[float, float, float]:
    return span.low, span.likely, span.high
