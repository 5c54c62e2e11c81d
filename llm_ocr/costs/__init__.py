"""Costs of runs: prices, page rates, and the arithmetic between them.

`prices.toml` and `throughput.toml` contain the numbers, each with its source and date. Every estimate is a range from
low to high with its assumptions as text.
"""

from llm_ocr.costs.estimates import Estimate, Span, expected_seconds, time_limit
from llm_ocr.costs.prices import Price, price_per_hour

__all__ = ["Estimate", "Price", "Span", "expected_seconds", "price_per_hour", "time_limit"]
