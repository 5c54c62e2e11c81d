"""Replies within RunPod's size limit; large parts become URLs in the workspace.

The keys of a reply are those of GLM-OCR's worker.
"""

import base64
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from llm_ocr.types import Box, EncodedImage, PageRecord
from llm_ocr.workspace.stored import workspace_options
from llm_ocr_platforms.runpod.inputs import DocumentRequest, advised

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


def page_answer(number: int, record: PageRecord, request: DocumentRequest, folder: Path) -> PageAnswer:
    """Return the reply data of a page. Pictures are written to `folder`, so that a long document needs no memory."""
    names = {}
    for figure in record.figures:
        names[figure.id] = f"{FOLDER}/{safe_segment(figure.id)}.{image_extension(figure.image.media_type)}"
    crops = []
    for figure in record.figures[: request.crops.most] if request.crops.wanted else ():
        about = {"name": names[figure.id], "page": number, "label": figure.label, "bbox_2d": _thousandths(figure.box)}
        crops.append(_picture(about, figure.image, folder))
    layout, notes = None, []
    if request.layouts.wanted and record.image is not None:
        try:
            image = boxes_image(record.image, record.blocks)
            layout = _picture({"name": f"layout/{record.page_id}.jpg", "page": number}, image, folder)
        except PageFailure as failure:
            notes.append(f"layout_visualizations: page {number}: {failure.args[0]}")
    regions = []
    for index, block in enumerate(record.blocks):
        region: dict[str, Any] = {
            "index": index,
            "label": block.label or block.kind.value,
            "content": block.text or block.described or block.inside or None,
            "bbox_2d": _thousandths(block.box),
        }
        if block.figure_id in names:
            region["image_path"] = names[block.figure_id]
        regions.append(region)
    # The Markdown has the texts of the figures, and links to the files of their crops.
    texts = {figure.id: FigureText(figure.described, figure.caption, figure.label) for figure in record.figures}
    markdown = enrich(record.markdown, texts)

    def to_file(link: Any) -> str:
        name = names.get(target_id(link["target"]) or "")
        if not name:
            return str(link[0])
        return f"![{link['alt']}]({FOLDER}/{encode_target(name.removeprefix(FOLDER + '/'))})"

    if names:
        markdown = map_prose(markdown, lambda text: IMAGE.sub(to_file, text))
    empty = EncodedImage(b"", "image/jpeg", 0, 0)
    figures = tuple(replace(figure, image=empty) for figure in record.figures)
    kept = replace(record, page_number=number, image=None, figures=figures, blocks=(), markdown="")
    return PageAnswer(number, kept, regions, markdown, crops, layout, notes)


def _thousandths(box: Box) -> list[int]:
    return [round(side * _SCALE) for side in (box.x0, box.y0, box.x1, box.y1)]


def _picture(about: Mapping[str, Any], image: EncodedImage, folder: Path) -> Picture:
    file = folder / str(about["name"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(image.data)
    return Picture({**about, "media_type": image.media_type, "width": image.width, "height": image.height}, file)


def size_of(reply: Mapping[str, Any]) -> int:
    """Return the bytes of a reply as JSON."""
    return len(json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass"))


#: Folder below the workspace.
REPLIES = "replies"


def reply_of(
    job: str,
    pages: Iterable[PageAnswer],
    request: DocumentRequest,
    settings: WorkerSettings,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the reply, with pictures as base64 or URLs, and texts as URLs if they are too large.

    It may be written to a store, which blocks.

    Args:
        job: Id of the job.
        pages: The pages of the request, in any order.
        request: The request.
        settings: The settings of the worker.
        about: The model, as values of the reply.

    Raises:
        LlmOcrError: The reply is too large and there is no workspace.
        StorageError: The store fails.
    """
    ordered = sorted(pages, key=lambda page: page.number)
    crops = [crop for page in ordered for crop in page.crops][: request.crops.most]
    layouts = [page.layout for page in ordered if page.layout is not None]
    notes = [note for page in ordered for note in page.notes]
    figures = sum(len(page.record.figures) for page in ordered)
    if request.crops.wanted and figures > len(crops):
        notes.append(f"crop_images: {len(crops)} of {figures} (max_crop_images)")
    rest: dict[str, Any] = {
        "json_result": [list(page.regions) for page in ordered],
        "markdown_result": document_markdown(
            ((page.record, page.markdown) for page in ordered), "", page_markers=False
        ),
        "pages": [page.about() for page in ordered],
        **about,
    }
    kinds = {"crop_images": (crops, request.crops), "layout_visualizations": (layouts, request.layouts)}
    place, limit = _Place(settings, job), int(settings.reply_limit * 1_000_000)
    plain, inline = size_of(rest), 0
    for pictures, wish in kinds.values():
        plain += size_of({"": [picture.about for picture in pictures]})
        if wish.inline:
            inline += sum(4 * -(-picture.size // 3) for picture in pictures)  # in base64
    if plain + inline > limit and not place.there:
        raise LlmOcrError(
            f"the reply of {(plain + inline) / 1e6:.1f} MB exceeds the limit of a reply, {settings.reply_limit:g} MB",
            hint="Set a workspace for large replies on the endpoint (LLM_OCR_WORKSPACE=s3://bucket/prefix). "
            "Or request fewer pages (start_page, end_page), or no images in base64.",
        )
    for name, (pictures, wish) in kinds.items():
        rest[name] = []
        for picture in pictures:
            if wish.inline and plain + inline <= limit:
                data = {"base64": base64.b64encode(picture.file.read_bytes()).decode("ascii")}
            else:
                data = place.url_of(picture)
            rest[name].append({**picture.about, **data})
        if pictures and not wish.inline and not place.there:
            flag = "crop_images_base64" if name == "crop_images" else "layout_visualization_base64"
            notes.append(f"{name}: image data is not included; set {flag} or LLM_OCR_WORKSPACE")
    if plain > limit:
        rest |= place.texts(rest)
    return {**rest, "notes": notes} if notes else rest


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
