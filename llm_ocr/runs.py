"""A workspace for readers: status, pages, documents, failures, and dataset."""

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from llm_ocr.costs.report import Spent, spent
from llm_ocr.documents.remote import shown
from llm_ocr.errors import MissingExtra, ObjectNotFound, StageMissing, UsageError
from llm_ocr.plugins import COMMANDS
from llm_ocr.results.dataset import FOLDER, dataset_file
from llm_ocr.results.documents import DocumentNames, markdown_file, name_claims
from llm_ocr.results.sanitizing import safe_markdown
from llm_ocr.results.schema import Images
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, FieldsRecord, PageRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.items import fetch_dataset_file, items
from llm_ocr.workspace.keys import EXTRACT, FIELDS, assembled_key, required_key
from llm_ocr.workspace.published import extracted_pages, published_fields
from llm_ocr.workspace.status import RunStatus, Worked, known_status, pages_used, run_status
from llm_ocr.workspace.summaries import WORST, WeakPage

if TYPE_CHECKING:
    from datasets import Dataset

    from llm_ocr.costs.report import CostReport

__all__ = ["Run", "open"]


class Document(NamedTuple):
    """An assembled document. `path` is the key of its Markdown file in the workspace."""

    document_id: str
    source: str
    path: str
    markdown: str

    def _repr_markdown_(self) -> str:
        """Return the text of the document without anything that a notebook would run or load."""
        return safe_markdown(self.markdown)


class Run:
    """The results of a workspace, finished or not. Read-only."""

    def __init__(self, workspace: Workspace, worked: Worked | None = None) -> None:
        self._workspace = workspace
        self._worked = worked or Worked()

    def __repr__(self) -> str:
        return f"Run({self.url!r})"

    def _repr_html_(self) -> str:
        return self.status._repr_html_()

    @property
    def url(self) -> str:
        """The URL of the workspace."""
        return self._workspace.url

    @property
    def status(self) -> RunStatus:
        """Counts of pages and figures, finished units, and reasons of failures; read on each access."""
        return run_status(self._workspace)

    @property
    def processed(self) -> Mapping[str, Counts]:
        """Pages that this command finished itself, by stage, and figures in `describe`; empty after `open`."""
        return self._worked.counts

    @property
    def known_status(self) -> RunStatus | None:
        """The status, or None if it needs many requests and this command was one of several workers."""
        return known_status(self._workspace, self._worked)

    def worst(self, count: int = WORST) -> tuple[WeakPage, ...]:
        """Return degraded pages, then others of low quality, both in the order of their scores.

        The workspace records degraded pages and pages with a score below 0.9, and at most the 20 worst of a unit.

        Args:
            count: The number of pages.

        Returns:
            Each page with its score, document, page number, and defects.
        """
        return run_status(self._workspace, worst=count).worst

    @property
    def spent(self) -> list[Spent]:
        """The cost of each job on a platform; read on each access."""
        return spent(self._workspace)

    def costs(self) -> "CostReport":
        """Return throughput, start-up, the cost of 1,000 to 100,000 pages without it, and other hardware.

        All numbers are from the record of the run, except for published rates of other hardware.

        Notebooks display the result.
        """
        from llm_ocr.costs.report import cost_report
        from llm_ocr.workspace.metrics import all_series

        return cost_report(self.status, self.spent, all_series(self._workspace))

    def report(self, path: str | Path) -> Path:
        """Write an HTML page about the run in its current state. The page needs no network.

        Args:
            path: The file.

        Returns:
            The path of the file.

        Raises:
            StorageError: The workspace cannot be read.
        """
        from llm_ocr.config.models import ReportSettings

        settings = ReportSettings.model_validate({"workspace": self.url, "output": path})
        written: Path = COMMANDS.get("report").load()(settings, None, self._workspace).path
        return written

    def pages(self, *, images: bool = True) -> Iterator[PageRecord]:
        """Yield the valid row of every page that Extract has finished, in the order of the plan.

        Args:
            images: Whether the rows contain images.

        Yields:
            One row per page, failed pages included.

        Raises:
            StageMissing: Extract has not started.
        """
        yield from self._pages(EXTRACT, required_key(self._workspace, EXTRACT), Images.ALL if images else Images.NONE)

    def _pages(self, stage: str, key: str, images: Images) -> Iterator[PageRecord]:
        for item in items(self._workspace):
            yield from extracted_pages(self._workspace, key, item, images, stage)

    def failures(self) -> Iterator[PageRecord]:
        """Yield the failed pages, without images.

        If Assemble has taken the pages of a user-defined stage, these are the failed pages of that stage.

        Yields:
            Rows, each with `reason` and `detail`.

        Raises:
            StageMissing: Extract has not started.
        """
        stage, key = pages_used(self._workspace, assembled_key(self._workspace))
        for page in self._pages(stage, key or required_key(self._workspace, stage), Images.NONE):
            if page.status is Status.FAILED:
                yield page

    def fields(self) -> Iterator[FieldsRecord]:
        """Yield the row of every document that Fields has finished under its newest key, in the order of the plan.

        Yields:
            One row per document, failed documents included: the values of the schema, and each with its quote.

        Raises:
            StageMissing: Fields has not started.
        """
        key = required_key(self._workspace, FIELDS)
        for item in items(self._workspace):
            yield from published_fields(self._workspace, key, item)

    def documents(self) -> Iterator[Document]:
        """Yield every assembled document, in the order of the plan."""
        parts = [part for item in items(self._workspace) for part in item.parts]
        names = DocumentNames.of_plan(claim for part in parts for claim in name_claims(part))
        seen: set[str] = set()
        for part in parts:
            if part.document_id in seen:
                continue
            seen.add(part.document_id)
            key = markdown_file(names.of(part.document_id, part.relative))
            try:
                text = self._workspace.store.get(key).decode()
            except ObjectNotFound:
                continue
            yield Document(part.document_id, shown(part.source), key, text)

    def to_dataset(self) -> "Dataset":
        """Return the assembled dataset, opened with `datasets`.

        Returns:
            The dataset, one row per page. The guide "Results and exports" explains its columns.

        Raises:
            StageMissing: Assemble has not run.
            DatasetDamaged: A fetched file is damaged. The next `assemble` writes it again.
            MissingExtra: The package `datasets` is not installed.
        """
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise MissingExtra("to_dataset requires the package datasets", install="datasets") from error

        store = self._workspace.store
        own = {dataset_file(item.id) for item in items(self._workspace)}
        files: list[str] = []
        for info in store.list(f"{FOLDER}/"):
            if info.key not in own:  # a file that someone else put there
                continue
            if isinstance(store, LocalStore):
                file = store.root / info.key
            else:
                file = self._workspace.spool / info.key
                file.parent.mkdir(parents=True, exist_ok=True)
                fetch_dataset_file(self._workspace, info.key, file)
            files.append(glob.escape(str(file)))  # `datasets` takes names for patterns
        if not files:
            raise StageMissing(f"no dataset in {self.url}", hint=f"Run first: llm-ocr assemble -w {self.url}")
        return load_dataset("parquet", data_files={"train": files}, split="train")


def open(url: str | Path, *, profile: str | None = None, endpoint: str | None = None, region: str | None = None) -> Run:
    """Open a workspace for reading.

    Args:
        url: The folder, or the s3://, gs://, or hf:// URL.
        profile: The credentials: a profile of the AWS configuration, or a Google credentials file.
        endpoint: The URL of the store's server, if it is not the provider's.
        region: The region of the bucket.

    Returns:
        The run: status, pages, documents, and dataset.

    Raises:
        UsageError: The workspace is no path or URL.
        WorkspaceError: There is no workspace.
        StorageError: The store cannot be read.
    """
    if not isinstance(url, str | Path):
        raise UsageError(f"`workspace={url}`: must be a path or a URL")
    return Run(Workspace.open(str(url), options=StoreOptions(profile, endpoint, region)))
