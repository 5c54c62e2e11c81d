"""Documents as they are planned: counted, estimated or failed; and when two of them are the same one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from llm_ocr.types import ALL_PAGES, DocumentPart, Reason, Wanted
from llm_ocr.work import codec
from llm_ocr.work.ids import document_id
from llm_ocr.work.numbers import number_of
from llm_ocr.work.wanted import no_such_page


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """A document with its pages counted. `pages` are the selected ones, ascending, from 1.

    `reason` is set for a document that could not be opened, which has no pages; it is one expected, failed page.
    """

    source: str  # as the user can open it: absolute path or URL
    relative: str  # path below its source root
    version: str  # changes with the content; "" when it could not be read
    document_id: str | None  # the manifest's
    pages: tuple[int, ...]
    page_total: int
    reason: Reason | None = None
    detail: str = ""
    estimate: int = 0  # how many pages its size lets expect, where it was not opened: it has no `pages` then
    wanted: Wanted = ALL_PAGES  # what `pages` were selected by, or will be
    name_in_id: str = ""  # as in `SourceDocument`
    filtered: str = ""  # by which filter it is left out, and what that found: `language de`; `detail` says more

    @property
    def id(self) -> str:
        """The id in the plan."""
        name = self.name_in_id or self.relative
        return document_id(self.document_id, relative=name, version=self.version, source=self.source)


_FIELDS = tuple(one.name for one in fields(PlannedDocument))


def with_reason(document: PlannedDocument) -> PlannedDocument:
    """The document itself, or as a failed one when its selection has no page."""
    if document.pages or document.reason is not None or document.estimate:
        return document
    detail = document.detail or no_such_page(document.page_total)
    return replace(document, reason=Reason.NO_SUCH_PAGE, detail=detail)


def part_of(document: PlannedDocument, aliases: tuple[str, ...]) -> DocumentPart:
    """As it stands in the plan, all its pages in one part."""
    return DocumentPart(
        document_id=document.id,
        source=document.source,
        relative=document.relative,
        version=document.version,
        pages=document.pages,
        page_total=document.page_total,
        first_index=0,
        aliases=aliases,
        reason=document.reason,
        detail=document.detail,
        estimate=document.estimate,
        wanted=ALL_PAGES if document.pages else document.wanted,
    )


def counted_content(version: str, pages: Iterable[int]) -> str:
    """What a counted document is known by."""
    return f"{version}\0{codec.pages_to_text(pages)}"


def asked_content(version: str, wanted: Wanted) -> str:
    """What a document is known by that was not counted."""
    return f"{version}\0{wanted.named}\0{wanted.ranges}\0{wanted.most}"


def content_of(document: PlannedDocument) -> str:
    """What the document is known by: the same text stands for the same content and pages."""
    if document.estimate:
        return asked_content(document.version, document.wanted)
    return counted_content(document.version, document.pages)


def contents_of(document: PlannedDocument) -> tuple[int, ...]:
    """The contents under which the same document may be planned: counted then or not, opened then or not."""
    version = document.version
    texts = (content_of(document), asked_content(version, document.wanted), counted_content(version, ()))
    return tuple(number_of(text) for text in texts)


def document_to_json(document: PlannedDocument) -> dict[str, Any]:
    """JSON values, for the spool."""
    value = {name: getattr(document, name) for name in _FIELDS}  # `asdict` would copy all pages
    return value | {"pages": codec.pages_to_text(document.pages), "wanted": codec.wanted_to_json(document.wanted)}


def document_from_json(value: Mapping[str, Any]) -> PlannedDocument:
    """The inverse of `document_to_json`."""
    reason = Reason(value["reason"]) if value["reason"] else None
    pages, wanted = codec.pages_from_text(value["pages"]), Wanted(**value["wanted"])
    return PlannedDocument(**{**value, "pages": pages, "wanted": wanted, "reason": reason})
