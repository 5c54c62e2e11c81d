"""The client of a store on the Hub, its errors with their remedies, and the common part of both kinds of stores."""

import contextlib
import random
import re
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.local import storage_error
from llm_ocr.storage.names import TEMPORARY, check_key, folder_of
from llm_ocr.storage.waiting import NOTICES

if TYPE_CHECKING:
    from huggingface_hub import HfApi


T = TypeVar("T")

#: Seconds without a byte until a response is abandoned; huggingface_hub itself waits without limit.
_READ_TIMEOUT = 60.0

_TOKENS = "https://huggingface.co/settings/tokens"
_AGAIN = "Published results remain. Run the same command again later."
_LOG_IN = "Set HF_TOKEN to a token with write permission, or log in: hf auth login."
_WRITE = f"Use a token with write permission (HF_TOKEN): {_TOKENS}"

#: Statuses for concurrent commits, too many requests, and failures of the Hub itself.
_PASSING = frozenset({408, 409, 412, 423, 425, 429, 500, 502, 503, 504})

#: Seconds in a `RateLimit` header (`"api";r=0;t=55`).
_RATE_LIMIT = re.compile(r"\bt=(\d+)")


class HubRefused(StorageError):
    """Failed request to the Hub or its storage. `status` is 0 without a response; `wait` in seconds, if given."""

    status = 0
    wait: float | None = None


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
                NOTICES.tell(f"{str(error).splitlines()[0]}; trying again in {seconds:.0f} s", seconds)
                pause(seconds)


RETRIES = RetryPolicy()


@dataclass(eq=False)
class HubClient:
    """`HfApi` for one place, with reads over HTTP. Thread-safe; sends no request before its first use.

    `pause` implements the waits between retries.
    """

    place: Place
    options: StoreOptions
    retries: RetryPolicy = RETRIES
    pause: Callable[[float], object] = time.sleep

    @cached_property
    def api(self) -> "HfApi":
        """Client. Disables the progress bars of huggingface_hub in this process, because they are not ours."""
        from huggingface_hub import HfApi, constants
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # no __all__ there

        if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
            disable_progress_bars()
        return HfApi(endpoint=self.options.endpoint, token=self.options.token, library_name="llm-ocr")

    @cached_property
    def has_token(self) -> bool:
        """Whether requests carry a token."""
        from huggingface_hub import get_token

        return bool(self.options.token or get_token())

    @property
    def page(self) -> str:
        """URL of the repository or bucket for a browser."""
        return f"{self.api.endpoint}/{self.place.kind}s/{self.place.id}"

    def where(self, key: str = "") -> str:
        """Return the name of an object, or of the place, in messages."""
        return f"{self.place.url}/{key}" if key else self.place.url

    @contextlib.contextmanager
    def doing(self, action: str, key: str = "", *, reading: bool = False) -> Iterator[None]:
        """Turn the client's errors into a `StorageError` "cannot <action> <url>"; for a missing file its own."""
        from huggingface_hub import errors as hub

        what = f"cannot {action} {self.where(key)}"
        try:
            yield
        except LlmOcrError:
            raise
        except hub.HfHubHTTPError as error:
            if reading and isinstance(error, hub.EntryNotFoundError):
                raise ObjectNotFound(f"no object {self.where(key)}") from error
            raise _of_answer(error, what, self) from error
        except hub.LocalTokenNotFoundError as error:
            raise StorageError(f"{what}: there is no token", hint=_LOG_IN) from error
        except no_answer() as error:
            raise lost(f"{what}: no answer from the Hub ({said(error)})") from error
        except ConnectionError as error:  # also raised by hf_xet, whose message is the only information
            status = re.search(r"status client error \((4\d\d)|status server error \((5\d\d)", str(error))
            number = int(status[1] or status[2]) if status else 0
            if number in (401, 403, 404):
                raise _refused(number, what, said(error), self) from error
            raise lost(f"{what}: {said(error)}") from error
        except OSError as error:
            raise _of_cause(error, what, self) or storage_error(error, action, self.where(key)) from error
        except RuntimeError as error:  # of its threads, of hf_xet, and of a connection that another thread has closed
            raise _of_cause(error, what, self) or lost(f"{what}: {said(error)}") from error
        except ValueError as error:
            raise StorageError(f"{what}: {said(error)}") from error

    def ask(self, action: str, key: str, call: Callable[[], T], *, reading: bool = False) -> T:
        """Return the result of `call`, which is repeated after a transient failure; errors are those of `doing`."""

        def attempt() -> T:
            with self.doing(action, key, reading=reading):
                return call()

        return self.retries.keep_trying(attempt, self.pause)

    def read(self, url: str, key: str, span: tuple[int, int] | None = None) -> tuple[bytes, str]:
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
            # Releases before 2.0 do not retry all lost connections: all retries happen here.
            answer = http_backoff("GET", url, headers=headers, timeout=_READ_TIMEOUT, max_retries=0)
            if answer.status_code == 416:  # the range begins at the end of the object, or after it
                return b"", ""
            hf_raise_for_status(answer)
            # The content may come from another host; the Hub's redirect response has its version.
            first: Any = answer.history[0] if answer.history else answer
            version = first.headers.get("X-Linked-ETag") or first.headers.get("ETag", "")
            data: bytes = answer.content
            if span is not None and answer.status_code != 206:  # a server without support for ranges
                data = data[span[0] : span[0] + span[1]]
            return data, str(version).removeprefix("W/").strip('"')

        return self.ask("read", key, get, reading=True)


def no_answer() -> type[BaseException]:
    """Return the HTTP library's error for a missing response, whose class depends on the release of the client."""
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError.__bases__[0]


def lost(message: str) -> HubRefused:
    """Return the error for a missing or incomplete response."""
    return HubRefused(message, hint=f"Check the network. {_AGAIN}", retryable=True)


def said(error: BaseException) -> str:
    """Return the first line of a message, or the error's type if there is none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _of_cause(error: BaseException, what: str, client: HubClient) -> StorageError | None:
    """Return the error that the client wrapped: of uploads in its threads, and of downloads without a cached copy."""
    from huggingface_hub import errors as hub

    cause = error.__cause__
    if isinstance(cause, hub.HfHubHTTPError):
        return _of_answer(cause, what, client)
    if cause is not None and isinstance(cause, no_answer()):
        return lost(f"{what}: no answer from the Hub ({said(cause)})")
    return None


def _of_answer(error: Any, what: str, client: HubClient) -> StorageError:
    from huggingface_hub import errors as hub

    status = int(error.response.status_code)
    message = (error.server_message or said(error)).partition("\n")[0]
    message = _batch_failure(error.response) or message
    if isinstance(error, hub.GatedRepoError):
        hint = f"Request access at {client.page} with the account of the token."
        return _made(403, f"{what}: the {client.place.name} is gated, and this account has no access", hint)
    if isinstance(error, hub.RevisionNotFoundError):
        hint = f"Create the branch first, or leave out the @ and the revision: {client.page}"
        return _made(404, f"{what}: the {client.place.name} has no revision {client.place.revision}", hint)
    if isinstance(error, hub.RepositoryNotFoundError | hub.BucketNotFoundError) and status in (401, 404):
        return missing(what, client)
    made = _refused(status, what, message, client)
    # The seconds to wait, if the Hub requests that.
    given, limits = error.response.headers.get("retry-after", ""), error.response.headers.get("ratelimit", "")
    asked = given if given.isdigit() else (found[1] if (found := _RATE_LIMIT.search(limits)) else None)
    made.wait = None if asked is None else float(asked)
    return made


def _batch_failure(response: Any) -> str:
    """Return why the first operation of a bucket's batch failed; "" for other responses.

    Only clients since 1.30 raise the failures as an attribute; all of them keep the response's body.
    """
    try:
        body = response.json()
    except (ValueError, RuntimeError):  # not JSON, or a streamed body that is closed
        return ""
    failed = body.get("failed") if isinstance(body, Mapping) else None
    first = failed[0] if isinstance(failed, list) and failed else None
    return str(first.get("error") or "") if isinstance(first, Mapping) else ""


def missing(what: str, client: HubClient) -> HubRefused:
    """Return the error for a repository or bucket that is missing or invisible: the Hub's response is the same."""
    if not client.has_token:
        return _made(
            401, f"{what}: the {client.place.name} does not exist or is private, and there is no token", _LOG_IN
        )
    hint = f"Check the name, and the account of the token (hf auth whoami): {client.page}"
    return _made(404, f"{what}: the {client.place.name} does not exist, or this token may not read it", hint)


def no_token(what: str) -> HubRefused:
    """Return the error for a request without a token."""
    return _made(401, f"{what}: there is no token of the Hugging Face Hub", _LOG_IN)


def _refused(status: int, what: str, message: str, client: HubClient) -> HubRefused:
    if status == 401 and not client.has_token:
        return no_token(what)
    if status == 401:
        hint = f"The token has expired or was revoked. Create another ({_TOKENS}) and set HF_TOKEN, or: hf auth login."
        return _made(status, f"{what}: the token is not valid ({message})", hint)
    if status == 403:
        return _made(status, f"{what}: this token lacks a permission ({message})", _WRITE)
    if status == 429:
        return _made(status, f"{what}: the limit of requests or commits of the Hub is exceeded ({message})", _AGAIN)
    if status in (409, 412):
        return _made(status, f"{what}: another process wrote at the same time ({message})", _AGAIN)
    if status >= 500:
        return _made(status, f"{what}: the Hub failed with {status} ({message})", _AGAIN)
    return _made(status, f"{what}: {message}", f"See {client.page}")


def _made(status: int, message: str, hint: str) -> HubRefused:
    made = HubRefused(message, hint=hint, retryable=status in _PASSING)
    made.status = status
    return made


class HubStore(BaseStore, ABC):
    """Common part of both kinds of stores: reads over HTTP, no conditional writes. `why` says why there are none."""

    why: ClassVar[str]
    note: ClassVar[str]

    def __init__(self, place: Place, options: StoreOptions, retries: RetryPolicy) -> None:
        self._place = place
        self.url = place.url
        self._client = HubClient(place, options, retries)

    @abstractmethod
    def _address(self, key: str) -> str:
        """Return the URL of an object that has no pending write."""

    @abstractmethod
    def stat(self, key: str) -> ObjectInfo | None: ...

    @abstractmethod
    def _tree(self, folder: str | None) -> Iterable[Any]:
        """Return the client's entries below a folder of the bucket or repository, in any order."""

    @abstractmethod
    def _info(self, key: str, entry: Any) -> ObjectInfo | None:
        """Return the object's data from the client's entry; None for a folder."""

    @abstractmethod
    def _make_sure(self) -> None:
        """Create the bucket or repository if it is missing."""

    def _listed(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """List in key order. The whole list is in memory (about 400 bytes per object): the Hub guarantees no order."""
        from huggingface_hub.errors import EntryNotFoundError

        folder = folder_of(prefix)
        below = self._place.path(folder) if folder else self._place.prefix
        found = []
        with self._client.doing("list", folder, reading=True):
            try:
                for entry in self._tree(below or None):
                    key = self._place.key(entry.path)
                    # The Hub may treat the folder as a name prefix.
                    inside = not below or entry.path.startswith(f"{below}/")
                    if inside and key.startswith(prefix) and key > start_after and (info := self._info(key, entry)):
                        found.append(info)
            except EntryNotFoundError:  # no such folder
                return
        yield from sorted(found, key=lambda info: info.key)

    def check(self) -> None:
        """Create the bucket or repository, private, if it does not exist. Raises `StorageError` without a token."""
        if not self._client.has_token:
            raise no_token(f"cannot use {self.url}")
        self._client.retries.keep_trying(self._make_sure)

    def _make(self, create: Callable[[], object]) -> None:
        try:
            with self._client.doing("make"):
                create()
        except HubRefused as refused:
            if refused.status == 403:  # in another user's namespace: it may exist
                raise missing(f"cannot use {self.url}", self._client) from refused
            raise

    def fetch(self, key: str) -> tuple[bytes, str]:
        return self._client.read(self._address(key), key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        address = self._address(key)
        if length > 0:
            return self._client.read(address, key, (start, length))[0]
        if self.stat(key) is None:
            raise ObjectNotFound(f"no object {self._client.where(key)}")
        return b""

    def _download(self, key: str, path: Path, fetch: Callable[[Path], Path]) -> None:
        """Move the file that `fetch` writes into its folder argument to `path`."""

        def copy() -> None:
            with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=path.parent) as folder:
                fetch(Path(folder)).replace(path)

        self._client.ask(f"copy to {path} the object", key, copy, reading=True)

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
