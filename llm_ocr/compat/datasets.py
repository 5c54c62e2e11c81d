"""Datasets that the predecessor wrote: location, files, and rows.

`save_to_disk` writes a folder with `state.json` (for several splits: `dataset_dict.json` and a folder for each) and
Arrow files. On the Hub, and in copies from there, the files are Parquet. Opening a dataset reads names and notes only.
"""

import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from llm_ocr.config.groups import Group
from llm_ocr.config.models import InputCommand
from llm_ocr.errors import LlmOcrError, ObjectNotFound, StorageError, UsageError, WorkspaceMismatch
from llm_ocr.results.schema import RangeFile
from llm_ocr.storage import DEFAULT_OPTIONS, ObjectStore, StoreOptions, open_store
from llm_ocr.storage.hf import parse
from llm_ocr.storage.local import LocalStore
from llm_ocr.storage.names import split_scheme
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.keys import EXTRACT, stage_keys
from llm_ocr.workspace.stored import workspace_options

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w(?:@.+)?")
#: Slashes at the end of a URL, unless nothing would remain.
_SLASHES = re.compile(r"(?<=[^/:])/+$")
#: Parquet files of `push_to_hub`: `train-00000-of-00002.parquet`, in older versions with a hash at the end.
_SPLIT = re.compile(r"(?P<split>\w[\w.-]*?)-\d{5}-of-\d{5}")
_STATE, _SPLITS, _RUN = "state.json", "dataset_dict.json", "run.json"
#: Folders of the predecessor's files, and of `push_to_hub`, below the location that users name.
_FOLDERS = ("", "dataset/", "data/")


@dataclass(frozen=True, slots=True)
class InputFile:
    """File of rows: `key` in the dataset's store; `split` is empty if there is a single split."""

    key: str
    size: int
    version: str
    split: str = ""


@dataclass(frozen=True, slots=True)
class InputDataset:
    """Input dataset. `url` is the same in all its versions; `version` is a commit, or a hash of its files."""

    store: ObjectStore
    url: str
    version: str
    files: tuple[InputFile, ...]

    def name(self, file: InputFile) -> str:
        """Return a file's name in the plan and in messages."""
        return f"{self.store.url}/{file.key}"


def store_url(given: str) -> str:
    """Return the user's input as a store's URL: `NS/NAME` is a dataset of the Hub, unless there is such a folder."""
    named = _SLASHES.sub("", given)
    if split_scheme(named)[0] or Path(named).expanduser().is_dir() or not _HUB_NAME.fullmatch(named):
        return named
    return f"hf://datasets/{named}"


def open_input(given: str, options: StoreOptions) -> InputDataset:
    """Return the dataset at a folder, s3://, gs://, hf:// URL or NS/NAME, with or without `/dataset` or a final `/`.

    Raises:
        UsageError: the files are not a dataset of the predecessor.
        ObjectNotFound: there is nothing at this location.
        StorageError: the location cannot be read.
    """
    store = open_store(store_url(given), options)
    if isinstance(store, LocalStore) and not store.root.is_dir():
        raise ObjectNotFound(f"`input={given}`: the folder does not exist", hint=_FORMS)
    url, commit = store.url, ""
    if store.url.startswith("hf://datasets/"):
        try:
            url, store, commit = _at_commit(store.url, options)
        except StorageError as error:
            if not split_scheme(given)[0]:
                error.hint = f"{error.hint}\nA local folder {given} does not exist either.".strip()
            raise
    folder, files = _arrow_files(store) or _parquet_files(store, given)
    # As an input, the documents of a workspace of llm-ocr would be split into pages.
    above, _, name = store.url.rpartition("/")
    for around in [store] if folder or name != "dataset" else [store, open_store(above, options)]:
        if _is_workspace(around):
            raise _own(f"{store.url}/{folder}".rstrip("/"), around.url)
    if not commit:
        versions = [[file.key.removeprefix(folder), file.size, file.version] for file in files]
        commit = hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:16]
    if len({file.split for file in files}) == 1:
        files = [replace(file, split="") for file in files]
    return InputDataset(store, f"{url}/{folder}".rstrip("/"), commit, tuple(files))


_FORMS = "Give s3://BUCKET/PREFIX/dataset, gs://BUCKET/PREFIX/dataset, a folder, or NAMESPACE/NAME on the Hub."


def _at_commit(url: str, options: StoreOptions) -> tuple[str, ObjectStore, str]:
    """Return the URL without its revision, the store at the revision's current commit, and the commit."""
    from llm_ocr.storage.hf.client import RETRIES, HubClient

    place = parse(url)
    client = HubClient(place, options)

    def look() -> str:
        with client.doing("read"):
            info = client.api.repo_info(place.id, repo_type="dataset", revision=place.revision or None)
            return str(info.sha)

    commit = RETRIES.keep_trying(look)
    return replace(place, revision="").url, open_store(replace(place, revision=commit).url, options), commit


def _arrow_files(store: ObjectStore) -> tuple[str, list[InputFile]] | None:
    """Return the folder of a dataset that `save_to_disk` wrote, and its files in order; None if there is none."""
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
            f"{store.url}/{folder}: the rows have an indices mapping (saved by an old version of datasets)",
            hint="Load the dataset and save it again: load_from_disk(...).flatten_indices().save_to_disk(...).",
        )
    try:
        names = [str(file["filename"]) for file in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise codec.damaged(f"{store.url}/{folder}{_STATE}", f"not a list of data files ({error})") from error
    found = {info.key: info for info in store.list(folder)}
    missing = [name for name in names if folder + name not in found]
    if missing:
        raise StorageError(
            f"{store.url}/{folder}{missing[0]} is missing ({len(missing)} of {len(names)} data files)",
            hint="The upload is not complete. Run the stage of the predecessor again, or upload the missing files.",
        )
    infos = [found[folder + name] for name in names]
    return [InputFile(info.key, info.size, info.version, split) for info in infos]


def _note(store: ObjectStore, key: str) -> dict[str, Any]:
    return codec.load(store.get(key), f"{store.url}/{key}")


def _parquet_files(store: ObjectStore, given: str) -> tuple[str, list[InputFile]]:
    """Return the folder of Parquet files, and these in key order; the usual folder if there are several."""
    by_folder: dict[str, list[InputFile]] = {}
    for info in store.list():
        folder, _, name = info.key.rpartition("/")
        hidden = any(part.startswith((".", "_")) for part in info.key.split("/"))
        if name.endswith(".parquet") and not hidden:
            split = _SPLIT.match(name)
            by_folder.setdefault(f"{folder}/" if folder else "", []).append(
                InputFile(info.key, info.size, info.version, split["split"] if split else "")
            )
    if not by_folder:
        if _is_workspace(store):
            raise _own(store.url, store.url)
        raise ObjectNotFound(
            f"`input={given}` has no dataset, neither {_STATE} (save_to_disk) nor Parquet files", hint=_FORMS
        )
    usual = next((folder for folder in _FOLDERS if folder in by_folder), None)
    if usual is None and len(by_folder) > 1:
        names = ", ".join(sorted(by_folder)[:5])
        raise UsageError(f"`input={given}` contains several datasets: {names}", hint=f"Name one: {given.rstrip('/')}/…")
    folder = usual if usual is not None else next(iter(by_folder))
    return folder, by_folder[folder]


def _is_workspace(store: ObjectStore) -> bool:
    return store.stat(_RUN) is not None and "format" in _note(store, _RUN)


def _own(url: str, workspace: str) -> UsageError:
    return UsageError(
        f"`input={url}` is part of the workspace {workspace} of llm-ocr",
        hint=f"Set `workspace={workspace}`, and leave out `input`.",
    )


# Rows of an input's files: Arrow files mapped from the local disk, Parquet files from there or by ranges. Of a dataset
# on a store, at most one file at a time is on the local disk. Memory holds the requested rows.


#: Columns of the predecessor's datasets that are imported.
ID, IMAGE, MARKDOWN = "sample_id", "source_image", "document_markdown"
FIGURES, METADATA = "extracted_figures", "extracted_figures_metadata"
_COLUMNS = (ID, IMAGE, MARKDOWN, FIGURES, METADATA)
#: Required columns.
_NEEDED = (IMAGE, MARKDOWN)

#: Rows decoded at a time, with and without images.
_HEAVY, _LIGHT = 8, 512
#: Bytes to read ahead of decoding.
_AHEAD = 1 << 20

Row = Mapping[str, Any]


class InputRows:
    """Reads an input's files. Not thread-safe; `close` removes the local copy of a remote file."""

    def __init__(self, dataset: InputDataset, folder: Path) -> None:
        """Prepare to read; `folder` is for the local copy."""
        self._dataset = dataset
        self._copy = folder / "input-file"
        self._copied = ""

    def texts(self, file: InputFile) -> Iterator[list[dict[str, Any]]]:
        """Yield ids and figure metadata of all rows, up to 512 at a time, without reading images.

        Raises:
            UsageError: the file lacks columns of the predecessor.
            StorageError: the file is damaged.
        """
        with self._opened(file, whole=False) as opened:
            yield from opened.read((ID, METADATA), 0, sys.maxsize, _LIGHT)

    def rows(self, file: InputFile, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """Yield rows with all imported columns; errors as in `texts`."""
        with self._opened(file, whole=True) as opened:
            for batch in opened.read(_COLUMNS, start, stop, _HEAVY):
                yield from batch

    def close(self) -> None:
        """Remove the local copy."""
        self._copy.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _opened(self, file: InputFile, *, whole: bool) -> Iterator["_Arrow | _Parquet"]:
        """Open the file, and translate Arrow's errors on a damaged one; fetch it first unless ranges suffice."""
        import pyarrow as pa

        parquet, store = file.key.endswith(".parquet"), self._dataset.store
        try:
            rows: _Arrow | _Parquet
            if parquet and not whole and not isinstance(store, LocalStore):
                rows = _Parquet(RangeFile(partial(store.read_range, file.key), file.size))
            else:
                path = store.root / file.key if isinstance(store, LocalStore) else self._fetched(file)
                rows = _Parquet(path) if parquet else _Arrow(path)
            with contextlib.closing(rows):
                missing = [column for column in _NEEDED if column not in rows.names]
                if missing:
                    raise UsageError(
                        f"{self._dataset.name(file)} is not from Extract of the predecessor: it lacks the column "
                        f"{missing[0]} (it has {', '.join(rows.names) or 'none'})",
                        hint="Read a dataset of page images with `dataset=NS/NAME`.",
                    )
                yield rows
        except LlmOcrError:
            raise
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise StorageError(
                f"{self._dataset.name(file)} cannot be read: {error}",
                hint="The upload may be incomplete: upload the file again, or run the stage of the predecessor again.",
            ) from error

    def _fetched(self, file: InputFile) -> Path:
        """Return the local copy of a remote file."""
        if self._copied != file.key:
            self._copied = ""
            self._dataset.store.download(file.key, self._copy)
            info = self._dataset.store.stat(file.key)
            if info is None or info.version != file.version:
                raise StorageError(
                    f"{self._dataset.name(file)} changed during the read",
                    hint="Wait until no process writes to the dataset, then run the same command again.",
                )
            self._copied = file.key
        return self._copy


class _Arrow:
    """Stream of Arrow batches, memory-mapped: a row needs memory only when it is read."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._map = pa.memory_map(str(path))
        with pa.ipc.open_stream(self._map) as stream:
            self._table = stream.read_all()
        self.names: list[str] = self._table.schema.names

    def read(self, columns: Sequence[str], start: int, stop: int, most: int) -> Iterator[list[dict[str, Any]]]:
        """Yield rows from `start` to before `stop`, at most `most` at a time."""
        table = self._table.select([name for name in columns if name in self.names])[:stop]
        for begin in range(start, table.num_rows, most):
            yield table.slice(begin, most).to_pylist()

    def close(self) -> None:
        del self._table
        self._map.close()


class _Parquet:
    """Parquet file, read by row groups."""

    def __init__(self, source: "Path | RangeFile") -> None:
        import pyarrow.parquet as pq

        mapped = isinstance(source, Path)
        where = str(source) if mapped else source
        self._file = pq.ParquetFile(where, memory_map=mapped, buffer_size=_AHEAD, pre_buffer=False)
        self.names: list[str] = self._file.schema_arrow.names

    def read(self, columns: Sequence[str], start: int, stop: int, most: int) -> Iterator[list[dict[str, Any]]]:
        """Yield rows from `start` to before `stop`, at most `most` at a time."""
        known = [name for name in columns if name in self.names]
        position = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if position + rows <= start or position >= stop:
                position += rows
                continue
            for batch in self._file.iter_batches(most, row_groups=[group], columns=known):
                wanted = batch.slice(max(0, start - position))[: max(0, stop - max(start, position))]
                position += batch.num_rows
                if wanted.num_rows:
                    yield wanted.to_pylist()
                if position >= stop:
                    return

    def close(self) -> None:
        self._file.close(force=True)


_ANOTHER = "Set another `workspace` for it."


def input_of(settings: Group) -> InputDataset | None:
    """Return the input dataset of a command; None without one, or if the input is the workspace itself.

    The predecessor's pipelines name the output of the preceding stage, in the same location, which is the workspace
    here. Nothing is written.

    Raises:
        UsageError: the input lies in the workspace, which is not a workspace of llm-ocr.
        StorageError: the dataset cannot be read.
    """
    if not isinstance(settings, InputCommand) or settings.input is None:
        return None
    given, workspace = settings.input, settings.workspace
    own = workspace_options(settings)
    # The workspace's credentials are for the input, too, if it is on the same kind of store.
    options = own if split_scheme(store_url(given))[0] == split_scheme(workspace)[0] else DEFAULT_OPTIONS
    inner, outer = _place(store_url(given), options), _place(workspace, options)
    if inner != outer and not inner.startswith(f"{outer}/"):
        return open_input(given, options)
    if missing := Workspace.missing(workspace, own):
        raise UsageError(
            f"`input={given}` is inside {workspace}, which is not a workspace of llm-ocr",
            hint="Set `workspace=URL` (or S3_OUTPUT_URI, GCS_OUTPUT_URI, HF_REPO_ID) to a new workspace. It receives "
            "the pages of the input.",
        ) from missing
    return None


def into(workspace: Workspace, dataset: InputDataset) -> Mapping[str, Any] | None:
    """Return the import's entry in the workspace's key; None if the workspace has no plan yet.

    Raises:
        WorkspaceMismatch: the workspace has other content.
    """
    keys, planned = stage_keys(workspace, EXTRACT), bool(generations(workspace))
    if not keys and not planned:
        return None
    imported: Mapping[str, Any] = keys[-1].settings.get("imported", {}) if keys else {}
    if not imported:
        raise WorkspaceMismatch(
            f"{workspace.url} already has documents, so an import of the pages of {dataset.url} is not possible",
            hint=f"{_ANOTHER} Without `input`, the command works on the existing documents.",
        )
    if imported["from"] != dataset.url:
        raise WorkspaceMismatch(
            f"{workspace.url} contains the pages of another input: {imported['from']}, not {dataset.url}", hint=_ANOTHER
        )
    if imported["version"] != dataset.version:
        older = ""
        if dataset.url.startswith("hf://datasets/"):
            older = f" (or with `input={replace(parse(dataset.url), revision=imported['version']).url}`)"
        raise WorkspaceMismatch(
            f"{dataset.url} has changed since the import into {workspace.url}: "
            f"version {imported['version']} -> {dataset.version}",
            hint="Set another `workspace` for the new version. Without `input`, the command works on the imported "
            f"version{older}.",
        )
    return imported if planned else None


def _place(url: str, options: StoreOptions) -> str:
    """Return the canonical URL for comparisons. A branch of a repository is the repository, a commit is not."""
    store = open_store(url, options)
    if isinstance(store, LocalStore):
        return str(store.root.resolve())
    if not store.url.startswith("hf://"):
        return store.url
    place = parse(store.url)
    return store.url if place.is_commit else replace(place, revision="").url
