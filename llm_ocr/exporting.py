"""Export finished results: the command, its destination, and the arguments that formats receive."""

import asyncio
import glob
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from llm_ocr.config.models import ExportSettings
from llm_ocr.errors import DatasetDamaged, UsageError
from llm_ocr.plugins import EXPORTS
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.assemble import rebuild_views
from llm_ocr.stages.loop import run_blocking
from llm_ocr.storage import ObjectStore, StoreOptions, open_store
from llm_ocr.storage.local import LocalStore
from llm_ocr.storage.names import split_scheme
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.stored import workspace_options

if TYPE_CHECKING:
    from llm_ocr.storage.hf import Place


#: Seconds that files for the Hub wait for others in their commit: each has half a gigabyte, and takes minutes.
_LINGER = 900.0


class Output:
    """Location of an export: a store, with the texts for its users."""

    def __init__(self, settings: ExportSettings) -> None:
        """Open the store without connecting.

        Raises:
            UsageError: the URL or a setting is invalid.
            MissingExtra: the client library is not installed.
        """
        self._settings = settings
        self._options = StoreOptions(
            settings.output_profile, settings.output_endpoint, settings.output_region, role="output"
        )
        self.store: ObjectStore = open_store(settings.output, self._options)
        self.repository = _repository(settings.output)
        if self.repository is not None:
            from llm_ocr.storage.hf.commits import Rate
            from llm_ocr.storage.hf.dataset import DatasetStore

            self.store = DatasetStore(self.repository, self._options, rate=Rate(linger=_LINGER))
        if settings.public and self.repository is None:
            raise UsageError(
                f"`public` has no effect at {self.store.url}", hint="Only hf://datasets/NAMESPACE/NAME can be public."
            )

    @property
    def url(self) -> str:
        """URL as shown to users."""
        return self.store.url

    @property
    def name(self) -> str:
        """Last part of the URL, without a revision."""
        return PurePosixPath(self.repository.id if self.repository else self.url).name or "dataset"

    def check(self, workspace: str) -> None:
        """Check by writing that the output is usable; create the repository if it does not exist.

        Raises:
            UsageError: the output is inside of the workspace.
            StorageError: the output is not usable; the hint has the remedy.
        """
        inner, outer = (url if split_scheme(url)[0] else str(Path(url).resolve()) for url in (self.url, workspace))
        if f"{inner}/".startswith(f"{outer}/"):
            raise UsageError(
                f"{self.url} is inside the workspace {workspace}",
                hint="Set `output` to a place outside of the workspace.",
            )
        if (place := self.repository) is not None and self._settings.public:
            from llm_ocr.storage.hf.client import RETRIES, HubClient

            client = HubClient(place, self._options)

            def make() -> None:
                """Create a public repository. An existing repository is unchanged."""
                with client.doing("make"):
                    if not client.api.repo_exists(place.id, repo_type="dataset"):
                        client.api.create_repo(place.id, repo_type="dataset", private=False, exist_ok=True)

            RETRIES.keep_trying(make)
        self.store.check()

    def flush(self) -> None:
        """Return when all writes are durable.

        Raises:
            StorageError: a write failed.
        """
        self.store.flush()

    def load_line(self, pattern: str, *, described: bool, reader: str = "parquet") -> str:
        """Return a line of Python that opens the files with that reader; `described`: a card there names the files.

        In S3 and GCS, pyarrow opens them: `datasets` needs more packages there than llm-ocr needs.
        """
        if split_scheme(self.url)[0] in ("s3", "gs"):
            server = urlsplit(self._settings.output_endpoint or "")
            found = {
                "region": self._settings.output_region,
                "scheme": server.scheme,
                "endpoint_override": server.netloc,
            }
            query = urlencode({name: value for name, value in found.items() if value})
            folder = f"{self.url}/{PurePosixPath(pattern).parent}{'?' if query else ''}{query}"
            return f'pyarrow.dataset.dataset("{folder}", format="{reader}")'
        folder = glob.escape(self.url) if isinstance(self.store, LocalStore) else self.url
        # `datasets` takes the name of a folder for a pattern, also if its card names the files.
        plain = isinstance(self.store, LocalStore) and folder == self.url
        from_card = described and (self.repository is not None or plain)
        if not from_card and self.repository is None:
            files = json.dumps(f"{folder}/{pattern}", ensure_ascii=False)
            return f'load_dataset("{reader}", data_files={files}, split="train")'
        place = json.dumps(self.repository.id if self.repository else self.url, ensure_ascii=False)
        arguments = [place, *([] if from_card else [f'data_files="{pattern}"']), 'split="train"']
        if self.repository is not None and self.repository.revision:
            arguments.append(f'revision="{self.repository.revision}"')
        return f"load_dataset({', '.join(arguments)})"


def _repository(url: str) -> "Place | None":
    """Return the dataset repository of a URL, or None for other locations."""
    if split_scheme(url)[0] != "hf":
        return None
    from llm_ocr.storage.hf import parse

    place = parse(url)
    if place.kind != "dataset":
        return None
    if place.prefix:
        raise UsageError(
            f"{url}: an export is a whole dataset repository, so the folder {place.prefix} is not possible",
            hint=f"Give hf://datasets/{place.id}, or a branch of it: hf://datasets/{place.id}@BRANCH",
        )
    return place


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Running export."""

    workspace: Workspace
    output: Output
    settings: ExportSettings
    progress: Progress

    @property
    def source_folder(self) -> str:
        """Folder to which the export names sources on this machine relative; empty for whole paths."""
        return str(Path.cwd()) if self.settings.source_paths == "relative" else ""


@dataclass(frozen=True, slots=True)
class Exported:
    """Content of the output after an export: `files` of `size` bytes with `rows` in all, `written` of them new.

    `load` is a line of Python or of a shell that opens it, or names the files. `unit` is the name of a row, `pages` or
    `documents`. `dropped` documents were excluded for their bad pages, `left_out` pages by the setting `only`. `failed`
    documents have no file because their source could not be used; a repeated export tries them again.
    """

    url: str
    files: int
    size: int
    rows: int
    written: int
    load: str
    unit: str = "rows"
    dropped: int = 0
    left_out: int = 0
    failed: int = 0


class NothingLeft(UsageError):
    """The setting `only` leaves out all pages."""

    def __init__(self, url: str, pages: int) -> None:
        super().__init__(
            f"{url}: none of {plural(pages, 'page')} is balanced",
            hint="`llm-ocr status` counts pages with unread ink and unsupported text. Pages that an older version has "
            "read are not judged: read them again, or export without `only`.",
        )


def export(settings: ExportSettings, progress: Progress | None = None) -> Exported:
    """Write the results of a workspace in a format. A repeated call after an interruption continues the export.

    Damaged files of the dataset are rebuilt from the results of the stages.

    Raises:
        UsageError: a flag or keyword has no effect with the format.
        StageMissing: the workspace is not assembled.
        NothingLeft: the setting `only` leaves out all pages.
        StorageError: the output cannot be written.
    """
    for name, field in ExportSettings.model_fields.items():
        extra = field.json_schema_extra
        formats = extra.get("formats") if isinstance(extra, dict) else None
        kind, _, where = settings.origins.get(name, "").partition(" ")
        if kind != "flag" or not isinstance(formats, list) or settings.format in formats:
            continue
        if EXPORTS.is_own(settings.format):  # formats of other packages may use any setting
            raise UsageError(
                f"{where} has no effect with `format={settings.format}`",
                hint=f"Leave it out, or use {' or '.join(f'`format={one}`' for one in formats)}.",
            )
    return run_blocking(lambda: _export(settings, progress or Silent()))


async def _export(settings: ExportSettings, progress: Progress) -> Exported:
    output = Output(settings)
    workspace = await asyncio.to_thread(Workspace.open, settings.workspace, options=workspace_options(settings))
    try:
        write = EXPORTS.get(settings.format)
        job = ExportJob(workspace, output, settings, progress)
        rebuilt: set[str] = set()
        while True:
            try:
                return await write(job)
            except DatasetDamaged as damage:
                if not rebuilt.isdisjoint(damage.keys):  # the store does not return the written content
                    raise
                rebuilt.update(damage.keys)
                await asyncio.to_thread(rebuild_views, workspace, damage, progress.say)
    finally:
        workspace.close()
