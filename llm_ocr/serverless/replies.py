"""From an answer to a reply that RunPod takes: what is too large for one goes to the workspace, as URLs."""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.errors import LlmOcrError
from llm_ocr.results.paths import safe_segment
from llm_ocr.serverless.answers import Answer, Picture, size_of
from llm_ocr.serverless.inputs import DocumentRequest
from llm_ocr.settings.serverless import NONE, WorkerSettings
from llm_ocr.storage import ObjectStore, open_store
from llm_ocr.work.stored import workspace_options

#: Below the workspace.
FOLDER = "replies"


class Replies:
    """Makes replies. Blocking: it may write to a store."""

    def __init__(self, settings: WorkerSettings, about: Mapping[str, Any]) -> None:
        self._settings = settings
        self._limit = int(settings.reply_limit * 1_000_000)
        self._about = about

    def reply(self, job: str, answer: Answer, request: DocumentRequest) -> dict[str, Any]:
        """Pictures in it as base64 or at their URLs; the texts, too, at URLs where they are too large.

        Raises `LlmOcrError` when it is too large and there is no workspace; `StorageError`.
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
                f"the reply has {(plain + inline) / 1e6:.1f} MB, more than a reply may have "
                f"({self._settings.reply_limit:g} MB)",
                hint="Give the endpoint a workspace for such replies (LLM_OCR_WORKSPACE=s3://bucket/prefix, or gs://), "
                "or ask for fewer pages (start_page, end_page), or without pictures in base64.",
            )
        for name, (pictures, wish) in kinds.items():
            keep = wish.inline and plain + inline <= self._limit
            rest[name] = [_with_data(one) if keep else {**one.about, **place.url_of(one)} for one in pictures]
            if pictures and not wish.inline and not place.there:
                answer.notes.append(f"{name}: without their data; {_how(name)} or LLM_OCR_WORKSPACE brings them")
        if plain > self._limit:
            rest |= place.texts(rest)
        if answer.notes:
            rest["notes"] = list(answer.notes)
        return rest


class _Place:
    """Where one reply's objects go; the name cannot be guessed, and no job's replaces another's."""

    def __init__(self, settings: WorkerSettings, job: str) -> None:
        self.there = settings.workspace != NONE
        self._settings = settings
        self._store: ObjectStore | None = None
        self._prefix = f"{FOLDER}/{safe_segment(job)}-{secrets.token_hex(8)}"

    def url_of(self, picture: Picture) -> dict[str, str]:
        """Nothing where there is no workspace."""
        if not self.there:
            return {}
        key = f"{self._prefix}/{picture.name}"
        self._opened().upload(picture.file, key)
        return {"url": self._url(key)}

    def texts(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """In place of the texts: their URLs."""
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
