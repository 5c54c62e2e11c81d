"""Resolve a dataset to its commit and data files, and list its rows as documents."""

import glob
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from llm_ocr.documents.files import IMAGE
from llm_ocr.documents.manifests import SourceDocument, is_file, is_folder, local_path
from llm_ocr.documents.rows import PARQUET, DataFile, DatasetOptions, RowAddress, local_version
from llm_ocr.documents.rows.files import HubFiles, RowGroup, image_column, opened_for_planning, row_groups
from llm_ocr.errors import MissingExtra, StorageError, UsageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.hf import parse
from llm_ocr.storage.hf.client import HubClient, RetryPolicy
from llm_ocr.types import Reason

# Commit and data files of a dataset, found in the same way as in `datasets`.


#: Branch of the Hub with the Parquet conversion of datasets in other formats.
CONVERTED = "refs/convert/parquet"
#: Retries during an interactive command.
RETRIES = RetryPolicy(tries=4, longest=10.0)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Data files of a split, in the order of its rows; `features` if the dataset's card declares them."""

    files: tuple[DataFile, ...]
    features: Mapping[str, Any] | None
    where: str  # for messages


def resolve(options: DatasetOptions) -> Dataset:
    """Return the data files at the current commit, or on this machine. Blocking.

    Raises:
        UsageError: The revision, configuration, or split does not exist, or the files are not Parquet.
        StorageError: The dataset is missing or inaccessible, or the Hub does not answer.
        MissingExtra: The package `datasets` is not installed.
    """
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        what = f"`dataset={options.name}` needs datasets, which is not installed"
        raise MissingExtra(what, install="datasets") from error
    if options.is_local:
        return _local(options)
    no_folder = f"{Path(options.name).absolute()} does not exist."
    try:
        place = parse(f"hf://datasets/{options.name.removeprefix('hf://datasets/')}")
    except UsageError as error:
        what = f"`dataset={options.name}` is not the name of a dataset"
        raise UsageError(what, hint=f"Give NAMESPACE/NAME, or a folder or Parquet files. {no_folder}") from error
    if place.prefix or place.revision:
        raise UsageError(
            f"`dataset={options.name}` is more than a name",
            hint=f"Give {place.id}, and `dataset_config`, `dataset_split`, or `dataset_revision`.",
        )
    client = HubClient(place, StoreOptions())
    try:
        commit = RETRIES.keep_trying(lambda: _commit(client, options.revision))
    except StorageError as error:
        error.hint = f"{error.hint} If it is a folder: {no_folder}".lstrip()
        raise
    files, features = RETRIES.keep_trying(lambda: _data_files(client, commit, options))
    base = f"hf://datasets/{place.id}@{commit}/"
    elsewhere = next((url for url in files if not url.startswith(base)), None)
    if elsewhere is not None:
        raise UsageError(
            f"the dataset {place.id} has its data in another place: {elsewhere}",
            hint="Name the dataset with the files.",
        )
    paths = [url.removeprefix(base) for url in files]
    other = next((path for path in paths if not path.lower().endswith(PARQUET)), None)
    if other is not None:
        raise UsageError(
            f"the dataset {place.id} is not in Parquet: {other}",
            hint=f"Read the conversion of the Hub to Parquet (`dataset_revision={CONVERTED}`), or give its images and "
            f"PDFs as a source: hf://datasets/{place.id}/…",
        )
    where = f"the dataset {place.id}, split {options.split}"
    return Dataset(tuple(DataFile(place.id, commit, path) for path in paths), features, where)


def _local(options: DatasetOptions) -> Dataset:
    """Return the Parquet files of a folder with their split as `datasets` finds them, or the files of a pattern."""
    if options.revision:
        raise UsageError("`dataset_revision` is for datasets of the Hub, and the dataset is on this machine")
    path = local_path(options.name)
    features = None
    if is_folder(path):
        root, builder = path, _builder(str(path), None, {"name": options.config})
        splits = builder.config.data_files or {}
        if options.split not in splits:
            raise UsageError(
                f"`dataset_split={options.split}`: {path} has no such split", hint=f"Splits: {', '.join(splits)}."
            )
        files, features = [Path(name) for name in splits[options.split]], builder.info.features
    else:
        root = path.parent
        found = [str(path)] if is_file(path) else sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - skips hidden files
        files = [Path(name) for name in found]
        while not is_folder(root):  # a pattern
            root = root.parent
    if not files:
        raise UsageError(f"`dataset={options.name}`: no such file", hint="Name a folder or Parquet files.")
    if other := next((file for file in files if file.suffix.lower() not in PARQUET), None):
        hint = "Name images and PDFs as a source: llm-ocr run FOLDER"
        if other.suffix.lower() == ".arrow":
            saved = (other.parent / "state.json").is_file()  # by `save_to_disk`, perhaps in several files
            made = f"load_from_disk({str(other.parent)!r})" if saved else f"Dataset.from_file({str(other)!r})"
            hint = f"Convert it in Python: datasets.{made}.to_parquet('data.parquet')"
        raise UsageError(f"`dataset={options.name}`: {other} is not in Parquet", hint=hint)
    try:
        data = [DataFile("", local_version(file), str(file), file.relative_to(root).as_posix()) for file in files]
    except OSError as error:
        raise StorageError(f"cannot read the dataset {path}: {error.strerror or error}") from error
    return Dataset(tuple(data), features, f"the dataset {path}")


def _commit(client: HubClient, revision: str | None) -> str:
    from huggingface_hub.errors import OfflineModeIsEnabled, RevisionNotFoundError

    name = client.place.id
    with client.doing("read"):
        try:
            found = client.api.dataset_info(name, revision=revision)
        except OfflineModeIsEnabled as error:
            raise StorageError(f"cannot read the dataset {name}: HF_HUB_OFFLINE is set", hint="Unset it.") from error
        except RevisionNotFoundError as error:
            refs = client.api.list_repo_refs(name, repo_type="dataset")
            names = ", ".join(ref.name for ref in (*refs.branches, *refs.tags))
            raise UsageError(
                f"`dataset_revision={revision}`: the dataset {name} has no such branch, tag, or commit",
                hint=f"Branches and tags: {names}.",
            ) from error
        if found.gated:  # gated: the dataset is visible, but not readable, without access
            client.api.auth_check(name, repo_type="dataset")
    return str(found.sha)


def _data_files(client: HubClient, commit: str, options: DatasetOptions) -> tuple[list[str], Mapping[str, Any] | None]:
    """Return the URLs of the split's files, and the features from the card."""
    given: dict[str, Any] = {"name": options.config}
    if options.revision == CONVERTED:
        config, names = options.config, _folders(client, commit, "")
        if config is None and (len(names) == 1 or "default" in names):
            config = names[0] if len(names) == 1 else "default"
        if config is None or config not in names:
            raise _no_configuration(client.place.id, config, names)
        # On this branch, folders and not a card name configurations and splits.
        given = {"data_files": {split: f"{config}/{split}/*.parquet" for split in _folders(client, commit, config)}}
    with client.doing("read"):
        builder = _builder(f"{_HUB}{client.place.id}", commit, given)
    splits = builder.config.data_files or {}
    if options.split not in splits:
        config_text = f", configuration {options.config}," if options.config else ""
        raise UsageError(
            f"`dataset_split={options.split}`: the dataset {client.place.id}{config_text} has no such split",
            hint=f"Splits: {', '.join(map(str, splits))}.",
        )
    return [str(url) for url in splits[options.split]], builder.info.features


_HUB = "hf://datasets/"  # with the scheme: not a local folder of this name


def _builder(location: str, commit: str | None, given: Mapping[str, Any]) -> Any:
    """Return the builder that `datasets` creates for a repository or folder; of the Hub, only cards stay on disk."""
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    name = location.removeprefix(_HUB)
    try:
        with tempfile.TemporaryDirectory(prefix="llm-ocr-dataset-") as folder:
            shown = not datasets.are_progress_bars_disabled()
            datasets.disable_progress_bars()
            try:
                return datasets.load_dataset_builder(location, revision=commit, cache_dir=folder, **given)
            finally:
                if shown:
                    datasets.enable_progress_bars()
    except DatasetNotFoundError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from error  # the Hub's error
        raise UsageError(f"`dataset={name}`: {error}") from error
    except FileNotFoundError as error:
        raise UsageError(f"the dataset {name} has no data files: {error}") from error
    except RuntimeError as error:  # a script, which `datasets` no longer runs
        hint = f"Read the conversion of the Hub to Parquet: `dataset_revision={CONVERTED}`."
        raise UsageError(f"the dataset {name} cannot be read: {error}", hint=hint) from error
    except ValueError as error:
        names, wanted = datasets.get_dataset_config_names(location, revision=commit), given.get("name")
        if wanted in names or (wanted is None and len(names) <= 1):
            raise UsageError(f"the dataset {name} cannot be read: {error}") from error
        raise _no_configuration(name, wanted, names) from error


def _no_configuration(name: str, wanted: str | None, names: Sequence[str]) -> UsageError:
    listed = ", ".join(names)
    if wanted is None:
        return UsageError(f"the dataset {name} has several configurations: {listed}", hint="Set `dataset_config`.")
    return UsageError(
        f"`dataset_config={wanted}`: the dataset {name} has no such configuration", hint=f"Configurations: {listed}."
    )


def _folders(client: HubClient, commit: str, below: str) -> list[str]:
    from huggingface_hub.hf_api import RepoFolder

    with client.doing("read", below or "."):
        entries = client.api.list_repo_tree(
            client.place.id, below or None, repo_type="dataset", revision=commit, recursive=False
        )
        return [entry.path.rpartition("/")[2] for entry in entries if isinstance(entry, RepoFolder)]


#: Number of files whose footers are read ahead.
_AHEAD = 8


def dataset_rows(options: DatasetOptions, *, only_first: bool = False) -> Iterator[SourceDocument]:
    """Yield the rows of a split in file order, lazily. Blocking.

    Args:
        options: Selection of rows.
        only_first: Whether the caller needs only the first rows, so that files are not read ahead.

    Raises:
        UsageError: As in `resolve`, and for missing columns and ids.
        StorageError: As in `resolve`.
    """
    dataset = resolve(options)
    if not dataset.files:
        return
    files = HubFiles()
    # The image column is that of the first file; `row_groups` reports other files that differ.
    with opened_for_planning(files, dataset.files[0]) as parquet:
        column = image_column(parquet.schema_arrow, dataset.features, options.image_column, dataset.where)

    read = partial(row_groups, files, column=column, id_column=options.id_column)
    read_files: Iterator[tuple[DataFile, Iterable[RowGroup]]] = (
        ((file, read(file)) for file in dataset.files)
        if only_first
        else _ahead(dataset.files, lambda file: list(read(file)))
    )
    for file, groups in read_files:
        for group in groups:
            images = group.images if group.images is not None else repeat(1, group.count)
            ids = group.ids if group.ids is not None else repeat(None, group.count)
            for row, (count, document_id) in enumerate(zip(images, ids, strict=True), start=group.first):
                address = RowAddress(file, row, column.name)
                yield SourceDocument(
                    address.url,
                    address.relative if document_id is None else document_id,
                    IMAGE,
                    address.version,
                    document_id,
                    reason=None if count else Reason.NOT_FOUND,
                    detail="" if count else no_image(row),
                    page_total=count,
                    at_least=group.images is None and not group.one_page,
                )


def _ahead(
    files: Sequence[DataFile], read: Callable[[DataFile], list[RowGroup]]
) -> Iterator[tuple[DataFile, list[RowGroup]]]:
    """Yield each file with its result of `read`; several files are read in parallel."""
    waiting: deque[tuple[DataFile, Future[list[RowGroup]]]] = deque()
    threads = ThreadPoolExecutor(_AHEAD, thread_name_prefix="llm-ocr-footers")
    try:
        for file in files:
            waiting.append((file, threads.submit(read, file)))
            if len(waiting) > _AHEAD:
                first, groups = waiting.popleft()
                yield first, groups.result()
        for file, groups in waiting:
            yield file, groups.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def no_image(row: int) -> str:
    """Return the message for a row without an image."""
    return f"no image in row {row}"
