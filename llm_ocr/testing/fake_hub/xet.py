"""The content of buckets, and large files of repositories: hf_xet's own store in folders, and no servers for it.

The client is told `local:///FOLDER` as the address of the store and writes or reads there itself, whatever process it
is in. It keeps the folder's index locked for as long as its process lives: so each of its tokens is for a folder of its
own, and the server looks into a copy.
"""

import contextlib
import itertools
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from llm_ocr.testing.fake_hub.answers import Answer, Refused

_EMPTY = "0" * 64
_RECORD = 48
_TOKEN_SECONDS = 3600


class LocalXet:
    """Content by its Xet hash. `folder` is made and removed with the server."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="llm-ocr-fake-hub-"))
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._contents: dict[str, bytes] = {_EMPTY: b""}
        self._by_sha256: dict[str, str] = {}
        self._session: Any = None

    def token(self, contents: Iterable[bytes] | None = None) -> Answer:
        """What a client is told that is about to send content, or to read some of `contents`."""
        address = f"local://{self._new('w')}" if contents is None else self._made_of(contents)
        until = int(time.time()) + _TOKEN_SECONDS
        headers = {
            "X-Xet-Cas-Url": address,
            "X-Xet-Access-Token": "fake",
            "X-Xet-Token-Expiration": str(until),
        }
        return Answer.of({"casUrl": address, "accessToken": "fake", "exp": until}, headers=headers)

    def _made_of(self, contents: Iterable[bytes]) -> str:
        from hf_xet import SKIP_SHA256  # type: ignore[import-untyped]  # it comes without types

        made, given = self._new("m"), self._new("r")
        with self._sessions().new_upload_commit(endpoint=f"local://{made}") as commit:
            for content in contents:
                commit.start_upload_bytes(content, sha256=SKIP_SHA256)
        shutil.copytree(made, given)
        return f"local://{given}"

    def take(self, hashes: Iterable[str]) -> None:
        """Find what clients have sent since, by Xet hash; what is not among it stays unknown."""
        with self._lock:
            self._take({one for one in hashes if one not in self._contents})

    def take_large(self, sha256s: Iterable[str]) -> dict[str, bytes]:
        """Those contents of repositories that clients have sent since, by sha256."""
        with self._lock:
            wanted = set(sha256s)
            self._take(wanted)
            return {sha256: self._contents[self._by_sha256[sha256]] for sha256 in wanted if sha256 in self._by_sha256}

    def get(self, xet_hash: str) -> bytes:
        """The content. Raises `Refused` (422) when no client has sent it."""
        found = self._contents.get(xet_hash)
        if found is None:
            raise Refused(422, "", f"no content with the hash {xet_hash}")
        return found

    def _take(self, wanted: set[str]) -> None:
        """Read the folders that have something of it: whoever asks for it has sent all that is in there."""
        for folder in sorted(self.folder.glob("w*")) if wanted else ():
            shards = [path.read_bytes() for path in folder.glob("xet/xorbs/shards/*.mdb")]
            files = dict(itertools.chain.from_iterable(map(_files, shards)))
            if wanted & {*files, *files.values()}:
                self._contents.update(self._read(folder, sorted(files)))
                self._by_sha256.update({sha256: xet_hash for xet_hash, sha256 in files.items() if sha256})
                shutil.rmtree(folder)

    def _read(self, folder: Path, hashes: list[str]) -> Iterator[tuple[str, bytes]]:
        from hf_xet import XetFileInfo

        copy = self._new("c")
        shutil.copytree(folder, copy)
        with self._sessions().new_download_stream_group(endpoint=f"local://{copy}") as group:
            for one in hashes:
                yield one, b"".join(group.download_stream(XetFileInfo(one)))
        shutil.rmtree(copy)

    def _new(self, letter: str) -> Path:
        return self.folder / f"{letter}{next(self._numbers):06d}"

    def _sessions(self) -> Any:
        if self._session is None:
            from hf_xet import XetSession

            self._session = XetSession()
        return self._session

    def close(self) -> None:
        """Remove the folder."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)


def _files(shard: bytes) -> Iterator[tuple[str, str]]:
    """Xet hash and sha256 (empty for a bucket's) of the files that a shard describes.

    A shard has a header and then, for each file, records of 48 bytes: hash, flags and number of segments, 8 unused; the
    segments; as many proofs, with the highest flag; the sha256, with the next one. A hash of ones ends them (as hf_xet
    1.8 writes them).
    """
    at = _RECORD
    while shard[at : at + 32] != b"\xff" * 32:
        flags, segments = struct.unpack_from("<II", shard, at + 32)
        records = 1 + segments * (1 + (flags >> 31)) + (flags >> 30 & 1)
        last = at + (records - 1) * _RECORD
        yield _hex(shard[at : at + 32]), _hex(shard[last : last + 32]) if flags >> 30 & 1 else ""
        at += records * _RECORD


def _hex(raw: bytes) -> str:
    """Hashes stand there as four numbers of eight bytes, the lowest byte first."""
    return b"".join(raw[at : at + 8][::-1] for at in range(0, 32, 8)).hex()
