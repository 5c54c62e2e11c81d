"""debug page: what the passes decided on one page, and the image of its blocks."""

import json
import math

import pytest
from bad_documents import text_pdf
from PIL import Image, ImageDraw, ImageFont
from reportlab.pdfgen.canvas import Canvas

ONE = ("--render-workers", "1", "--ocr-workers", "1")


@pytest.fixture
def debug(llm_ocr):
    return lambda *arguments, **options: llm_ocr("debug", "page", *map(str, arguments), *ONE, **options)


@pytest.fixture
def sign(tmp_path):
    """An image with one line of text."""
    picture = Image.new("RGB", (700, 120), "white")
    ImageDraw.Draw(picture).text((40, 30), "Opening hours 9 to 17", "black", ImageFont.load_default(48))
    picture.save(tmp_path / "sign.png")
    return tmp_path / "sign.png"


def values_of(done, step):
    """The rows of one name."""
    return [line[16:] for line in done.stdout.splitlines() if line[2:15].rstrip() == step]


def steps_of(report, step):
    return [one["facts"] for one in report["decisions"] if one["step"] == step]


def test_a_page_of_a_paper_with_two_columns(debug, repository, tmp_path):
    done = debug(repository / "examples/paper.pdf", "--page", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "paper.pdf, page 1 of 3: ok"
    assert lines[-1] == "Blocks in reading order: paper-p0001.png"
    [source] = values_of(done, "text source")
    assert source.startswith("text layer; the text layer is trusted: it differs by 0.0")
    assert source.endswith("(probed: first page of the document)")
    [table], [figure] = values_of(done, "table"), values_of(done, "figure")
    assert table.startswith("booktabs, 4 x 5; box [0.5")
    assert figure.startswith("image: a caption names it; box [0.5")
    assert 'caption "Figure 1: The lower Arlen' in figure
    assert len(values_of(done, "gutter")) == 1
    assert len(values_of(done, "reading order")) == 3
    assert values_of(done, "furniture") == ['page number; text "1"']
    assert any("text of part 2 continues in part 3; before" in join for join in values_of(done, "join"))
    blocks = values_of(done, "block")
    assert blocks[0].startswith("1 title 1 [")
    assert blocks[0].endswith('"Reading the Staff: Forecasting a Small River with Paint, Pa…"')
    assert blocks[-1].endswith('"1"')
    [quality], [wrong], [times] = (values_of(done, step) for step in ("quality", "problems", "time in ms"))
    assert quality.startswith("1.00; ")
    assert "read 1.000 (score 1.00)" in quality
    assert wrong == "none found"
    assert all(f"{name} " in times for name in ("rendering", "probe", "tables", "figures", "layout", "quality"))
    with Image.open(tmp_path / "paper-p0001.png") as overlay:
        assert (overlay.format, overlay.size) == ("PNG", (1089, 1540))
        colors = overlay.convert("RGB").getcolors(1 << 24)
    strong = [color for count, color in colors if count > 200 and max(color) - min(color) > 100]
    assert len(strong) >= 5, "the edges of titles, texts, tables, figures, and captions have colors of their own"


def test_the_report_for_programs_agrees_with_itself(debug, repository, tmp_path):
    done = debug(repository / "examples/paper.pdf", "--page", "2", "--json", "--output", "two.jpg")
    report = json.loads(done.stdout)
    assert (report["page"], report["pages"], report["status"], report["overlay"]) == (2, 3, "ok", "two.jpg")
    assert report["text_source"] == "text-layer"
    [source] = steps_of(report, "text source")
    assert source == {"source": "text layer", "characters": source["characters"], "scan": False, "suspicious": False,
                      "probe": None}  # fmt: skip
    tables = [block for block in report["blocks"] if block["kind"] == "table"]
    assert [table["label"] for table in tables] == [facts["finder"] for facts in steps_of(report, "table")]
    figures = [block["caption"] for block in report["blocks"] if block["kind"] == "figure"]
    assert len(figures) == len(steps_of(report, "figure"))
    assert report["quality"]["score"] == min(report["quality"]["scores"].values())
    assert report["milliseconds"]["layout"] > 0
    with Image.open(tmp_path / "two.jpg") as overlay:
        assert overlay.format == "JPEG"


def test_an_image_is_read_by_ocr(debug, sign, tmp_path):
    done = debug("sign.png")
    assert done.returncode == 0
    assert values_of(done, "text source") == ["OCR; the page is an image without a text layer"]
    assert values_of(done, "text") == ["1 lines, 5 words"]
    assert values_of(done, "orientation") == ["rotated by 0 degrees clockwise, deskewed by 0.0"]
    assert [values_of(done, step) for step in ("table", "figure", "gutter", "join")] == [["none"]] * 4
    assert values_of(done, "block")[0].endswith('"Opening hours 9 to 17"')
    with Image.open(tmp_path / "sign-p0001.png") as overlay:
        assert overlay.size == (700, 120)


def test_the_status_is_that_of_a_run(debug, sign, tmp_path):
    with Image.open(sign) as picture:
        page = Image.new("RGB", (700, 400), "white")
        page.paste(picture)
    for row in range(4):  # scribbles
        wave = [(40 + x, 150 + 60 * row + 14 * math.sin(x * x / 300)) for x in range(0, 600, 3)]
        ImageDraw.Draw(page).line(wave, "black", 3)
    page.save(tmp_path / "letter.png")
    assert debug("letter.png").stdout.startswith("letter.png, page 1 of 1: degraded: unread: text on the page")


@pytest.mark.slow
def test_a_scan_is_read_by_ocr(debug, repository, tmp_path):
    report = json.loads(debug(repository / "examples/scan.pdf", "--json").stdout)
    assert report["text_source"] == "ocr"
    assert report["decisions"][0]["message"] == "OCR; the page has no text layer"
    assert "Repainting of the staffs" in " ".join(block["text"] for block in report["blocks"])
    assert report["confidence"] > 0.9
    assert {"OCR", "objects on the scan", "tables"} <= report["milliseconds"].keys()
    with Image.open(tmp_path / report["overlay"]) as overlay:
        assert max(overlay.size) == 1600
        assert report["image"]["height"] > 1600, "a scan keeps its own pixels"


def test_a_text_layer_that_lies_is_named(debug, sign, tmp_path):
    canvas = Canvas(str(tmp_path / "liar.pdf"), pagesize=(700, 120))
    canvas.drawImage(str(sign), 0, 0, 700, 120)
    text = canvas.beginText(40, 45)
    text.setFont("Helvetica", 40)
    text.setTextRenderMode(3)  # nobody sees it
    text.textOut("Nothing of this is on the page")
    canvas.drawText(text)
    canvas.save()
    done = debug("liar.pdf")
    [source] = values_of(done, "text source")
    assert source.startswith("OCR; the text layer is wrong: it differs by 0.")
    assert source.endswith("limit 0.03 (probed: first page of the document, scan)")
    assert values_of(done, "time in ms")[0].count("loading OCR ") == 1, "the probe and the reading add up"
    assert values_of(done, "block")[0].endswith('"Opening hours 9 to 17"')


def test_a_blank_page_has_no_blocks_and_its_name_steers_nothing(debug, tmp_path):
    (tmp_path / "a\x1b[2Jb\n.pdf").write_bytes(text_pdf([""]))
    done = debug("a\x1b[2Jb\n.pdf")
    assert values_of(done, "text source") == ["nothing: the image has no ink; the page has no text layer"]
    assert values_of(done, "block") == ["none: the page is blank"]
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[0] == "a\\x1b[2Jb\\n.pdf, page 1 of 1: ok"


def test_an_image_that_is_there_is_not_replaced(debug, tmp_path):
    (tmp_path / "blank.pdf").write_bytes(text_pdf([""]))
    there = tmp_path / "blank-p0001.png"
    there.write_text("mine")
    refused = debug("blank.pdf")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "blank-p0001.png already exists" in refused.stderr
    assert "--overwrite" in refused.stderr
    assert there.read_text() == "mine"
    assert debug("blank.pdf", "--overwrite", "--quiet").stdout == "Blocks in reading order: blank-p0001.png\n"
    with Image.open(there) as overlay:
        assert overlay.format == "PNG"


def test_what_cannot_be_read_is_an_error_that_names_it(debug, sign, tmp_path):
    (tmp_path / "locked.pdf").write_bytes(text_pdf(["a line of text"], password="secret"))
    (tmp_path / "notes.txt").write_text("no page")
    cases = {
        ("sign.png", "--page", "2"): (2, "--page 2: sign.png has 1 page"),
        ("sign.png", "--page", "0"): (2, "--page 0: must be a whole number, 1 or more"),
        ("sign.png", "--output", "sign.gif"): (2, "--output sign.gif: must end in .png or .jpg"),
        ("sign.png", "--output", "no/folder.png"): (2, "--output no/folder.png cannot be written: No such file"),
        ("none.pdf",): (2, "none.pdf does not exist"),
        ("notes.txt",): (1, "unknown type: notes.txt, page 1: the file is none of PDF"),
        ("locked.pdf",): (1, "encrypted: locked.pdf, page 1"),
    }
    for arguments, (code, words) in cases.items():
        done = debug(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert words in done.stderr, done.stderr
    assert not list(tmp_path.glob("*-p*.png"))
    assert debug("locked.pdf", "--password", "secret").returncode == 0


def test_debug_log_has_decisions_without_page_text(llm_ocr, tmp_path):
    (tmp_path / "letter.pdf").write_bytes(text_pdf(["The confidential sentence of this letter is not logged."]))
    run = ("run", "letter.pdf", "-w", "out", "--engine", "embedded", *ONE)
    done = llm_ocr(*run, "--log-level", "debug", "--log-file", "log.txt")
    log = (tmp_path / "log.txt").read_text()
    assert done.returncode == 0
    assert "letter.pdf page 1: text source: text layer; the text layer is trusted" in log
    assert "confidential" not in log
    llm_ocr(*run[:2], "-w", "other", *run[4:], "--log-level", "info", "--log-file", "quiet.txt")
    assert "text source" not in (tmp_path / "quiet.txt").read_text()
