"""What is a key, what is a workspace URL."""

import difflib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llm_ocr.errors import StorageError, UsageError

#: S3 and GCS end keys at 1,024 bytes of UTF-8.
LONGEST_KEY = 1024

#: Names of unfinished writes begin so; no key has such a segment.
TEMPORARY = ".tmp-"

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

_LATER = ("s3", "gs", "hf")
_KNOWN = ("file", *_LATER)
_OTHER_NAMES = {"gcs": "gs", "google": "gs", "aws": "s3", "s3a": "s3", "s3n": "s3", "huggingface": "hf", "hub": "hf"}


def check_key(key: str) -> None:
    """Raise `StorageError` for a key that is empty, absolute, too long, or has an empty, `.`, `..` or control part."""
    if problem := _problem(key):
        raise StorageError(f"{key!r} cannot be the name of an object: {problem}")


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


def local_folder(url: str) -> Path:
    """The absolute path of a folder given by path or `file://` URL. Raises `UsageError` for any other scheme.

    A folder whose name looks like a scheme (`a:/b`) can be given as `./a:/b`.
    """
    if not url or _CONTROL.search(url.encode("utf-8", "surrogateescape").decode("utf-8", "replace")):
        raise UsageError(f"{url!r} is no workspace: it is empty or has a control character")
    scheme = _SCHEME.match(url)
    if scheme is None:
        return _absolute(url)
    if scheme[1].lower() != "file":
        raise _unknown(url, scheme[1].lower())
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(f"{url}: a file URL names no host", hint=f"Did you mean file:///{parts.netloc}{parts.path}?")
    return _absolute(unquote(parts.path, errors="surrogateescape"))


def _absolute(path: str) -> Path:
    folder = Path(path)
    if folder.parts and folder.parts[0] == "~":
        folder = folder.expanduser()
    return Path.cwd() / folder if not folder.is_absolute() else folder


def _unknown(url: str, scheme: str) -> UsageError:
    if scheme in _LATER:
        return UsageError(
            f"{url}: workspaces on {scheme}:// are not supported in this version",
            hint="Give a local folder, for example -w ./llm-ocr-out.",
        )
    near = _OTHER_NAMES.get(scheme) or next(iter(difflib.get_close_matches(scheme, _KNOWN, n=1, cutoff=0.5)), "")
    what = f"Did you mean {near}://?" if near else "Give a local folder or a file:// URL."
    later = f" ({near}:// is not supported in this version.)" if near in _LATER else ""
    return UsageError(f"{url}: {scheme}:// is not a scheme that is known", hint=what + later)
