"""How things end, and what blocks are."""

from enum import StrEnum


class Status(StrEnum):
    """How a page or a figure ended."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a page or a figure is not `ok`; stored in rows and shown to users as it stands here."""

    UNREADABLE = "unreadable"
    ENCRYPTED = "encrypted"
    NOT_FOUND = "not found"
    UNKNOWN_TYPE = "unknown type"
    SOURCE_CHANGED = "source changed"
    RENDER_TIMEOUT = "render timeout"
    RENDER_LIMIT = "render limit"
    RENDER_CRASHED = "render crashed"
    OCR_NOT_INSTALLED = "OCR not installed"
    SCRIPT_NOT_SUPPORTED = "script not supported"
    ENGINE_TIMEOUT = "engine timeout"
    ENGINE_LIMIT = "engine limit"
    ENGINE_ERROR = "engine error"
    NO_SUCH_PAGE = "no such page"
    LOOP = "repetition loop"
    TRUNCATED = "truncated"
    EMPTY = "empty answer"
    MALFORMED = "malformed answer"
    TOO_LONG = "prompt too long"
    REFUSED = "request refused"
    SERVER_ERROR = "server error"
    QUARANTINED = "quarantined"


class BlockKind(StrEnum):
    """What a block is, whatever label the model gave it."""

    TITLE = "title"
    HEADING = "heading"
    TEXT = "text"
    LIST_ITEM = "list_item"
    TABLE = "table"
    FORMULA = "formula"
    CODE = "code"
    FIGURE = "figure"
    CAPTION = "caption"
    FOOTNOTE = "footnote"
    HEADER = "header"
    FOOTER = "footer"
    PAGE_NUMBER = "page_number"


#: Kept in the layout, left out of the Markdown body.
FURNITURE = frozenset({BlockKind.HEADER, BlockKind.FOOTER, BlockKind.PAGE_NUMBER})
