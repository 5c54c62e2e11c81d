"""Parse requests strictly, and download their files; a wrong input is an error that names its field."""

import asyncio
import base64
import binascii
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llm_ocr.config.fields import settings_of
from llm_ocr.config.groups import RemoteSettings
from llm_ocr.config.loading import did_you_mean
from llm_ocr.config.models import WorkerSettings
from llm_ocr.documents.files import IMAGE, PDF, kind_by_content
from llm_ocr.documents.remote import is_web, shown
from llm_ocr.documents.remote.listing import RemoteDocuments
from llm_ocr.engines.regions.detection import TASKS
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.session import Session
from llm_ocr.stages.rendering import remote_options
from llm_ocr.types import DocumentPart

#: Default number of crops in a reply.
MOST_CROPS = 50
#: Most images of a request: each is fetched before the first is read.
MOST_IMAGES = 200


class InputError(UsageError):
    """Invalid request; the message begins with the field."""


@dataclass(frozen=True, slots=True)
class File:
    """File of a request: at a web address, or its bytes. `kind` is the required kind; empty means any."""

    field: str
    kind: str
    url: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Whether the reply contains pictures, and their maximum number (None: all)."""

    wanted: bool = False
    inline: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """Pages to read, from `first` to `last` (from 1, over all files; None: the end)."""

    files: tuple[File, ...]
    first: int = 1
    last: int | None = None
    crops: Pictures = Pictures()
    layouts: Pictures = Pictures()
    whole: bool = False
    tasks: tuple[str, ...] = ()  # LABEL=TASK


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Request that starts the model and reads no user data."""


_SOURCES = {
    "pdf_url": PDF,
    "pdf_base64": PDF,
    "image_urls": IMAGE,
    "images_base64": IMAGE,
    "source_url": "",
    "source_base64": "",
}
_FIELDS = (
    *_SOURCES,
    *("start_page", "end_page", "layout", "label_task_mapping", "warmup"),
    *("return_crop_images", "crop_images_base64", "max_crop_images"),
    *("return_layout_visualization", "layout_visualization_base64"),
)


#: Request fields in place of settings in messages.
_FIELDS_FOR = {
    "pages": "start_page and end_page",
    "region_task": "label_task_mapping",
    "layout_first": "layout",
}
#: Settings in messages: keywords in backticks, and flags of the command line.
_KEYWORD = re.compile(r"`([a-z][a-z0-9_]*)(?:=([^`\n]*))?`")
_FLAG = re.compile(r"(--[a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?:[ =]([A-Z][A-Z_]*)\b)?")


def advised(message: str) -> str:
    """Return a message with advice for a reply.

    Settings are replaced by the request's field, or otherwise the endpoint's variable. Arguments of other programs are
    kept.
    """
    settings = settings_of(WorkerSettings).values()
    known = {setting.name: setting for setting in settings} | {setting.flag: setting for setting in settings}

    def replaced(found: re.Match[str]) -> str:
        setting, value = known.get(found[1]), found[2]
        if setting is None:
            return found[0]
        if setting.name in _FIELDS_FOR:
            return _FIELDS_FOR[setting.name]
        return f"{setting.variable}={value}" if value else setting.variable

    return _FLAG.sub(replaced, _KEYWORD.sub(replaced, message))


def read_input(job: Mapping[str, Any]) -> DocumentRequest | WarmUp:
    """Return the parsed `input` of a job.

    Raises:
        InputError: The input is invalid.
    """
    given = job.get("input")
    if not isinstance(given, Mapping):
        raise InputError("input: must be an object", hint='For example {"input": {"pdf_url": "https://…"}}')
    held = {str(name): value for name, value in given.items() if value is not None}
    for name in held:
        if name not in _FIELDS:
            raise InputError(f"{name}: unknown field{did_you_mean(name, _FIELDS)}")
    if _bool(held, "warmup", False):
        if stray := next((name for name in held if name != "warmup"), None):
            raise InputError(f"{stray}: not possible together with warmup")
        return WarmUp()
    named = [name for name in _SOURCES if name in held]
    if not named:
        raise InputError(f"input: has no document; give one of {', '.join(_SOURCES)}")
    if len(named) > 1:
        raise InputError(f"{named[1]}: not possible together with {named[0]}")
    first = _number(held, "start_page", 1, least=1)
    last = _number(held, "end_page", 0, least=1) or None
    if last is not None and last < first:
        raise InputError(f"end_page: {last} is before start_page, which is {first}")
    tasks = _tasks(held["label_task_mapping"]) if "label_task_mapping" in held else ()
    whole = not _bool(held, "layout", True)
    if whole and tasks:
        raise InputError("label_task_mapping: needs regions, but layout is false")
    return DocumentRequest(
        files=_files(named[0], held[named[0]]),
        first=first,
        last=last,
        crops=Pictures(
            _bool(held, "return_crop_images", False),
            _bool(held, "crop_images_base64", False),
            _number(held, "max_crop_images", MOST_CROPS, least=0),
        ),
        layouts=Pictures(
            _bool(held, "return_layout_visualization", False), _bool(held, "layout_visualization_base64", False)
        ),
        whole=whole,
        tasks=tasks,
    )


def _files(name: str, value: Any) -> tuple[File, ...]:
    many = name in ("image_urls", "images_base64")
    if many and (not isinstance(value, list) or not value):
        raise InputError(f"{name}: must be a list of texts, at least one")
    if many and len(value) > MOST_IMAGES:
        raise InputError(f"{name}: has {len(value)} images; the maximum is {MOST_IMAGES}")
    read = _at_url if name.endswith(("_url", "_urls")) else _of_text
    if not many:
        return (read(name, _SOURCES[name], value),)
    return tuple(read(f"{name}[{place}]", _SOURCES[name], item) for place, item in enumerate(value))


def _at_url(field: str, kind: str, value: Any) -> File:
    """Return a file at a web address. Store URLs are refused: a request must not use the worker's own keys."""
    if not isinstance(value, str) or not is_web(value):
        what = shown(value) if isinstance(value, str) else type(value).__name__
        raise InputError(f"{field}: must be an https:// or http:// address, not {what}")
    return File(field, kind, url=value)


def _of_text(field: str, kind: str, value: Any) -> File:
    if not isinstance(value, str):
        raise InputError(f"{field}: must be text in base64, not {type(value).__name__}")
    text = value.partition(",")[2] if value.startswith("data:") else value
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{field}: is not base64: {error}") from error
    if not data:
        raise InputError(f"{field}: is empty")
    return File(field, kind, data=data)


def _tasks(value: Any) -> tuple[str, ...]:
    """Return tasks as in GLM-OCR's configuration (task -> labels), or from label -> task."""
    if not isinstance(value, Mapping) or not value:
        raise InputError('label_task_mapping: must be {"TASK": ["LABEL", …]} or {"LABEL": "TASK"}')
    tasks: list[str] = []
    for key, held in value.items():
        labels = held if isinstance(held, list) else [key]
        task = key if isinstance(held, list) else held
        if task not in TASKS:
            raise InputError(f"label_task_mapping: unknown task {task!r}", hint=f"Tasks: {', '.join(TASKS)}.")
        if not all(isinstance(label, str) and label for label in labels):
            raise InputError(f"label_task_mapping: the labels of {task} must be texts")
        tasks += [f"{label}={task}" for label in labels]
    return tuple(tasks)


def _bool(held: Mapping[str, Any], name: str, default: bool) -> bool:
    value = held.get(name, default)
    if not isinstance(value, bool):
        raise InputError(f"{name}: must be true or false, not {value!r:.80}")
    return value


def _number(held: Mapping[str, Any], name: str, default: int, *, least: int) -> int:
    if name not in held:
        return default
    value = held[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}: must be a whole number, {least} or more, not {value!r:.80}")
    return value


_OTHER = {
    PDF: "an image; images go into image_urls or images_base64",
    IMAGE: "a PDF; PDFs go into pdf_url or pdf_base64",
}


async def parts_of(
    request: DocumentRequest, session: Session, settings: RemoteSettings, folder: Path, held: contextlib.AsyncExitStack
) -> list[tuple[DocumentPart, int]]:
    """Return the requested pages, file by file; the files exist until `held` closes.

    Of several images, an unavailable one is a failed page.

    Returns:
        The pages of each file, and the number of the first of them among all pages of the request.

    Raises:
        InputError: A document is unavailable, or a requested page does not exist.
    """
    remote = RemoteDocuments(replace(remote_options(settings), cache_folder=folder / "fetched"))
    held.push_async_callback(remote.close)

    async def part_of(place: int, file: File) -> DocumentPart:
        name = f"image-{place + 1:05d}" if len(request.files) > 1 else "document"
        path = folder / name
        try:
            if file.url:
                path = (await held.enter_async_context(remote.open(file.url))).path
            else:
                await asyncio.to_thread(path.write_bytes, file.data)
            await asyncio.to_thread(_check_kind, file, path)
            count = await session.count(path)
        except PageFailure as failure:
            if len(request.files) == 1:
                raise InputError(f"{file.field}: {failure.args[0]}", hint=failure.hint) from failure
            return DocumentPart(name, "", name, "", (), 0, 0, reason=failure.reason, detail=failure.detail)
        return DocumentPart(name, str(path), name, "", tuple(range(1, count + 1)), count, 0)

    parts = await asyncio.gather(*(part_of(place, file) for place, file in enumerate(request.files)))
    total = sum(part.expected for part in parts)
    if request.first > total:
        pages = "1 page" if total == 1 else f"{total} pages"
        raise InputError(f"start_page: {request.first} is after the last page; the document has {pages}")
    last = min(request.last or total, total)
    found, before = [], 0
    for part in parts:
        low, high = max(request.first - before, 1), min(last - before, part.expected)
        if low <= high:
            chosen = part if part.reason is not None else replace(part, pages=part.pages[low - 1 : high])
            found.append((chosen, before + low))
        before += part.expected
    return found


def _check_kind(file: File, path: Path) -> None:
    found = kind_by_content(path)
    if file.kind and found and found != file.kind:
        raise InputError(f"{file.field}: is {_OTHER[file.kind]}")
