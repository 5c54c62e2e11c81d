"""What is looked at before a model's servers start: all that would end them later, with what to do about it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from llm_ocr.api.model_files import fetch, folder_of, on_store, weights_in
from llm_ocr.engines.vllm.arguments import number_of, value_of
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.hardware import gpu_memory
from llm_ocr.engines.vllm.release import Release, check_release
from llm_ocr.engines.vllm.replicas import split_over
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.models.choosing import Wants, rank
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import PROFILES
from llm_ocr.models.sizes import needed_memory, share_of, smallest_gpu, weights_of
from llm_ocr.models.versions import numbers

_log = logging.getLogger(__name__)

#: Seconds for the Hub's answer.
_PATIENCE = 20.0
_TRUST, _SHARE, _CONTEXT = "trust-remote-code", "gpu-memory-utilization", "max-model-len"
#: Arguments that make the weights smaller than they are, or leave them out of the GPU.
_SMALLER = ("quantization", "cpu-offload-gb", "hf-overrides")


@dataclass(frozen=True, slots=True)
class Start:
    """Servers that are to start. `model` is as it was named: an id, a folder or the URL of a store.

    `pinned`: whether the profile or the user names the revision; else it is the newest one.
    """

    profile: Profile
    model: str
    revision: str | None
    pinned: bool
    options: ServeOptions
    release: Release

    @property
    def cache(self) -> Path | None:
        """The folder of downloaded models; None for Hugging Face's."""
        return self.options.model_cache

    @property
    def folder(self) -> Path | None:
        """The model's folder on this machine, whether it is there yet or not; None for one of the Hub."""
        if on_store(self.model):
            return folder_of(self.model, self.revision or "", self.cache)
        return Path(self.model) if is_path(self.model) else None


class Checks:
    """The checks of one start, and what must be fetched for it; each done once, however often it is asked for."""

    def __init__(self, start: Start, say: Callable[[str], None]) -> None:
        self._start = start
        self._say = say
        self._turn = asyncio.Lock()
        self._checked = self._ready = False
        self._version = ""

    async def check(self) -> None:
        """Raises `ServerError` or `UsageError` for what would keep the servers from starting, within seconds."""
        async with self._turn:
            await self._check()

    async def prepare(self) -> None:
        """The checks, and a model on a store fetched."""
        async with self._turn:
            await self._check()
            if not self._ready:
                await asyncio.to_thread(self._fetch)
                self._ready = True

    async def _check(self) -> None:
        if self._checked:
            return
        start = self._start
        self._version = await start.release.version()
        check_release(start.profile, start.options.command, self._version, start.release.transformers())
        await asyncio.to_thread(self._look)
        self._checked = True

    def _look(self) -> None:
        start = self._start
        check_folder(start)
        self._tell(memory_trouble(start, gpu_memory(), self._version))
        self._tell(trust_note(start))
        if start.folder is None and not start.options.offline:
            check_access(start.model, start.revision, start.cache)

    def _fetch(self) -> None:
        start = self._start
        if not on_store(start.model):
            return
        if start.revision is None:
            raise ServerError(
                f"{start.model} is not among the models on this machine",
                hint="Run it once with a network and without --offline.",
            )
        fetch(start.model, start.revision, start.cache, offline=start.options.offline, say=self._say)
        self._tell(memory_trouble(start, gpu_memory(), self._version))

    def _tell(self, text: str) -> None:
        if text:
            self._say(text)


def is_path(model: str) -> bool:
    """Whether a model is named by a folder of this machine: one that is there, or a name that can be nothing else."""
    return not on_store(model) and (model.startswith(("/", "./", "../", "~")) or Path(model).is_dir())


def check_folder(start: Start) -> None:
    """Raise `UsageError` for a folder that is not there, or holds no model."""
    if not is_path(start.model) or len(start.options.command) > 1:  # a container may have it elsewhere
        return
    folder = Path(start.model)
    if not folder.is_dir():
        raise UsageError(f"no such folder: {start.model}", hint="A model of the Hub is named OWNER/NAME.")
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{start.model} holds no model: there is no config.json",
            hint="Give the folder that holds config.json and the weights (of a Hub cache: snapshots/COMMIT).",
        )


def memory_trouble(start: Start, memory: dict[str, int], version: str = "") -> str:
    """A warning for a model that hardly fits into the GPUs' `memory` (bytes), "" for one that does, or is not known.

    `version` is vLLM's. Raises `ServerError` when the weights alone are too large.
    """
    profile, options = start.profile, start.options
    words = [*profile.server_args, *options.args]
    weights = _weights(start)
    if not memory or not weights or any(value_of(words, name) is not None for name in _SMALLER):
        return ""
    split = split_over(profile, options)
    share = options.gpu_memory_utilization or _number(value_of([*options.preset, *options.args], _SHARE))
    share = share or share_of(profile)
    context = number_of(options.args, _CONTEXT) or options.max_model_len or profile.context
    least = min(memory.values())
    needed = needed_memory(weights, context, gpus=split, share=share)
    if needed <= least:
        return ""
    size = "a GPU" if split == 1 else f"each of {split} GPUs"
    told = f"{profile.name} needs about {needed / 1e9:.0f} GB of {size}, and there are {least / 1e9:.0f} GB"
    wants = Wants(vllm=numbers(version), gpu_bytes=least, open_only=True)
    hint = _smaller(start, wants, split, len(memory))
    if weights / split > share * least:
        weight = f"{weights / 1e9:.1f} GB of weights alone" + (f" over {split} GPUs" if split > 1 else "")
        raise ServerError(f"{told} ({weight})", hint=hint)
    return f"{told}; if it does not start: {hint}"


def trust_note(start: Start) -> str:
    """What it means that a model brings code of its own, where nobody named the commit of that code; else ""."""
    trusted = start.profile.trust_remote_code or value_of(start.options.args, _TRUST) is not None
    if not trusted or start.pinned or start.folder is not None:
        return ""
    commit = f"commit {start.revision}" if start.revision else "its newest commit"
    return (
        f"{start.profile.name} runs code that comes with the model (--{_TRUST}), here that of {start.model} at "
        f"{commit}. Name the one that you have looked at with --revision."
    )


def check_access(model: str, revision: str | None, cache: Path | None) -> None:
    """Raise for a model of the Hub that is gated, private or not there; without a network nothing is known.

    Raises `UsageError` for one that is not there, `ServerError` for one that this account may not load.
    """
    from huggingface_hub import constants, get_session, hf_raise_for_status
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import build_hf_headers, validate_repo_id  # type: ignore[attr-defined]  # no __all__

    held = (
        Path(cache or constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "snapshots" / (revision or "-")
    )
    if held.is_dir():
        return
    no_answer: type[BaseException] = HfHubHTTPError.__bases__[0]  # the HTTP library's error: no answer at all
    try:
        validate_repo_id(model)
        # As HfApi.auth_check does it, which has no time-out.
        url = f"{constants.ENDPOINT}/api/models/{model}/auth-check"
        hf_raise_for_status(get_session().get(url, headers=build_hf_headers(), timeout=_PATIENCE))
    except GatedRepoError as error:
        raise ServerError(
            f"{model} is gated, and this account has no access to it",
            hint=f"Accept its terms at https://huggingface.co/{model} and set HF_TOKEN to a token of that account; or "
            "take another model: llm-ocr models --recommend",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        near = get_close_matches(model, [one.model for one in PROFILES], n=2, cutoff=0.7)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            f"the Hub has no model {model}, or a private one that this account may not see",
            hint=f"{meant}For a private one set HF_TOKEN; a folder is given by its path.",
        ) from error
    except (HfHubHTTPError, no_answer, OSError) as error:
        _log.warning("whether %s may be loaded is not known: %s", model, error)


def _weights(start: Start) -> float:
    folder = start.folder
    if folder is not None:
        return weights_in(folder)
    return weights_of(start.profile) if start.model == start.profile.model else 0.0


def _smaller(start: Start, wants: Wants, split: int, gpus: int) -> str:
    """What helps, in words."""
    ways = []
    if gpus > split:
        ways.append(f"split it over more GPUs (--tensor-parallel-size {2 * split})")
    if start.profile.weight_bytes > 1:
        ways.append("let vLLM make the weights smaller (--vllm-arg=--quantization=fp8)")
    ways.append("shorten the context (--max-model-len)")
    if size := smallest_gpu(start.profile):
        ways.append(f"take {size} of GPU memory")
    fitting = rank(PROFILES, wants).ranked
    if fitting:
        ways.append(f"take a smaller model (--model {fitting[0].profile.name})")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}." if len(ways) > 1 else f"{ways[0]}."


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
