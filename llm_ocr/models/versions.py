"""Versions of packages, compared by their numbers."""

import re

_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def numbers(version: str) -> tuple[int, ...]:
    """`0.14.0rc1.dev162` as (0, 14, 0), `5.2` as (5, 2, 0); () for what is no version."""
    match = _NUMBERS.search(version)
    return tuple(int(part or 0) for part in match.groups()) if match else ()
