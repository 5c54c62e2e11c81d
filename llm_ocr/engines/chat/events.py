"""Server-sent events, cut from a stream of bytes (WHATWG HTML, section 9.2.6)."""

#: An event's longest size in bytes. An answer of 100,000 tokens in one event has under 1 MB.
LONGEST = 16 * 1024 * 1024
#: Events with ids that are remembered, to find those that come again.
_REMEMBERED = 64


class TooLong(ValueError):
    """An event has no end."""


class EventSplitter:
    """Gives the data of each event as soon as its end has come. How the stream was cut makes no difference.

    An event that comes again with the same id and the same data is left out, unless the stream gives one id to several
    events. Names and comments of events are left out: chat servers use none that matter.
    """

    __slots__ = ("_longest", "_rest", "_seen", "_shared")

    def __init__(self, longest: int | None = None) -> None:
        """`longest`: bytes of an event, `LONGEST` at most."""
        self._longest = LONGEST if longest is None else min(longest, LONGEST)
        self._rest = b""
        self._seen: dict[bytes, bytes] = {}  # the data of the last events that had an id
        self._shared = False  # an id stood for several events: ids show no repetition

    def feed(self, data: bytes) -> list[bytes]:
        """The events that end in the next piece of the stream. Raises `TooLong`."""
        if self._rest:
            data = self._rest + data
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # perhaps the first half of a CRLF
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = data.split(b"\n\n")
        self._rest = blocks.pop() + held
        if len(self._rest) > self._longest:
            raise TooLong(f"an event of more than {self._longest} bytes")
        return [found for block in blocks if (found := self._data(block)) is not None]

    def finish(self) -> list[bytes]:
        """What stands at the end of the stream without an empty line behind it."""
        rest, self._rest = self._rest, b""
        found = self._data(rest.replace(b"\r", b"\n"))
        return [] if found is None else [found]

    def _data(self, block: bytes) -> bytes | None:
        """Return the data of one event, its lines joined; None for an event without any, and for a repeated one."""
        if block.startswith(b"data:") and b"\n" not in block:
            return block[6:] if block.startswith(b"data: ") else block[5:]
        lines, event_id = [], b""
        for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                lines.append(value.removeprefix(b" "))
            elif name == b"id":
                event_id = value.strip()
        if not lines:
            return None
        data = b"\n".join(lines)
        return None if event_id and self._repeated(event_id, data) else data

    def _repeated(self, event_id: bytes, data: bytes) -> bool:
        before = self._seen.pop(event_id, None)
        self._seen[event_id] = data
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._shared = self._shared or before not in (None, data)
        return before is not None and not self._shared
