"""Two thousand cases are two thousand."""

from fuzz_counts import COUNTS


def test_two_thousand_cases_are_tried():
    """Answers of models come on top: `tests/models/test_parser_laws.py` tries some for each parser."""
    assert sum(COUNTS.values()) >= 2000
