"""The border of the core: what packages add to it, how they are found, and what they may use.

A package names each addition in its metadata, as an entry point in one of six groups:

    [project.entry-points."llm_ocr.exports"]
    word-counts = "my_package.counts:export_word_counts"

Group               Name is                 Object is          Runs in
llm_ocr.commands    a command's name        a `Command`        the console program
llm_ocr.engines     a value of --engine     a `PageEngine`     the stage's process, renderer processes
llm_ocr.exports     a value of --format     an `Export`        the process of `export`
llm_ocr.platforms   a platform's name       a `Launcher` class the process of `launch`, which has no GPU
llm_ocr.profiles    any name                a `Profile`        every process that asks a model
llm_ocr.stores      the scheme of URLs      an `Opener`        every process that opens a workspace

The packages of this repository (`packages/`) use the same entry points; `pyproject.toml` has them. An object is
imported at its first use. `llm-ocr --version` prints the packages that were found. The console program shows the log
of loggers below `llm_ocr`, such as `llm_ocr.my_package`.

A package may import `llm_ocr.types`, `llm_ocr.errors`, this module, the public names of `llm_ocr`, and the modules that
the protocol of its addition names. These modules change only with an entry in CHANGELOG.md.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError

if TYPE_CHECKING:
    from llm_ocr.checks import Check
    from llm_ocr.engines import ContentTools, EngineOptions, FigureReader, LanguageModel, LocalReader
    from llm_ocr.engines.regions.detection import Detector
    from llm_ocr.exporting import Exported, ExportJob
    from llm_ocr.launch import Launcher
    from llm_ocr.models.profile import Profile
    from llm_ocr.storage import ObjectStore, StoreOptions

__all__ = [
    "ENGINES",
    "EXPORTS",
    "PLATFORMS",
    "PROFILES",
    "STORES",
    "Export",
    "ExtensionPoint",
    "Opener",
    "PageEngine",
    "found_packages",
]

Extension = TypeVar("Extension")


class ExtensionPoint(Generic[Extension]):
    """Group of entry points whose objects have one type."""

    def __init__(self, group: str, noun: str) -> None:
        """Name the group and one of its members, without looking for any.

        Args:
            group: Name of the group, such as `llm_ocr.exports`.
            noun: Word for a member in messages, such as `export format`.
        """
        self.group = group
        self._noun = noun

    def names(self) -> tuple[str, ...]:
        """Return the names of all installed members, sorted."""
        return tuple(sorted(self._entries()))

    def find(self, name: str) -> Extension | None:
        """Import a member.

        Args:
            name: Its name.

        Returns:
            The object; None without a member of this name.

        Raises:
            UsageError: Two packages provide the name.
            LlmOcrError: The object cannot be imported. The message names its package.
        """
        entries = self._entries().get(name)
        if not entries:
            return None
        if len(entries) > 1:
            packages = " and ".join(sorted(_package(entry) for entry in entries))
            raise UsageError(
                f"{packages} provide the {self._noun} {name!r}", hint="Uninstall one of them: pip uninstall PACKAGE"
            )
        try:
            loaded: Extension = entries[0].load()
        except (ImportError, AttributeError) as error:
            if isinstance(error, LlmOcrError):  # MissingExtra, which says what to install
                raise
            package = _package(entries[0])
            raise LlmOcrError(
                f"the {self._noun} {name!r} of {package} cannot be imported from {entries[0].value}: {error}",
                hint=f"Repair the package, or remove it: pip uninstall {package}",
            ) from error
        return loaded

    def get(self, name: str) -> Extension:
        """Import a member that must exist.

        Args:
            name: Its name.

        Returns:
            The object.

        Raises:
            UsageError: No package provides the name, or two do. The hint has similar names, or all.
            LlmOcrError: The object cannot be imported. The message names its package.
        """
        member = self.find(name)
        if member is not None:
            return member
        known = self.names()
        if not known:
            raise UsageError(
                f"no {self._noun} is installed: the metadata of llm-ocr is missing",
                hint="Install the checkout instead of importing it from a folder: pip install -e .",
            )
        near = get_close_matches(name.replace("_", "-").lower(), known, n=1, cutoff=0.6)
        hint = f"Did you mean {near[0]}?" if near else f"Installed: {', '.join(known)}"
        raise UsageError(f"unknown {self._noun} {name!r}", hint=hint)

    def _entries(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in _entries_of(self.group, tuple(sys.path)):
            members = found.setdefault(entry.name, [])
            if all(entry.value != other.value for other in members):  # one package found at two places
                members.append(entry)
        return found


@lru_cache(maxsize=32)
def _entries_of(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group on `path`, the value of `sys.path`. A search takes 10 to 25 ms."""
    return tuple(entry_points(group=group))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value.partition(".")[0]


def found_packages() -> Iterator[tuple[str, str]]:
    """Yield the import packages that add something to the core, each with the groups in which it does, sorted."""
    groups: dict[str, set[str]] = {}
    for point in (ENGINES, EXPORTS, PLATFORMS, PROFILES, STORES):
        for entry in _entries_of(point.group, tuple(sys.path)):
            groups.setdefault(entry.module.partition(".")[0], set()).add(point.group.removeprefix("llm_ocr."))
    for package, names in sorted(groups.items()):
        yield package, ", ".join(sorted(names))


class Opener(Protocol):
    """Open the store of a workspace URL, without a request.

    A store writes, lists, and reads objects by key, from several threads. `ObjectStore` has the contract: a write is
    durable when it returns; create-if-absent and compare-and-swap are atomic. The contract suite in `tests/storage/`
    checks it.

    Uses: `llm_ocr.storage` (`ObjectStore`, `BaseStore`, `ObjectInfo`, `Capabilities`, `StoreOptions`).
    """

    def __call__(self, url: str, options: "StoreOptions", /) -> "ObjectStore":
        """Return the store.

        Args:
            url: The URL, with its scheme.
            options: Credentials, endpoint, and region.

        Raises:
            UsageError: The URL is invalid.
            MissingExtra: The client library is not installed.
        """


class Export(Protocol):
    """Write the results of an assembled workspace in a format.

    A coroutine function in the event loop of `export`. It writes files to `job.output.store`, skips files that an
    interrupted export has written, and reports pages to `job.progress`. Work that blocks runs in threads
    (`asyncio.to_thread`).

    Uses: `llm_ocr.exporting`, `llm_ocr.results`, `llm_ocr.storage`, `llm_ocr.workspace`, `llm_ocr_outputs.source`
    (rows of documents in order), and `llm_ocr_outputs.files` (batches of files that an export continues).
    """

    async def __call__(self, job: "ExportJob", /) -> "Exported":
        """Export.

        Args:
            job: Workspace, output, settings, and progress.

        Returns:
            What the output contains now, and how to open it.

        Raises:
            DatasetDamaged: A file of the dataset is damaged. `export` rebuilds the file, and calls again.
            StorageError: The output cannot be written.
        """


class PageEngine(Protocol):
    """Read pages and figures in processes of this machine, without a model on a server.

    The object is imported in the stage's process, and must import nothing large: its methods import what they need.
    Its readers send pages to confined worker processes (`llm_ocr.sandbox`), which answer in JSON and bytes. Renderer
    processes, which are confined as well, import `page_text`. Example: `llm_ocr_cpu.engine`.

    Uses: `llm_ocr.engines` (protocols and options, `descriptions`, `trace`, `regions.detection`, `vlm.placing`),
    `llm_ocr.documents` (`ink`, `page_wire`, `pdf_objects`, `remote.urls`, `text_layer`), `llm_ocr.results.joining`,
    `llm_ocr.sandbox`, and `llm_ocr.checks`.
    """

    @property
    def result_version(self) -> int:
        """Number that increases when a change alters results for the same page; part of the key."""

    @property
    def page_text(self) -> str:
        """Import path `module:function` of a `llm_ocr.documents.pdf_file.PageText`, which reads a PDF page's text."""

    def missing(self) -> MissingExtra | None:
        """Return what OCR needs and is not installed; None if nothing is missing. Imports nothing large."""

    def checks(self) -> "Sequence[Check]":
        """Return the state of the engine's parts for `llm-ocr doctor`."""

    def check_language(self, language: str) -> None:
        """Raise `UsageError` for an unknown language or a file that is not a recognizer. Download nothing."""

    def language_model(
        self, language: str, cache: Path, *, say: Callable[[str], object], stopped: Callable[[], bool]
    ) -> "LanguageModel":
        """Return the recognizer of a language. It is downloaded if it is not in the cache.

        Args:
            language: Name of a language, or path of a recognizer.
            cache: Folder of downloaded recognizers.
            say: Receives messages on the progress of a download.
            stopped: Whether to give up a download.

        Raises:
            UsageError: The language is unknown, or the file is not a recognizer.
            MissingExtra: OCR is not installed.
            LlmOcrError: The download failed.
        """

    def page_reader(self, options: "EngineOptions") -> "LocalReader":
        """Return a reader of pages. Its processes start at the first page."""

    def figure_reader(
        self, mode: str = "describe", prompt: str = "", pages: "LocalReader | None" = None
    ) -> "FigureReader":
        """Return a reader of figures.

        Args:
            mode: Mode of the Describe stage.
            prompt: The user's prompt; may be empty.
            pages: Reads the text inside figures whose text is unknown; the caller closes it.

        Raises:
            UsageError: The mode or a prompt is not supported.
        """

    def detector(self, pages: "LocalReader", tools: "ContentTools") -> "Detector":
        """Return a detector of regions that uses the layout of a reader, which it also closes."""


#: Engines that read pages without a model on a server. The core uses `embedded`, also beside a model.
ENGINES: ExtensionPoint[PageEngine] = ExtensionPoint("llm_ocr.engines", "engine")
EXPORTS: ExtensionPoint[Export] = ExtensionPoint("llm_ocr.exports", "export format")
#: Classes that derive from `llm_ocr.launch.Launcher`, whose methods are the contract: `plan` is pure and needs neither
#: an account nor the platform's package; `submit` creates nothing twice. Uses `llm_ocr.launch` and its modules.
PLATFORMS: "ExtensionPoint[type[Launcher]]" = ExtensionPoint("llm_ocr.platforms", "platform")
#: Data about a model: prompts, limits, parsers of answers. Uses `llm_ocr.models.profile` and `llm_ocr.models.parsers`.
PROFILES: "ExtensionPoint[Profile]" = ExtensionPoint("llm_ocr.profiles", "model profile")
STORES: ExtensionPoint[Opener] = ExtensionPoint("llm_ocr.stores", "store")
