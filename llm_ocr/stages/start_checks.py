"""Before servers start: check their model for errors that would end them minutes later, and fetch it from its store.

A model on a store is fetched into the local cache, file by file.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.engines.vllm.command import ServeOptions, number_of, value_of
from llm_ocr.engines.vllm.sizing import gpu_memory
from llm_ocr.errors import ServerError, StorageError, UsageError
from llm_ocr.models.choosing import Wants, needed_memory, numbers, rank, share_of, smallest_gpu, weights_of
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import all_profiles
from llm_ocr.storage import ObjectInfo, ObjectStore, open_store
from llm_ocr.storage.hf.client import no_answer
from llm_ocr.storage.local.locks import NoLocks, exclusive

if TYPE_CHECKING:
    from llm_ocr.engines.vllm.server import Release


_log = logging.getLogger(__name__)

#: Seconds for the Hub's response.
_HUB_TIMEOUT = 20.0
_TRUST, _SHARE, _CONTEXT = "trust-remote-code", "gpu-memory-utilization", "max-model-len"
#: Arguments that reduce the weights in GPU memory.
_SMALLER = ("quantization", "cpu-offload-gb", "hf-overrides")
#: Files fetched concurrently, and seconds that another process may take to fetch the same model.
_AT_ONCE, _FETCH_TIMEOUT = 4, 6 * 3600.0
_COMPLETE = ".llm-ocr-complete.json"
#: The file that every model for transformers and vLLM contains.
_NEEDED = "config.json"


@dataclass(frozen=True, slots=True)
class Start:
    """Servers that are about to start."""

    profile: Profile  # the profile of the model
    model: str  # the name that the user gave: an id, a folder, or the URL of a store
    revision: str | None  # the commit; None for a folder
    pinned: bool  # whether the profile or the user names the revision. If not, it is the newest.
    options: ServeOptions  # the options of the servers
    release: "Release"  # the installed version of vLLM

    @property
    def folder(self) -> Path | None:
        """The model's folder on this machine, which may not exist yet; None for a model of the Hub."""
        if on_store(self.model):
            return _home(self.model, self.options.model_cache) / (self.revision or "")
        return Path(self.model) if is_path(self.model) else None


class Checks:
    """The checks before a start, and the download of a model on a store. Each is done once."""

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self._start = start
        self._say = say
        self._lock = asyncio.Lock()
        self._checked = self._ready = False
        self._version = ""

    async def check(self) -> None:
        """Raise `ServerError` or `UsageError`, within seconds, if the servers cannot start."""
        async with self._lock:
            await self._check()

    async def prepare(self) -> None:
        """Run the checks, and fetch a model on a store."""
        async with self._lock:
            await self._check()
            if not self._ready:
                await asyncio.to_thread(self._fetch)
                self._ready = True

    async def _check(self) -> None:
        if self._checked:
            return
        from llm_ocr.engines.vllm.server import check_release

        start = self._start
        self._version = await start.release.version()
        check_release(start.profile, start.options.command, self._version, start.release.transformers())
        await asyncio.to_thread(self._look)
        self._checked = True

    def _look(self) -> None:
        start = self._start
        check_folder(start)
        for message in (memory_shortage(start, gpu_memory(), self._version), trust_note(start)):
            if message:
                self._say(message)
        if start.folder is None and not start.options.offline:
            check_access(start.model, start.revision, start.options.model_cache)

    def _fetch(self) -> None:
        start = self._start
        if not on_store(start.model):
            return
        if start.revision is None:
            raise _not_cached(start.model)
        fetch(start.model, start.revision, start.options.model_cache, offline=start.options.offline, say=self._say)
        if message := memory_shortage(start, gpu_memory(), self._version):
            self._say(message)


def is_path(model: str) -> bool:
    """Return whether a model name is a local folder: an existing folder, or a name that can only be a path."""
    return not on_store(model) and (model.startswith(("/", "./", "../", "~")) or Path(model).is_dir())


def check_folder(start: Start) -> None:
    """Raise `UsageError` for a folder that does not exist or contains no model."""
    if not is_path(start.model) or len(start.options.command) > 1:  # a container may mount it elsewhere
        return
    folder = Path(start.model)
    if not folder.is_dir():
        raise UsageError(f"no such folder: {start.model}", hint="Models on the Hub have the form OWNER/NAME.")
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{start.model} contains no model: config.json is missing",
            hint="Use the folder that contains config.json and the weights (in a Hub cache: snapshots/COMMIT).",
        )


def memory_shortage(start: Start, memory: dict[str, int], version: str = "") -> str:
    """Return a warning if the model may not fit into GPU memory; empty if it fits or its size is unknown.

    Args:
        start: The servers.
        memory: Bytes of each GPU.
        version: The version of vLLM.

    Raises:
        ServerError: The weights alone are too large.
    """
    profile, options = start.profile, start.options
    arguments = [*profile.server_args, *options.args]
    weights = weight_bytes(start)
    if not memory or not weights or any(value_of(arguments, name) is not None for name in _SMALLER):
        return ""
    from llm_ocr.engines.vllm.sizing import split_over

    split, _ = split_over(profile, options)
    share = options.gpu_memory_utilization or _number(value_of([*options.preset, *options.args], _SHARE))
    share = share or share_of(profile)
    context = number_of(options.args, _CONTEXT) or options.max_model_len or profile.context
    least = min(memory.values())
    needed = needed_memory(weights, context, gpus=split, share=share)
    if needed <= least:
        return ""
    size = "a GPU" if split == 1 else f"each of {split} GPUs"
    message = f"{profile.name} needs about {needed / 1e9:.0f} GB of {size}; {least / 1e9:.0f} GB are available"
    wants = Wants(vllm=numbers(version), gpu_bytes=least, open_only=True)
    hint = _smaller(start, wants, split, len(memory))
    if weights / split > share * least:
        weight = f"{weights / 1e9:.1f} GB of weights alone" + (f" over {split} GPUs" if split > 1 else "")
        raise ServerError(f"{message} ({weight})", hint=hint)
    return f"{message}. If it does not start: {hint}"


def trust_note(start: Start) -> str:
    """Return a note if the model's own code runs without a pinned commit; otherwise an empty string."""
    trusted = start.profile.trust_remote_code or value_of(start.options.args, _TRUST) is not None
    if not trusted or start.pinned or start.folder is not None:
        return ""
    commit = f"commit {start.revision}" if start.revision else "its newest commit"
    return (
        f"{start.profile.name} runs code from the model's repository (--{_TRUST}): {start.model} at "
        f"{commit}. Pin the commit that you reviewed with `revision`."
    )


def check_access(model: str, revision: str | None, cache: Path | None) -> None:
    """Check that a model of the Hub exists and that this account may load it. Without a network, nothing is checked.

    Raises:
        UsageError: The model does not exist.
        ServerError: The model is gated, and the account has no access.
    """
    from huggingface_hub import constants, get_session, hf_raise_for_status
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]  # no __all__

    held = (
        Path(cache or constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "snapshots" / (revision or "-")
    )
    if held.is_dir():
        return
    try:
        validate_repo_id(model)
        # Like HfApi.auth_check, which has no timeout.
        url = f"{constants.ENDPOINT}/api/models/{model}/auth-check"
        hf_raise_for_status(get_session().get(url, headers=build_hf_headers(), timeout=_HUB_TIMEOUT))
    except GatedRepoError as error:
        raise ServerError(
            f"{model} is gated, and this account has no access to it",
            hint=f"Accept its terms at https://huggingface.co/{model} and set HF_TOKEN to a token of that account. Or "
            "choose another model: llm-ocr models --recommend",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        near = get_close_matches(model, [one.model for one in all_profiles()], n=2, cutoff=0.7)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"the Hub has no model {model}, or it is private and this account has no access",
            hint=f"{meant}For a private model, set HF_TOKEN. For a folder, use its path.",
        ) from error
    except (HfHubHTTPError, no_answer(), OSError) as error:
        _log.warning("cannot check the access to %s: %s", model, error)


def weight_bytes(start: Start) -> float:
    """Return the size of the model's weights in bytes; 0 if it is unknown."""
    if (folder := start.folder) is not None:
        sizes = {end: [one.stat().st_size for one in folder.glob(f"*.{end}")] for end in ("safetensors", "bin")}
        return sum(sizes["safetensors"] or sizes["bin"])
    return weights_of(start.profile) if start.model == start.profile.model else 0.0


def _smaller(start: Start, wants: Wants, split: int, gpus: int) -> str:
    """Return a hint: the ways to make the model fit."""
    ways = []
    if gpus > split:
        ways.append(f"split it over more GPUs (`tensor_parallel_size={2 * split}`)")
    if start.profile.weight_bytes > 1:
        ways.append("quantize the weights (`vllm_arg=--quantization=fp8`)")
    ways.append("shorten the context (`max_model_len`)")
    if size := smallest_gpu(start.profile):
        ways.append(f"use {size} of GPU memory")
    fitting, _ = rank(all_profiles(), wants)
    if fitting:
        ways.append(f"use a smaller model (`model={fitting[0].profile.name}`)")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}." if len(ways) > 1 else f"{ways[0]}."


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


# A model on a store.


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
    folder = _home(url, cache) / content
    if _whole(folder):
        return folder
    if offline:
        raise _not_cached(url)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(NoLocks):  # without locks, concurrent fetches only repeat work
            folder.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(exclusive(folder.parent, folder.name, timeout=_FETCH_TIMEOUT))
        if not _whole(folder):  # fetched by another process meanwhile
            _fetch(open_store(url), url, content, folder, say)
    return folder


def _not_cached(url: str) -> ServerError:
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
