"""`export --format pdf`: original pages with text that can be found and copied, in place."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pikepdf
import pyarrow as pa
import pyarrow.parquet as pq
import pypdfium2
import pypdfium2.raw as pdfium
import pytest
from bad_documents import text_pdf
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from running import cli

import llm_ocr
from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.plugins import ENGINES
from llm_ocr_outputs.exports.pdf import pdf_file
from llm_ocr_outputs.pdf_worker import DEFAULT_DPI, write_pdf

needs_ocr = pytest.mark.skipif(ENGINES.get("embedded").missing() is not None, reason="OCR is not installed")

PROSE = [
    "The library was built on a hill above the harbour,",
    "and from its windows the readers could watch ships.",
    "At seven the keeper opened the doors, wound the clock",
    "and wrote the number of visitors of the day before",
    "and none at all on the day of the great storm (1953).",
]
PASSWORD = "of the user"
TEXT = " ".join(PROSE)


def prose() -> bytes:
    """A digital page of 380 x 300 points."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(380, 300))
    for row, text in enumerate(PROSE):
        canvas.drawString(40, 260 - 16.8 * row, text)
    canvas.save()
    return out.getvalue()


def picture(dpi=200) -> Image.Image:
    """A picture of that page."""
    with pypdfium2.PdfDocument(prose()) as document:
        return document[0].render(scale=dpi / 72).to_pil().convert("RGB")


def jpeg(image, **more) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85, **more)
    return out.getvalue()


def phone() -> bytes:
    """A JPEG with a second one after it (MPO), as phones write it."""
    out = io.BytesIO()
    picture(200).save(out, "MPO", save_all=True, append_images=[picture(50)], dpi=(200, 200))
    return out.getvalue()


def scan(*, rotate=0, old="", below="", in_form=False, password="", extras=False) -> bytes:
    """A scanned page; `old` is invisible text on it, with `in_form` as OCRmyPDF has it, and `below` is under it."""
    from reportlab.lib.pdfencrypt import StandardEncryption

    image = picture()
    image = image.rotate(rotate, expand=True)
    width, height = (72 * side / 200 for side in image.size)
    out = io.BytesIO()
    lock = StandardEncryption(password, ownerPassword="of the owner", strength=128) if password else None
    canvas = Canvas(out, pagesize=(width, height), encrypt=lock)
    if below:
        canvas.drawString(40, 200, below)
    canvas.drawImage(ImageReader(io.BytesIO(jpeg(image))), 0, 0, width, height)
    if old:
        if in_form:
            canvas.beginForm("layer", 0, 0, width, height)
        text = canvas.beginText(40, 260)
        text.setTextRenderMode(3)
        text.setLeading(16.8)
        text.textLines(old)
        canvas.drawText(text)
        if in_form:
            canvas.endForm()
            canvas.doForm("layer")
    if extras:
        canvas.bookmarkPage("top")
        canvas.addOutlineEntry("The harbour", "top")
        canvas.linkURL("https://example.org/harbour", (10, 10, 60, 30))
        canvas.addPageLabel(0, style="ROMAN_LOWER", start=4)
    canvas.save()
    if not extras and not rotate:
        return out.getvalue()
    with pypdfium2.PdfDocument(out.getvalue()) as document:
        document[0].set_rotation(rotate)
        document[0].set_cropbox(5, 5, width - 10, height - 15)
        document.new_attachment("ledger.txt").set_data(b"214 on Monday")
        whole = io.BytesIO()
        document.save(whole)
    return whole.getvalue()


def text_of(data, number=0, password=None) -> str:
    with pypdfium2.PdfDocument(data, password=password) as document:
        return " ".join(document[number].get_textpage().get_text_range().split())


def pixels(data, password=None) -> list[bytes]:
    with pypdfium2.PdfDocument(data, password=password) as document:
        return [one.render(scale=100 / 72).to_numpy().tobytes() for one in document]


SOURCES = {
    "paper.pdf": lambda: text_pdf(PROSE),
    "scan.pdf": lambda: scan(extras=True),
    "old.pdf": lambda: scan(old="\n".join(PROSE)),
    "turned.pdf": lambda: scan(rotate=90),
    "locked.pdf": lambda: scan(password=PASSWORD),
    "photo.jpg": lambda: jpeg(picture(200), dpi=(200, 200)),
    "phone.jpg": lambda: phone(),
    "broken.pdf": lambda: b"%PDF-1.7 and nothing else",
}


@pytest.fixture(scope="module")
def read(golden) -> Path:
    """A run over documents of each kind, by the CPU engine."""

    def make_it(folder: Path) -> None:
        (folder / "in").mkdir()
        for name, data in SOURCES.items():
            (folder / "in" / name).write_bytes(data())
        frames = [picture(150).convert("1"), picture(150).convert("L").rotate(180)]
        frames[0].save(folder / "in/fax.tif", save_all=True, append_images=frames[1:], dpi=(150, 150))
        one = {"render_workers": 1, "ocr_workers": 1, "password": PASSWORD}
        llm_ocr.run(folder / "in", workspace=folder / "w", engine="embedded", **one)

    return golden("pdf", make_it)


@pytest.fixture(scope="module")
def exported(read, golden) -> Path:
    """The export of these documents."""

    def make_it(folder: Path) -> None:
        done = llm_ocr.export(workspace=read / "w", output=folder / "o", format="pdf", password=PASSWORD)
        assert (done.rows, done.files, done.failed) == (8, 8, 1)

    return golden("pdf exported", make_it) / "o"


@needs_ocr
@pytest.mark.parametrize("name", ["scan.pdf", "old.pdf", "turned.pdf", "locked.pdf"])
def test_the_text_of_a_scan_is_found_in_reading_order(exported, name):
    assert text_of(exported / name) == TEXT


@needs_ocr
@pytest.mark.parametrize("name", ["paper.pdf", "scan.pdf", "old.pdf", "turned.pdf", "locked.pdf"])
def test_pages_look_the_same(exported, read, name):
    password = PASSWORD if name == "locked.pdf" else None
    assert pixels(exported / name) == pixels(read / "in" / name, password)


@needs_ocr
def test_words_are_where_the_page_shows_them(exported):
    with pypdfium2.PdfDocument(exported / "scan.pdf") as document, pypdfium2.PdfDocument(prose()) as digital:
        texts = [one[0].get_textpage() for one in (document, digital)]
        for word in ("library", "windows", "keeper", "visitors", "(1953)."):
            (left, bottom, right, top), true = (box_of(text, word) for text in texts)
            assert left <= true[0] + 1 and right >= true[2] - 1, word
            assert bottom <= true[1] + 1 and top >= true[3] - 1, word
            assert right - left < true[2] - true[0] + 6 and top - bottom < 24, word


def box_of(text, word) -> tuple[float, float, float, float]:
    start, count = text.search(word).get_next()
    boxes = [text.get_charbox(index) for index in range(start, start + count)]
    return min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)


@needs_ocr
def test_a_true_text_layer_is_left_alone(exported, read):
    assert (exported / "paper.pdf").read_bytes() == (read / "in/paper.pdf").read_bytes()


@needs_ocr
def test_the_bytes_of_a_source_are_kept(exported, read):
    source, written = (read / "in/scan.pdf").read_bytes(), (exported / "scan.pdf").read_bytes()
    assert written.startswith(source)
    assert len(written) - len(source) < 3000


@needs_ocr
def test_links_outline_attachments_and_labels_are_kept(exported):
    with pypdfium2.PdfDocument(exported / "scan.pdf") as document:
        assert [entry.get_title() for entry in document.get_toc()] == ["The harbour"]
        assert bytes(document.get_attachment(0).get_data()) == b"214 on Monday"
        assert document.get_page_label(0) == "iv"
        assert pdfium.FPDFPage_GetAnnotCount(document[0]) == 1


@needs_ocr
@pytest.mark.parametrize("name", ["photo.jpg", "phone.jpg"])
def test_a_photo_is_a_page_of_its_physical_size(exported, read, name):
    data, source = (exported / f"{name}.pdf").read_bytes(), (read / "in" / name).read_bytes()
    assert source in data
    with pypdfium2.PdfDocument(data) as document:
        assert document[0].get_size() == pytest.approx((380, 300), abs=1)
    assert text_of(data) == TEXT


@needs_ocr
def test_frames_of_a_tiff_are_pages(exported):
    data = (exported / "fax.tif.pdf").read_bytes()
    with pypdfium2.PdfDocument(data) as document:
        assert [one.get_size() for one in document] == [pytest.approx((380, 300), abs=1)] * 2
    assert text_of(data).startswith("The library was built on a hill")
    with pypdfium2.PdfDocument(data) as document:  # the second one lies upside down
        left, bottom, _, _ = box_of(document[1].get_textpage(), "clock")
    assert left < 100 and bottom > 30


@needs_ocr
def test_pdftotext_reads_the_lines(exported, require):
    require("pdftotext")
    for name in ("scan.pdf", "old.pdf", "photo.jpg.pdf"):
        ran = subprocess.run(["pdftotext", exported / name, "-"], capture_output=True, text=True, check=True)
        assert (ran.stdout.split(), ran.stderr) == (TEXT.split(), ""), name


@pytest.mark.slow
@needs_ocr
def test_a_source_that_is_gone_stops_no_other_document(tmp_path):
    for name in ("a.pdf", "b.pdf", "c.pdf"):
        (tmp_path / name).write_bytes(text_pdf([f"{name} {text}" for text in PROSE]))
    llm_ocr.run(
        list(tmp_path.glob("*.pdf")), workspace=tmp_path / "w", engine="embedded", render_workers=1, ocr_workers=1
    )
    a, b = ((tmp_path / name).read_bytes() for name in ("a.pdf", "b.pdf"))
    (tmp_path / "a.pdf").unlink()
    (tmp_path / "b.pdf").write_bytes(b + b"\n")
    ran = cli("export", "-w", tmp_path / "w", "--format", "pdf", "-o", tmp_path / "o", "--quiet", cwd=tmp_path)
    failed = {Path(one["source"]).name: one["reason"] for one in lines(tmp_path / "o/failed-documents.jsonl")}
    assert failed == {"a.pdf": "not found", "b.pdf": "source changed"}
    assert str(tmp_path) not in (tmp_path / "o/failed-documents.jsonl").read_text()
    assert ran.returncode == 3 and "2 documents failed" in ran.stderr
    assert [path.name for path in (tmp_path / "o").glob("*.pdf")] == ["c.pdf"]
    assert "Open it" in ran.stdout
    (tmp_path / "c.pdf").rename(tmp_path / "moved.pdf")
    none = cli("export", "-w", tmp_path / "w", "--format", "pdf", "-o", tmp_path / "none", "--quiet", cwd=tmp_path)
    assert none.returncode == 3 and none.stdout.startswith("0 documents in 0 files") and "Open it" not in none.stdout
    (tmp_path / "moved.pdf").rename(tmp_path / "c.pdf")
    (tmp_path / "a.pdf").write_bytes(a)
    again = llm_ocr.export(workspace=tmp_path / "w", output=tmp_path / "o", format="pdf")
    assert (again.failed, (tmp_path / "o/a.pdf").read_bytes()) == (1, a)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *(("a.pdf", "a.pdf"), ("a.jpg", "a.jpg.pdf"), ("a.v2.PDF", "a.v2.PDF"), ("a", "a.pdf")),
        *(("a.jpg.pdf", "a.jpg.pdf.pdf"), ("a.pdf.pdf", "a.pdf.pdf.pdf")),
    ],
)
def test_an_image_and_its_pdf_in_a_folder_get_two_files(name, file):
    assert pdf_file(name) == file


@pytest.mark.slow
@needs_ocr
def test_an_unknown_language_of_scans_is_refused(read, tmp_path):
    with pytest.raises(UsageError, match="`ocr_language=klingon`"):
        llm_ocr.export(workspace=read / "w", output=tmp_path / "o", format="pdf", ocr_language="klingon")


@pytest.mark.slow
@needs_ocr
def test_images_of_a_row_are_pages_of_one_pdf(tmp_path):
    images = [{"bytes": jpeg(picture(150), dpi=(150, 150)), "path": f"{name}.jpg"} for name in "ab"]
    pq.write_table(pa.table({"images": [images]}), tmp_path / "rows.parquet")
    one = {"render_workers": 1, "ocr_workers": 1}
    llm_ocr.run(dataset=str(tmp_path / "rows.parquet"), workspace=tmp_path / "w", engine="embedded", **one)
    llm_ocr.export(workspace=tmp_path / "w", output=tmp_path / "o", format="pdf")
    data = next((tmp_path / "o").rglob("*.pdf")).read_bytes()
    with pypdfium2.PdfDocument(data) as document:
        assert [one.get_size() for one in document] == [pytest.approx((380, 300), abs=1)] * 2
    assert text_of(data, 1) == TEXT


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# The writer alone: scripts, directions, and files of other forms.


def written(lines_of_page, source: bytes, tmp_path, *, rotation=0) -> bytes:
    (tmp_path / "source.pdf").write_bytes(source)
    text = json.dumps({"rotation": rotation, "credible": True, "lines": lines_of_page}).encode()
    with (tmp_path / "source.pdf").open("rb") as file:
        about = {"source": "source.pdf", "passwords": [], "memory": 1 << 30, "pages": {"1": text}}
        return write_pdf({"files": [file.fileno()], **about})["pdf"]


def line(*words, direction="right", box=(0.1, 0.1, 0.6, 0.13)):
    """A line of the worker with words of equal width."""
    parts = [(word, n / len(words), (n + 0.9) / len(words), " ") for n, word in enumerate(words)]
    if direction == "left":
        parts = [(word, 1 - end, 1 - start, follows) for word, start, end, follows in parts]
    return (direction, box, parts)


def empty() -> bytes:
    with pypdfium2.PdfDocument.new() as document:
        document.new_page(600, 800)
        out = io.BytesIO()
        document.save(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("drawn", "shown"),
    [
        (line("grün", "ßüß", "naïve"), "grün ßüß naïve"),
        (line("שלום", "עולם", "(123)", "סוף", direction="left"), "שלום עולם (123) סוף"),
        (line("مرحبا", "بالعالم", direction="left"), "مرحبا بالعالم"),
        (line("縦書きの日本語", direction="down", box=(0.8, 0.1, 0.83, 0.7)), "縦書きの日本語"),
        (line("read", "upwards", direction="up", box=(0.1, 0.1, 0.13, 0.7)), "read upwards"),
        (line("𠀀𠀁", "😀", "𝔘"), "𠀀𠀁 😀 𝔘"),
    ],
)
def test_text_of_any_script_and_direction_comes_back(drawn, shown, tmp_path):
    assert text_of(written([drawn], empty(), tmp_path)) == shown


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_text_of_a_page_that_was_turned_is_placed_as_it_lies(rotation, tmp_path):
    box = (0.2, 0.1, 0.4, 0.15)  # on the page as it was read
    data = written([line("turned", box=box)], empty(), tmp_path, rotation=rotation)
    with pypdfium2.PdfDocument(data) as document:
        found = box_of(document[0].get_textpage(), "turned")
    from llm_ocr.types import Box

    place = Box(*box).turned(-rotation)
    assert place.x0 * 600 - 1 <= found[0] < found[2] <= place.x1 * 600 + 1
    assert (1 - place.y1) * 800 - 1 <= found[1] < found[3] <= (1 - place.y0) * 800 + 1


@pytest.mark.parametrize(
    ("words", "added"),
    [
        (["Library", "WINDOWS"], ""),
        (["new", "library"], ""),  # short words are in every text
        (["a", "4"], ""),
        (["The", "whole", "prose"], "The whole prose"),
        (["unheard", "library", "orchard"], "unheard library orchard"),
    ],
)
def test_true_text_gets_only_the_lines_that_it_lacks(words, added, tmp_path):
    source = text_pdf("The library has tall windows.")
    data = written([line(*words)], source, tmp_path)
    assert "".join(text_of(data).split()) == "".join((added + text_of(source)).split())
    assert (data == source) == (not added)


@pytest.mark.parametrize(
    "old", [{"old": "zebra crossing"}, {"old": "zebra crossing", "in_form": True}, {"below": "zebra crossing"}]
)
def test_an_old_invisible_layer_is_replaced(old, tmp_path):
    source = scan(**old)
    assert "zebra" in text_of(source)
    data = written([line("new", "text")], source, tmp_path)
    assert text_of(data) == "new text"
    assert pixels(data) == pixels(source)


def composed(source: bytes) -> bytes:
    """The same document with a stream of places instead of a table (ISO 32000-2, 7.5.8), and one object more."""
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(source)) as pdf:
        pdf.Root.Unused = pdf.make_stream(b"unused")
        pdf.save(out, object_stream_mode=pikepdf.ObjectStreamMode.generate)
    return out.getvalue()


def wrong_table(source: bytes) -> bytes:
    """The same document with a wrong table of places, which readers repair."""
    return re.sub(rb"\d{10}(?= 00000 n)", lambda found: b"%010d" % (int(found[0]) + 7), source)


def of_generation_2(source: bytes) -> bytes:
    """The same document; its page is an object of generation 2 (7.3.10)."""
    place = source.index(b"5 0 obj")
    source = re.sub(rb"\b5 0 (?=R|obj)", b"5 2 ", source)
    return source.replace(b"%010d 00000" % place, b"%010d 00002" % place)


@pytest.mark.parametrize(
    "form",
    [
        *(bytes, composed, wrong_table, of_generation_2),
        *(lambda source: b"junk " + source, lambda source: source[:-12]),
    ],
)
def test_updates_of_all_forms_of_files_are_readable(form, tmp_path, require):
    require("pdftotext")
    source = form(scan(extras=True))
    data = written([line("new", "text")], source, tmp_path)
    assert data.startswith(source) == (form in (bytes, composed, of_generation_2))
    (tmp_path / "new.pdf").write_bytes(data)
    ran = subprocess.run(["pdftotext", tmp_path / "new.pdf", "-"], capture_output=True, text=True, check=True)
    assert (ran.stdout.split(), ran.stderr) == (["new", "text"], "")
    assert pixels(data) == pixels(source)


@pytest.mark.parametrize("form", [bytes, composed, wrong_table])
def test_equal_exports_have_equal_bytes(form, tmp_path):
    source = form(scan(old="zebra"))
    assert written([line("new", "text")], source, tmp_path) == written([line("new", "text")], source, tmp_path)


def test_resources_that_pages_share_are_kept(tmp_path):
    out = io.BytesIO()
    with pikepdf.open(io.BytesIO(prose())) as pdf:
        pdf.pages.append(pdf.pages[0])
        pdf.Root.Pages.Resources = pdf.make_indirect(pdf.pages[0].obj.Resources)
        for one in pdf.pages:
            del one.obj.Resources
        pdf.save(out)
    data = written([line("new" * 200)], out.getvalue(), tmp_path)
    assert pixels(data) == pixels(out.getvalue())
    assert (text_of(data), text_of(data, 1)) == (f"{'new' * 200} {TEXT}", TEXT)


def test_a_missing_pikepdf_is_named_with_its_extra(read, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pikepdf", None)
    with pytest.raises(MissingExtra, match=r'pip install "pikepdf'):
        llm_ocr.export(workspace=read / "w", output=tmp_path / "o", format="pdf")


def test_two_exports_of_a_pdf_do_not_double_its_text(tmp_path):
    once = written([line("only", "once")], scan(), tmp_path)
    twice = written([line("only", "once")], once, tmp_path)
    assert text_of(twice) == "only once"
    assert pixels(twice) == pixels(once)


def test_images_without_a_resolution_have_the_stated_one(tmp_path):
    Image.new("RGB", (400, 200), "white").save(tmp_path / "a.png")
    with (tmp_path / "a.png").open("rb") as file:
        about = {"source": "a.png", "passwords": [], "memory": 1 << 30, "pages": {}}
        data = write_pdf({"files": [file.fileno()], **about})["pdf"]
    with pypdfium2.PdfDocument(data) as document:
        assert document[0].get_size() == pytest.approx((72 * 400 / DEFAULT_DPI, 72 * 200 / DEFAULT_DPI))
