"""Ways to have pages read, side by side: for terminals, notebooks and programs."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llm_ocr.costs.estimates import Estimate
from llm_ocr.costs.spans import Span
from llm_ocr.costs.stored import Stored
from llm_ocr.costs.tables import Row, html_table, markdown_table, money_span, share_text, text_table, time_span

_HEAD = ("where", "cost", "time", "pages/min", "start-up", "rate", "price")
_RATES = (
    "rate: reported for this model on this GPU by somebody; or guessed: scaled from another GPU, or another model's; "
    "or measured: here, just now"
)


@dataclass(frozen=True, slots=True)
class Option:
    """One way to have the pages read. `cost` is None where the price is not known; providers have no `estimate`."""

    name: str
    model: str
    cost: Span | None
    price: str  # in words
    source: str  # of the price
    estimate: Estimate | None = None
    currency: str = "USD"

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "kind": "provider" if self.estimate is None else "machine",
            "model": self.model,
            "cost": None if self.cost is None else self.cost.to_json(),
            "currency": self.currency,
            "price": self.price,
            "price_source": self.source,
            **({} if self.estimate is None else {"estimate": self.estimate.to_json()}),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ways to have `pages` pages read, the cheapest first, those without a price last; `notes` are for the reader.

    Without pages, when tokens alone were given, `stage` and `model` are empty.
    """

    stage: str
    model: str
    pages: int
    options: tuple[Option, ...]
    notes: tuple[str, ...] = ()
    stored: Stored | None = None
    tokens: tuple[Span, Span] | None = None  # of prompts and of answers, where they were measured

    @property
    def title(self) -> str:
        """`extract of 10,000 pages with deepseek-ocr, the cheapest first`."""
        if not self.stage:
            return "tokens at providers, the cheapest first"
        here = "measured here, then " if any(one.estimate and one.estimate.measured for one in self.options) else ""
        return f"{self.stage} of {self.pages:,} pages with {self.model}, {here}the cheapest first"

    @property
    def assumptions(self) -> list[str]:
        """What the numbers rest on, in words, each once."""
        lines = [line for one in self.options if one.estimate for line in one.estimate.assumptions]
        rates = [_RATES] if lines else []
        stored = [str(self.stored)] if self.stored else []
        return list(dict.fromkeys([*self.notes, *stored, *rates, *lines, *(one.source for one in self.options)]))

    def to_json(self) -> dict[str, Any]:
        """JSON values, for `estimate --json`."""
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
        """For a terminal: the table, then what it rests on."""
        return "\n".join([self.title, "", text_table(_HEAD, list(self._rows())), "", *self.assumptions])

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
    if one.estimate is None:
        return "-", "-", "-", "by tokens"
    found = one.estimate
    rate = f"{found.rate.likely:.3g}" if found.rate.likely < 1000 else f"{found.rate.likely:,.0f}"
    known = "measured" if found.measured else "reported" if found.known else "guessed"
    return time_span(found.wall), rate, share_text(found.startup_share), known
