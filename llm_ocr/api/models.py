"""From settings to the models of a command: which one, at which commit, asked how."""

import asyncio
import hashlib
import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from llm_ocr.api.engines import SERVER, Engines
from llm_ocr.api.model_files import content_of, on_store
from llm_ocr.errors import UsageError
from llm_ocr.models.chat import generic
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.profile import Profile
from llm_ocr.models.profile_file import profile_from
from llm_ocr.models.registry import PROFILES, find_profile
from llm_ocr.settings.model_groups import ModelSettings, VllmSettings, WhichModel

_log = logging.getLogger(__name__)

#: Seconds that asking for a model's newest commit may take.
_PATIENCE = 20.0
_FILES = (".toml", ".yaml", ".yml")
#: Names of ways to read a page that other tools have, and ours: the first that a model has.
_MODES = {"layout-all": ("layout",), "ocr": ("text", "markdown")}


@dataclass(frozen=True, slots=True)
class Asked:
    """A profile and the weights to load: an id, a folder, or the URL of a store.

    `chosen`: what the user chose that changes answers, or what is made of them, and stands in nothing else; for keys.
    """

    profile: Profile
    name: str
    chosen: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model(Asked):
    """At a commit: None where it is not known or has none (a folder). For a store what stands for one."""

    revision: str | None = None


def asked_model(settings: WhichModel) -> Asked:
    """The model that reads pages. Raises `UsageError` when it cannot be told what is meant."""
    # A command that has no prompts reads no pages.
    own_prompt = not isinstance(settings, ModelSettings) or settings.prompt is not None
    asked = named_model(settings.model, settings.weights, own_prompt=own_prompt, parser=settings.parser)
    return _with_template(asked, settings.chat_template)


def named_model(name: str, weights: str | None = None, *, own_prompt: bool, parser: str | None = None) -> Asked:
    """The profile of a model, and what to load.

    `name`: that of a profile, a profile's file, or, where the user brings the prompt, any model. `parser`: the name of
    the one that reads its answers, where it is not the profile's. Raises `UsageError`.
    """
    profile, of_user = _profile(name, own_prompt=own_prompt, parser=parser)
    if parser is not None and not of_user.get("generic"):
        profile = replace(profile, parsers={"": parser_named(parser).parse})
    chosen: dict[str, Any] = {}
    if of_user or parser is not None:
        chosen["parsers"] = {mode: one.__name__ for mode, one in sorted(profile.parsers.items())}
    return Asked(profile, weights or profile.model, chosen)


def mode_of(profile: Profile, name: str | None) -> str | None:
    """The profile's mode that a user means; a name that is none comes back as it is."""
    if name is None or name in profile.prompts:
        return name
    meant = _MODES.get(name, ())
    return next((mode for mode in meant if mode in profile.prompts), name)


async def pinned(settings: VllmSettings, engines: Engines, asked: Asked, revision: str | None) -> Model:
    """The model at a commit: the one that was asked for, the profile's, or the newest, which is then recorded."""
    name = asked.name
    commit = revision or (asked.profile.revision if name == asked.profile.model else None)
    if commit is None and engines.engine != SERVER:
        commit = await commit_now(settings, engines, name)
    return Model(asked.profile, name, asked.chosen, commit)


async def commit_now(settings: VllmSettings, engines: Engines, name: str) -> str | None:
    """`newest_commit`, asked once a command: another answer later would be another model."""
    if name not in engines.commits:
        offline, cache = settings.offline, settings.model_cache
        engines.commits[name] = await asyncio.to_thread(newest_commit, name, offline=offline, cache=cache)
    return engines.commits[name]


def newest_commit(model: str, *, offline: bool, cache: Path | None) -> str | None:
    """The commit that `main` stands for, on the Hub or, offline, in the local cache.

    For a model on a store what stands for one. None for a folder, which has none, and when nobody can tell.
    """
    if on_store(model):
        return content_of(model, offline=offline, cache=cache)
    if Path(model).is_dir():
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not offline:
        # The error of the HTTP library, which is another one in other releases: no answer at all.
        no_answer: type[BaseException] = HfHubHTTPError.__bases__[0]
        try:
            return HfApi().model_info(model, timeout=_PATIENCE).sha
        except (HfHubHTTPError, no_answer, OSError, ValueError) as error:
            _log.warning("the newest commit of %s is not known: %s", model, error)
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(cache or HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "refs" / "main"
    try:
        return folder.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _profile(name: str, *, own_prompt: bool, parser: str | None) -> tuple[Profile, Mapping[str, bool]]:
    """The profile, and whether it is the user's own: of a file, or of a model without one."""
    if not on_store(name) and name.endswith(_FILES):
        return profile_from(_read(name), name), {"file": True}
    try:
        return find_profile(name), {}
    except UsageError as error:
        if not (on_store(name) or "/" in name or Path(name).is_dir()):
            raise
        if not own_prompt:
            raise UsageError(error.args[0], hint=_without_profile(name, error.hint)) from None
    return generic(name, parser=parser or "plain"), {"generic": True}


def _without_profile(name: str, hint: str) -> str:
    """What to do about a model that nothing is known of."""
    tail = name.rstrip("/").rpartition("/")[2].casefold()
    like = [one for one in PROFILES if tail in (one.name, one.model.rpartition("/")[2].casefold(), *one.aliases)]
    if like:
        return f"If it is that model: --model {like[0].name} --weights {name}"
    return f'{hint} Any other model needs the prompt that it knows: --prompt "…", and --parser for what it answers.'


def _read(path: str) -> Mapping[str, Any]:
    """The values of a profile's file. Raises `UsageError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"--model {path}: {why or error}", hint="A profile is a TOML or YAML file.") from error
    try:
        values = tomllib.loads(text) if path.endswith(".toml") else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"--model {path}: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise UsageError(f"--model {path}: holds no names and values")
    return values


def _with_template(asked: Asked, path: str | None) -> Asked:
    """With a chat template of the user's for our own server."""
    if path is None:
        return asked
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--chat-template {path}: {error.strerror or error}") from error
    place = str(Path(path).absolute())
    profile = replace(asked.profile, server_args=(*asked.profile.server_args, "--chat-template", place))
    chosen = {**asked.chosen, "chat_template": hashlib.sha256(content).hexdigest()[:12]}
    return replace(asked, profile=profile, chosen=chosen)
