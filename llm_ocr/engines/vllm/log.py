"""A server's log: on its way into a file, without secrets, and read as it comes."""

import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from llm_ocr.engines.vllm.loglines import LogFacts, step_of
from llm_ocr.engines.vllm.troubles import Trouble, bare, is_cause, surest, telling, trouble_in

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TOKEN = re.compile(r"hf_[A-Za-z0-9]{16,}")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST = 64 << 10  # bytes of a line; a longer one is cut
_KEPT = 4000  # characters of a line kept in memory


class ServerLog:
    """Takes what a server prints. One for the life of a server; `begin` for each start.

    The file is appended to, and renamed to `….1` (replacing the one before) when it reaches `bound` bytes.
    """

    def __init__(self, path: Path | None, *, secrets: Iterable[str] = (), bound: int = 16 << 20) -> None:
        self.path = path
        self._bound = bound
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 8}, key=len, reverse=True)
        self._file: BinaryIO | None = None
        self._size = 0
        self.unwritable = ""  # why the file could not be written; a server is not ended for that
        self._begin_reading()

    def _begin_reading(self) -> None:
        self._unfinished = b""
        self._tail: deque[str] = deque(maxlen=60)
        self._causes: deque[str] = deque(maxlen=20)
        self._troubles: set[Trouble] = set()
        self.facts = LogFacts()
        self.latest = ""  # the last line, or the last state of a progress bar
        self.step = ""

    def begin(self, headline: str) -> None:
        """A new start: forget what the last one said. `headline` goes into the file."""
        self._begin_reading()
        self.unwritable = ""
        self._write(f"\n=== {self._clean(headline)}\n")

    def feed(self, data: bytes) -> None:
        """What the server printed, cut anywhere."""
        self._unfinished += data
        start = 0
        for end in _LINE_END.finditer(self._unfinished):
            if end.end() == len(self._unfinished) and end.group() == b"\r":
                break  # perhaps the first half of \r\n
            self._take(self._unfinished[start : end.start()], whole=end.group() != b"\r")
            start = end.end()
        self._unfinished = self._unfinished[start:]
        if len(self._unfinished) > _LONGEST:
            self._take(self._unfinished, whole=True)
            self._unfinished = b""
        elif self._unfinished.strip():
            self._notice(self._line(self._unfinished))  # tqdm ends no state of its bars

    def finish(self) -> None:
        """The server prints no more."""
        if self._unfinished:
            self._take(self._unfinished.rstrip(b"\r"), whole=True)
            self._unfinished = b""

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def trouble(self) -> Trouble | None:
        """What went wrong since `begin`, as far as it was recognised."""
        return surest(self._troubles)

    @property
    def out_of_memory(self) -> bool:
        """Whether the device ran out of memory since `begin`."""
        return Trouble.OUT_OF_MEMORY in self._troubles

    def telling(self, count: int = 20) -> list[str]:
        """The lines that matter most when something went wrong, causes first."""
        return telling(list(self._causes), list(self._tail), count)

    @property
    def latest_words(self) -> str:
        """What the log says last, in short."""
        return bare(self.latest)[:150]

    @property
    def last_words(self) -> str:
        """The one line that says most about an end."""
        lines = self.telling(4) if self._causes else [*self._tail][-1:]
        return bare(lines[0])[:300] if lines else ""

    def _take(self, raw: bytes, *, whole: bool) -> None:
        line = self._line(raw)
        if whole:
            self._write(line + "\n")
        if line:
            self._notice(line)
        if not whole or not line:
            return  # a state of a progress bar: the last one ends in a new line
        line = line[:_KEPT]
        self._tail.append(line)
        self.facts.learn(line)
        if is_cause(line):
            self._causes.append(line)
        if trouble := trouble_in(line):
            self._troubles.add(trouble)

    def _notice(self, line: str) -> None:
        self.latest = line[:_KEPT]
        self.step = step_of(self.latest) or self.step

    def _line(self, raw: bytes) -> str:
        return self._clean(raw.decode(errors="replace")).rstrip()

    def _clean(self, text: str) -> str:
        text = _COLOUR.sub("", text)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _TOKEN.sub("hf_***", text)

    def _write(self, text: str) -> None:
        if self.path is None or self.unwritable:
            return
        try:
            self._append(self.path, text.encode())
        except OSError as error:
            self.unwritable = error.strerror or str(error)
            self.close()

    def _append(self, path: Path, data: bytes) -> None:
        if self._file is not None and self._size + len(data) > self._bound:
            self.close()
            path.replace(path.with_name(path.name + ".1"))
        if self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            self._size = self._file.tell()
        self._file.write(data)
        self._size += len(data)
