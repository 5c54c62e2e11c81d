"""Where a dataset of the predecessor stands, and of which files it is made. Nothing is read but names and notes.

`save_to_disk` leaves a folder with `state.json` (one of several splits: `dataset_dict.json` and a folder for each) and
Arrow files; on the Hub, and where somebody copied it from there, it is Parquet files.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError, UsageError
from llm_ocr.storage import ObjectInfo, ObjectStore, StoreOptions, open_store
from llm_ocr.storage.local import LocalStore
from llm_ocr.storage.names import split_scheme
from llm_ocr.work import codec

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w(?:@.+)?")
#: At the end of a URL, unless nothing would be left of it.
_SLASHES = re.compile(r"(?<=[^/:])/+$")
#: Parquet files of `push_to_hub`: `train-00000-of-00002.parquet`, in older versions with a hash behind.
_SPLIT = re.compile(r"(?P<split>\w[\w.-]*?)-\d{5}-of-\d{5}")
_STATE, _SPLITS, _RUN = "state.json", "dataset_dict.json", "run.json"
#: Where the predecessor, and `push_to_hub`, put the files below what users name.
_FOLDERS = ("", "dataset/", "data/")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of rows: `key` in the dataset's store; `split` is empty where there is only one."""

    key: str
    size: int
    version: str
    split: str = ""


@dataclass(frozen=True, slots=True)
class InputDataset:
    """A dataset to begin with. `url` is the same in all its versions; `version` is a commit, or a hash of its files."""

    store: ObjectStore
    url: str
    version: str
    files: tuple[InputFile, ...]

    def name(self, file: InputFile) -> str:
        """A file as the plan and messages name it."""
        return f"{self.store.url}/{file.key}"


def store_url(given: str) -> str:
    """What the user named, as a store's URL: `NS/NAME` is a dataset of the Hub, unless a folder is there."""
    named = _SLASHES.sub("", given)
    if split_scheme(named)[0] or Path(named).expanduser().is_dir() or not _HUB_NAME.fullmatch(named):
        return named
    return f"hf://datasets/{named}"


def open_input(given: str, options: StoreOptions) -> InputDataset:
    """The dataset at a folder, s3://, gs://, hf:// URL or NS/NAME; `/dataset` may be left out, or a `/` follow.

    Raises `UsageError` for what is no dataset of the predecessor, `ObjectNotFound` for nothing there, `StorageError`.
    """
    store = open_store(store_url(given), options)
    if isinstance(store, LocalStore) and not store.root.is_dir():
        raise ObjectNotFound(f"--input {given}: there is no such folder", hint=_FORMS)
    url, commit = store.url, ""
    if store.url.startswith("hf://datasets/"):
        try:
            url, store, commit = _at_commit(store.url, options)
        except StorageError as error:
            if not split_scheme(given)[0]:
                error.hint = f"{error.hint}\nNor is there a folder {given} here.".strip()
            raise
    folder, files = _arrow_files(store) or _parquet_files(store, given)
    _refuse_own(store, folder, options)
    version = commit or _digest(folder, files)
    return InputDataset(store, f"{url}/{folder}".rstrip("/"), version, _named_splits(files))


_FORMS = "Give s3://BUCKET/PREFIX/dataset, gs://BUCKET/PREFIX/dataset, a folder, or NAMESPACE/NAME on the Hub."


def _at_commit(url: str, options: StoreOptions) -> tuple[str, ObjectStore, str]:
    """The URL without its revision, the store at the commit that the revision is now, and the commit."""
    from llm_ocr.storage.hub_address import parse
    from llm_ocr.storage.hub_client import PATIENCE, HubClient

    place = parse(url)
    client = HubClient(place, options)

    def look() -> str:
        with client.doing("read"):
            info = client.api.repo_info(place.id, repo_type="dataset", revision=place.revision or None)
            return str(info.sha)

    commit = PATIENCE.keep_trying(look)
    return replace(place, revision="").url, open_store(replace(place, revision=commit).url, options), commit


def _arrow_files(store: ObjectStore) -> tuple[str, list[InputFile]] | None:
    """The folder of a dataset that `save_to_disk` wrote, and its files in order; None when there is none."""
    for folder in _FOLDERS:
        if store.stat(folder + _STATE) is not None:
            return folder, _of_state(store, folder, "")
        if store.stat(folder + _SPLITS) is not None:
            splits = [str(split) for split in _note(store, folder + _SPLITS).get("splits", ())]
            return folder, [file for split in splits for file in _of_state(store, f"{folder}{split}/", split)]
    return None


def _of_state(store: ObjectStore, folder: str, split: str) -> list[InputFile]:
    state = _note(store, folder + _STATE)
    if state.get("_indices_data_files"):
        raise UsageError(
            f"{store.url}/{folder}: rows in an order of their own (saved by an old version of datasets)",
            hint="Load it with datasets and save it again: load_from_disk(...).flatten_indices().save_to_disk(...).",
        )
    try:
        names = [str(file["filename"]) for file in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise codec.damaged(f"{store.url}/{folder}{_STATE}", f"no list of data files ({error})") from error
    found = {info.key: info for info in store.list(folder)}
    missing = [name for name in names if folder + name not in found]
    if missing:
        raise StorageError(
            f"{store.url}/{folder}{missing[0]} is missing ({len(missing)} of {len(names)} data files)",
            hint="The dataset was not uploaded whole: run the predecessor's stage again, or upload the rest.",
        )
    return [_file(found[folder + name], split) for name in names]


def _note(store: ObjectStore, key: str) -> dict[str, Any]:
    return codec.load(store.get(key), f"{store.url}/{key}")


def _parquet_files(store: ObjectStore, given: str) -> tuple[str, list[InputFile]]:
    """The folder that holds Parquet files, and these in key order; the one that users mean where there are several."""
    by_folder: dict[str, list[InputFile]] = {}
    for info in store.list():
        folder, _, name = info.key.rpartition("/")
        hidden = any(part.startswith((".", "_")) for part in info.key.split("/"))
        if name.endswith(".parquet") and not hidden:
            split = _SPLIT.match(name)
            by_folder.setdefault(f"{folder}/" if folder else "", []).append(
                _file(info, split["split"] if split else "")
            )
    if not by_folder:
        raise _nothing(store, given)
    usual = next((folder for folder in _FOLDERS if folder in by_folder), None)
    if usual is None and len(by_folder) > 1:
        names = ", ".join(sorted(by_folder)[:5])
        raise UsageError(f"--input {given} holds several datasets: {names}", hint=f"Name one: {given.rstrip('/')}/…")
    folder = usual if usual is not None else next(iter(by_folder))
    return folder, by_folder[folder]


def _nothing(store: ObjectStore, given: str) -> LlmOcrError:
    if _is_workspace(store):
        return _own(store.url, store.url)
    return ObjectNotFound(
        f"--input {given}: no dataset there, neither {_STATE} (save_to_disk) nor Parquet files", hint=_FORMS
    )


def _refuse_own(store: ObjectStore, folder: str, options: StoreOptions) -> None:
    """What a workspace of ours holds is read there, whole; as an input its documents would be torn into pages."""
    above, _, name = store.url.rpartition("/")
    stores = [store] if folder or name != "dataset" else [store, open_store(above, options)]
    for one in stores:
        if _is_workspace(one):
            raise _own(f"{store.url}/{folder}".rstrip("/"), one.url)


def _is_workspace(store: ObjectStore) -> bool:
    return store.stat(_RUN) is not None and "format" in _note(store, _RUN)


def _own(url: str, workspace: str) -> UsageError:
    return UsageError(
        f"--input {url}: this is of llm-ocr's own workspace {workspace}",
        hint=f"Work on it where it is: -w {workspace}, without --input.",
    )


def _file(info: ObjectInfo, split: str) -> InputFile:
    return InputFile(info.key, info.size, info.version, split)


def _named_splits(files: list[InputFile]) -> tuple[InputFile, ...]:
    """Splits are named only where there are several: most datasets have one."""
    if len({file.split for file in files}) > 1:
        return tuple(files)
    return tuple(InputFile(file.key, file.size, file.version) for file in files)


def _digest(folder: str, files: Iterable[InputFile]) -> str:
    names = [[file.key.removeprefix(folder), file.size, file.version] for file in files]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
