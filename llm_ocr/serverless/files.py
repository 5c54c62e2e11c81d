"""The files of a request as local ones: fetched by the rules for web addresses, gone with the request's folder."""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from llm_ocr.api.remote import remote_options
from llm_ocr.api.session import Session
from llm_ocr.documents.file_types import IMAGE, PDF, kind_by_content
from llm_ocr.documents.remote.documents import RemoteDocuments
from llm_ocr.errors import PageFailure
from llm_ocr.serverless.inputs import DocumentRequest, File, InputError
from llm_ocr.settings.groups import RemoteSettings
from llm_ocr.types import DocumentPart

_OTHER = {
    PDF: "an image; images go into image_urls or images_base64",
    IMAGE: "a PDF; PDFs go into pdf_url or pdf_base64",
}


@dataclass(frozen=True, slots=True)
class Numbered:
    """Pages of one file, and the number of the first of them among all pages of the request."""

    part: DocumentPart
    first: int


async def parts_of(
    request: DocumentRequest, session: Session, settings: RemoteSettings, folder: Path, held: contextlib.AsyncExitStack
) -> list[Numbered]:
    """The pages that are asked for, file by file; the files stand until `held` ends.

    Of several images, one that cannot be had is a failed page. Raises `InputError` for a document that cannot, and for
    pages that it has not.
    """
    remote = RemoteDocuments(replace(remote_options(settings), cache_folder=folder / "fetched"))
    held.push_async_callback(remote.close)

    async def one(place: int, file: File) -> DocumentPart:
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

    parts = await asyncio.gather(*(one(place, file) for place, file in enumerate(request.files)))
    return _selected(request, parts)


def _check_kind(file: File, path: Path) -> None:
    found = kind_by_content(path)
    if file.kind and found and found != file.kind:
        raise InputError(f"{file.field}: is {_OTHER[file.kind]}")


def _selected(request: DocumentRequest, parts: list[DocumentPart]) -> list[Numbered]:
    total = sum(part.expected for part in parts)
    if request.first > total:
        pages = "1 page" if total == 1 else f"{total} pages"
        raise InputError(
            f"start_page: {request.first} is behind the end, there {'is' if total == 1 else 'are'} {pages}"
        )
    last = min(request.last or total, total)
    found, before = [], 0
    for part in parts:
        count = part.expected
        low, high = max(request.first - before, 1), min(last - before, count)
        if low <= high:
            chosen = part if part.reason is not None else replace(part, pages=part.pages[low - 1 : high])
            found.append(Numbered(chosen, before + low))
        before += count
    return found
