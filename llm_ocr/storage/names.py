"""Valid keys and workspace URLs."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from llm_ocr.errors import MissingExtra, StorageError, UsageError
from llm_ocr.storage import StoreOptions

# Rules for keys and workspace URLs.


#: S3 and GCS limit keys to 1,024 bytes of UTF-8.
LONGEST_KEY = 1024

#: Prefix of the names of unfinished writes. No key has a segment with this prefix.
TEMPORARY = ".tmp-"

#: Keys of test objects that stores write and remove to find their capabilities. They are never listed, so that a
#: workspace created at the same moment does not mistake them for content.
PROBES = ".probe/"

#: Files that file managers create in folders that look empty to the user.
OF_FILE_MANAGERS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", ".directory", ".localized"})

#: Other common schemes of stores, with the scheme of this library.
OTHER_SCHEMES = {"gcs": "gs", "google": "gs", "aws": "s3", "s3a": "s3", "s3n": "s3", "huggingface": "hf", "hub": "hf"}

#: Forms of workspace URLs, for hints.
FORMS = (
    "a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, hf://buckets/NAMESPACE/NAME/PREFIX or "
    "hf://datasets/NAMESPACE/NAME/PREFIX"
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def check_key(key: str) -> None:
    """Raise `StorageError` for a key that is empty, absolute, too long, or has an empty, `.`, `..` or control part."""
    if problem := _problem(key):
        raise StorageError(f"{key!r} cannot be the name of an object: {problem}")


def folder_of(prefix: str) -> str:
    """Return the folder of all keys with the prefix; empty for the root.

    Raises:
        StorageError: the folder is not a valid key.
    """
    folder = prefix.rpartition("/")[0]
    if folder:
        check_key(folder)
    return folder


def checked_prefix(url: str, prefix: str, hint: str) -> str:
    """Return the prefix of a workspace URL.

    Raises:
        UsageError: the prefix is neither empty nor a valid key.
    """
    if prefix and (problem := _problem(prefix)):
        raise UsageError(f"{url}: {prefix!r} cannot be the name of an object: {problem}", hint=hint)
    return prefix


def _problem(key: str) -> str:
    segments = key.split("/")
    checks = {
        "it is empty": not key,
        "it has an empty part": "" in segments,
        "it has a part . or ..": "." in segments or ".." in segments,
        "it has a control character or half a surrogate pair": bool(_CONTROL.search(key)),
        f"names that begin with {TEMPORARY} are for unfinished writes": any(s.startswith(TEMPORARY) for s in segments),
        f"it is longer than {LONGEST_KEY} bytes": len(key.encode(errors="replace")) > LONGEST_KEY,
    }
    return next((problem for problem, found in checks.items() if found), "")


def check_url(url: str) -> None:
    """Raise `UsageError` for a workspace URL or path that is empty or has a control character."""
    if not url or _CONTROL.search(url.encode("utf-8", "surrogateescape").decode("utf-8", "replace")):
        raise UsageError(f"{url!r} is not a workspace: the text is empty or has a control character")


def split_scheme(url: str) -> tuple[str, str]:
    """Return the scheme in lowercase and the text after its colon; an empty scheme for a path.

    A folder whose name looks like a scheme (`ab:/c`) can be given as `./ab:/c`.
    """
    found = _SCHEME.match(url)
    return (found[1].lower(), url[found.end(1) + 1 :]) if found else ("", url)


def local_folder(url: str) -> Path:
    """Return the absolute path of a folder given by path or `file://` URL.

    Raises:
        UsageError: the URL has another scheme.
    """
    check_url(url)
    scheme, _ = split_scheme(url)
    if not scheme:
        return _absolute(url)
    if scheme != "file":
        raise UsageError(f"{url} is not a folder", hint="Give a path or a file:// URL.")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(
            f"{url}: a file URL must not name a host", hint=f"Did you mean file:///{parts.netloc}{parts.path}?"
        )
    return _absolute(unquote(parts.path, errors="surrogateescape"))


def _absolute(path: str) -> Path:
    folder = Path(path)
    if folder.parts and folder.parts[0] == "~":
        folder = folder.expanduser()
    return Path.cwd() / folder if not folder.is_absolute() else folder


def need_client(module: str, message: str, extra: str) -> None:
    """Raise `MissingExtra` with this message unless the client library is installed; it is not imported."""
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # raised for a parent package
        found = None
    if found is None:
        raise MissingExtra(message, install=extra)


# Prefixes in buckets of S3 and Google Cloud Storage.


def split_bucket(url: str, options: StoreOptions) -> tuple[str, str]:
    """Return bucket and prefix of `SCHEME://BUCKET/PREFIX`. Characters are literal; nothing is unquoted.

    Raises:
        UsageError: the URL names no bucket, or contains credentials.
    """
    scheme, rest = split_scheme(url)
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    if "@" in bucket:
        raise UsageError(
            f"{scheme}://…@{bucket.rpartition('@')[2]}: a URL must not contain credentials",
            hint=f"Set {options.named('profile')}, or set the credentials in the environment.",
        )
    if not bucket:
        raise UsageError(f"{url} names no bucket", hint=f"Give {scheme}://BUCKET/PREFIX.")
    return bucket, prefix.removesuffix("/")


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Prefix in a bucket, without `/` at its end; empty for the whole bucket. `any_key`: see `StoreOptions`."""

    scheme: ClassVar[str]
    bucket: str
    prefix: str
    any_key: bool = False

    @property
    def url(self) -> str:
        """URL as shown to users."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def root(self) -> str:
        """Prefix of every key in the bucket."""
        return f"{self.prefix}/" if self.prefix else ""

    def inside(self, key: str) -> str:
        """Return the key's name in the bucket.

        Raises:
            StorageError: the key is invalid, or too long together with the prefix.
        """
        if not self.any_key:
            check_key(key)
        name = self.root + key
        if len(name.encode()) > LONGEST_KEY:
            raise StorageError(
                f"{key!r} cannot be the name of an object: with {self.url}/ it is longer than {LONGEST_KEY} bytes",
                hint="Use a workspace with a shorter prefix.",
            )
        return name

    def has(self, key: str) -> bool:
        """Return whether an object of this name belongs to the place; `folder/`, for example, is not a key."""
        return self.any_key or not _problem(key)

    def check_prefix(self, prefix: str) -> None:
        """Raise `StorageError` for a prefix that no key can have."""
        if not self.any_key:
            folder_of(prefix)
