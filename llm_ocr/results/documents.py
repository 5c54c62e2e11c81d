"""Write the pages of a document as one Markdown file with figures and each head once, and make safe file names."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, count
from pathlib import PurePosixPath
from typing import NamedTuple

from llm_ocr.documents.furniture import without_page_numbers
from llm_ocr.results.joining import is_cjk, join, vocabulary
from llm_ocr.results.markdown import IMAGE, blocks_to_markdown, clean, encode_target, map_prose, target_id, unescape
from llm_ocr.results.schema import image_extension
from llm_ocr.types import FURNITURE, Block, BlockKind, DocumentPart, Figure, PageRecord, Status

# Names in the Markdown tree: any path below a source root becomes a path that every store and file system accepts. Two
# documents may have the same name: their paths differ only in replaced characters, in case (which macOS and Windows
# ignore), or in their source root. The first document in the order of the plan keeps the plain name; each later
# document's name includes its document id. The order of the plan never changes and new generations are appended. So
# every worker makes the same names, and a later generation renames only documents whose file has been replaced.


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
    if len(name.encode()) <= longest:
        return name
    extension = PurePosixPath(name).suffix
    if len(extension.encode()) > _LONGEST_EXTENSION:
        extension = ""
    tail = f"-{_digest(name)}{extension}"
    head = name.encode()[: longest - len(tail.encode())].decode(errors="ignore")
    return head.rstrip(". ") + tail


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


class NameClaim(NamedTuple):
    """A document, its path below the source root, the path or URL of its file, and the file's version."""

    document_id: str
    relative: str
    source: str
    version: str


def name_claims(part: DocumentPart) -> Iterator[NameClaim]:
    """Yield a claim for each path of the part's document. Copies of the document lie below the same source root."""
    root = part.source.removesuffix(part.relative)
    for path in (part.relative, *part.aliases):
        source = part.source if path == part.relative else f"{root}{path}"
        yield NameClaim(part.document_id, path, source, part.version)


@dataclass(frozen=True, slots=True)
class DocumentNames:
    """Names of the documents' files below `documents/`, made once per run from all documents of the plan."""

    renamed: Mapping[tuple[str, str], str]  # documents without their plain name

    @classmethod
    def of_plan(cls, claims: Iterable[NameClaim]) -> "DocumentNames":
        """Return the names of the documents in the order of the plan; claims may repeat.

        A file that has been replaced is a new document in the plan. It takes the plain name, and the older document is
        renamed. Needs about 300 bytes of memory per document.
        """
        book = _Book()
        renamed: dict[tuple[str, str], str] = {}
        holders: dict[int, tuple[str, int]] = {}  # document and version with a plain name, by file and name
        replaced: dict[tuple[str, str], None] = {}
        for document_id, relative, source, version in claims:
            if (document_id, relative) in replaced:
                continue
            plain, owner, file = safe_path(relative), _owner(document_id, relative), _owner(source, relative)
            holder = document_id, _number(version)
            before = holders.get(file, holder)
            if version and before[0] != document_id and before[1] != holder[1]:
                book.give(plain, owner)
                replaced[before[0], relative] = None
            elif not book.take(plain, owner):
                renamed[document_id, relative] = book.take_other(plain, document_id, owner)
                continue
            holders[file] = holder
        for document_id, relative in replaced:  # last, so that no other document loses its name
            renamed[document_id, relative] = book.take_other(
                safe_path(relative), document_id, _owner(document_id, relative)
            )
        return cls(renamed)

    def of(self, document_id: str, relative: str) -> str:
        """Return the name for `markdown_file` and `figure_file`; the plain name for a document outside of the plan."""
        return self.renamed.get((document_id, relative)) or safe_path(relative)


def _owner(document_or_file: str, relative: str) -> int:
    return _number(f"{clean(document_or_file)}\0{clean(relative)}")


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])


class _Book:
    """Names in use, stored as numbers: a run may have millions."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}
        self._folders: set[int] = set()

    def take(self, name: str, owner: int) -> bool:
        """Reserve the name for the owner; return False if it is taken, or if a file and a folder would collide."""
        path = unicodedata.normalize("NFC", f"{name}.md".casefold())
        file, folders = _number(path), [_number(str(folder)) for folder in PurePosixPath(path).parents]
        if self._files.get(file, owner) != owner or file in self._folders or any(f in self._files for f in folders):
            return False
        self._files[file] = owner
        self._folders.update(folders)
        return True

    def give(self, name: str, owner: int) -> None:
        """Give a reserved name to another owner."""
        self._files[_number(unicodedata.normalize("NFC", f"{name}.md".casefold()))] = owner

    def take_other(self, name: str, document_id: str, owner: int) -> str:
        """Reserve the first free name that includes the document's id."""
        path, mark = PurePosixPath(name), safe_segment(document_id, _LONGEST_ID)
        others = chain(
            (str(path.with_name(f"{path.stem}-{mark}{path.suffix}")), f"_{mark}/{path.name}"),
            (f"_{mark}-{number}/{path.name}" for number in count(2)),
        )
        return next(other for other in others if self.take(other, owner))


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
    figures point to their files. Without markers, a paragraph or table that continues on the next page is whole.

    Args:
        pages: pages with their final Markdown.
        name: name of the document from `DocumentNames`.
        page_markers: whether each page begins with a comment.
    """
    ordered = sorted(pages, key=lambda page: page[0].page_number or 0)
    records = [record for record, _ in ordered]
    texts = [_with_files(markdown.strip("\n"), record.figures, name) for record, markdown in ordered]
    if not page_markers:
        texts = _joined(records, texts, _BESIDE_PARAGRAPHS, _paragraph)
        texts = _joined(records, texts, _NOTES, _table)
    parts: list[str] = []
    for record, text in zip(records, texts, strict=True):
        subject = "document" if record.page_number is None else f"page {record.page_number}"
        if record.status is Status.FAILED:
            parts.append(f"<!-- {subject} failed{f': {record.reason.value}' if record.reason else ''} -->")
            continue
        if page_markers:
            parts.append(f"<!-- {subject} -->")
        if text:
            parts.append(text)
    return "\n\n".join(parts) + "\n"


def _with_files(markdown: str, figures: Iterable[Figure], name: str) -> str:
    folder = f"{PurePosixPath(name).name}.figures"
    files = {figure.id: f"{encode_target(folder)}/{encode_target(_file_name(figure))}" for figure in figures}

    def to_file(image: re.Match[str]) -> str:
        file = files.get(target_id(image["target"]) or "")
        return f"![{image['alt']}]({file})" if file else image[0]

    return map_prose(markdown, lambda text: IMAGE.sub(to_file, text)) if files else markdown


def _file_name(figure: Figure) -> str:
    return f"{safe_segment(figure.id)}.{image_extension(figure.image.media_type)}"


# Paragraphs and tables that continue on the next page. The blocks of a page name its last and its first text. A text is
# moved only if the page's Markdown has it once: texts that another stage has changed stay where they are.


_CLOSING = re.compile(r"(?:<su([pb])>[^<>]{0,30}</su\1>|[*_\s\"'”’»)\]」』）])+$")
_OPENING = re.compile(r"[*_\"'“‘«(\[]*")
_ENDS = tuple(".!?:;…。！？：；؟۔।")
_MATH = range(0x1D400, 0x1D800)  # letters of formulas
_LISTED = re.compile(r"(?:[a-z]|[ivx]+)[.)]\s")
#: Fewest characters of a text that continues: labels of forms have no sentence end either.
_RUNNING = 20
_RULE_ROW = re.compile(r"\|(?: *:?-+:? *\|)+")
_HTML_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_TABLE_END = re.compile(r"\s*(?:</tbody>\s*)?</table>\s*$")
#: Greatest difference between the side edges of a table's parts, as a share of the page.
_SAME_EDGE = 0.01


#: Kinds of blocks that do not interrupt a table, or a paragraph.
_NOTES = FURNITURE | {BlockKind.FOOTNOTE}
_BESIDE_PARAGRAPHS = _NOTES | {BlockKind.CAPTION, BlockKind.FIGURE, BlockKind.TABLE}


def _joined(
    records: Sequence[PageRecord],
    texts: Sequence[str],
    aside: Set[BlockKind],
    joined: Callable[[str, Block, Block], str],
) -> list[str]:
    """Return the pages' texts with each continuation moved to the page on which its paragraph or table begins.

    Args:
        records: The pages.
        texts: Their Markdown.
        aside: Kinds of blocks that do not interrupt the texts.
        joined: Takes the text so far, the block that it comes from, and the next block. Returns the whole text, or ""
            for texts that do not belong together.
    """
    found = list(texts)
    open_text, start, last, number = "", 0, None, None
    for index, record in enumerate(records):
        body = [block for block in record.blocks if block.kind not in aside and _tidy(block)]
        if record.blocks and not body and number is not None and record.page_number == number + 1:
            number += 1  # a page of figures
            continue
        whole, rest = "", None
        if body and last and number is not None and record.page_number == number + 1:
            whole = joined(open_text, last, body[0])
            rest = _without(found[index], _tidy(body[0])) if whole else None
        home = found[start]
        # The text so far must be there once, at the end of a line.
        if rest is not None and home.count(open_text) == 1 and home.partition(open_text)[2][:1] in ("", "\n"):
            found[start], found[index] = home.replace(open_text, whole), rest
            open_text = whole
        else:
            rest = None
        number, last = record.page_number, body[-1] if body else None
        if last and (rest is None or len(body) > 1):
            # A paragraph or list item goes on after its last line, a table after all of its text.
            text, start = _tidy(last), index
            open_text = text if last.kind is BlockKind.TABLE else text.rpartition("\n")[2].strip()
    return found


def _tidy(block: Block) -> str:
    return clean(block.text).strip()


def _without(markdown: str, text: str) -> str | None:
    """Return the Markdown without a text between blank lines; None if it is not there exactly once."""
    before, found, after = markdown.partition(text)
    alone = (not before or before.endswith("\n\n")) and (not after or after.startswith("\n\n"))
    if not found or text in after or not alone:
        return None
    return "\n\n".join(part for part in (before.strip("\n"), after.strip("\n")) if part)


def _paragraph(text: str, last: Block, block: Block) -> str:
    """Join a paragraph whose sentence or word does not end with a text that begins like its rest."""
    more = _tidy(block)
    if block.kind is not BlockKind.TEXT or last.kind not in (BlockKind.TEXT, BlockKind.LIST_ITEM):
        return ""
    if len(_tidy(last)) < _RUNNING or (last.kind is BlockKind.LIST_ITEM and "\n" in more) or _LISTED.match(more):
        return ""
    end, begin = _CLOSING.sub("", text), _OPENING.sub("", more, count=1)[:1]
    if end.endswith(_ENDS) or not end:
        return ""
    caseless = is_cjk(end[-1]) and (end[-1].isalpha() or end[-1] in "，、") and begin.isalpha() and is_cjk(begin)
    if begin.islower() and ord(begin) not in _MATH:
        return join(text, more, vocabulary((text, more)))
    return text + more if caseless and min(len(text), len(more)) >= _RUNNING else ""


def _table(text: str, last: Block, block: Block) -> str:
    """Join tables with the same columns: the header is repeated, or the second has values in its place."""
    more = _tidy(block)
    if not last.kind is block.kind is BlockKind.TABLE:
        return ""
    if text.startswith("<table") and more.startswith("<table"):
        first, second, end = _HTML_ROW.findall(text), _HTML_ROW.findall(more), _TABLE_END.search(text)
        pairs = enumerate(zip(first, second, strict=False))
        same = next((at for at, (upper, lower) in pairs if upper.split() != lower.split()), 0)
        return "\n".join((text[: end.start()], *second[same:])) + text[end.start() :] if same and end else ""
    (header, rule), (again, second_rule), rows = _head(text), _head(more), more.split("\n")[2:]
    if not rule or rule.count("|") != second_rule.count("|"):
        return ""
    if header.split() == again.split() and header.strip("| "):
        return "\n".join((text, *rows))
    box, other = last.box, block.box
    if abs(box.x0 - other.x0) > _SAME_EDGE or abs(box.x1 - other.x1) > _SAME_EDGE:
        return ""
    names = [re.search(r"\d", cell) is None and cell.strip() != "" for cell in header.split("|")]
    values = [re.search(r"\d", cell) is not None for cell in again.split("|")]
    is_row = len(names) == len(values) and any(name and value for name, value in zip(names, values, strict=True))
    return "\n".join((text, again, *rows)) if is_row else ""


def _head(table: str) -> tuple[str, str]:
    """Return the first two lines of a pipe table; empty for other text."""
    first, _, rest = table.partition("\n")
    rule = rest.partition("\n")[0]
    return (first, rule) if _RULE_ROW.fullmatch(rule) else ("", "")


# Running heads and feet stay in the Markdown where they are the only place of a word, number, or date.


_WORD = re.compile(r"[^\W_]+(?:[-.,/:'’][^\W_]+)*")
#: Number at an end of a running head without other digits: `HARBOUR GUIDE 17`.
_AT_END = re.compile(r"(?P<number>\d{1,4})\s+(?P<text>\D+)|(?P<before>\D+)\s+(?P<last>\d{1,4})")
#: Kinds of kept heads and feet. Paragraphs continue on the next page across footnotes.
_KEPT_AS = {BlockKind.HEADER: BlockKind.TEXT, BlockKind.FOOTER: BlockKind.FOOTNOTE}


def with_only_places(records: Iterable[PageRecord]) -> Iterator[PageRecord]:
    """Yield the pages with the running heads and feet that no earlier page of their document has.

    These become text and footnotes, so that each is in a document's Markdown once. Page numbers that count make no
    difference. Heads without numbers whose words are all in the text, such as a title, are left out. Pages whose
    Markdown is not that of their blocks are unchanged: a user's own stage has edited them, or the settings keep
    furniture.

    Args:
        records: Pages in the order of their documents.
    """
    seen = _Seen("")
    for record in records:
        if record.document_id != seen.document_id:
            seen = _Seen(record.document_id)
        seen.words |= _words(unescape(record.markdown))
        # A text layer shows which numbers are apart from a head; other readers join both.
        joined = record.text_source != "text-layer"
        blocks = tuple(seen.kept(block, record.page_number or 0, joined) for block in record.blocks)
        if blocks != record.blocks and record.markdown == blocks_to_markdown(record.blocks):
            record = replace(record, blocks=blocks, markdown=blocks_to_markdown(blocks))
        yield record


@dataclass(slots=True)
class _Seen:
    """Words and heads of a document's pages so far; the last page and number of heads with a number at an end."""

    document_id: str
    words: set[str] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    numbered: dict[str, tuple[int, int]] = field(default_factory=dict)

    def kept(self, block: Block, page: int, joined: bool) -> Block:
        """Return the block as text or footnote if it is new, and remember it; otherwise the block itself.

        Args:
            block: A block of the page.
            page: Number of the page.
            joined: Whether a number at an end of a head may be the page's.
        """
        if block.kind not in _KEPT_AS:
            return block
        head = " ".join(without_page_numbers(unescape(block.text))[0].casefold().split())
        words = _words(head)
        numbers = any(map(str.isdigit, head))
        new = bool(words) and head not in self.heads and (numbers or not words <= self.words)
        if joined and (found := _AT_END.fullmatch(head)):
            text, number = found["text"] or found["before"], int(found["number"] or found["last"])
            last = self.numbered.get(text)
            self.numbered[text] = page, number
            new = new and not (last is not None and number - last[1] == page - last[0])
        self.heads.add(head)
        self.words |= words
        return replace(block, kind=_KEPT_AS[block.kind]) if new else block


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
