"""Server-sent events, cut from a stream of bytes (WHATWG HTML, section 9.2.6)."""

#: An event's longest size in bytes. An answer of 100,000 tokens in one event has under 1 MB.
LONGEST = 16 * 1024 * 1024


class TooLong(ValueError):
    """An event has no end."""


class EventSplitter:
    """Gives the data of each event as soon as its end has come. How the stream was cut makes no difference.

    Names, ids and comments of events are left out: chat servers use none that matter.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

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
        if len(self._rest) > LONGEST:
            raise TooLong(f"an event of more than {LONGEST} bytes")
        return [found for block in blocks if (found := _data(block)) is not None]

    def finish(self) -> list[bytes]:
        """What stands at the end of the stream without an empty line behind it."""
        rest, self._rest = self._rest, b""
        found = _data(rest.replace(b"\r", b"\n"))
        return [] if found is None else [found]


def _data(block: bytes) -> bytes | None:
    """The data of one event, its lines joined; None for an event without any."""
    if block.startswith(b"data:") and b"\n" not in block:
        return block[6:] if block.startswith(b"data: ") else block[5:]
    lines = []
    for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) if lines else None
