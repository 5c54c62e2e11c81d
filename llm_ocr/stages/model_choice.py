"""Choose the model of a command: profile, weights, and commit."""

import asyncio
import hashlib
import logging
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from llm_ocr.config.groups import (
    SERVER,
    Group,
    ModelSettings,
    RaySettings,
    ServerSettings,
    VllmSettings,
    WhichModel,
)
from llm_ocr.config.loading import DEFAULT
from llm_ocr.config.models import FieldsSettings, ServingCommand
from llm_ocr.errors import UsageError
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.profile import Profile
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.profiles.shared import follows_instructions
from llm_ocr.models.registry import all_profiles, find_profile, profile_from, served_profile
from llm_ocr.stages.servers import Engines, server_key
from llm_ocr.stages.stored_weights import content_of, on_store
from llm_ocr.storage.hf.client import no_answer
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, used_settings

_log = logging.getLogger(__name__)

SettingsT = TypeVar("SettingsT", bound=Group)

#: Seconds that the request for a model's newest commit may take.
_HUB_TIMEOUT = 20.0
_FILES = (".toml", ".yaml", ".yml")
#: Mode names of other tools, with our names in order of preference.
_MODES = {"layout-all": ("layout",), "ocr": ("text", "markdown")}


@dataclass(frozen=True, slots=True)
class Model:
    """A profile and the weights to load."""

    profile: Profile
    name: str  # a model id, a folder, or the URL of a store
    #: The user's choices that change answers or their parsing and that no other setting contains, for keys.
    chosen: Mapping[str, Any] = field(default_factory=dict)
    #: The commit; None before it is chosen (`pinned`), if it is unknown, and for a folder. For a store, a hash.
    revision: str | None = None


def model_choice(settings: WhichModel) -> Model:
    """Return the model that reads pages. Raises `UsageError` if the name is ambiguous or unknown."""
    # A command without a prompt setting reads no pages.
    own_prompt = not isinstance(settings, ModelSettings) or settings.prompt is not None
    served = isinstance(settings, ServerSettings) and bool(settings.server_url)
    asked = named_model(settings.model, settings.weights, own_prompt=own_prompt, parser=settings.parser, served=served)
    if isinstance(settings, ModelSettings) and not settings.ngram_processor:
        asked = replace(asked, profile=without_processor(asked.profile))
    return _with_template(asked, settings.chat_template)


def instructed_model(settings: FieldsSettings, engine: str) -> Model:
    """Return the model that is asked for fields.

    Raises:
        UsageError: It is unknown, or follows no instructions, as models that only read pages.
    """
    if settings.origins.get("parser", "").startswith("flag "):
        raise UsageError("`parser` has no effect on fields, whose answers are JSON", hint="Remove it.")
    asked = named_model(settings.model, settings.weights, own_prompt=True, served=engine == SERVER)
    if not follows_instructions(asked.profile):
        raise UsageError(
            f"{asked.profile.name} reads pages and follows no instructions, which fields need",
            hint="Use an instruction-tuned model: `model=qwen3-vl-8b`, or the name of any such model on the server.",
        )
    return _with_template(asked, settings.chat_template)


async def with_served_model(settings: SettingsT, engine: str, say: Callable[[str], None]) -> SettingsT:
    """Return the settings with the model of the first server that answers, if no setting chooses a model.

    They are unchanged for other engines, and if the server has several models, or one without a profile, which can only
    be asked for fields.
    """
    # A stage that reads no pages has the model of the stage before it, and may wait for that stage.
    serving = settings if isinstance(settings, ServingCommand) else None
    if engine != SERVER or serving is None or not isinstance(settings, ModelSettings | FieldsSettings):
        return settings
    if isinstance(serving, RaySettings) and serving.ray is not None:
        return settings
    from llm_ocr.engines.client.connections import address_of
    from llm_ocr.engines.client.endpoint import Endpoint

    if serving.origins.get("model") != DEFAULT or serving.server_model or serving.weights:
        return settings
    key = server_key(serving.server_key, serving.server_key_file)
    for url in serving.server_url:
        endpoint = Endpoint(address_of(url, "", key))
        try:
            served = await endpoint.served()
        finally:
            await endpoint.close()
        profile = served_profile(served, all_profiles())
        name = profile.name if profile else serving.model
        if profile is None and len(served) == 1 and isinstance(settings, FieldsSettings):
            name = next(iter(served))
        if name != serving.model:
            say(f"Model: {name}, which {url} serves")
            return settings.model_copy(update={"model": name})
        if served:
            break
    return settings


def without_processor(profile: Profile) -> Profile:
    """Return the profile without its logits processor in vLLM. Raises `UsageError` if it has none."""
    name = "--logits-processors"
    if name not in profile.server_args or "vllm_xargs" not in profile.page_settings:
        raise UsageError(
            f"`ngram_processor=False` has no effect: {profile.name} has no logits processor", hint="Remove it."
        )
    place = profile.server_args.index(name)
    page_settings = {key: value for key, value in profile.page_settings.items() if key != "vllm_xargs"}
    server_args = (*profile.server_args[:place], *profile.server_args[place + 2 :])
    return replace(profile, page_settings=page_settings, server_args=server_args)


def named_model(
    name: str,
    weights: str | None = None,
    *,
    own_prompt: bool,
    parser: str | None = None,
    served: bool = False,
) -> Model:
    """Return the profile and the weights of a model.

    Args:
        name: The name of a profile, a profile file, or any model if the user provides the prompt.
        weights: The weights to load. By default those of the profile.
        own_prompt: Whether the user provides the prompt.
        parser: The name of the parser of the answers. By default that of the profile.
        served: Whether a running server has the model, whose name there may be any.

    Raises:
        UsageError: The name is unknown, or the profile file is invalid.
    """
    profile, of_user = _profile(name, own_prompt=own_prompt, parser=parser, served=served)
    if parser is not None and not of_user.get("generic"):
        profile = replace(profile, parsers={"": parser_named(parser)})
    chosen: dict[str, Any] = {}
    if of_user or parser is not None:
        chosen["parsers"] = {mode: one.__name__ for mode, one in sorted(profile.parsers.items())}
    return Model(profile, weights or profile.model, chosen)


def mode_of(profile: Profile, name: str | None) -> str | None:
    """Return the profile's mode that a name means. An unknown name is returned unchanged."""
    if name is None or name in profile.prompts:
        return name
    meant = _MODES.get(name, ())
    return next((mode for mode in meant if mode in profile.prompts), name)


async def pinned(settings: VllmSettings, engines: Engines, asked: Model, revision: str | None) -> Model:
    """Return the model at the requested commit, at that of the profile, or at the newest, which is then recorded."""
    name = asked.name
    commit = revision or (asked.profile.revision if name == asked.profile.model else None)
    if commit is None and engines.engine != SERVER:
        commit = await commit_now(settings, engines, name)
    return replace(asked, revision=commit)


async def commit_now(settings: VllmSettings, engines: Engines, name: str) -> str | None:
    """Return `newest_commit`, requested once per command, because a later answer could be another model."""
    if name not in engines.commits:
        offline, cache = settings.offline, settings.model_cache
        engines.commits[name] = await asyncio.to_thread(newest_commit, name, offline=offline, cache=cache)
    return engines.commits[name]


def newest_commit(model: str, *, offline: bool, cache: Path | None) -> str | None:
    """Return the commit of `main` on the Hub, or offline in the local cache.

    For a model on a store, return a hash of its files.

    Returns:
        The commit; None for a folder, and if the commit cannot be found.
    """
    if on_store(model):
        return content_of(model, offline=offline, cache=cache)
    if Path(model).is_dir():
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    if not offline:
        try:
            return HfApi().model_info(model, timeout=_HUB_TIMEOUT).sha
        except (HfHubHTTPError, no_answer(), OSError, ValueError) as error:
            _log.warning("the newest commit of %s is unknown: %s", model, error)
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(cache or HF_HUB_CACHE) / f"models--{model.replace('/', '--')}" / "refs" / "main"
    try:
        return folder.read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def _profile(name: str, *, own_prompt: bool, parser: str | None, served: bool) -> tuple[Profile, Mapping[str, bool]]:
    """Return the profile, and whether it is the user's own: from a file, or of a model without a profile."""
    if not on_store(name) and name.endswith(_FILES):
        return profile_from(_read(name), name), {"file": True}
    try:
        return find_profile(name), {}
    except UsageError as error:
        if not own_prompt:
            tail = name.rstrip("/").rpartition("/")[2].casefold()
            like = [
                one
                for one in all_profiles()
                if tail in (one.name, one.model.rpartition("/")[2].casefold(), *one.aliases)
            ]
            needs = "A model without a profile needs `prompt`, and `parser` for answers that are not Markdown."
            hint = (
                f"If it is that model: `model={like[0].name}` and `weights={name}`" if like else f"{needs} {error.hint}"
            )
            raise UsageError(f"{error.args[0]}, and `prompt` is missing", hint=hint) from None
        if not (served or on_store(name) or "/" in name or Path(name).is_dir()):
            place = (
                "With `prompt`, a model is OWNER/NAME on the Hub, a folder, an s3:// or gs:// URL, or any name of a "
                "running server (`server_url`)."
            )
            raise UsageError(error.args[0], hint=f"{place} {error.hint}") from None
    return generic(name, parser=parser or "plain"), {"generic": True}


def _read(path: str) -> Mapping[str, Any]:
    """Read the values of a profile file. Raises `UsageError`."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"`model={path}`: {why or error}", hint="A profile is a TOML or YAML file.") from error
    try:
        values = tomllib.loads(text) if path.endswith(".toml") else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"`model={path}`: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise UsageError(f"`model={path}`: the file contains no keys")
    return values


def _with_template(asked: Model, path: str | None) -> Model:
    """Add the user's chat template for a server that we start."""
    if path is None:
        return asked
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"`chat_template={path}`: {error.strerror or error}") from error
    place = str(Path(path).absolute())
    profile = replace(asked.profile, server_args=(*asked.profile.server_args, "--chat-template", place))
    chosen = {**asked.chosen, "chat_template": hashlib.sha256(content).hexdigest()[:12]}
    return replace(asked, profile=profile, chosen=chosen)


def page_profile(settings: WhichModel, engines: Engines) -> Profile | None:
    """Return the profile of the model that reads pages; None with the embedded engine. Raises `UsageError`."""
    if not engines.uses_models:
        return None
    return model_choice(settings).profile


async def page_model(settings: ServingCommand, engines: Engines, workspace: Workspace | None) -> Model:
    """Return the model that reads pages, at the commit that the workspace was begun with."""
    asked = model_choice(settings)
    standing = await asyncio.to_thread(known_revision, workspace, EXTRACT, asked.name) if workspace else None
    return await pinned(settings, engines, asked, settings.revision or standing)


def known_revision(workspace: Workspace, stage: str, model: str) -> str | None:
    """Return the commit in the stage's newest settings of this model."""
    for settings in used_settings(workspace, stage):
        reader: Mapping[str, Any] = settings.get("reader", {})
        if reader.get("model") == model and reader.get("revision"):
            return str(reader["revision"])
    return None
