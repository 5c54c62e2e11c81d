"""Read one page inside a worker process: choose the text source, find tables and figures, lay out."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from llm_ocr.documents.ink import ink_of, ink_without
from llm_ocr.documents.ink import pixels_of as pixels_of_ink
from llm_ocr.documents.text_layer import LIE, suspicious
from llm_ocr.engines.trace import note, timed, tracing
from llm_ocr.errors import PageFailure
from llm_ocr.results.joining import is_cjk
from llm_ocr.types import SCAN, Attempt, Block, BlockKind, Box, EncodedImage, Page, PageContent, Reason, Status
from llm_ocr_cpu.figure_clusters import is_visible
from llm_ocr_cpu.figures import find_figures
from llm_ocr_cpu.formulas import find_formulas
from llm_ocr_cpu.layout import page_blocks
from llm_ocr_cpu.layout.rows import turn_of, turned_back, upright
from llm_ocr_cpu.ocr.languages import UNKNOWN
from llm_ocr_cpu.tables import find_tables

if TYPE_CHECKING:
    from llm_ocr_cpu.ocr import OcrPage, Recogniser


#: The same share as `LIE` for older OCR, above which the page is read again. A real layer with a wrong letter in every
#: third line has 0.04, and one with unreadable lines 0.09 to 0.17. Our OCR of clean lines differs by less than 0.01.
OLD_OCR = 0.03
#: Number of characters below which a scan's text is a stamp or a page number, not the page's text.
FEW = 30
#: Share of unreadable characters of a text layer above which OCR reads the page too, and its least confidence.
_UNREADABLE, _LEGIBLE = 0.05, 0.55
#: Confidence of a word, by its least sure character, up to which it is a guess; the share of right words rises evenly
#: above it. Of 8,600 words of 25 scans, 3 % are right below 0.4, 34 % at 0.55, 70 % at 0.75, and 92 % at 0.9.
_GUESSED = 0.4
#: Share of an unreadable area that must be inside a block, and width of a word in such an area, in its heights.
_WITHIN, _WORD_HEIGHTS = 0.5, 3
#: Least share of an unread line, or of a line of text, that is in a picture.
_IN_PICTURE = 0.8
#: Ratio of its sides from which an area is a line of text.
_LONG = 2.0
#: Least side of a part of a drawing that is all of its page, as a share of the page's longer side; a rule is thinner.
_LEAST_SIDE = 0.005
#: Number of unreadable text areas from which, if they outnumber the read lines, the model does not support the script.
UNREAD = 5

GetRecogniser = Callable[[], "Recogniser"]


def read_page(page: Page, recogniser: GetRecogniser, *, text_layer: bool, layout_model: bool = True) -> Attempt:
    """Return the blocks of one page. Raises `PageFailure` if the page needs OCR and OCR is not installed.

    Args:
        page: The page.
        recogniser: Returns the loaded OCR.
        text_layer: Whether a credible text layer is used.
        layout_model: Whether the layout model, if it is installed, marks the lines of scans.
    """
    return _with_hidden(_read(page, recogniser, text_layer=text_layer, layout_model=layout_model), page.content)


def _with_hidden(attempt: Attempt, content: PageContent | None) -> Attempt:
    """Return the attempt with the number of invisible characters in its detail."""
    if content is None or not content.invisible:
        return attempt
    kept = content.with_invisible and attempt.source == "text-layer"
    used = ", of which those on the page were kept" if kept else " were left out"
    invisible = f"{content.invisible:,} invisible characters of the text layer{used}"
    return replace(attempt, detail="; ".join(filter(None, (attempt.detail, invisible))))


def _read(page: Page, recogniser: GetRecogniser, *, text_layer: bool, layout_model: bool) -> Attempt:
    content = page.content
    probe: float | None = None
    if content is not None and text_layer and has_text(content):
        needs_probe = _needs_probe(page, content)
        probe = _probe(page, content, recogniser) if needs_probe else None
        if probe is None or probe <= _limit(content):
            _note_source("text layer", page, probe, text_layer=text_layer)
            read = _reread(page, content, recogniser, probed=needs_probe)
            shown = _with_pictures(page, read, recogniser)
            attempt = _by_text_layer(shown)
            unread = _unread_lines(page, shown, attempt)
            if unread and not is_scan(content):
                shown = _with_unread(page, shown, unread, recogniser)
                attempt = _by_text_layer(shown)
                if pictures := _pictures_around(_unread_lines(page, shown, attempt), shown):
                    attempt = _by_text_layer(shown, pictures)
                unread = []
            better = _better_by_ocr(page, read, attempt, recogniser, lacking=unread, layout_model=layout_model)
            if better is None and _unknown(read) > _unknown(content):
                detail = "a font of the page names its characters wrongly, and OCR could not read some of its words"
                better = replace(attempt, status=Status.DEGRADED, reason=Reason.LOW_QUALITY, detail=detail)
            return replace(better or attempt, probe=probe, reread=_replaced_words(content, read))
    from PIL import Image

    pixels = pixels_of(page.image)
    if ink_of(Image.fromarray(pixels)).blank:
        _note_source("nothing: the image has no ink", page, probe, text_layer=text_layer)
        return replace(_nothing_seen(content), probe=probe)
    _note_source("OCR", page, probe, text_layer=text_layer)
    with timed("loading OCR"):
        loaded = recogniser()
    return replace(_by_ocr(page, pixels, loaded, layout_model=layout_model), probe=probe)


def _note_source(source: str, page: Page, probe: float | None, *, text_layer: bool) -> None:
    """Log the text source of the page and the reasons for it."""
    if not tracing():
        return
    content = page.content
    if content is None:
        note("text source", f"{source}; the page is an image without a text layer", source=source)
        return
    characters = sum(len(line.text) for line in content.lines)
    scan, doubtful = is_scan(content), suspicious(content)
    causes = {"first page of the document": page.number == 1, "scan": scan, "suspicious characters": doubtful}
    cause = ", ".join(name for name, is_cause in causes.items() if is_cause)
    if not has_text(content):
        why = f"the text layer of {characters} characters is only a stamp or a page number" if characters else ""
        why = why or "the page has no text layer"
    elif not text_layer:
        why = "the settings ignore the text layer"
    elif probe is not None:
        judged = "is wrong" if probe > _limit(content) else "is trusted"
        measured = f"it differs by {probe:.2f} from OCR of sample lines, limit {_limit(content)}"
        why = f"the text layer {judged}: {measured} (probed: {cause})"
    elif cause:
        why = f"no probe was possible: no OCR, an unsupported script, or no suitable line (needed: {cause})"
    else:
        why = "the text layer is trusted without a probe: not the first page, not a scan, no suspicious characters"
    about = {"characters": characters, "scan": scan, "suspicious": doubtful, "probe": probe}
    note("text source", f"{source}; {why}", source=source, **about)


def read_text_layer(page: Page) -> Attempt:
    """Return the blocks of one page from its text layer, without OCR. Raises `PageFailure` without a credible layer."""
    content = page.content
    if content is None or not has_text(content):
        raise PageFailure(Reason.EMPTY, "the page has no text layer")
    if suspicious(content):
        raise PageFailure(Reason.MALFORMED, "the text layer is not usable: its characters belong to no language")
    return _with_hidden(_by_text_layer(content), content)


def _pictures_around(unread: Sequence[tuple[Box, float]], content: PageContent) -> list[Box]:
    """Return the boxes in page units of pictures, such as logos, with unread lines and no text; none without OCR."""
    from llm_ocr_cpu.ocr import available

    if not available():
        return []
    inside = [box.scaled(content.width, content.height) for box, _ in unread]
    return [
        picture.box
        for picture in content.rasters
        if any(box.covered_by(picture.box) > _IN_PICTURE for box in inside)
        and not any(line.box.covered_by(picture.box) > _IN_PICTURE for line in content.lines)
    ]


def _by_text_layer(content: PageContent, pictures: Sequence[Box] = ()) -> Attempt:
    """Read the text layer; a partially read layer is not the page's text. `pictures` are figures, however small."""
    read = Attempt("embedded", "text-layer", Status.OK, laid_out(content, pictures=pictures))
    if not content.unread:
        return read
    detail = f"the last {content.unread:,} characters of the text layer in the file were not read"
    return replace(read, status=Status.DEGRADED, reason=Reason.TRUNCATED, detail=detail)


def _nothing_seen(content: PageContent | None) -> Attempt:
    """Return the attempt for a page without ink. Invisible text is not used, but reported."""
    blank = Attempt("embedded", "text-layer" if content is not None else "ocr", Status.OK)
    # Noise of older OCR on a blank leaf is no text.
    if content is None or not (has_text(content) or content.invisible >= (FEW if is_scan(content) else 1)):
        return blank
    characters = sum(len(line.text) for line in content.lines)
    shown = f", and its text layer has {characters:,} invisible characters" if characters else ""
    detail = f"the page is blank{shown}"
    return replace(blank, status=Status.DEGRADED, reason=Reason.EMPTY, detail=detail)


def has_text(content: PageContent) -> bool:
    """Return whether there is a text layer: on a scan, more than a stamp or a page number."""
    characters = sum(len(line.text) for line in content.lines)
    if not characters:
        return False
    return characters >= FEW or not is_scan(content)


def is_scan(content: PageContent) -> bool:
    """Return whether an image covers most of the page."""
    page = Box(0, 0, content.width, content.height)
    return any(page.covered_by(raster.box) > SCAN for raster in content.rasters)


def _needs_probe(page: Page, content: PageContent) -> bool:
    """Return whether to probe the layer: on a document's first page, for older OCR, and for suspicious text.

    A probe costs more than the layout.
    """
    return page.number == 1 or is_scan(content) or suspicious(content)


def _probe(page: Page, content: PageContent, recogniser: GetRecogniser) -> float | None:
    from llm_ocr_cpu.ocr import available

    if not available():
        return None
    with timed("loading OCR"):
        loaded = recogniser()
    with timed("probe"):
        return loaded.probe(pixels_of(page.image), content, scan=is_scan(content))


def _limit(content: PageContent) -> float:
    """Return the highest share of differing characters at which the text layer is used."""
    return OLD_OCR if is_scan(content) else LIE


def _reread(page: Page, content: PageContent, recogniser: GetRecogniser, *, probed: bool) -> PageContent:
    """Return the content with words read by OCR whose fonts do not name their glyphs; unchanged without OCR."""
    from llm_ocr_cpu.ocr import available
    from llm_ocr_cpu.rereading import doubtful_words, fonts_to_check, with_doubtful_signs

    if not available():
        return content
    fonts: dict[int, bool] = {}
    if not is_scan(content):
        content = with_doubtful_signs(content)
        fonts = fonts_to_check(content, probed=probed)
    count = len(doubtful_words(content))
    if not count and not fonts:
        return content
    with timed("loading OCR"):
        loaded = recogniser()
    with timed("words with unknown glyphs"):
        read = loaded.reread(pixels_of(page.image), content, fonts)
    left = len(doubtful_words(read))
    if count:
        note("text", f"OCR read {count - left} of {count} words with unknown glyphs", words=count, left=left)
    return read


def _replaced_words(content: PageContent, read: PageContent) -> tuple[tuple[Box, str, str], ...]:
    """Return the words that OCR replaced, as in `Attempt.reread`."""
    across, down = 1 / content.width, 1 / content.height
    return tuple(
        (word.box.scaled(across, down), word.text, other.text)
        for line, others in zip(content.lines, read.lines, strict=True)
        for word, other in zip(line.words, others.words, strict=True)
        if word.text != other.text
    )


def _unknown(content: PageContent) -> int:
    """Return the number of characters without a meaning in words; a list marker may be one."""
    return sum(word.text.count(UNKNOWN) for line in content.lines for word in line.words if len(word.text) > 1)


def _unread_lines(page: Page, content: PageContent, attempt: Attempt) -> list[tuple[Box, float]]:
    """Return relative boxes of what looks like lines of text outside of the text and blocks, with their letters."""
    ink = page.evidence.ink if page.evidence else None
    if ink is None or content.undrawn or content.with_invisible:
        return []
    blocks = (block for block in attempt.blocks if block.kind is not BlockKind.FIGURE or block.box.area <= SCAN)
    known = [box for block in blocks for box in (block.box, *block.continued)]
    known += [line.box.scaled(1 / content.width, 1 / content.height) for line in content.lines]
    return ink_without(known, pixels_of_ink(ink, 0))


def _with_unread(
    page: Page, content: PageContent, unread: Sequence[tuple[Box, float]], recogniser: GetRecogniser
) -> PageContent:
    """Return the content with the text of such lines, as far as OCR is sure of it; unchanged without OCR."""
    from llm_ocr_cpu.ocr import available

    if not available():
        return content
    with timed("loading OCR"):
        loaded = recogniser()
    areas = [box.scaled(content.width, content.height) for box, _ in unread]
    with timed("OCR of ink without text"):
        read = loaded.read_outside(pixels_of(page.image), content, areas)
    lines = len(read.lines) - len(content.lines)
    note("text", f"OCR read {lines} lines at {len(areas)} places without text", lines=lines, places=len(areas))
    return read


def _better_by_ocr(
    page: Page,
    content: PageContent,
    attempt: Attempt,
    recogniser: GetRecogniser,
    *,
    lacking: Sequence[tuple[Box, float]],
    layout_model: bool,
) -> Attempt | None:
    """Return the OCR of a page whose layer has many unreadable characters, or of a scan whose layer lacks lines.

    None if the layer has more text.
    """
    from llm_ocr_cpu.ocr import available

    characters = sum(len(line.text) for line in content.lines)
    lost = max(_unknown(content), sum(letters for _, letters in lacking))
    if lost <= _UNREADABLE * characters or not available():
        return None
    with timed("loading OCR"):
        loaded = recogniser()
    try:
        read = _by_ocr(page, pixels_of(page.image), loaded, layout_model=layout_model)
    except PageFailure:
        return None
    texts = ("".join(f"{block.text}{block.inside}" for block in one.blocks) for one in (read, attempt))
    letters, known = (sum(map(str.isalnum, text)) for text in texts)
    better = read.status is Status.OK and (read.confidence or 0) >= _LEGIBLE and letters >= known
    note("text source", "OCR; the text layer has unreadable characters" if better else "text layer; OCR read less")
    return read if better else None


def _with_pictures(page: Page, content: PageContent, recogniser: GetRecogniser) -> PageContent:
    """Return the content with the text of pictures that are tables or text; unchanged on scans and without OCR."""
    from llm_ocr_cpu.ocr import available
    from llm_ocr_cpu.pictured_text import text_pictures

    if not content.rasters or is_scan(content) or not available():
        return content
    with timed("pictures of text"):
        boxes = text_pictures(page.image, content)
    if not boxes:
        return content
    with timed("loading OCR"):
        loaded = recogniser()
    with timed("OCR of pictures"):
        read = loaded.read_pictures(pixels_of(page.image), content, boxes)
    lines, pictures = len(read.lines) - len(content.lines), len(content.rasters) - len(read.rasters)
    told = f"OCR read {lines} lines in {pictures} of {len(boxes)} pictures that look like text"
    note("text", told, lines=lines, pictures=pictures, candidates=len(boxes))
    return read


def laid_out(content: PageContent, formulas: Sequence[Box] = (), pictures: Sequence[Box] = ()) -> tuple[Block, ...]:
    """Return the blocks of a page, including tables, figures, and formulas, from its lines and objects.

    Args:
        content: Content of the page.
        formulas: Boxes of a scan's display formulas, in page units.
        pictures: Boxes of images, in page units, that are figures in any size; not used on a page on its side.
    """
    if tracing():
        lines, words = len(content.lines), sum(len(line.text.split()) for line in content.lines)
        used = "kept" if content.with_invisible else "left out"
        apart = f", {content.invisible} invisible characters {used}" if content.invisible else ""
        note("text", f"{lines} lines, {words} words{apart}", lines=lines, words=words, invisible=content.invisible)
    degrees = turn_of(content)
    if degrees:
        note("orientation", f"laid out as turned clockwise by {degrees} degrees, so that the lines are upright")
        return turned_back(_laid_out(upright(content, (), degrees)[0], on_side=degrees != 180), degrees)
    return _laid_out(content, formulas, pictures)


def _laid_out(
    content: PageContent, areas: Sequence[Box] = (), pictures: Sequence[Box] = (), *, on_side: bool = False
) -> tuple[Block, ...]:
    # Last, so that the numbers of the other lines stay: these are not part of what they cross.
    content = replace(content, lines=tuple(sorted(content.lines, key=lambda line: line.watermark)))
    crossed = replace(content, lines=tuple(line for line in content.lines if not line.watermark))
    with timed("tables"):
        tables = find_tables(crossed)
    with timed("figures"):
        figures = find_figures(crossed, tables, pictures)
    with timed("formulas"):
        formulas = find_formulas(crossed, [*tables, *figures], areas)
    with timed("layout"):
        return page_blocks(content, [*tables, *figures, *formulas], on_side=on_side)


def _by_ocr(page: Page, pixels: Any, recogniser: "Recogniser", *, layout_model: bool) -> Attempt:
    from PIL import Image

    from llm_ocr_cpu.scan_objects import scan_objects

    with timed("OCR"):
        read = recogniser.read(pixels)
    found = read.text(recogniser.scripts)
    seen = read.image if read.clean is None else read.clean
    formulas: tuple[Box, ...] = ()
    if layout_model:
        with timed("layout model"):
            hints = recogniser.with_hints(seen, read.lines)
        read, formulas = replace(read, lines=hints.lines), hints.formulas
    with timed("objects on the scan"):
        objects = scan_objects(seen, read.lines)
    if tracing():
        turned_by = {"rotation": read.rotation, "skew": round(read.skew, 2)}
        flattened = ", flattened" if read.bend else ""
        turns = f"rotated by {read.rotation} degrees clockwise, deskewed by {read.skew:.1f}{flattened}"
        note("orientation", turns, **turned_by)
        note("OCR", f"{len(read.unread)} text regions were not readable", unread=len(read.unread))
    height, width = read.image.shape[:2]
    content = PageContent(float(width), float(height), read.lines, objects.rasters, objects.paths)
    blocks = laid_out(content, formulas)
    if not (blocks or read.lines or read.turned):
        blocks = _drawing_alone(page, read.unread)
    turned = _encode(read.image, page.image.media_type) if read.turned else None
    status, reason, detail = _script(read)
    if status is Status.FAILED:
        raise PageFailure(reason or Reason.ENGINE_ERROR, detail)
    return Attempt(
        "embedded",
        "ocr",
        status,
        blocks,
        reason,
        detail,
        rotation=read.rotation,
        image=turned,
        ink=ink_of(Image.fromarray(read.image)) if read.skew or read.bend else None,
        confidence=_confidence(read, blocks),
        ocr=found,
    )


def _drawing_alone(page: Page, unread: Sequence[Box]) -> tuple[Block, ...]:
    """Return a figure around the drawings and pictures of a PDF page without text; nothing if parts look like lines.

    A scan or an image without readable text may be handwriting, so it has none. `unread` are the areas that OCR takes
    for text and cannot read: shapes, or lines, which are longer than high.
    """
    content, ink = page.content, page.evidence.ink if page.evidence else None
    if content is None or content.lines or is_scan(content):
        return ()
    if any(max(box.width, box.height) > _LONG * min(box.width, box.height) for box in unread):
        return ()
    if ink is None or ink_without((), pixels_of_ink(ink, 0)):
        return ()
    shown = [path.box for path in content.paths if is_visible(path.stroke) or is_visible(path.fill)]
    shown += [raster.box for raster in content.rasters]
    if not any(min(box.width, box.height) > _LEAST_SIDE * max(content.width, content.height) for box in shown):
        return ()
    around = reduce(Box.union, shown)
    return (Block(BlockKind.FIGURE, around.scaled(1 / content.width, 1 / content.height)),)


def _confidence(read: "OcrPage", blocks: Sequence[Block]) -> float | None:
    """Return the expected share of the words that OCR read right, by the least sure character of each.

    The mean over the characters would hide a few wrong words, because most characters of a bad scan are sure. A line
    of ideographs has no words: each of them counts, by the line's mean. Areas within the blocks that OCR cannot read,
    such as table cells in another script, count as words that are wrong.
    """
    height, width = read.image.shape[:2]
    texts = [block.box.scaled(width, height) for block in blocks if block.kind is not BlockKind.FIGURE]
    lost = [box for box in read.unread if any(box.covered_by(text) > _WITHIN for text in texts)]
    right, count = 0.0, float(sum(max(1.0, box.width / (_WORD_HEIGHTS * box.height)) for box in lost))
    for line in read.lines:
        for word in line.words:
            ideographs = sum(map(is_cjk, word.text))
            sure = line.confidence if ideographs else word.confidence
            words = ideographs or any(map(str.isalnum, word.text))
            right += words * max(0.0, (sure - _GUESSED) / (1 - _GUESSED))
            count += words
    return round(right / count, 4) if count else None


def _script(read: "OcrPage") -> tuple[Status, Reason | None, str]:
    """Return the status for the script: in an unsupported script, most of the text, or some letters, are unreadable."""
    if lacking := sum(line.text.count(UNKNOWN) for line in read.lines):
        detail = f"{lacking} letters that OCR does not know; `ocr_language=NAME` or a model may read them"
        return Status.DEGRADED, Reason.SCRIPT_NOT_SUPPORTED, detail
    if len(read.unread) < UNREAD or len(read.unread) <= len(read.lines):
        return Status.OK, None, ""
    detail = f"{len(read.unread)} text regions that OCR cannot read; it supports Latin, Chinese, and Japanese, "
    detail += "and other scripts with `ocr_language=NAME`"
    return Status.DEGRADED if read.lines else Status.FAILED, Reason.SCRIPT_NOT_SUPPORTED, detail


def read_figure(image: EncodedImage, recogniser: GetRecogniser) -> str:
    """Return the text inside a figure, one line per row; "" without OCR."""
    from llm_ocr_cpu.ocr import available

    if not available():
        return ""
    lines = recogniser().read(pixels_of(image)).lines
    return "\n".join(line.text for line in sorted(lines, key=lambda line: (round(line.box.y0), line.box.x0)))


def pixels_of(image: EncodedImage, *, half: bool = False) -> Any:
    """Return the pixels: height x width x 3, RGB. Raises `PageFailure` for an undecodable image.

    `half` decodes a JPEG at about half its size, in a third of the time.
    """
    import numpy
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(image.data))
        if half:
            picture.draft("RGB", (image.width // 2, image.height // 2))
        return numpy.asarray(picture.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise PageFailure(Reason.UNREADABLE, f"the page image: {error}") from error


def _encode(pixels: Any, media_type: str) -> EncodedImage:
    from PIL import Image

    out = io.BytesIO()
    picture = Image.fromarray(pixels)
    if media_type == "image/png":
        picture.save(out, "PNG", compress_level=1)
    else:
        media_type = "image/jpeg"
        picture.save(out, "JPEG", quality=90)
    return EncodedImage(out.getvalue(), media_type, picture.width, picture.height)
