"""Whether the words of a quote state a value. Pure.

A number is stated in digits, with any separators of thousands and decimals. Another text is stated by its letters in a
row, or by its words in any order, and a date in ISO form by its day, month, and year. A value that a model calculated,
translated, or summarized is not stated, although it may be right.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

from llm_ocr.results.quality.text_layer import chunks_of, plain

#: Separators of thousands and decimals, spaces between groups of three digits, and signs.
_BETWEEN, _SPACES, _SIGNS = ".,'\u2019\u066b\u066c", " \u00a0\u2009\u202f", "-\u2212\u2013"
_BEGIN = rf"([{_SIGNS}(]\s?)?(?<!\d)"
_END = rf"(?:[eE]([+-]?\d{{1,2}})(?![^\W_]))?(\s?[%\u066a]|\s?[{_SIGNS}](?![\w.]))?"
#: Numbers without and with spaces; parts are the sign before, the digits, the exponent, and the sign or percent after.
_NUMBER = re.compile(rf"{_BEGIN}(\d+(?:[{_BETWEEN}]\d+)*){_END}")
_SPACED = re.compile(rf"{_BEGIN}(\d{{1,3}}(?:[{_SPACES}]\d{{3}}(?!\d))+(?:[.,]\d+)?){_END}")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:T00:00(?::00)?Z?)?")
#: Rest of a number that continues before or after a place in a text, and most characters before it.
_BEFORE = re.compile(rf"(?:[{_SIGNS}(]\s?)?(?:\d+[{_BETWEEN}])*\Z")
_AFTER = re.compile(rf"(?:[{_BETWEEN}]\d+)*(?:\s?[{_SIGNS}%\u066a](?![\w.]))?")
_MOST_BEFORE = 40


def letters_of(text: str) -> str:
    """Return the letters and digits of a text in one case, without markup."""
    return "".join(chunk.letters for chunk in chunks_of(plain(text)))


def with_whole_numbers(text: str, start: int, end: int) -> str:
    """Return a part of a text, with the rest of the numbers at its ends, their signs, and a percent sign."""
    before = _BEFORE.search(text[max(0, start - _MOST_BEFORE) : start])
    after = _AFTER.match(text, end)
    return f"{before[0] if before else ''}{text[start:end]}{after[0] if after else ''}"


def states(text: str, value: Any) -> bool:
    """Return whether a text states a value. Of a list or an object, it must state each value in it."""
    if isinstance(value, dict | list):
        return all(states(text, one) for one in (value.values() if isinstance(value, dict) else value))
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return Decimal(str(value)) in numbers_in(text)
    wanted = letters_of(value)
    if wanted in letters_of(text) or _words(value) <= _words(text):
        return True
    if re.fullmatch(r"[+-]?[\d.]+", value):
        with suppress(InvalidOperation):
            return Decimal(value) in numbers_in(text)
    date = _DATE.fullmatch(value)
    return date is not None and _states_date(text, *map(int, date.groups()))


def numbers_in(text: str) -> set[Decimal]:
    """Return the numbers that a text states. `1,234` is 1234 and 1.234, and `19 %` is 19 and 0.19."""
    found: set[Decimal] = set()
    for sign, digits, exponent, after in [*_NUMBER.findall(text), *_SPACED.findall(text)]:
        negative = bool(sign) or after.strip() in set(_SIGNS)
        for number in (Decimal(f"{reading}e{exponent or 0}") for reading in _readings(digits)):
            found.update({number, number.copy_negate()} if negative else {number})
            if after and not negative:
                found.add(number / 100)
    return found


def _readings(digits: str) -> Iterator[str]:
    digits = re.sub(rf"[{_SPACES}]", "", digits)
    parts, marks = re.split(rf"[{_BETWEEN}]", digits), re.findall(rf"[{_BETWEEN}]", digits)
    # Groups of three digits, or in India of two digits before the last three.
    is_grouped = all(len(part) in (2, 3) for part in parts[1:-1])
    if not marks or (is_grouped and len(parts[-1]) == 3 and len(set(marks)) == 1):
        yield "".join(parts)
    if marks and is_grouped and marks[-1] not in marks[:-1]:
        yield f"{''.join(parts[:-1])}.{parts[-1]}"
    if len(marks) > 1 and len(set(marks)) == 1:  # a date, or a version
        yield from parts


def _states_date(text: str, year: int, month: int, day: int) -> bool:
    numbers = {int(digits) for digits in re.findall(r"\d+", text)}
    if day in numbers and month in numbers and (year in numbers or year % 100 in numbers):
        return True
    # The name of the month, in any language, is between the others or before the day.
    years, days, name = rf"\b(?:{year}|{year % 100:02})\b", rf"(?<!\d)0?{day}(?!\d)", r"\D{0,30}[^\W\d_]{3}\D{0,30}"
    return any(
        re.search(pattern, text)
        for pattern in (
            f"{days}{name}{years}",
            rf"[^\W\d_]{{3}}\D{{0,30}}{days}\D{{1,30}}{years}",
            f"{years}{name}{days}",
        )
    )


def _words(text: str) -> set[str]:
    return {word for chunk in chunks_of(plain(text)) for word in chunk.words}
