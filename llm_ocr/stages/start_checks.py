"""Check a model before its servers start, for errors that would end them minutes later."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.engines.vllm.command import ServeOptions, number_of, value_of
from llm_ocr.engines.vllm.sizing import gpu_memory
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.choosing import Wants, needed_memory, numbers, rank, share_of, smallest_gpu, weights_of
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import all_profiles
from llm_ocr.stages.stored_weights import fetch, folder_of, not_cached, on_store
from llm_ocr.storage.hf.client import no_answer

if TYPE_CHECKING:
    from llm_ocr.engines.vllm.server import Release


_log = logging.getLogger(__name__)

#: Seconds for the Hub's response.
_HUB_TIMEOUT = 20.0
_TRUST, _SHARE, _CONTEXT = "trust-remote-code", "gpu-memory-utilization", "max-model-len"
#: Arguments that reduce the weights in GPU memory.
_SMALLER = ("quantization", "cpu-offload-gb", "hf-overrides")


@dataclass(frozen=True, slots=True)
class Start:
    """Servers that are about to start."""

    profile: Profile
    model: str  # the name that the user gave: an id, a folder, or the URL of a store
    revision: str | None  # the commit; None for a folder
    pinned: bool  # whether the profile or the user names the revision. If not, it is the newest.
    options: ServeOptions
    release: "Release"  # of vLLM, as installed

    @property
    def folder(self) -> Path | None:
        """The model's folder on this machine, which may not exist yet; None for a model of the Hub."""
        if on_store(self.model):
            return folder_of(self.model, self.revision or "", self.options.model_cache)
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
            raise not_cached(start.model)
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
