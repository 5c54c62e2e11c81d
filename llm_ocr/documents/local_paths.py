"""Paths as users write them. What no system can have, or may not be looked at, is not there."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from llm_ocr.documents.remote.urls import unknown_scheme
from llm_ocr.errors import UsageError
from llm_ocr.settings.values import without_credentials


def local_path(source: str, base: Path | None = None) -> Path:
    """A path or `file://` URL as an absolute path, not resolved. Raises UsageError for other URLs."""
    if source.startswith("file://"):
        try:
            parts = urlsplit(source.replace("#", "%23").replace("?", "%3F"))
        except ValueError as error:
            raise UsageError(f"{source}: {error}", hint="Write file:///path, or the path alone.") from error
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{source}: a file on another host", hint="Write file:///path, or the path alone.")
        source = unquote(parts.path)
    elif "://" in source and not exists(Path(source)):
        named = without_credentials(source)
        raise unknown_scheme(source) or UsageError(f"{named}: no file, folder or URL that can be read")
    elif source.startswith("~") and not os.path.lexists(source):
        source = str(_user_folder(source))
    if not source:
        raise UsageError("a source is empty", hint="Name files, folders, globs, .txt lists or .jsonl manifests.")
    return Path(os.path.abspath(base / source if base else source))  # noqa: PTH100 - keeps links


def exists(path: Path) -> bool:
    """Whether something stands there that may be looked at. `Path.exists` raises for names that are too long."""
    try:
        return path.exists()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether it is a regular file, or a link to one."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether it is a folder, or a link to one."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_unspeakable(path: Path) -> bool:
    """Whether the name cannot be written down: bytes that are no text come as lone surrogates."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return True
    return False


def _user_folder(source: str) -> Path:
    """`~` and `~name` as their folders; where there is no such user it is a name like any other."""
    try:
        return Path(source).expanduser()
    except (RuntimeError, ValueError):
        return Path(source)
