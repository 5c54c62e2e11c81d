"""What runs cost: prices, how fast pages are read, and the arithmetic between them.

Numbers stand in `prices.toml` and `throughput.toml`, each with its source and date. Every estimate is a span from low
to high and says in words what it rests on.
"""

from llm_ocr.costs.estimates import Estimate, expected_seconds, time_limit
from llm_ocr.costs.prices import Price, price_per_hour
from llm_ocr.costs.throughput import Span

__all__ = ["Estimate", "Price", "Span", "expected_seconds", "price_per_hour", "time_limit"]
