"""How single values are read before pydantic checks them: names of files above all, which must arrive unchanged."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Name and password of a URL. Keys of AWS may hold a `/`: what begins with a name and a colon that no port follows goes
#: up to the last `@`.
_CREDENTIALS = re.compile(r"(//)(?:[^/?#\s@\[]*:(?!\d+(?:[/?#]|$))[^\s@]*(?:@[^/?#\s@]*)*@|[^/?#\s]*@)")


def without_credentials(text: str, instead: str = "") -> str:
    """Return the text with the name and password of each URL in it replaced by `instead` and, if given, `@`."""
    return _CREDENTIALS.sub(rf"\g<1>{instead}{'@' if instead else ''}", text)


def name_text(value: Any) -> str:
    """A path or URL as it was given, file names that are not UTF-8 included; ValueError when it cannot be one."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if not isinstance(value, str):
        raise ValueError("must be text")
    if not value:
        raise ValueError("must not be empty")
    if "\0" in value:
        raise ValueError("must not hold a NUL character")
    return value


def path_text(value: Any) -> Any:
    """A `Path` for a name; what is no name is left for pydantic to refuse."""
    return Path(name_text(value)) if isinstance(value, str | bytes) else value


def one_or_many(value: Any) -> Any:
    """One name stands for a list of one; what is no list is left for pydantic to refuse."""
    if isinstance(value, str | bytes | os.PathLike):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, dict):
        return tuple(value)
    return value


def labels(value: Any) -> Any:
    """Names without commas: `image,table` is two of them."""
    many = one_or_many(value)
    if not isinstance(many, tuple):
        return many
    return tuple(part.strip() for item in many for part in str(item).split(",") if part.strip())


def duration(value: Any) -> Any:
    """Seconds, from a number or from text such as `90s`, `45m`, `2h`, `1d`; what is neither is left for pydantic."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", value) if isinstance(value, str) else None
    return round(float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]) if match else value


def split_list(text: str) -> tuple[str, ...]:
    """A list in an environment variable: JSON when it is a JSON list of texts, else one item a line.

    Never split at commas, and a name such as `[draft] a, b.pdf` is a name: both stand in real file names.
    Raises ValueError for text that begins like a JSON list of texts and is none.
    """
    if text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError as error:
            if text.lstrip()[1:].lstrip().startswith('"'):
                raise ValueError(f"begins like a JSON list and is none: {error}") from error
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    return tuple(line for line in text.split("\n") if line)
