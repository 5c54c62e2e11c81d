"""Many small objects, read at the same time and given in order."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Objects that are read at the same time, and how many are read before the first of them is given.
_AT_ONCE, _AHEAD = 16, 128


def read_ahead(read: Callable[[T], R], names: Iterable[T], what: str) -> Iterator[R]:
    """What `read` gives for each name, in order; its errors come where its result would. `what` names the threads."""
    rest = iter(names)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"llm-ocr {what}") as readers:
        while some := list(islice(rest, _AHEAD)):
            yield from readers.map(read, some)
