"""Patterns of keys, with the meaning that they have for files."""

import fnmatch
import re
from collections.abc import Callable, Iterable

#: Any number of folders.
_ANY = "**"


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a key matches. `*`, `?` and `[…]` stay within a path segment, `**` stands for any number of folders.

    Folders that match give what is below them, unless the pattern has `**`. Hidden names (with a leading dot) match
    only where the pattern writes the dot, as in a shell.
    """
    segments = pattern.split("/")
    tests = [_test(segment) for segment in segments]
    folders = _ANY not in segments
    end = len(tests)

    def skip(places: Iterable[int]) -> set[int]:
        """The places, and those behind a `**` that stands for nothing."""
        found = set(places)
        for place in range(end):
            if place in found and segments[place] == _ANY:
                found.add(place + 1)
        return found

    def matches(key: str) -> bool:
        places = skip({0})
        for segment in key.split("/"):
            if folders and end in places:
                return not hidden(key.split("/", end)[-1])
            stay = {place for place in places if place < end and segments[place] == _ANY and _visible(segment)}
            step = {place + 1 for place in places if place < end and segments[place] != _ANY and tests[place](segment)}
            places = skip(stay | step)
        return end in places

    return matches


def hidden(relative: str) -> bool:
    """Whether a name of the path begins with a dot."""
    return not all(map(_visible, relative.split("/")))


def _visible(segment: str) -> bool:
    """Keys are names, not paths: `.` and `..` lead nowhere, and hide nothing."""
    return not segment.startswith(".") or segment in (".", "..")


def _test(segment: str) -> Callable[[str], bool]:
    fits = re.compile(fnmatch.translate(segment)).match
    shows = segment.startswith(".")
    return lambda name: fits(name) is not None and (shows or _visible(name))
