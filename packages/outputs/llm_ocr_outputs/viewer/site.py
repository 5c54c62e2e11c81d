"""Write the static site: pages first, then the lists. Memory is bounded."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib.resources import as_file, files
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from secrets import token_hex
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.results.figure_text import figure_words
from llm_ocr.results.markdown import clean
from llm_ocr.results.schema import image_extension
from llm_ocr.storage.names import OF_FILE_MANAGERS, split_scheme
from llm_ocr.types import Status
from llm_ocr_outputs.viewer.comparing import compare
from llm_ocr_outputs.viewer.index import Catalogue, SearchIndex, write_data
from llm_ocr_outputs.viewer.pages import EXCERPT, PageView, badness, flags, page_content

# Folder of a site: each write has its own subfolder, and `index.html` links to it when complete.


_MARKER = "llm-ocr-view.json"
_FORMAT = 1
_SITE = re.compile(r"site-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """One write of a site. `site` is new and unused before `publish`."""

    output: Path
    site: Path

    @property
    def index(self) -> Path:
        """File that the user opens."""
        return self.output / "index.html"

    def publish(self, facts: dict[str, Any]) -> None:
        """Let `index.html` show this site, and remove the previous one."""
        write_data(self.site / "data", "site", facts)
        with as_file(files("llm_ocr_outputs.viewer") / "site") as ours:
            shutil.copytree(ours, self.site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("index.html"))
            page = (ours / "index.html").read_text(encoding="utf-8")
        page = page.replace("{site}", self.site.name).replace("{title}", escape(clean(str(facts["title"]))))
        temporary = self.site / "index.html.tmp"
        temporary.write_text(page, encoding="utf-8", newline="\n")
        temporary.replace(self.index)
        for other in self.output.iterdir():
            if _SITE.fullmatch(other.name) and other != self.site and other.is_dir() and not other.is_symlink():
                shutil.rmtree(other)

    def discard(self) -> None:
        """Remove the incomplete site; the previous one remains."""
        shutil.rmtree(self.site, ignore_errors=True)


def begin_site(output: Path) -> SiteFolder:
    """Begin a new site in the folder `output`, which is created if needed.

    Raises:
        UsageError: `output` is a URL, a file, or a folder with content other than an earlier site.
    """
    scheme, rest = split_scheme(output.as_posix())
    if scheme:
        raise UsageError(
            f"{scheme}:/{rest} is a URL, and a site is a folder on this machine",
            hint="Write it to a folder, and copy that there: `output=site`",
        )
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file", hint="Set `output` to a folder for the site.")
    names = {path.name for path in output.iterdir()} if output.is_dir() else set()
    if names - OF_FILE_MANAGERS and _MARKER not in names:
        raise UsageError(
            f"{output} has other content than a site of llm-ocr view",
            hint="Give an empty or a new folder: `output=site`",
        )
    output.mkdir(parents=True, exist_ok=True)
    (output / _MARKER).write_text(json.dumps({"format": _FORMAT}) + "\n", encoding="utf-8")
    site = output / f"site-{token_hex(4)}"
    site.mkdir()
    return SiteFolder(output, site)


#: Per data file: rows of the list, documents, and pages. Page ids per bucket (approximate), images per folder.
ROWS, DOCUMENTS, PAGES, IDS, IMAGES = 200, 200, 10, 400, 1000

FIRST, SECOND = "first", "second"


class SiteWriter:
    """Writes data and images of a site to `folder`, which is new. Call `add` for each page, then `finish` once.

    With `compares`, call `add_other` for each page of the other reading in between.
    """

    def __init__(self, folder: Path, spool: Path, *, compares: bool = False) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._catalogue = Catalogue(spool)
        self._index = SearchIndex(self._catalogue.database)
        self._compares = compares
        self._unbalanced = [0, 0]  # pages with unread ink, and with unsupported text
        self._chunk: list[Any] = []
        self._count = 0

    def close(self) -> None:
        """Close the temporary database; the caller removes its file."""
        self._catalogue.close()

    def add(self, view: PageView) -> None:
        """Add a page of the workspace."""
        n, self._count = self._count, self._count + 1
        content = page_content(view, self._images(view, n, ""))
        self._index.add(n, _searched(view))
        if self._compares:
            self._put(view, n, -2.0, FIRST)
            self._catalogue.keep(n, json.dumps(content), None)
        else:
            self._put(view, n, badness(view), "")
            self._write_page(n, [content])

    def add_other(self, view: PageView) -> None:
        """Add a page of the other workspace, combined with the same page of the first, if any."""
        found = self._catalogue.match(clean(view.record.page_id), clean(view.name), view.record.page_number)
        if found is None:
            n, self._count = self._count, self._count + 1
            content = page_content(view, self._images(view, n, "-b"))
            self._put(view, n, -2.0, SECOND)
            self._catalogue.keep(n, None, json.dumps(content))
        else:
            n, first = found[0], json.loads(found[1])
            content = page_content(view, self._images(view, n, "-b", first))
            compared = compare(first["html"], view.html)
            first["html"], content["html"] = compared.left, compared.right
            self._catalogue.keep(n, json.dumps(first), json.dumps(content))
            self._catalogue.combine(n, compared.share, view.record.status.value)
        self._index.add(n, _searched(view))

    def finish(self) -> dict[str, Any]:
        """Write the remaining pages and the lists; return the site's properties."""
        for n, first, second in self._catalogue.readings():
            self._write_page(n, [json.loads(reading) if reading else None for reading in (first, second)])
        if self._chunk:
            self._write_chunk(self._count - 1)
        for number, rows in enumerate(_chunks(self._catalogue.rows(), ROWS) if self._count else [[]]):
            write_data(self._data, f"rows/{number}", rows)
        buckets = max(1, -(-self._count // IDS))
        for bucket, places in groupby(self._catalogue.places(buckets), key=itemgetter(0)):
            write_data(self._data, f"ids/{bucket}", [place[1:] for place in places])
        documents = 0
        for number, chunk in enumerate(_chunks(self._catalogue.documents(), DOCUMENTS)):
            write_data(self._data, f"documents/{number}", chunk)
            documents += len(chunk)
        terms = self._index.write(self._data)
        *counts, scored = self._catalogue.counts()
        return {
            "counts": counts,
            "documents": documents,
            "reasons": self._catalogue.values("reason"),
            "engines": self._catalogue.values("engine"),
            "sides": self._catalogue.values("side"),
            "scored": scored > 0,
            "unbalanced": self._unbalanced,
            "sizes": {"rows": ROWS, "documents": DOCUMENTS, "pages": PAGES, "images": IMAGES, "buckets": buckets},
            "search": {"terms": terms},
            "compares": self._compares,
        }

    def _put(self, view: PageView, n: int, badness: float, side: str) -> None:
        """Add a page to the list; `side` names a single reading: "" (both), first, or second."""
        record, name = view.record, clean(view.name)
        document = self._catalogue.document(clean(record.document_id), name, clean(record.source))
        page_id = clean(record.page_id)
        if self._catalogue.has(page_id):  # another reading of a page that has both
            page_id = f"{page_id} ({n})"
        excerpt = (view.text or (record.detail if record.status is Status.FAILED else ""))[:EXCERPT]
        reason = record.reason.value if record.reason else ""
        row = [n, page_id, document, name, record.page_number, record.status.value, reason, clean(record.engine)]
        found = flags(view)
        self._unbalanced = [count + (flag in found) for count, flag in zip(self._unbalanced, "ux", strict=True)]
        self._catalogue.put([*row, found, view.quality, excerpt, None, side, ""], badness)

    def _write_page(self, n: int, readings: list[Any]) -> None:
        self._chunk.append(readings)
        if n % PAGES == PAGES - 1:
            self._write_chunk(n)

    def _write_chunk(self, n: int) -> None:
        write_data(self._data, f"pages/{n // PAGES}", self._chunk)
        self._chunk = []

    def _images(self, view: PageView, n: int, mark: str, first: dict[str, Any] | None = None) -> dict[str, str]:
        """Write the page's image and figures; return their names by figure id, "" for the page."""
        wanted = [("", view.record.image, f"{n}{mark}")]
        wanted += [(one.id, one.image, f"{n}{mark}-f{at}") for at, one in enumerate(view.record.figures, 1)]
        names: dict[str, str] = {}
        for key, image, stem in wanted:
            if image is None or not image.data or (extension := image_extension(image.media_type)) == "bin":
                continue  # without bytes, or of a type that browsers do not show
            name = f"{stem}.{extension}"
            folder = self._folder / "images" / str(n // IMAGES)
            shared = first["image"] if first and key == "" else None
            if shared and (folder / shared[0]).read_bytes() == image.data:
                names[key] = shared[0]  # the image of the first reading
                continue
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(image.data)
            names[key] = name
        return names


def _searched(view: PageView) -> str:
    """Return the text in which pages are searched. A short description is only in the alt text of its figure."""
    described = (clean(figure_words(one)) for one in view.row.figures.values())
    return " ".join((clean(view.name), view.text, *described))


def _chunks(rows: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(islice(rows, size)):
        yield chunk
