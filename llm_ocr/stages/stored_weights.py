"""Fetch models on a store into the local cache, file by file, before a server starts."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llm_ocr.errors import ServerError, StorageError, UsageError
from llm_ocr.storage import ObjectInfo, ObjectStore, open_store
from llm_ocr.storage.local.locks import NoLocks, exclusive

#: Files fetched concurrently, and seconds that another process may take to fetch the same model.
_AT_ONCE, _FETCH_TIMEOUT = 4, 6 * 3600.0
_COMPLETE = ".llm-ocr-complete.json"
#: The file that every model for transformers and vLLM contains.
_NEEDED = "config.json"


def on_store(model: str) -> bool:
    """Return whether a model name is the URL of a store."""
    return "://" in model


def content_of(url: str, *, offline: bool, cache: Path | None) -> str | None:
    """Return a hash that takes the place of a commit: 12 hexadecimal digits that change with any file of the model.

    Args:
        url: The URL of the model.
        offline: Whether to return the hash of the newest local copy; None without one.
        cache: The folder of downloaded models.

    Raises:
        StorageError: The store cannot be read.
        UsageError: The URL contains no model.
    """
    if not offline:
        return _digest(_listed(open_store(url), url))
    copies = [place.parent for place in _home(url, cache).glob(f"*/{_COMPLETE}")]
    return max(copies, key=lambda copy: (copy / _COMPLETE).stat().st_mtime).name if copies else None


def folder_of(url: str, content: str, cache: Path | None) -> Path:
    """Return the local folder of the model with this hash."""
    return _home(url, cache) / content


def fetch(url: str, content: str, cache: Path | None, *, offline: bool, say: Callable[[str], None]) -> Path:
    """Fetch the missing files of a model and return its folder.

    Each file is fetched completely or not at all, so an interrupted fetch continues where it stopped. Of several
    processes on a machine, one fetches and the others wait.

    Args:
        url: The URL of the model.
        content: The hash of the model's files.
        cache: The folder of downloaded models.
        offline: Whether the model must already be complete.
        say: Receives messages for the user.

    Raises:
        ServerError: The model has changed, the disk is too small, or there is no copy while offline.
        StorageError: The store cannot be read.
    """
    folder = folder_of(url, content, cache)
    if _whole(folder):
        return folder
    if offline:
        raise not_cached(url)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(NoLocks):  # without locks, concurrent fetches only repeat work
            folder.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(folder.parent, folder.name, timeout=_FETCH_TIMEOUT))
        if not _whole(folder):  # fetched by another process meanwhile
            _fetch(open_store(url), url, content, folder, say)
    return folder


def not_cached(url: str) -> ServerError:
    """Return the error for a model of which this machine has no copy while it is offline."""
    return ServerError(
        f"{url} is not in the model cache of this machine", hint="Run once with a network and without `offline`."
    )


def _fetch(store: ObjectStore, url: str, content: str, folder: Path, say: Callable[[str], None]) -> None:
    files = _listed(store, url)
    _check_same(files, content, url)
    missing = [one for one in files if _size(folder / one.key) != one.size]
    size = sum(one.size for one in missing)
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < size:
        raise ServerError(
            f"{url} needs {size / 1e9:.1f} GB in {folder}; {free / 1e9:.1f} GB are free",
            hint="Free space, or set `model_cache` to a folder on another disk.",
        )
    say(f"fetching {url}: {len(missing)} of {len(files)} files, {size / 1e9:.1f} GB, to {folder}")

    def get(one: ObjectInfo) -> None:
        place = folder / one.key
        place.parent.mkdir(parents=True, exist_ok=True)
        store.download(one.key, place)
        if (found := _size(place)) != one.size:
            place.unlink()
            raise StorageError(
                f"{url}/{one.key} has {one.size} bytes, but {found} arrived", hint="Run the same command again."
            )

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(get, missing))
    try:
        _check_same(_listed(store, url), content, url)
    except ServerError:
        shutil.rmtree(folder)  # it may contain files of both versions
        raise
    (folder / _COMPLETE).write_text(json.dumps({"url": url, "files": {one.key: one.size for one in files}}))
    say(f"{url} is complete")


def _listed(store: ObjectStore, url: str) -> list[ObjectInfo]:
    """List the model's files, without the empty objects that consoles create for folders."""
    files = [one for one in store.list() if one.size or not one.key.endswith("/")]
    if not any(one.key == _NEEDED for one in files):
        found = ", ".join(one.key for one in files[:3]) or "nothing"
        raise UsageError(
            f"{url} contains no model: {_NEEDED} is missing; found: {found}",
            hint="Use the URL of the folder that contains config.json and the weights.",
        )
    return files


def _check_same(files: Sequence[ObjectInfo], content: str, url: str) -> None:
    found = _digest(files)
    if found != content:
        raise ServerError(
            f"{url} contains another model ({found}) than at the start of this workspace ({content})",
            hint="Restore the first model, or use a new workspace for this model.",
        )


def _digest(files: Sequence[ObjectInfo]) -> str:
    rows = sorted((one.key, one.size, one.version) for one in files)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def _home(url: str, cache: Path | None) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    # A readable name and a hash that makes it unique.
    name = "--".join(part for part in url.replace(":", "").split("/") if part)
    return Path(cache or HF_HUB_CACHE) / f"llm-ocr--{name[-80:]}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def _whole(folder: Path) -> bool:
    try:
        files: Mapping[str, int] = json.loads((folder / _COMPLETE).read_text())["files"]
    except (OSError, ValueError):
        return False
    return all(_size(folder / key) == size for key, size in files.items())


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None
