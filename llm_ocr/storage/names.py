"""Valid keys and workspace URLs, and temporary folders of one process."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from llm_ocr.errors import StorageError, UsageError

# What is a key, what is a workspace URL.


#: S3 and GCS end keys at 1,024 bytes of UTF-8.
LONGEST_KEY = 1024

#: Names of unfinished writes begin so; no key has such a segment.
TEMPORARY = ".tmp-"

#: Keys of what stores write to find out what they can, and remove again. They are never listed: a workspace that begins
#: elsewhere at the same moment must not take them for content.
PROBES = ".probe/"

#: Left by file managers in folders that the user sees as empty.
OF_FILE_MANAGERS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", ".directory", ".localized"})

#: Other schemes by which stores are called, and ours.
OTHER_SCHEMES = {"gcs": "gs", "google": "gs", "aws": "s3", "s3a": "s3", "s3n": "s3", "huggingface": "hf", "hub": "hf"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def check_key(key: str) -> None:
    """Raise `StorageError` for a key that is empty, absolute, too long, or has an empty, `.`, `..` or control part."""
    if problem := _problem(key):
        raise StorageError(f"{key!r} cannot be the name of an object: {problem}")


def is_key(key: str) -> bool:
    """False for what others make and no key can name: empty objects `folder/` that stand for folders, for example."""
    return not _problem(key)


def folder_of(prefix: str) -> str:
    """The folder that holds all keys with the prefix, empty for the root. Raises `StorageError` for no key."""
    folder = prefix.rpartition("/")[0]
    if folder:
        check_key(folder)
    return folder


def checked_prefix(url: str, prefix: str, hint: str) -> str:
    """The prefix of a workspace URL. Raises `UsageError` unless it is empty or as a key."""
    if prefix and (problem := _problem(prefix)):
        raise UsageError(f"{url}: {prefix!r} cannot be the name of an object: {problem}", hint=hint)
    return prefix


def _problem(key: str) -> str:
    segments = key.split("/")
    checks = {
        "it is empty": not key,
        "it has an empty part": "" in segments,
        "it leads elsewhere": "." in segments or ".." in segments,
        "it has a control character or half a surrogate pair": bool(_CONTROL.search(key)),
        f"names that begin with {TEMPORARY} are for unfinished writes": any(s.startswith(TEMPORARY) for s in segments),
        f"it is longer than {LONGEST_KEY} bytes": len(key.encode(errors="replace")) > LONGEST_KEY,
    }
    return next((problem for problem, found in checks.items() if found), "")


def check_url(url: str) -> None:
    """Raise `UsageError` for a workspace URL or path that is empty or has a control character."""
    if not url or _CONTROL.search(url.encode("utf-8", "surrogateescape").decode("utf-8", "replace")):
        raise UsageError(f"{url!r} is no workspace: it is empty or has a control character")


def split_scheme(url: str) -> tuple[str, str]:
    """The scheme in small letters and what follows its colon; an empty scheme for a path.

    A folder whose name looks like a scheme (`ab:/c`) can be given as `./ab:/c`.
    """
    found = _SCHEME.match(url)
    return (found[1].lower(), url[found.end(1) + 1 :]) if found else ("", url)


def local_folder(url: str) -> Path:
    """The absolute path of a folder given by path or `file://` URL. Raises `UsageError` for any other scheme."""
    check_url(url)
    scheme, _ = split_scheme(url)
    if not scheme:
        return _absolute(url)
    if scheme != "file":
        raise UsageError(f"{url} is no folder", hint="Give a path or a file:// URL.")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(f"{url}: a file URL names no host", hint=f"Did you mean file:///{parts.netloc}{parts.path}?")
    return _absolute(unquote(parts.path, errors="surrogateescape"))


def _absolute(path: str) -> Path:
    folder = Path(path)
    if folder.parts and folder.parts[0] == "~":
        folder = folder.expanduser()
    return Path.cwd() / folder if not folder.is_absolute() else folder


# A prefix in a bucket, as S3 and Google Cloud Storage name it.


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """`prefix` has no `/` at its end and is empty for the whole bucket. `any_key`: see `StoreOptions`."""

    scheme: ClassVar[str]
    bucket: str
    prefix: str
    any_key: bool = False

    @property
    def url(self) -> str:
        """As it is shown to users."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def root(self) -> str:
        """What every key in the bucket begins with."""
        return f"{self.prefix}/" if self.prefix else ""

    def inside(self, key: str) -> str:
        """The key's name in the bucket. Raises `StorageError` for no key, or one too long together with the prefix."""
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
        """Return whether an object of this name is one of the place's."""
        return self.any_key or is_key(key)

    def check_prefix(self, prefix: str) -> None:
        """Raise `StorageError` for a prefix that no key can have."""
        if not self.any_key:
            folder_of(prefix)
