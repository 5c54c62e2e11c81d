"""Split remote URLs and match key patterns. No I/O."""

import difflib
import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from llm_ocr.documents.files import SUFFIXES
from llm_ocr.errors import UsageError
from llm_ocr.plugins import STORES as PLUGIN_STORES
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.names import OTHER_SCHEMES


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Limits and credentials. Sizes in bytes, times in seconds.

    `store` contains the sources' credentials, which may differ from the workspace's.
    """

    store: StoreOptions = field(default_factory=StoreOptions)
    cache_bytes: int = 4 << 30  # all local files of documents together
    cache_folder: Path | None = None  # folder of local files; None: the system's folder for temporary files
    most_bytes: int = 512 << 20  # of one document over HTTP
    seconds: float = 600.0  # for one document over HTTP, redirects and tries included
    stall_seconds: float = 60.0  # without received bytes
    redirects: int = 5
    allow_private_addresses: bool = False
    tries: int = 4  # for temporary failures
    pause: float = 1.0  # before the second try; then doubled
    fetches: int = 8  # parallel downloads
    remember_seconds: float = 60.0  # time without a retry after a failure


#: Schemes read through `llm_ocr.storage`, beside those that packages add, and over HTTP.
STORES = ("s3", "gs", "hf")
WEB = ("https", "http")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HUB_KINDS = ("datasets", "buckets")
#: Names of query parameters that may grant access; their values are hidden.
_SECRET = re.compile(r"sig|signature|token|secret|password|passwd|credential|api_?key|access_?key|auth|code", re.I)
#: Query parameters of presigned URLs (S3, CloudFront, GCS, Azure), which do not identify the document.
_SIGNING = re.compile(
    r"x-(amz|goog)-.*|signature|expires|awsaccesskeyid|googleaccessid|key-pair-id|policy|token|access_token"
    r"|sig|se|st|sp|sv|sr|spr|skoid|sktid|skt|ske|sks|skv",
    re.I,
)
_LOGIN = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
#: Characters that make a name a pattern.
_MAGIC = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Object or folder on a store. `root` is for `storage.open_store`; `key` may be empty or end in `/`."""

    root: str
    key: str

    def at(self, key: str) -> str:
        """Return the URL of another key on the same store."""
        return f"{self.root}/{key}" if key else self.root


def scheme_of(source: str) -> str:
    """Return the scheme in lower case; "" for paths."""
    found = _SCHEME.match(source)
    return found[1].lower() if found else ""


def is_remote(source: str) -> bool:
    """Return whether the source is on a store or on the web."""
    scheme = scheme_of(source)
    return scheme in (*STORES, *WEB) or (scheme != "" and scheme in PLUGIN_STORES.names())


def is_web(source: str) -> bool:
    """Return whether the source is read over HTTP."""
    return scheme_of(source) in WEB


def unknown_scheme(source: str) -> UsageError | None:
    """Return the error for an unsupported scheme; None for paths, `file://`, and remote sources."""
    scheme = scheme_of(source)
    known = (*STORES, *WEB, "file")
    if not scheme or scheme in known or scheme in PLUGIN_STORES.names():
        return None
    near = OTHER_SCHEMES.get(scheme) or next(iter(difflib.get_close_matches(scheme, known, n=1, cutoff=0.5)), "")
    hint = f"Did you mean {near}://?" if near else "Known schemes: s3://, gs://, hf://, https://, http://, file://."
    return UsageError(f"{shown(source)}: the scheme {scheme}:// is unknown", hint=hint)


def split(url: str) -> StoreUrl:
    """Return the store and the key of an s3, gs, or hf URL; keys are unchanged, without percent-decoding.

    Raises:
        UsageError: The URL has no bucket, or is an `hf://` URL of neither datasets nor buckets.
    """
    scheme = scheme_of(url)
    parts = url[len(scheme) + 3 :].split("/")
    count = 3 if scheme == "hf" else 1
    if scheme == "hf" and parts[0] not in _HUB_KINDS:
        name = "/".join(parts[:2])
        raise UsageError(
            f"{shown(url)}: neither a dataset repository nor a bucket",
            hint=f"Write hf://datasets/{name}/… or hf://buckets/{name}/…",
        )
    if len(parts) < count or not all(parts[:count]):
        form = "hf://datasets/OWNER/NAME/PATH" if scheme == "hf" else f"{scheme}://BUCKET/KEY"
        raise UsageError(f"{shown(url)}: not a complete address", hint=f"Write {form}.")
    return StoreUrl(f"{scheme}://{'/'.join(parts[:count])}", "/".join(parts[count:]))


def has_magic(key: str) -> bool:
    """Return whether the key may be a pattern."""
    return bool(_MAGIC.search(key))


def fixed_part(pattern: str) -> str:
    """Return the common prefix of all matching keys."""
    found = _MAGIC.search(pattern)
    return pattern[: found.start()] if found else pattern


def name_of(url: str) -> str:
    """Return the last part of the path, as a file name; the host for a URL without a path."""
    if not is_web(url):
        return url.rstrip("/").rpartition("/")[2]
    parts = _parts(url)
    name = unquote(parts.path.rstrip("/").rpartition("/")[2]).replace("/", "_")
    return name or parts.hostname or "document"


def suffix_of(url: str) -> str:
    """Return the suffix of the name in lower case, with its dot."""
    return PurePosixPath(name_of(url)).suffix.lower().rstrip()


def kind_by_url(url: str) -> str:
    """Return `pdf`, `image`, or "" by the suffix."""
    return SUFFIXES.get(suffix_of(url), "")


def joined(base: str, name: str) -> str:
    """Return the meaning of a line of the list at `base`: the URL itself, otherwise a path relative to the list."""
    if scheme_of(name):
        return name
    if is_web(base):
        try:
            return urljoin(base, name)
        except ValueError:
            return name
    place = split(base)
    segments = [] if name.startswith("/") else place.key.split("/")[:-1]
    for segment in name.lstrip("/").split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment != ".":
            segments.append(segment)
    return place.at("/".join(segments))


def below(base: str, url: str) -> str:
    """Return the path of `url` below the folder of the list at `base`; "" for other URLs."""
    if not base:
        return ""
    if not is_web(url):
        folder = base.rpartition("/")[0] + "/"
        return url[len(folder) :] if url.startswith(folder) else ""
    ours, theirs = _parts(base), _parts(url)
    folder = ours.path.rpartition("/")[0] + "/"
    rest = theirs.path.removeprefix(folder)
    same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc) and rest != theirs.path
    return unquote(rest) if same and rest.strip("/") else ""


def path_of(url: str) -> str:
    """Return the path in the bucket, repository, or web site; only the name without a path.

    Raises:
        UsageError: `split` refuses the URL of a store.
    """
    parts = _parts(url)  # a URL without a host is invalid
    path = split(url).key if not is_web(url) else unquote(parts.path) if parts.netloc else ""
    return path.lstrip("/") if path.strip("/") else name_of(url)


def shown(url: str) -> str:
    """Return the URL for messages and results, without passwords, signatures, and tokens."""
    if not is_web(url):
        return _LOGIN.sub(r"\1", url)  # after the bucket, `//` and `@` are parts of a key
    return _with_query(url, lambda name, pair: f"{name}=***" if _SECRET.search(name) else pair)


def fingerprint(url: str) -> str:
    """Return 16 hex digits of the part of a URL that is independent of its credentials."""
    if is_web(url):
        url = _with_query(url, lambda name, pair: "" if _SIGNING.fullmatch(name) else pair)
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _parts(url: str) -> SplitResult:
    """Split any text; an invalid URL is reported when it is opened."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult(scheme_of(url), "", url.partition("://")[2], "", "")


def _with_query(url: str, change: Callable[[str, str], str]) -> str:
    """Return the URL without user, password, and fragment, with `change` applied to each `name=value` of its query.

    Empty results are left out.
    """
    rest, mark, query = _LOGIN.sub(r"\1", url.partition("#")[0]).partition("?")
    pairs = (change(unquote(pair.partition("=")[0]), pair) for pair in query.split("&"))
    kept = "&".join(pair for pair in pairs if pair)
    return f"{rest}{mark}{kept}" if kept else rest


#: Any number of folders.
_ANY = "**"


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches keys. `*`, `?`, and `[…]` match within a path segment, `**` any number of folders.

    A matching folder includes its content, unless the pattern has `**`. Hidden names (with a leading dot) match only if
    the pattern includes the dot, as in a shell.
    """
    segments = pattern.split("/")
    patterns = [re.compile(fnmatch.translate(segment)) for segment in segments]
    folders = _ANY not in segments
    end = len(segments)

    def fits(place: int, name: str) -> bool:
        return patterns[place].match(name) is not None and (segments[place].startswith(".") or _visible(name))

    def skip(places: Iterable[int]) -> set[int]:
        """Return the places, and those after a `**` that matches no folder."""
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
            step = {place + 1 for place in places if place < end and segments[place] != _ANY and fits(place, segment)}
            places = skip(stay | step)
        return end in places

    return matches


def hidden(relative: str) -> bool:
    """Return whether a name in the path begins with a dot."""
    return not all(map(_visible, relative.split("/")))


def _visible(segment: str) -> bool:
    """Return whether the segment is visible. Keys are not paths: `.` and `..` are ordinary names."""
    return not segment.startswith(".") or segment in (".", "..")
