"""Replies within RunPod's size limit; large parts become URLs in the workspace."""

import asyncio
import base64
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llm_ocr.config.models import NONE, WorkerSettings
from llm_ocr.errors import LlmOcrError, PageFailure
from llm_ocr.results.documents import document_markdown, safe_segment
from llm_ocr.results.figure_text import FigureText, enrich
from llm_ocr.results.images import boxes_image
from llm_ocr.results.markdown import IMAGE, encode_target, map_prose, target_id
from llm_ocr.results.schema import image_extension
from llm_ocr.storage import ObjectStore, open_store
from llm_ocr.types import Box, EncodedImage, Figure, PageRecord
from llm_ocr.workspace.stored import workspace_options
from llm_ocr_platforms.runpod.inputs import DocumentRequest, advised

# Contents of a reply from read pages; the keys are those of GLM-OCR's worker.


#: Target folder of the Markdown's links to figures.
FOLDER = "imgs"
#: Boxes are in thousandths of the page, as in GLM-OCR's results.
_SCALE = 1000


@dataclass(frozen=True, slots=True)
class Picture:
    """Image of the reply: its metadata, and the file that contains it during the request."""

    about: Mapping[str, Any]
    file: Path

    @property
    def name(self) -> str:
        """Return the name in the Markdown's links."""
        return str(self.about["name"])

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self.file.stat().st_size


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """Page without its image."""

    number: int
    record: PageRecord
    regions: Sequence[Mapping[str, Any]]
    markdown: str
    crops: Sequence[Picture] = ()
    layout: Picture | None = None
    notes: Sequence[str] = ()

    def about(self) -> dict[str, Any]:
        """Return the outcome of the page."""
        found: dict[str, Any] = {"page": self.number, "status": self.record.status.value}
        if self.record.reason is not None:
            found["reason"] = self.record.reason.value
        if self.record.detail:
            found["detail"] = advised(self.record.detail)
        return found


@dataclass(slots=True)
class Answer:
    """All pages of a request, in order."""

    pages: Sequence[PageAnswer]
    crops: Sequence[Picture] = ()
    layouts: Sequence[Picture] = ()
    notes: list[str] = field(default_factory=list)

    def texts(self) -> dict[str, Any]:
        """Return `json_result`, a list of regions per page, and `markdown_result`."""
        pages = ((page.record, page.markdown) for page in self.pages)
        return {
            "json_result": [list(page.regions) for page in self.pages],
            "markdown_result": document_markdown(pages, "", page_markers=False),
        }


async def page_answer(number: int, record: PageRecord, request: DocumentRequest, folder: Path) -> PageAnswer:
    """Return the reply data of a page. Pictures are written to `folder`, so that a long document needs no memory."""
    return await asyncio.to_thread(_page_answer, number, record, request, folder)


def _page_answer(number: int, record: PageRecord, request: DocumentRequest, folder: Path) -> PageAnswer:
    names = {figure.id: f"{FOLDER}/{_file(figure)}" for figure in record.figures}
    figures = record.figures[: request.crops.most] if request.crops.wanted else ()
    crops = [_crop(number, figure, names[figure.id], folder) for figure in figures]
    layout, notes = None, []
    if request.layouts.wanted and record.image is not None:
        try:
            image = boxes_image(record.image, record.blocks)
            layout = _picture({"name": f"layout/{record.page_id}.jpg", "page": number}, image, folder)
        except PageFailure as failure:
            notes.append(f"layout_visualizations: page {number}: {failure.args[0]}")
    return PageAnswer(
        number,
        _without_images(record, number),
        _regions(record, names),
        _linked(record, names),
        crops,
        layout,
        notes,
    )


def answer_of(pages: Iterable[PageAnswer], request: DocumentRequest) -> Answer:
    """Return the pages in order, with at most the requested number of pictures."""
    ordered = sorted(pages, key=lambda page: page.number)
    crops = [crop for page in ordered for crop in page.crops]
    answer = Answer(ordered, crops[: request.crops.most], [page.layout for page in ordered if page.layout is not None])
    answer.notes += [note for page in ordered for note in page.notes]
    figures = sum(len(page.record.figures) for page in ordered)
    if request.crops.wanted and figures > len(answer.crops):
        answer.notes.append(f"crop_images: {len(answer.crops)} of {figures} (max_crop_images)")
    return answer


def _without_images(record: PageRecord, number: int) -> PageRecord:
    empty = EncodedImage(b"", "image/jpeg", 0, 0)
    figures = tuple(replace(figure, image=empty) for figure in record.figures)
    return replace(record, page_number=number, image=None, figures=figures, blocks=(), markdown="")


def _regions(record: PageRecord, names: Mapping[str, str]) -> list[dict[str, Any]]:
    found = []
    for index, block in enumerate(record.blocks):
        region: dict[str, Any] = {
            "index": index,
            "label": block.label or block.kind.value,
            "content": block.text or block.described or block.inside or None,
            "bbox_2d": _thousandths(block.box),
        }
        if block.figure_id in names:
            region["image_path"] = names[block.figure_id]
        found.append(region)
    return found


def _thousandths(box: Box) -> list[int]:
    return [round(side * _SCALE) for side in (box.x0, box.y0, box.x1, box.y1)]


def _linked(record: PageRecord, names: Mapping[str, str]) -> str:
    """Return the page's Markdown with the figures' texts and the files of their crops."""
    texts = {one.id: FigureText(one.described, one.caption, one.label) for one in record.figures}
    markdown = enrich(record.markdown, texts)

    def to_file(image: Any) -> str:
        name = names.get(target_id(image["target"]) or "")
        return (
            f"![{image['alt']}]({FOLDER}/{encode_target(name.removeprefix(FOLDER + '/'))})" if name else str(image[0])
        )

    return map_prose(markdown, lambda text: IMAGE.sub(to_file, text)) if names else markdown


def _file(figure: Figure) -> str:
    return f"{safe_segment(figure.id)}.{image_extension(figure.image.media_type)}"


def _crop(number: int, figure: Figure, name: str, folder: Path) -> Picture:
    about = {"name": name, "page": number, "label": figure.label, "bbox_2d": _thousandths(figure.box)}
    return _picture(about, figure.image, folder)


def _picture(about: Mapping[str, Any], image: EncodedImage, folder: Path) -> Picture:
    file = folder / str(about["name"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(image.data)
    return Picture({**about, "media_type": image.media_type, "width": image.width, "height": image.height}, file)


def size_of(reply: Mapping[str, Any]) -> int:
    """Return the bytes of a reply as JSON."""
    return len(json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass"))


# Replies within RunPod's limits: parts that are too large are written to the workspace, and replaced by URLs.


#: Folder below the workspace.
REPLIES = "replies"


class Replies:
    """Builder of replies. Blocking: a reply may be written to a store."""

    def __init__(self, settings: WorkerSettings, about: Mapping[str, Any]) -> None:
        self._settings = settings
        self._limit = int(settings.reply_limit * 1_000_000)
        self._about = about

    def reply(self, job: str, answer: Answer, request: DocumentRequest) -> dict[str, Any]:
        """Return the reply, with pictures as base64 or URLs, and texts as URLs if they are too large.

        Raises:
            LlmOcrError: The reply is too large and there is no workspace.
            StorageError: The store fails.
        """
        place = _Place(self._settings, job)
        kinds = {
            "crop_images": (answer.crops, request.crops),
            "layout_visualizations": (answer.layouts, request.layouts),
        }
        rest = {**answer.texts(), "pages": [page.about() for page in answer.pages], **self._about}
        inline = sum(_in_base64(pictures) for pictures, wish in kinds.values() if wish.inline)
        plain = size_of(rest) + sum(size_of({"": [one.about for one in pictures]}) for pictures, _ in kinds.values())
        if plain + inline > self._limit and not place.there:
            raise LlmOcrError(
                f"the reply of {(plain + inline) / 1e6:.1f} MB exceeds the limit of a reply, "
                f"{self._settings.reply_limit:g} MB",
                hint="Set a workspace for large replies on the endpoint (LLM_OCR_WORKSPACE=s3://bucket/prefix). "
                "Or request fewer pages (start_page, end_page), or no images in base64.",
            )
        for name, (pictures, wish) in kinds.items():
            keep = wish.inline and plain + inline <= self._limit
            rest[name] = [_with_data(one) if keep else {**one.about, **place.url_of(one)} for one in pictures]
            if pictures and not wish.inline and not place.there:
                answer.notes.append(f"{name}: image data is not included; set {_how(name)} or LLM_OCR_WORKSPACE")
        if plain > self._limit:
            rest |= place.texts(rest)
        if answer.notes:
            rest["notes"] = list(answer.notes)
        return rest


class _Place:
    """Folder of one reply's objects. The name is unguessable, and no job replaces the objects of another."""

    def __init__(self, settings: WorkerSettings, job: str) -> None:
        self.there = settings.workspace != NONE
        self._settings = settings
        self._store: ObjectStore | None = None
        self._prefix = f"{REPLIES}/{safe_segment(job)}-{secrets.token_hex(8)}"

    def url_of(self, picture: Picture) -> dict[str, str]:
        """Return the URL of a picture; empty without a workspace."""
        if not self.there:
            return {}
        key = f"{self._prefix}/{picture.name}"
        self._opened().upload(picture.file, key)
        return {"url": self._url(key)}

    def texts(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """Return the URLs of the texts in place of the texts."""
        data = {
            "json_result": ("result.json", json.dumps(reply["json_result"], ensure_ascii=False)),
            "markdown_result": ("document.md", str(reply["markdown_result"])),
        }
        found: dict[str, Any] = {}
        for name, (file, text) in data.items():
            key = f"{self._prefix}/{file}"
            self._opened().put(key, text.encode("utf-8", "replace"))
            found |= {name: None, f"{name}_url": self._url(key)}
        return found

    def _opened(self) -> ObjectStore:
        if self._store is None:
            self._store = open_store(self._settings.workspace, workspace_options(self._settings))
        return self._store

    def _url(self, key: str) -> str:
        return f"{self._opened().url.rstrip('/')}/{key}"


def _how(name: str) -> str:
    return "crop_images_base64" if name == "crop_images" else "layout_visualization_base64"


def _in_base64(pictures: Sequence[Picture]) -> int:
    return sum(4 * -(-one.size // 3) for one in pictures)


def _with_data(picture: Picture) -> dict[str, Any]:
    return {**picture.about, "base64": base64.b64encode(picture.file.read_bytes()).decode("ascii")}
