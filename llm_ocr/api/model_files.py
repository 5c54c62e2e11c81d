"""Models on a store: fetched once into the folder of downloaded models, file by file, before a server starts."""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from llm_ocr.errors import ServerError, StorageError, UsageError
from llm_ocr.storage import ObjectInfo, ObjectStore, open_store
from llm_ocr.storage.local_locks import NoLocks, exclusive

#: Files fetched at the same time, and seconds that another process may take to fetch the same model.
_AT_ONCE, _PATIENCE = 4, 6 * 3600.0
_COMPLETE = ".llm-ocr-complete.json"
#: What every model has that transformers and vLLM can load.
_NEEDED = "config.json"


def on_store(model: str) -> bool:
    """Whether a model is named by the URL of a store."""
    return "://" in model


def content_of(url: str, *, offline: bool, cache: Path | None) -> str | None:
    """What stands for a commit of such a model: 12 hex that change with any of its files.

    Offline that of the copy that was fetched last, None without one. Raises `StorageError`, and `UsageError` for a
    place that holds no model.
    """
    if not offline:
        return _digest(_listed(open_store(url), url))
    copies = [place.parent for place in _home(url, cache).glob(f"*/{_COMPLETE}")]
    return max(copies, key=lambda copy: (copy / _COMPLETE).stat().st_mtime).name if copies else None


def folder_of(url: str, content: str, cache: Path | None) -> Path:
    """Where the model of this content stands once it is fetched."""
    return _home(url, cache) / content


def fetch(url: str, content: str, cache: Path | None, *, offline: bool, say: Callable[[str], None]) -> Path:
    """The model's folder, with all of its files in it; those that are missing are fetched, each whole or not at all.

    A fetch that was cut off goes on where it stopped; of several processes on a machine one fetches, the others wait.
    Raises `ServerError` when the model is another by now, when the disk is too small, and offline without a copy;
    `StorageError` when it cannot be read.
    """
    folder = folder_of(url, content, cache)
    if _whole(folder):
        return folder
    if offline:
        raise ServerError(
            f"{url} is not among the models on this machine", hint="Run it once with a network and without --offline."
        )
    with _alone(folder):
        if not _whole(folder):  # by somebody else meanwhile
            _fetch(open_store(url), url, content, folder, say)
    return folder


def weights_in(folder: Path) -> int:
    """Bytes of the weights in a model's folder; 0 where none are found."""
    sizes = {end: [one.stat().st_size for one in folder.glob(f"*.{end}")] for end in ("safetensors", "bin")}
    return sum(sizes["safetensors"] or sizes["bin"])


def _fetch(store: ObjectStore, url: str, content: str, folder: Path, say: Callable[[str], None]) -> None:
    files = _listed(store, url)
    _check_same(files, content, url)
    missing = [one for one in files if not _has(folder, one)]
    size = sum(one.size for one in missing)
    folder.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder).free) < size:
        raise ServerError(
            f"{url} needs {size / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are free",
            hint="Make room, or name a folder on another disk with --model-cache.",
        )
    say(f"fetching {url}: {len(missing)} of {len(files)} files, {size / 1e9:.1f} GB, to {folder}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda one: _get(store, one, folder, url), missing))
    try:
        _check_same(_listed(store, url), content, url)
    except ServerError:
        shutil.rmtree(folder)  # nobody knows which of its files are the new ones
        raise
    (folder / _COMPLETE).write_text(json.dumps({"url": url, "files": {one.key: one.size for one in files}}))
    say(f"{url} is here")


def _get(store: ObjectStore, one: ObjectInfo, folder: Path, url: str) -> None:
    place = folder / one.key
    place.parent.mkdir(parents=True, exist_ok=True)
    store.download(one.key, place)
    if not _has(folder, one):
        found = place.stat().st_size
        place.unlink()
        raise StorageError(
            f"{url}/{one.key} has {one.size} bytes, and {found} came", hint="Run the same command again."
        )


def _listed(store: ObjectStore, url: str) -> list[ObjectInfo]:
    """The model's files. What consoles leave where a folder was made is none."""
    files = [one for one in store.list() if one.size or not one.key.endswith("/")]
    if not any(one.key == _NEEDED for one in files):
        found = ", ".join(one.key for one in files[:3]) or "nothing"
        raise UsageError(
            f"{url} holds no model: there is no {_NEEDED}, but {found}",
            hint="Give the URL of the folder that holds config.json and the weights.",
        )
    return files


def _check_same(files: Sequence[ObjectInfo], content: str, url: str) -> None:
    found = _digest(files)
    if found != content:
        raise ServerError(
            f"{url} is another model by now ({found}) than the one with which this workspace was begun ({content})",
            hint="Put the first one back, or begin a new workspace with this one.",
        )


def _digest(files: Sequence[ObjectInfo]) -> str:
    rows = sorted((one.key, one.size, one.version) for one in files)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def _home(url: str, cache: Path | None) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    # A readable name, and what makes it the only one.
    name = "--".join(part for part in url.replace(":", "").split("/") if part)
    return Path(cache or HF_HUB_CACHE) / f"llm-ocr--{name[-80:]}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def _whole(folder: Path) -> bool:
    try:
        files: Mapping[str, int] = json.loads((folder / _COMPLETE).read_text())["files"]
    except (OSError, ValueError):
        return False
    return all(_size(folder / key) == size for key, size in files.items())


def _has(folder: Path, one: ObjectInfo) -> bool:
    return _size(folder / one.key) == one.size


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process of this machine fetches the same model, where the file system has locks."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(NoLocks):  # files come whole or not at all: two who fetch at once do the same twice
            folder.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(folder.parent, folder.name, patience=_PATIENCE))
        yield
