"""Write the pages of a document as one Markdown file with figures, and make safe file names."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from llm_ocr.results.markdown import IMAGE, clean, encode_target, map_prose, target_id
from llm_ocr.results.schema import image_extension
from llm_ocr.types import Figure, PageRecord, Status

# Names in the Markdown tree: any path below a source root becomes a path that every store and file system accepts. Two
# documents may have the same name: their paths differ only in replaced characters, in case (which macOS and Windows
# ignore), or in their source root. The first document in the order of the plan keeps the plain name; each later
# document's name includes its document id. The order of the plan never changes and new generations are appended. So
# every worker makes the same names, and no later generation renames an older file.


# Reserved on Windows or in URLs of stores, control characters, and characters that change the direction of text.
_RESERVED = re.compile(r'[<>:"|?*\\/\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffe\uffff]')
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)

# Common file systems limit file names to 255 bytes, S3 and GCS keys to 1,024; both limits leave room for suffixes.
_LONGEST_SEGMENT = 180
_LONGEST_PATH = 600
_LONGEST_ID = 64
_LONGEST_EXTENSION = 16


def safe_path(relative: str) -> str:
    """Return the path with safe segments (see `safe_segment`); never absolute, empty, or with a parent reference."""
    parts = [safe_segment(part) for part in relative.split("/") if part not in ("", ".")]
    path = "/".join(parts) or "_"
    if len(path.encode()) <= _LONGEST_PATH:
        return path
    return f"_{_digest(path)}/{parts[-1]}"


def safe_segment(name: str, longest: int = _LONGEST_SEGMENT) -> str:
    """Return a safe path segment: reserved and control characters become `_`, trailing dots and spaces are removed.

    A name of more than `longest` bytes of UTF-8 is cut and extended by its hash; its extension is kept.
    """
    name = _RESERVED.sub("_", unicodedata.normalize("NFC", clean(name)))
    name = name.strip(" ").rstrip(". ")
    if not name or _DEVICES.match(name):
        name = f"_{name}"
    return name if len(name.encode()) <= longest else _cut(name, longest)


def _cut(name: str, longest: int) -> str:
    extension = PurePosixPath(name).suffix
    if len(extension.encode()) > _LONGEST_EXTENSION:
        extension = ""
    tail = f"-{_digest(name)}{extension}"
    head = name.encode()[: longest - len(tail.encode())].decode(errors="ignore")
    return head.rstrip(". ") + tail


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class DocumentNames:
    """Names of the documents' files below `documents/`, made once per run from all documents of the plan."""

    renamed: Mapping[tuple[str, str], str]  # documents without their plain name

    @classmethod
    def of_plan(cls, claims: Iterable[tuple[str, str]]) -> "DocumentNames":
        """Return the names from pairs of document id and relative path in the order of the plan; pairs may repeat.

        Needs about 200 bytes of memory per document.
        """
        book = _Book()
        renamed: dict[tuple[str, str], str] = {}
        for document_id, relative in claims:
            plain = safe_path(relative)
            if not book.take(plain, _owner(document_id, relative)):
                renamed[document_id, relative] = book.take_other(plain, document_id, _owner(document_id, relative))
        return cls(renamed)

    def of(self, document_id: str, relative: str) -> str:
        """Return the name for `markdown_file` and `figure_file`; the plain name for a document outside of the plan."""
        return self.renamed.get((document_id, relative)) or safe_path(relative)


def _owner(document_id: str, relative: str) -> int:
    return _number(f"{clean(document_id)}\0{clean(relative)}")


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])


class _Book:
    """Names in use, stored as numbers: a run may have millions."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._folders: set[int] = set()

    def take(self, name: str, owner: int) -> bool:
        """Reserve the name for the owner; return False if it is taken, or if a file and a folder would collide."""
        path = _folded(f"{name}.md")
        file, folders = _number(path), [_number(str(folder)) for folder in PurePosixPath(path).parents]
        if self._files.get(file, owner) != owner or file in self._folders or any(f in self._files for f in folders):
            return False
        self._files[file] = owner
        self._folders.update(folders)
        return True

    def take_other(self, name: str, document_id: str, owner: int) -> str:
        return next(other for other in _others(name, document_id) if self.take(other, owner))


def _others(name: str, document_id: str) -> Iterator[str]:
    path, mark = PurePosixPath(name), safe_segment(document_id, _LONGEST_ID)
    yield str(path.with_name(f"{path.stem}-{mark}{path.suffix}"))
    yield f"_{mark}/{path.name}"
    number = 1
    while True:
        number += 1
        yield f"_{mark}-{number}/{path.name}"


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path.casefold())


# Documents as Markdown, with figures in a sibling folder: documents/reports/a.pdf.md and
# documents/reports/a.pdf.figures/<figure id>.png


#: Folder of the Markdown tree in a workspace.
FOLDER = "documents"


def markdown_file(name: str) -> str:
    """Return the key of a document's Markdown; `name` is from `DocumentNames`."""
    return f"{FOLDER}/{name}.md"


def figure_file(name: str, figure: Figure) -> str:
    """Return the key of a figure's image, whose bytes are stored unchanged."""
    return f"{FOLDER}/{name}.figures/{_file_name(figure)}"


def document_markdown(pages: Iterable[tuple[PageRecord, str]], name: str, *, page_markers: bool = True) -> str:
    """Return a document's Markdown, in page order, ending with a newline.

    Each page begins with `<!-- page 3 -->` unless `page_markers` is off. A failed page always leaves `<!-- page 4
    failed: render timeout -->`, a document that could not be opened `<!-- document failed: encrypted -->`. Links to
    figures point to their files.

    Args:
        pages: pages with their final Markdown.
        name: name of the document from `DocumentNames`.
        page_markers: whether each page begins with a comment.
    """
    ordered = sorted(pages, key=lambda page: page[0].page_number or 0)
    parts = [part for record, markdown in ordered for part in _page(record, markdown, name, page_markers)]
    return "\n\n".join(parts) + "\n"


def _page(record: PageRecord, markdown: str, name: str, page_markers: bool) -> Iterator[str]:
    what = "document" if record.page_number is None else f"page {record.page_number}"
    if record.status is Status.FAILED:
        reason = f": {record.reason.value}" if record.reason else ""
        yield f"<!-- {what} failed{reason} -->"
        return
    if page_markers:
        yield f"<!-- {what} -->"
    if text := markdown.strip("\n"):
        yield _with_files(text, record.figures, name)


def _with_files(markdown: str, figures: Iterable[Figure], name: str) -> str:
    folder = f"{PurePosixPath(name).name}.figures"
    files = {figure.id: f"{encode_target(folder)}/{encode_target(_file_name(figure))}" for figure in figures}

    def to_file(image: re.Match[str]) -> str:
        file = files.get(target_id(image["target"]) or "")
        return f"![{image['alt']}]({file})" if file else image[0]

    return map_prose(markdown, lambda text: IMAGE.sub(to_file, text)) if files else markdown


def _file_name(figure: Figure) -> str:
    return f"{safe_segment(figure.id)}.{image_extension(figure.image.media_type)}"
