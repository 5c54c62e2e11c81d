"""The rows that the user means, as documents."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat

from llm_ocr.documents.file_types import IMAGE
from llm_ocr.documents.rows.address import DataFile, RowAddress
from llm_ocr.documents.rows.columns import ImageColumn, image_column
from llm_ocr.documents.rows.files import HubFiles
from llm_ocr.documents.rows.footers import Footer, RowGroup
from llm_ocr.documents.rows.options import DatasetOptions
from llm_ocr.documents.rows.resolving import Dataset, resolve
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.types import Reason

#: Files whose footers are read ahead of the rows that are asked for.
_AHEAD = 8


def dataset_rows(options: DatasetOptions, *, only_first: bool = False) -> Iterator[SourceDocument]:
    """The rows of a split in file order, each found when it is asked for. Blocking.

    `only_first`: not all of them will be asked for, so that no file is looked at before its turn. Raises `UsageError`
    and `StorageError` as `resolve`, and for columns and ids that are not there.
    """
    dataset = resolve(options)
    if not dataset.files:
        return
    files = HubFiles()
    column = _column(files, dataset, options)
    if only_first:
        for file in dataset.files:
            for group in _groups(files, file, column, options.id_column):
                yield from _documents(file, group, column)
        return
    for file, groups in _ahead(dataset.files, lambda file: list(_groups(files, file, column, options.id_column))):
        for group in groups:
            yield from _documents(file, group, column)


def _column(files: HubFiles, dataset: Dataset, options: DatasetOptions) -> ImageColumn:
    """By the first file: `Footer.groups` says when another one differs."""
    footer = Footer(files, dataset.files[0])
    try:
        return image_column(footer.schema, dataset.features, options.image_column, dataset.where)
    finally:
        footer.close()


def _groups(files: HubFiles, file: DataFile, column: ImageColumn, id_column: str | None) -> Iterator[RowGroup]:
    footer = Footer(files, file)
    try:
        yield from footer.groups(column, id_column)
    finally:
        footer.close()


def _ahead(
    files: Sequence[DataFile], read: Callable[[DataFile], list[RowGroup]]
) -> Iterator[tuple[DataFile, list[RowGroup]]]:
    """Each file and what `read` gives of it, some of them read at the same time."""
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


def _documents(file: DataFile, group: RowGroup, column: ImageColumn) -> Iterator[SourceDocument]:
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
        )


def no_image(row: int) -> str:
    """What is said of a row that has none."""
    return f"no image in row {row}"
