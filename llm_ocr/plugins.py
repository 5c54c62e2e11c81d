"""The border of the core: what packages add to it, how they are found, and what they may use.

A package names each addition in its metadata, as an entry point in one of six groups:

    [project.entry-points."llm_ocr.exports"]
    word-counts = "my_package.counts:export_word_counts"

Group               Name is                 Object is          Runs in
llm_ocr.commands    a command's name        a `Command`        the console program
llm_ocr.engines     an engine's name        a `PageEngine`     the stage's process, renderer processes
llm_ocr.exports     an export format        an `Export`        the process of `export`
llm_ocr.platforms   a platform's name       a `Launcher` class the process of `launch`, which has no GPU
llm_ocr.profiles    any name                a `Profile`        every process that asks a model
llm_ocr.stores      the scheme of URLs      an `Opener`        every process that opens a workspace

A store of this repository names the extra with its client library in brackets, and jobs install it:
`az = "llm_ocr_azure:open_azure [azure]"`.

The packages of this repository (`packages/`) use the same entry points; `pyproject.toml` has them. An object is
imported at its first use, commands also for `llm-ocr --help`. `llm-ocr --version` prints the packages that were found.

A package may import `llm_ocr.types`, `llm_ocr.errors`, this module, the public names of `llm_ocr`, and the modules that
the protocol of its addition names. These modules change only with an entry in CHANGELOG.md. Names of loggers begin
with `llm_ocr.`: the settings of logging apply to these.

The RunPod worker (`llm_ocr_platforms.runpod`) is a program that reads documents of requests, and no addition. It uses
`llm_ocr.session`, `llm_ocr.stages` (`Silent`, `remote.remote_options`), `llm_ocr.documents` (`files`, `remote`),
`llm_ocr.results`, `llm_ocr.storage`, `llm_ocr.workspace.stored`, `llm_ocr.config`, the tasks of
`llm_ocr.engines.regions.detection`, and the profile of `llm_ocr.models.profiles.regions`.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError

if TYPE_CHECKING:
    from llm_ocr.checks import Check
    from llm_ocr.config.groups import LogSettings
    from llm_ocr.engines import ContentTools, EngineOptions, FigureReader, LanguageModel, LocalReader
    from llm_ocr.engines.regions.detection import Detector
    from llm_ocr.exporting import Exported, ExportJob
    from llm_ocr.launch import Launcher
    from llm_ocr.models.profile import Profile
    from llm_ocr.storage import ObjectStore, StoreOptions

__all__ = [
    *("COMMANDS", "ENGINES", "EXPORTS", "PLATFORMS", "PROFILES", "STORES"),
    *("Command", "Export", "ExtensionPoint", "Opener", "PageEngine", "found_packages"),
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
        self.noun = noun

    def names(self) -> tuple[str, ...]:
        """Return the names of all installed members, sorted."""
        return tuple(sorted(self._entries()))

    def extras(self, name: str) -> tuple[str, ...]:
        """Return the extras in the entry point of a member, without an import; none without such a member."""
        return tuple(extra for entry in self._entries().get(name, ()) for extra in entry.extras)

    def is_own(self, name: str) -> bool:
        """Return whether a member belongs to this distribution, not to a package of others; without an import."""
        return any(_package(entry) == "llm-ocr" for entry in self._entries().get(name, ()))

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
                f"{packages} provide the {self.noun} {name!r}", hint="Uninstall one of them: pip uninstall PACKAGE"
            )
        loaded: Extension = _load(entries[0], self.noun)
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
                f"no {self.noun} is installed: the metadata of llm-ocr is missing",
                hint="Install the checkout instead of importing it from a folder: pip install -e .",
            )
        near = get_close_matches(name.replace("_", "-").lower(), known, n=1, cutoff=0.75)
        hint = f"Did you mean {near[0]}?" if near else f"{self.noun.capitalize()}s: {', '.join(known)}"
        raise UsageError(f"unknown {self.noun} {name!r}", hint=hint)

    def _entries(self) -> Mapping[str, list[EntryPoint]]:
        return _entries_on(tuple(sys.path), self.group)


@lru_cache(maxsize=32)
def _entries_on(path: tuple[str, ...], group: str) -> Mapping[str, list[EntryPoint]]:
    """Return the entry points of a group by name, on `path`, the value of `sys.path`."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in _search(path).select(group=group):
        members = found.setdefault(entry.name, [])
        if all(entry.value != other.value for other in members):  # one package found at two places
            members.append(entry)
    return found


@lru_cache(maxsize=4)
def _search(path: tuple[str, ...]) -> Any:  # of a type that Python 3.12 removed
    """Return the entry points of all groups on `path`. A search takes 10 to 25 ms."""
    return entry_points()


def _load(entry: EntryPoint, noun: str) -> Any:
    try:
        return entry.load()
    except LlmOcrError:  # MissingExtra, which says what to install
        raise
    except Exception as error:
        package = _package(entry)
        raise LlmOcrError(
            f"the {noun} {entry.name!r} of {package} cannot be imported from {entry.value}: {error}",
            hint=f"Repair the package, or remove it: pip uninstall {package}",
        ) from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module.partition(".")[0]


def found_packages() -> Iterator[tuple[str, str]]:
    """Yield the import packages besides the core that add something, each with its additions, sorted.

    The additions are text for `llm-ocr --version`, such as `commands report, view; export format dolma`.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for point in (COMMANDS, ENGINES, EXPORTS, PLATFORMS, PROFILES, STORES):
        for entry in itertools.chain(*_entries_on(tuple(sys.path), point.group).values()):
            additions = found.setdefault(entry.module.partition(".")[0], {})
            additions.setdefault(point.noun, set()).add(entry.name)
    found.pop("llm_ocr", None)
    for package, additions in sorted(found.items()):
        yield (
            package,
            "; ".join(
                f"{noun}{'s' * (len(names) > 1)} {', '.join(sorted(names))}" for noun, names in additions.items()
            ),
        )


@dataclass(frozen=True, slots=True)
class Command:
    """Command of the console program, with the texts of its help.

    The function receives the settings, and the progress or None. It returns a result. The program prints `str(result)`
    and ends with 0, or prints the error that the function raised and ends with its exit code (`llm_ocr.errors`). The
    model of the settings derives from a class in `llm_ocr.config.groups`: `LogSettings`, or `OwnWorkspaceSettings` for
    a command with a workspace. Its fields are flags, variables, and keys of files.

    The list of commands needs neither the model nor the function, so they are named by their places. Example:
    `llm_ocr_outputs.commands`.

    Uses: `llm_ocr.config`, `llm_ocr.costs`, and the modules that `Export` names.
    """

    name: str
    summary: str
    model: str  # "module:class"
    function: str  # "module:function"
    usage: str  # after "llm-ocr"
    examples: tuple[tuple[str, str], ...]  # command line, effect
    remembers: bool = True  # whether stored settings of the workspace fill settings that are not given
    common: tuple[str, ...] = ()  # settings that --help shows; empty: all of them
    after: str = ""  # the command that precedes it in lists; without one, it is the last

    def settings(self) -> "type[LogSettings]":
        """Import the model of the settings.

        Raises:
            LlmOcrError: It cannot be imported. The message names the package.
        """
        model: type[LogSettings] = _load(EntryPoint(self.name, self.model, COMMANDS.group), COMMANDS.noun)
        return model

    def load(self) -> Callable[..., Any]:
        """Import the function.

        Raises:
            LlmOcrError: It cannot be imported. The message names the package.
        """
        function: Callable[..., Any] = _load(EntryPoint(self.name, self.function, COMMANDS.group), COMMANDS.noun)
        return function


class Opener(Protocol):
    """Open the store of a workspace URL, without a request.

    A store writes, lists, and reads objects by key, from several threads. `ObjectStore` has the contract: a write is
    durable when it returns; create-if-absent and compare-and-swap are atomic. The contract suite
    `tests/storage/test_store_contract.py` runs over each store with a file `packages/*/tests/*_making.py`, whose form
    is in `tests/storage/conftest.py`. `packages/azure` is an example.

    `BaseStore` has all members that a store of single writes need not change. URLs have the form `SCHEME://PLACE/PREFIX`,
    if the store is also to serve sources of documents.

    Uses: `llm_ocr.storage` (`ObjectStore`, `BaseStore`, `ObjectInfo`, `Capabilities`, `StoreOptions`) and
    `llm_ocr.storage.names` (rules for keys; `BucketPlace`; `PROBES` and `TEMPORARY`, which `list` leaves out).
    """

    def __call__(self, url: str, options: "StoreOptions", /) -> "ObjectStore":
        """Return the store.

        Args:
            url: The URL as the user gave it. It may contain a password: check it before a message repeats it.
            options: Credentials, endpoint, and region. An option without an effect is an error.

        Raises:
            UsageError: The URL or an option is invalid.
            MissingExtra: The client library is not installed.
        """


class Export(Protocol):
    """Write the results of an assembled workspace in a format.

    A coroutine function in the event loop of `export`. It writes files to `job.output.store`, skips files that an
    interrupted export has written, and reports pages to `job.progress`. Work that blocks runs in threads
    (`asyncio.to_thread`). `export_files` does all of this for text files: it calls `write` once per batch of at most
    5,000 pages. A file with many documents must have `batch.name` in its key. An export has no settings of its own.

    Example:
        from llm_ocr_outputs.files import File, Form, export_files, json_line

        async def export_word_counts(job):
            # Name, version of its files, function, line that opens the result at a URL. Records are documents.
            return await export_files(job, Form("word-counts", 1, write, "cat {}/*.json".format))

        def write(batch, documents):
            for document in documents:
                words = sum(len(row.final_markdown.split()) for row in document.rows)  # with descriptions of figures
                yield File(f"{document.id}.json", json_line({"source": document.source, "words": words}))

    Uses: `llm_ocr.exporting`, `llm_ocr.results`, `llm_ocr.storage`, `llm_ocr.workspace`, `llm_ocr.stages`,
    `llm_ocr.scheduling`, `llm_ocr.models`, `llm_ocr.documents.remote`, `llm_ocr_outputs.source` (documents and
    their rows in order), `llm_ocr_outputs.files` (batches of files that an interrupted export continues), and
    `llm_ocr_outputs.originals` (sources of documents, opened again for the places of words). Our own `pdf`,
    `originals`, `pdf_text`, and `pdf_worker` also use what renders and reads pages (`llm_ocr.documents`,
    `llm_ocr.engines`, `llm_ocr.sandbox`).
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

    `--engine NAME`, `LLM_OCR_ENGINE`, and `engine=` of the Python API accept the name of the entry point. The identity
    of its readers contains this name as `engine`. The settings of the embedded engine (`ocr_workers`,
    `page_timeout` ...) apply as well. Beside a model, the core always uses the engine `embedded`.

    The object is imported in the stage's process, and must import nothing large: its methods import what they need.
    Its readers send pages to confined worker processes (`llm_ocr.sandbox.pool`), which answer in JSON and bytes.
    Renderer processes, which are confined as well, import `page_text`. Example: `llm_ocr_cpu.engine`.

    Uses: `llm_ocr.engines` (protocols and options, `descriptions`, `trace`, `regions.detection`, `vlm.placing`),
    `llm_ocr.documents` (`ink`, `page_wire`, `pdf_objects`, `remote`, `text_layer`), `llm_ocr.results.joining`,
    `llm_ocr.sandbox`, and `llm_ocr.checks`.
    """

    @property
    def result_version(self) -> int:
        """Number that increases when a change alters results for the same page; part of the key."""

    @property
    def page_text(self) -> str:
        """Import path `module:function` of a `llm_ocr.documents.pdf_file.PageText`, which reads a PDF page's text.

        "" for the lines of pdfium.
        """

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


ENGINES: ExtensionPoint[PageEngine] = ExtensionPoint("llm_ocr.engines", "engine")
COMMANDS: ExtensionPoint[Command] = ExtensionPoint("llm_ocr.commands", "command")
EXPORTS: ExtensionPoint[Export] = ExtensionPoint("llm_ocr.exports", "export format")
#: Classes that derive from `llm_ocr.launch.Launcher`, whose methods are the contract: `plan` is pure and needs neither
#: an account nor the platform's package; `submit` creates nothing twice. Uses `llm_ocr.launch` and its modules, and
#: `llm_ocr.config.environment`. A platform's settings are in the core (`llm_ocr.config.launch_groups`), because all
#: settings share one namespace; a platform of another package has those that every platform has.
PLATFORMS: "ExtensionPoint[type[Launcher]]" = ExtensionPoint("llm_ocr.platforms", "platform")
#: Data about a model: prompts, limits, parsers of answers. Uses `llm_ocr.models.profile` and `llm_ocr.models.parsers`.
PROFILES: "ExtensionPoint[Profile]" = ExtensionPoint("llm_ocr.profiles", "model profile")
STORES: ExtensionPoint[Opener] = ExtensionPoint("llm_ocr.stores", "store")
