"""Upload local documents into the workspace, where jobs can read them; remove and name what launches leave there."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from llm_ocr.errors import UsageError
from llm_ocr.launch.watching import Say
from llm_ocr.storage.names import split_scheme
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.stored import LAUNCHES

#: Folder below the workspace.
FOLDER = "uploads/documents"
_KINDS = (
    *(".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".tif", ".tiff"),
    *(".gif", ".bmp", ".jp2", ".j2k", ".jpf", ".jpx", ".avif"),
)


def is_local(source: str) -> bool:
    """Return whether a source is on this machine."""
    return split_scheme(source)[0] in ("", "file")


def on_any_folder(url: str) -> str:
    """Return a path as an absolute one, and a URL unchanged."""
    return str(Path(url).expanduser().absolute()) if not split_scheme(url)[0] else url


def uploaded(workspace: Workspace, sources: Sequence[str], say: Say) -> tuple[str, ...]:
    """Upload files and folders of this machine, except unchanged ones (same path, same size, not newer here).

    Args:
        workspace: Workspace.
        sources: Sources as given by the user.
        say: Receives messages.

    Returns:
        The sources in a form that jobs can read.

    Raises:
        UsageError: A local source is a list or a pattern, or does not exist.
    """
    readable = []
    for source in sources:
        if not is_local(source):
            readable.append(source)
            continue
        root = Path(source.removeprefix("file://")).expanduser().resolve()
        if not root.exists() or (root.is_file() and root.suffix.lower() not in _KINDS):
            hint = "Use files, folders, or s3://, gs://, hf://, and https:// sources; put lists of sources there, too."
            raise UsageError(f"{source}: jobs on other machines cannot read it", hint=hint)
        files = [root] if root.is_file() else sorted(_documents(root, say))
        # Folders with equal names must not overwrite each other: `2023/scans` and `2024/scans`.
        place = f"{FOLDER}/{hashlib.sha256(os.fsencode(root.parent)).hexdigest()[:8]}"
        sent = 0
        for file in files:
            key = f"{place}/{file.relative_to(root.parent).as_posix()}"
            there, here = workspace.store.stat(key), file.stat()
            # A store that does not record the time of an object returns 0.
            if there is None or there.size != here.st_size or 0 < there.modified < here.st_mtime:
                workspace.store.upload(file, key)
                sent += 1
        workspace.flush()
        say(f"{source}: {sent:,} of {plural(len(files), 'file')} uploaded to {workspace.url}/{place}")
        readable.append(f"{workspace.url}/{place}/{root.name}{'' if root.is_file() else '/'}")
    return tuple(readable)


def remove_wheels(workspace: Workspace) -> list[str]:
    """Remove the wheels that finished launches uploaded, and return lines about them. The next launch uploads its own.

    Raises:
        StorageError: The workspace cannot be read or written.
    """
    wheels = [info for info in workspace.store.list(f"{LAUNCHES}/") if info.key.endswith(".whl")]
    for info in wheels:
        workspace.store.delete(info.key)
    size = plural(sum(info.size for info in wheels), "byte")
    return [f"deleted: {plural(len(wheels), 'wheel')} of llm-ocr, {size}"] if wheels else []


def kept_uploads(workspace: Workspace) -> list[str]:
    """Return a line about uploaded documents, which only the user may remove; empty without such documents.

    Raises:
        StorageError: The workspace cannot be read.
    """
    found = list(workspace.store.list(f"{FOLDER}/"))
    size = plural(sum(info.size for info in found), "byte")
    where = f"{workspace.url}/{FOLDER}"
    return [f"kept: {plural(len(found), 'uploaded document')}, {size}, which retries read: {where}"] if found else []


def _documents(folder: Path, say: Say) -> Iterator[Path]:
    """Yield the documents below a folder; report unreadable ones."""

    def passed_over(error: OSError) -> None:
        say(f"{error.filename} was not uploaded: {error.strerror or error}")

    for place, folders, names in os.walk(folder, onerror=passed_over):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in names if not name.startswith(".")):
            if path.suffix.lower() not in _KINDS:
                continue
            try:
                if stat.S_ISREG(path.stat().st_mode):
                    yield path
            except OSError as error:
                passed_over(error)
