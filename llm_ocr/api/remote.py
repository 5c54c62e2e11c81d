"""Documents on stores, on the web and in datasets, for the parts that open them; nothing is made before one is."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.documents.remote.options import RemoteOptions
from llm_ocr.documents.rows.address import row_address
from llm_ocr.documents.rows.options import DatasetOptions
from llm_ocr.settings.groups import DatasetSettings, Group, RemoteSettings
from llm_ocr.storage import StoreOptions

if TYPE_CHECKING:
    from llm_ocr.documents.remote.cache import LocalCopy
    from llm_ocr.documents.remote.documents import RemoteDocuments
    from llm_ocr.documents.remote.fetched import Fetched
    from llm_ocr.documents.rows.images import RowImages


def remote_options(settings: RemoteSettings) -> RemoteOptions:
    """How the settings say that remote documents are read."""
    return RemoteOptions(
        store=StoreOptions(settings.source_profile, settings.source_endpoint, settings.source_region, any_key=True),
        cache_bytes=settings.source_cache << 20,
        allow_private_addresses=settings.allow_private_addresses,
    )


def dataset_options(settings: DatasetSettings) -> DatasetOptions | None:
    """Which rows of a dataset the settings mean; None for none."""
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
    """Gives remote documents as local files, for as long as a block lasts; needs `close`."""

    def __init__(self, settings: Group) -> None:
        # Commands without these settings open no documents.
        self._options = remote_options(settings) if isinstance(settings, RemoteSettings) else RemoteOptions()
        self._documents: RemoteDocuments | None = None
        self._rows: RowImages | None = None

    def open(self, source: str, version: str = "") -> "AbstractAsyncContextManager[LocalCopy]":
        """As `RemoteDocuments.open`."""
        return self._opened().open(source, version)

    async def look(self, source: str) -> "Fetched":
        """As `RemoteDocuments.look`."""
        return await self._opened().look(source)

    def _opened(self) -> "RemoteDocuments":
        if self._documents is None:
            from llm_ocr.documents.remote.documents import RemoteDocuments

            self._documents = RemoteDocuments(self._options)
        return self._documents

    @contextlib.asynccontextmanager
    async def page(self, source: str, version: str, number: int) -> AsyncIterator[tuple[Path, int]]:
        """A local file that has page `number` of a document, and its number there; raises as `open`.

        Each image of a dataset's row is a file of its own; `StorageError` when the dataset cannot be read.
        """
        address = row_address(source)
        if address is None:
            async with self.open(source, version) as copy:
                yield copy.path, number
            return
        if self._rows is None:
            from llm_ocr.documents.rows.images import RowImages

            self._rows = RowImages(self._options, self.open)
        async with self._rows.open(address, number) as path:
            yield path, 1

    async def close(self) -> None:
        """Remove the local files."""
        if self._rows is not None:
            await self._rows.close()
        if self._documents is not None:
            await self._documents.close()
