"""Whether a command begins with a dataset of the predecessor, and whether a workspace can take it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llm_ocr.api.import_source import InputDataset, open_input, store_url
from llm_ocr.errors import UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.settings.groups import Group
from llm_ocr.settings.models import InputCommand
from llm_ocr.storage import DEFAULT_OPTIONS, StoreOptions, open_store
from llm_ocr.storage.hub_address import parse
from llm_ocr.storage.local import LocalStore
from llm_ocr.storage.names import split_scheme
from llm_ocr.work.generations import generations
from llm_ocr.work.keys import EXTRACT, stage_keys
from llm_ocr.work.stored import workspace_options
from llm_ocr.work.workspace import Workspace

_ANOTHER = "Give another workspace (-w) for it."


def input_of(settings: Group) -> InputDataset | None:
    """The dataset that the command is to begin with; None without one, and where the workspace itself is meant.

    The predecessor's pipelines name what the stage before wrote, in the same place: that is the workspace here.
    Raises `UsageError`, and `StorageError` when the dataset cannot be read. Nothing is written.
    """
    if not isinstance(settings, InputCommand) or settings.input is None:
        return None
    given, workspace = settings.input, settings.workspace
    options = _options(given, workspace, workspace_options(settings))
    if _lies_in(given, workspace, options):
        if _is_there(workspace, workspace_options(settings)):
            return None
        raise UsageError(
            f"--input {given} lies in the workspace {workspace}, and that is no workspace of llm-ocr",
            hint="Give a new workspace for the results: -w URL (or S3_OUTPUT_URI, GCS_OUTPUT_URI, HF_REPO_ID). "
            "The pages of the input are taken over into it.",
        )
    return open_input(given, options)


def into(workspace: Workspace, dataset: InputDataset) -> Mapping[str, Any] | None:
    """What the workspace's key says of this import, once it has a plan; None when it has none yet.

    Raises `WorkspaceMismatch` when it holds anything else.
    """
    keys, planned = stage_keys(workspace, EXTRACT), bool(generations(workspace))
    if not keys and not planned:
        return None
    imported: Mapping[str, Any] = keys[-1].settings.get("imported", {}) if keys else {}
    if not imported:
        raise WorkspaceMismatch(
            f"{workspace.url} has documents of its own: the pages of {dataset.url} cannot be added to them",
            hint=f"{_ANOTHER} Without --input the command works on what is in this one.",
        )
    if imported["from"] != dataset.url:
        raise WorkspaceMismatch(
            f"{workspace.url} holds the pages of another input: {imported['from']}, not {dataset.url}", hint=_ANOTHER
        )
    if imported["version"] != dataset.version:
        raise WorkspaceMismatch(
            f"{dataset.url} has changed since its pages were taken over into {workspace.url}: "
            f"version {imported['version']} -> {dataset.version}",
            hint=_changed(dataset, imported["version"]),
        )
    return imported if planned else None


def _changed(dataset: InputDataset, version: str) -> str:
    older = ""
    if dataset.url.startswith("hf://datasets/"):
        older = f" (or with --input {replace(parse(dataset.url), revision=version).url})"
    return (
        "Give another workspace (-w) for what it holds now. Without --input the command works on what was taken "
        f"over{older}."
    )


def _options(given: str, workspace: str, options: StoreOptions) -> StoreOptions:
    """The input is reached like the workspace where both are on the same kind of store; else by the environment."""
    same = split_scheme(store_url(given))[0] == split_scheme(workspace)[0]
    return options if same else DEFAULT_OPTIONS


def _lies_in(given: str, workspace: str, options: StoreOptions) -> bool:
    inner, outer = _place(store_url(given), options), _place(workspace, options)
    return inner == outer or inner.startswith(f"{outer}/")


def _place(url: str, options: StoreOptions) -> str:
    """The URL in the one form that can be compared; a branch of a repository is the repository, a commit is not."""
    store = open_store(url, options)
    if isinstance(store, LocalStore):
        return str(store.root.resolve())
    if not store.url.startswith("hf://"):
        return store.url
    place = parse(store.url)
    return store.url if place.is_commit else replace(place, revision="").url


def _is_there(workspace: str, options: StoreOptions) -> bool:
    try:
        Workspace.open(workspace, options=options)
    except WorkspaceMismatch:
        raise
    except WorkspaceError:
        return False
    return True
