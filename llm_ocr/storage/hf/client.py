"""The client of a store on the Hub, with the common parts of both kinds of stores."""

import contextlib
import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.hf.errors import Context, HubRefused, translated
from llm_ocr.storage.names import TEMPORARY, check_key

if TYPE_CHECKING:
    from huggingface_hub import HfApi


T = TypeVar("T")

#: Seconds without a byte until a response is abandoned; huggingface_hub itself waits without limit.
_READ_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of transient errors: `tries` in all, pauses from `first` to `longest` seconds, together at most `limit`.

    A pause that the Hub requests (429) is respected, however long, and does not count as an attempt.
    """

    tries: int = 8
    first: float = 1.0
    longest: float = 60.0
    limit: float = 4000.0

    def keep_trying(self, call: Callable[[], T], pause: Callable[[float], object] = time.sleep) -> T:
        """Return the result of `call`, or raise its last error if all attempts fail."""
        tried, waited = 0, 0.0
        while True:
            try:
                return call()
            except HubRefused as error:
                asked = error.wait if error.status == 429 else None
                tried += asked is None
                # Jitter separates the retries of workers that were refused at the same time.
                seconds = random.uniform(0.5, 1.5) * min(self.longest, self.first * 2**tried)
                seconds = seconds if asked is None else asked + random.uniform(0, self.first)
                waited += seconds
                if not error.retryable or tried >= self.tries or waited > self.limit:
                    raise
                pause(seconds)


RETRIES = RetryPolicy()


class HubClient:
    """`HfApi` for one place, with reads over HTTP. Thread-safe; sends no request before its first use."""

    def __init__(self, place: Place, options: StoreOptions, retries: RetryPolicy = RETRIES) -> None:
        self.place = place
        self._options = options
        self._retries = retries

    @cached_property
    def api(self) -> "HfApi":
        """Client. Disables the progress bars of huggingface_hub in this process, because they are not ours."""
        from huggingface_hub import HfApi, constants
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # no __all__ there

        if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
            disable_progress_bars()
        return HfApi(endpoint=self._options.endpoint, token=self._options.token, library_name="llm-ocr")

    @cached_property
    def context(self) -> Context:
        """Names for messages."""
        from huggingface_hub import get_token

        prefix = "datasets" if self.place.kind == "dataset" else "buckets"
        has_token = bool(self._options.token or get_token())
        return Context(self.place, has_token, f"{self.api.endpoint}/{prefix}/{self.place.id}")

    def where(self, key: str) -> str:
        """Return an object's name in messages."""
        return f"{self.place.url}/{key}"

    @contextlib.contextmanager
    def doing(self, action: str, key: str = "", *, reading: bool = False) -> Iterator[None]:
        """Translate errors of the client in the context into "cannot <action> <url of the key>"."""
        where = self.where(key) if key else self.place.url
        with translated(action, where, self.context, reading=reading):
            yield

    def read(self, url: str, key: str, version_header: str, span: tuple[int, int] | None = None) -> tuple[bytes, str]:
        """Return the object at `url`, or its range `span` (start and length), and its version.

        Raises:
            ObjectNotFound: there is no such object.
        """
        from huggingface_hub.utils import (  # type: ignore[attr-defined]  # no __all__ there
            build_hf_headers,
            hf_raise_for_status,
            http_backoff,
        )

        # A compressed response would have another ETag, and ranges of other bytes.
        headers = {**build_hf_headers(token=self.api.token), "Accept-Encoding": "identity"}
        if span is not None:
            headers["Range"] = f"bytes={span[0]}-{span[0] + span[1] - 1}"

        def get() -> tuple[bytes, str]:
            with self.doing("read", key, reading=True):
                # Releases before 2.0 do not retry all lost connections: all retries happen here.
                answer = http_backoff("GET", url, headers=headers, timeout=_READ_TIMEOUT, max_retries=0)
                if answer.status_code == 416:  # the range begins at the end of the object, or after it
                    return b"", ""
                hf_raise_for_status(answer)
                # The content may come from another host; the Hub's redirect response has its version.
                first: Any = answer.history[0] if answer.history else answer
                version = first.headers.get(f"X-Linked-{version_header}") or first.headers.get(version_header, "")
                data: bytes = answer.content
                if span is not None and answer.status_code != 206:  # a server without support for ranges
                    data = data[span[0] : span[0] + span[1]]
            return data, str(version).removeprefix("W/").strip('"')

        return self._retries.keep_trying(get)


class HubStore(BaseStore, ABC):
    """Common part of both kinds of stores: reads over HTTP, no conditional writes. `why` says why there are none."""

    why: ClassVar[str]
    note: ClassVar[str]

    def __init__(self, place: Place, options: StoreOptions, retries: RetryPolicy) -> None:
        self._place = place
        self._client = HubClient(place, options, retries)
        self._retries = retries

    @property
    def url(self) -> str:
        return self._place.url

    @abstractmethod
    def _address(self, key: str) -> str:
        """Return the URL of an object that has no pending write."""

    @abstractmethod
    def stat(self, key: str) -> ObjectInfo | None: ...

    def fetch(self, key: str) -> tuple[bytes, str]:
        return self._client.read(self._address(key), key, "ETag")

    def read_range(self, key: str, start: int, length: int) -> bytes:
        address = self._address(key)
        if length > 0:
            return self._client.read(address, key, "ETag", (start, length))[0]
        if self.stat(key) is None:
            raise ObjectNotFound(f"no object {self._client.where(key)}")
        return b""

    def _download(self, key: str, path: Path, fetch: Callable[[Path], Path]) -> None:
        """Move the file that `fetch` writes into its folder argument to `path`."""

        def copy() -> None:
            with (
                self._client.doing(f"copy to {path} the object", key, reading=True),
                tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=path.parent) as folder,
            ):
                fetch(Path(folder)).replace(path)

        self._retries.keep_trying(copy)

    def swap(self, key: str, data: bytes, version: str) -> str:
        check_key(key)
        raise StorageError(
            f"cannot replace one version of {self._client.where(key)}: {self.why}",
            hint="Divide the units between workers with `shard_index` and `shard_count`. Claims need S3, Google Cloud "
            "Storage, a folder, or a bucket through the S3 gateway of the Hub (s3://… with `workspace_endpoint`).",
        )

    def capabilities(self) -> Capabilities:
        """Return constant capabilities: buckets have no condition to test, and a test of a repository costs commits."""
        return Capabilities(create=False, swap=False, note=self.note)
