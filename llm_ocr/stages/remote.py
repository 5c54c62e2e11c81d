"""Open source documents, wherever they are, as local files."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.config.groups import (
    DatasetSettings,
    Group,
    RemoteSettings,
)
from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.rows import DatasetOptions, row_address
from llm_ocr.storage import StoreOptions

if TYPE_CHECKING:
    from llm_ocr.documents.remote.cache import Fetched, LocalCopy
    from llm_ocr.documents.remote.listing import RemoteDocuments
    from llm_ocr.documents.rows.images import RowImages


def remote_options(settings: RemoteSettings) -> RemoteOptions:
    """Return the options for reading remote documents."""
    return RemoteOptions(
        store=StoreOptions(
            settings.source_profile, settings.source_endpoint, settings.source_region, any_key=True, role="source"
        ),
        cache_bytes=settings.source_cache << 20,
        allow_private_addresses=settings.allow_private_addresses,
    )


def dataset_options(settings: DatasetSettings) -> DatasetOptions | None:
    """Return the selected dataset rows; None without a dataset."""
    if settings.dataset is None:
        return None
    return DatasetOptions(
        name=settings.dataset,
        config=settings.dataset_config,
        split=settings.dataset_split,
        revision=settings.dataset_revision,
        image_column=settings.image_column,
        id_column=settings.id_column,
    )


class Remote:
    """Provides remote documents as local files. Needs `close`. Nothing is opened before the first document."""

    def __init__(self, settings: Group) -> None:
        # Commands without these settings open no remote documents.
        self._options = remote_options(settings) if isinstance(settings, RemoteSettings) else RemoteOptions()
        self._documents: RemoteDocuments | None = None
        self._rows: RowImages | None = None

    def open(self, source: str, version: str = "") -> "AbstractAsyncContextManager[LocalCopy]":
        """Open a document. See `RemoteDocuments.open`."""
        return self._opened().open(source, version)

    async def look(self, source: str) -> "Fetched":
        """Inspect a document. See `RemoteDocuments.look`."""
        return await self._opened().look(source)

    def _opened(self) -> "RemoteDocuments":
        if self._documents is None:
            from llm_ocr.documents.remote.listing import RemoteDocuments

            self._documents = RemoteDocuments(self._options)
        return self._documents

    @contextlib.asynccontextmanager
    async def page(self, source: str, version: str, number: int) -> AsyncIterator[tuple[Path, int | None]]:
        """Open page `number` of a document.

        Each image in a list of a dataset's row is a separate file.

        Yields:
            A local file that contains the page, and the number of the page in that file. None: the file is one page.

        Raises:
            StorageError: The dataset cannot be read. For other documents, see `open`.
        """
        address = row_address(source)
        if address is None:
            async with self.open(source, version) as copy:
                yield copy.path, number
            return
        if self._rows is None:
            from llm_ocr.documents.rows.images import RowImages

            self._rows = RowImages(self._options, self.open)
        async with self._rows.open(address, number) as row:
            yield row

    async def close(self) -> None:
        """Remove the local files."""
        if self._rows is not None:
            await self._rows.close()
        if self._documents is not None:
            await self._documents.close()
