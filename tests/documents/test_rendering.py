"""Pages are made in limited worker processes: what one page does to its worker is no other page's matter."""

import asyncio
import io
from pathlib import Path

import pypdfium2
import pytest
from pdf_writing import image_of, pages, pdf, placed, stream, text, written
from PIL import Image

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure
from llm_ocr.types import Box, Page, Reason

HELLO = pages(text("Hello"))


def started(**options):
    return Renderer(RenderOptions(**{"workers": 1, "timeout": 30, **options}))


def with_renderer(steps, **options):
    async def main():
        async with started(**options) as renderer:
            return await steps(renderer)

    return asyncio.run(main())


async def outcome(renderer, source, number=1):
    """The page, or the reason why there is none."""
    try:
        return await renderer.page(source, "", number, page_id=f"d-p{number:05}", document_id="d")
    except PageFailure as failure:
        return failure.reason


def test_malformed_answer_fails_only_the_document(tmp_path):
    """The process has read an untrusted file, so its answer may be anything."""
    source = written(tmp_path / "a.pdf", HELLO)

    async def steps(renderer):
        (together,) = await renderer.open_all([(source, "", file.fileno())])
        with pytest.raises(PageFailure) as failed:
            await renderer.open(source)
        return together.detail, failed.value.detail

    with Path(source).open("rb") as file:
        details = with_renderer(steps, module="tests.fakes.misbehaving_worker")
    for detail in details:
        assert detail.startswith("unexpected ValueError at rendering.py:")


def rendered(source, *numbers, **options):
    async def steps(renderer):
        return [await outcome(renderer, source, number) for number in numbers or (1,)]

    return with_renderer(steps, **options)


def opened(source, **options):
    async def steps(renderer):
        try:
            return await renderer.open(source)
        except PageFailure as failure:
            return failure.reason

    return with_renderer(steps, **options)


def pixels(page):
    return Image.open(io.BytesIO(page.image.data)).convert("RGB")


def test_page_has_content_and_image_of_requested_size(tmp_path):
    source = written(tmp_path / "a.pdf", HELLO)
    (page,) = rendered(source, image_size=1000, image_format="jpeg")
    assert (page.image.width, page.image.height, page.image.media_type) == (773, 1000, "image/jpeg")
    assert (page.id, page.document_id, page.number, page.source) == ("d-p00001", "d", 1, source)
    assert page.content.lines[0].text == "Hello"
    assert pixels(page).getextrema()[0][0] < 100


def scan(side: int, *drawn: bytes) -> bytes:
    """A page of 600 points that an image of `side` pixels covers, below what is drawn."""
    covering = b"q 600 0 0 600 0 0 cm /X Do Q\n"
    images = (image_of(side, bytes(3 * side * side)),)
    return pages(covering + b"".join(drawn), attributes=b"/MediaBox[0 0 600 600]", extra=images)


def test_scans_and_pictures_keep_their_own_pixels_up_to_a_limit(tmp_path):
    files = {
        written(tmp_path / f"{side}.pdf", scan(side, text("a stamp"))): size
        for side, size in ((400, 500), (700, 700), (2000, 900))
    }
    slide = scan(2000, *(text("words", y=20 * row) for row in range(25)))  # is no scan
    files[written(tmp_path / "slide.pdf", slide)] = 500
    for side, size in ((300, 300), (700, 700), (2000, 900)):
        Image.new("RGB", (side, side), "white").save(tmp_path / f"{side}.png")
        files[str(tmp_path / f"{side}.png")] = size

    async def steps(renderer):
        images = {path: (await outcome(renderer, path)).image for path in files}
        return {path: (image.width, image.height) for path, image in images.items()}

    found = with_renderer(steps, image_size=500, scan_size=900)
    assert found == {path: (size, size) for path, size in files.items()}


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        (b"/MediaBox[0 0 100 50]", (400, 200)),  # not blown up
        (b"/MediaBox[0 0 14400 14400]", (1540, 1540)),
        (b"/MediaBox[0 0 612 792]/Rotate 90", (1540, 1190)),
    ],
)
def test_pages_have_the_size_asked_for_and_small_ones_their_own(tmp_path, attributes, size):
    data = pages(text("x", x=5, y=5), attributes=attributes)
    (page,) = rendered(written(tmp_path / "a.pdf", data), memory=512 << 20)
    assert (page.image.width, page.image.height) == size


@pytest.mark.parametrize("box", [b"0 0 100000 10", b"0 0 3 9000"])
def test_a_page_too_narrow_to_read_fails_at_the_limit(tmp_path, box):
    data = pages(text("x"), attributes=b"/MediaBox[%s]" % box)
    assert rendered(written(tmp_path / "a.pdf", data)) == [Reason.RENDER_LIMIT]


@pytest.mark.slow
def test_a_page_that_hangs_is_killed_and_its_neighbours_are_done(tmp_path):
    bomb = b"".join(b"%d %d 500 500 re S\n" % (n % 97, n % 89) for n in range(30_000)) * 20
    source = written(tmp_path / "a.pdf", pages(text("first"), bomb, text("third")))
    first, hung, third = rendered(source, 1, 2, 3, timeout=10, workers=2)
    assert hung is Reason.RENDER_TIMEOUT
    assert [page.content.lines[0].text for page in (first, third)] == ["first", "third"]


@pytest.mark.slow
def test_content_that_exhausts_the_memory_fails_at_the_limit(tmp_path):
    source = written(tmp_path / "a.pdf", pages(text("first"), b"q " * (10 << 20)))
    first, bomb = rendered(source, 1, 2, memory=320 << 20)
    assert (first.content.lines[0].text, bomb) == ("first", Reason.RENDER_LIMIT)


@pytest.mark.parametrize("text_layer", [True, False])
@pytest.mark.parametrize(("side", "memory"), [(9000, 320 << 20), (40_000, 16 << 30)])
def test_too_large_images_are_refused_and_other_pages_succeed(tmp_path, side, memory, text_layer):
    drawn = pages(text("first"), b"q 9 0 0 9 0 0 cm /X Do Q", extra=(image_of(side, b""),))
    bomb, first = rendered(written(tmp_path / "a.pdf", drawn), 2, 1, memory=memory, text_layer=text_layer)
    assert (first.evidence.lines[0][0], bomb) == ("first", Reason.RENDER_LIMIT)


NO_PAGES = pages(text("x")).replace(b"/Kids[4 0 R]/Count 1", b"/Kids[     ]/Count 0")


@pytest.mark.parametrize("data", [b"", b"garbage" * 100, b"%PDF-1.5\nnothing", HELLO[:200], NO_PAGES])
def test_a_damaged_document_is_unreadable(tmp_path, data):
    source = written(tmp_path / "a.pdf", data)
    assert opened(source) is Reason.UNREADABLE
    assert rendered(source) == [Reason.UNREADABLE]


def test_missing_files_are_not_found_and_other_types_unknown(tmp_path):
    assert opened(str(tmp_path / "no.pdf")) is Reason.NOT_FOUND
    assert opened(written(tmp_path / "a.bin", b"PK\x03\x04")) is Reason.UNKNOWN_TYPE
    assert opened(str(tmp_path)) is Reason.UNREADABLE


def test_a_page_beyond_the_end_does_not_exist(tmp_path):
    assert rendered(written(tmp_path / "a.pdf", HELLO), 2, 0) == [Reason.NO_SUCH_PAGE] * 2


def encrypted(path, user):
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), encrypt=StandardEncryption(user, ownerPassword="owner", strength=128))
    canvas.drawString(72, 700, "Hidden words")
    canvas.save()
    return str(path)


def test_an_encrypted_document_needs_one_of_the_passwords(tmp_path):
    source = encrypted(tmp_path / "a.pdf", user="secret")
    assert opened(source) is Reason.ENCRYPTED
    assert opened(source, passwords=("wrong",)) is Reason.ENCRYPTED
    (page,) = rendered(source, passwords=("wrong", "secret"))
    assert page.content.lines[0].text == "Hidden words"


def test_the_empty_password_is_tried(tmp_path):
    assert opened(encrypted(tmp_path / "a.pdf", user="")) == 1


def filled_form(path):
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path))
    canvas.drawString(72, 700, "Name")
    canvas.acroForm.textfield(name="who", value="Filled In", x=72, y=600, width=300, height=40, fontSize=24)
    canvas.save()
    return str(path)


def test_what_was_filled_into_a_form_is_drawn_and_read(tmp_path):
    (page,) = rendered(filled_form(tmp_path / "a.pdf"))
    assert "Filled In" in [line.text for line in page.content.lines]
    scale = page.image.height / page.content.height
    line = next(line for line in page.content.lines if line.text == "Filled In")
    shown = pixels(page).crop([int(value * scale) for value in (line.box.x0, line.box.y0, line.box.x1, line.box.y1)])
    assert shown.convert("L").getextrema()[0] < 100


async def test_a_document_that_changes_is_opened_anew(tmp_path):
    source = written(tmp_path / "a.pdf", HELLO)

    async with started() as renderer:
        before = await renderer.open(source)
        written(Path(source), pages(text("one"), text("two")))
        assert (before, await renderer.open(source)) == (1, 2)


async def test_crops_have_the_boxes_pixels(tmp_path):
    source = written(tmp_path / "a.pdf", HELLO)
    async with started(image_size=400) as renderer:
        page = await renderer.page(source, "pdf", 1, page_id="p", document_id="d")
        boxes = [Box(0, 0, 0.5, 0.25), Box(0.9, 0.9, 2, 2), Box(0.3, 0.3, 0.3, 0.3)]
        quarter, corner, point = await renderer.crop(page.image, boxes)
        none = await renderer.crop(page.image, [])
    assert (quarter.width, quarter.height, quarter.media_type) == (round(page.image.width / 2), 100, "image/png")
    assert (corner.height, point.width, point.height, none) == (40, 1, 1, ())


def test_identity_names_what_changes_pixels_and_no_secret():
    plain = Renderer(RenderOptions(passwords=("1234",))).identity()
    assert plain == Renderer(RenderOptions(workers=7, timeout=1, memory=1 << 30)).identity()
    assert plain != Renderer(RenderOptions(image_size=1000)).identity()
    assert "1234" not in repr(plain) + repr(RenderOptions(passwords=("1234",)))


def test_poppler_renders_the_same_page(require, tmp_path):
    require("poppler")
    data = pages(text("Hello"), attributes=b"/MediaBox[0 0 612 792]/Rotate 90")
    source = written(tmp_path / "-odd [name], 1.pdf", data)
    (page,) = rendered(source, renderer="poppler", image_size=800)
    assert max(page.image.width, page.image.height) == 800
    assert page.image.width > page.image.height
    assert page.content.lines[0].text == "Hello"


@pytest.mark.slow
async def test_page_timeout_bounds_rendering_and_not_opening(tmp_path):
    bomb = b"".join(b"%d %d 500 500 re S\n" % (n % 97, n % 89) for n in range(30_000)) * 4
    source = written(tmp_path / "a.pdf", pages(bomb))

    async with started(page_timeout=0.05) as renderer:
        total = await renderer.open(source)
        with pytest.raises(PageFailure, match=r"page 1 was not rendered in 0\.05 s") as failed:
            await renderer.page(source, "", 1, page_id="d-p00001", document_id="d")
    assert (total, failed.value.reason) == (1, Reason.RENDER_TIMEOUT)
    assert "`page_timeout`" in failed.value.hint


@pytest.mark.slow
async def test_poppler_is_killed_at_the_deadline(require, tmp_path):
    require("poppler")
    bomb = b"".join(b"%d %d 500 500 re S\n" % (n % 97, n % 89) for n in range(30_000)) * 60
    source = written(tmp_path / "a.pdf", pages(bomb))

    async with started(renderer="poppler", timeout=3) as renderer:
        failure = await outcome(renderer, source)
        async with asyncio.timeout(30):
            while any(source in name for name in _commands()):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        assert failure is Reason.RENDER_TIMEOUT


def _commands():
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield entry.read_bytes().decode(errors="replace")
        except OSError:
            continue


def test_what_pdfium_cannot_open_gets_a_second_chance(require, tmp_path):
    require("poppler")
    broken = b"x" * 3000 + HELLO  # the header stands too deep for pdfium
    with pytest.raises(pypdfium2.PdfiumError):
        pypdfium2.PdfDocument(broken)
    (page,) = rendered(written(tmp_path / "a.pdf", broken))
    assert isinstance(page, Page)


def test_a_page_that_the_file_lacks_is_not_the_next_one(require, tmp_path):
    require("poppler")
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R/Resources<</Font<</F 3 0 R>>>>>>"
    data = pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[4 0 R 99 0 R 6 0 R]/Count 3>>",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *(page % 5, stream(text("First")), page % 7, stream(text("Last"))),
    )
    first, missing, last = rendered(written(tmp_path / "a.pdf", data), 1, 2, 3)
    assert [[words for words, _ in one.evidence.lines] for one in (first, last)] == [["First"], ["Last"]]
    assert missing is Reason.UNREADABLE


BAR = b" 0 g 183 695 80 15 re f"


@pytest.mark.parametrize(
    ("drawn", "words", "count"),
    [
        (text("Arlo Finch of the North Street"), ["Arlo Finch of the North Street"], 0),
        (b".8 g " + text("Arlo Finch", size=6), ["Arlo Finch"], 0),
        (b"0 0 .4 rg 0 690 612 40 re f 1 g " + text("Arlo Finch"), ["Arlo Finch"], 0),
        (text("Arlo Finch", matrix="0 1 -1 0 60 300"), ["Arlo Finch"], 0),
        (text("I l 1 - i", size=9), ["I l 1 - i"], 0),
        (b"1 g " + text("Arlo Finch"), [], 9),
        (b".985 g " + text("Arlo Finch"), [], 9),
        (b"3 Tr " + text("Arlo Finch"), [], 9),
        (b"q 0 0 10 10 re W n " + text("Arlo Finch") + b" Q", [], 9),
        (b"1 g " + text("Arlo Finch", matrix="0 1 -1 0 60 300"), [], 9),
        (text("Name of the witness: Arlo Finch") + BAR, ["Name of the witness:"], 9),
        (text("Name of the witness: ") + b"1 g " + text("Arlo Finch", x=186), ["Name of the witness:"], 9),
    ],
)
def test_evidence_lacks_words_that_the_page_does_not_show(tmp_path, drawn, words, count):
    source = written(tmp_path / "a.pdf", pages(text("The harbor opens at nine", y=760) + drawn))
    for layer in (False, True):
        (page,) = rendered(source, text_layer=layer)
        assert [line.strip() for line, _ in page.evidence.lines] == ["The harbor opens at nine", *words]
        assert (page.evidence.invisible, page.invisible_chars) == (count, count)


def test_letters_beyond_the_basic_plane_do_not_move_lines(tmp_path):
    formula = "𝛽𝜇𝛼𝑓" * 4
    source = written(tmp_path / "a.pdf", placed([(formula, 72, 700), ("The harbor", 72, 400), ("nine", 72, 100)]))
    (page,) = rendered(source)
    assert page.evidence is not None
    assert [(text.strip(), round(box.y1, 1)) for text, box in page.evidence.lines] == [
        (formula, 0.1),
        ("The harbor", 0.5),
        ("nine", 0.9),
    ]
    assert all(box.height < 0.03 for _, box in page.evidence.lines)
