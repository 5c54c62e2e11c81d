"""Files spoiled byte by byte, whatever they hold. Everything follows from the chance that is given."""

import random
import re
from collections.abc import Callable, Sequence

#: A function that spoils bytes; the pool holds whole files to take pieces from.
Spoiler = Callable[[bytes, random.Random, Sequence[bytes]], bytes]

_NUMBER = re.compile(rb"\d{1,10}")
_MAD_NUMBERS = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"2147483648", b"4294967295", b"99999999999", b"1e99",
)  # fmt: skip
_RAW = (
    b"\0", b"\xff", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\r\n", b"%", b"<<", b">>",
)  # fmt: skip


def flipped(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """Some bits are others: one, some, or many."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 4, 30, max(1, len(data) // 500)))):
        if out:
            out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def cut(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """The end is missing, or the beginning, or a piece within."""
    first, last = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    return chance.choice((data[:first], data[:last], data[first:], data[:first] + data[last:]))


def doubled(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """A piece stands there more than once."""
    first, last = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    piece = data[first : min(last, first + 4096)]
    return data[:first] + piece * chance.choice((2, 3, 50)) + data[first:]


def overwritten(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """A stretch is zeros, noise, or what stands elsewhere in the file."""
    if not data:
        return data
    at, length = chance.randrange(len(data)), chance.choice((4, 64, 1024))
    elsewhere = chance.randrange(len(data))
    other = chance.choice((bytes(length), chance.randbytes(length), data[elsewhere : elsewhere + length]))
    return data[:at] + other + data[at + length :]


def inserted(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """Bytes that readers stumble over, in between."""
    out = data
    for _ in range(chance.randint(1, 5)):
        at = chance.randint(0, len(out))
        out = out[:at] + chance.choice(_RAW) + out[at:]
    return out


def spliced(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """A piece of another file within this one, or its end behind this one's beginning."""
    other = chance.choice(pool) if pool else data
    first, last = sorted((chance.randint(0, len(other)), chance.randint(0, len(other))))
    at = chance.randint(0, len(data))
    return chance.choice((data[:at] + other[first : min(last, first + 20_000)] + data[at:], data[:at] + other[first:]))


def renumbered(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> bytes:
    """Numbers that are written out are others: sizes, places, counts."""
    places = list(_NUMBER.finditer(data[:200_000])) or [re.match(b"", data)]
    out = data
    for match in sorted(chance.sample(places, min(len(places), chance.choice((1, 3, 10)))), key=_start, reverse=True):
        if match is not None:
            out = out[: match.start()] + chance.choice(_MAD_NUMBERS) + out[match.end() :]
    return out


def _start(match: re.Match[bytes] | None) -> int:
    return match.start() if match else 0


ANY: dict[str, Spoiler] = {
    one.__name__: one for one in (flipped, cut, doubled, overwritten, inserted, spliced, renumbered)
}


def spoiled(data: bytes, chance: random.Random, pool: Sequence[bytes] = ()) -> tuple[str, bytes]:
    """The file after one to three spoilers, and their names."""
    names = chance.choices(list(ANY), k=chance.choice((1, 1, 2, 3)))
    for name in names:
        data = ANY[name](data, chance, pool)
    return "+".join(names), data
