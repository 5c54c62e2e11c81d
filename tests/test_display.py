"""Rows are shown with their figures in notebooks, and given back as Markdown elsewhere."""

import base64
import io
import json
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from PIL import Image

from llm_ocr import display, document
from llm_ocr.errors import UsageError
from llm_ocr.results.dataset import DatasetRow, DatasetWriter, dataset_file
from llm_ocr.results.schema import Images
from llm_ocr.runs import Document
from llm_ocr.types import Block, BlockKind, Box, EncodedImage, Figure, FigureRecord, PageRecord, Reason, Status

FIGURE = "0123456789abcdef-p00001-f01"
DATA_URL = re.compile(r"data:image/(?:png|jpeg|webp);base64,([A-Za-z0-9+/=]+)")


def picture(width: int, height: int, noise: bool = False) -> EncodedImage:
    image = Image.new("RGB", (width, height), "white")
    if noise:
        image = Image.frombytes("RGB", (width, height), random.Random(1).randbytes(3 * width * height))
    out = io.BytesIO()
    image.save(out, "PNG")
    return EncodedImage(out.getvalue(), "image/png", width, height)


def record(**changes) -> PageRecord:
    page = PageRecord(
        FIGURE[:-4],
        FIGURE[:16],
        "/in/a.pdf",
        1,
        0,
        Status.OK,
        engine="embedded",
        image=picture(300, 400),
        markdown=f"## Results\n\n![{FIGURE}](figure:{FIGURE})",
        blocks=(Block(BlockKind.FIGURE, Box(0.1, 0.1, 0.9, 0.5), figure_id=FIGURE),),
        figures=(Figure(FIGURE, "chart", Box(0.1, 0.1, 0.9, 0.5), picture(60, 40)),),
    )
    return replace(page, **changes)


FAILED = PageRecord("f-p00000", "f", "/in/b.pdf", None, 1, Status.FAILED, Reason.ENCRYPTED)


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    def opened(images: Images = Images.ALL, boxes: EncodedImage | None = None):
        figures = {FIGURE: FigureRecord(FIGURE, "", "", Status.OK, "describe", description="A *chart*.")}
        final = f"## Results\n\n![{FIGURE}: A chart.](figure:{FIGURE})\n\nfinal text"
        path = tmp_path / dataset_file("1")
        path.parent.mkdir()
        with DatasetWriter(path, images) as writer:
            writer.add(DatasetRow(record(), final, figures, boxes))
            writer.add(DatasetRow(FAILED, ""))
        return datasets.load_dataset(str(path.parent), cache_dir=str(tmp_path / "cache"))

    return opened


def sizes(markdown: str) -> list[tuple[int, int]]:
    return [Image.open(io.BytesIO(base64.b64decode(data))).size for data in DATA_URL.findall(markdown)]


def test_the_final_markdown_is_shown_with_figures_in_it(load):
    shown = display.render_sample_markdown(load()["train"][0])
    assert "final text" in shown
    assert "figure:" not in shown
    assert sizes(shown) == [(60, 40)]


def test_rows_before_assemble_and_plain_dictionaries_work_too():
    row = {
        "document_markdown": f"raw ![{FIGURE}](figure:{FIGURE})",
        "document_final_markdown": "",
        "extracted_figures": [{"bytes": picture(60, 40).data, "path": None}],
        "extracted_figures_metadata": [json.dumps({"figure_id": FIGURE})],
    }
    assert sizes(display.render_sample_markdown(row)) == [(60, 40)]
    assert sizes(display.render_sample_markdown(record())) == [(60, 40)]
    assert display.render_sample_markdown({}) == ""


def test_figures_that_were_left_out_are_named(load):
    shown = display.render_sample_markdown(load(Images.NONE)["train"][0])
    assert f"\\[image not shown: {FIGURE}: A chart.\\]" in shown


def test_large_figures_are_scaled_down():
    big = Figure(FIGURE, "photo", Box(0, 0, 1, 1), picture(1500, 900, noise=True))
    shown = display.render_sample_markdown(record(figures=(big,)))
    assert sizes(shown) == [(1000, 600)]
    assert len(shown) < 2_000_000


def test_markdown_is_given_back_where_there_is_no_notebook():
    assert display.display_markdown("# Title") == "# Title"
    assert sizes(display.display_markdown(record()) or "") == [(60, 40)]


def test_what_a_page_says_is_not_trusted():
    shown = display.display_markdown("<script>alert(1)</script> ![x](http://tracker.example/a.png)") or ""
    assert "<script>" not in shown
    assert "![" not in shown


def test_samples_are_shown_in_short(load):
    shown = display.display_samples(load()["train"], n=2) or ""
    assert shown.startswith("**2 rows**\n\nColumns: sample_id, dataset_index, source_image")
    assert "Sample 2: f-p00000" in shown and "failed encrypted" in shown
    assert sizes(shown) == [(300, 400), (60, 40)]
    assert "A \\*chart\\*." in shown


def test_splits_streams_and_plain_lists_can_be_sampled(load):
    data = load()
    assert "**2 rows**" in (display.display_samples(data, 1) or "")
    assert "**Streamed rows**" in (display.display_samples(data["train"].to_iterable_dataset(), 1) or "")
    assert "Sample 1" in (display.display_samples([{"sample_id": "x", "document_markdown": "y"}]) or "")
    assert display.display_samples([]) == "**0 rows**"
    rows = data["train"]  # `num_samples` is the predecessor's name
    assert display.display_samples(rows, num_samples=1) == display.display_samples(rows, n=1)
    assert display.display_samples(rows, num_samples=0) != display.display_samples(rows)


def test_the_page_is_shown_with_its_boxes(load):
    assert sizes(display.display_page(record()) or "") == [(300, 400)]
    row = load()["train"][0]
    assert row["document_with_boxes_image"] is None
    assert sizes(display.display_page(row) or "") == [(300, 400)]


def test_boxes_that_were_drawn_before_are_used(load):
    assert sizes(display.display_page(load(boxes=picture(30, 40))["train"][0]) or "") == [(30, 40)]


def test_a_page_without_an_image_says_what_to_do(load):
    for page in (FAILED, load(Images.FIGURES)["train"][0]):
        with pytest.raises(UsageError, match="this page has no image") as caught:
            display.display_page(page)
        assert "`dataset_images=all`" in caught.value.hint


def test_the_names_of_older_notebooks_stand():
    assert document.display_markdown is display.display_markdown
    assert document.display_samples is display.display_samples
    assert document.render_sample_markdown is display.render_sample_markdown


def test_importing_it_loads_no_heavy_package():
    code = (
        "import sys, llm_ocr.document; print([m for m in ('numpy', 'pyarrow', 'datasets', 'PIL') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_notebook_shows_it():
    pytest.importorskip("IPython", reason="IPython is not installed")
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    InteractiveShell.instance()
    try:
        with capture_output() as shown:
            assert display.display_markdown(record()) is None
        assert [list(output.data) for output in shown.outputs] == [["text/plain", "text/markdown"]]
    finally:
        InteractiveShell.clear_instance()


def test_failures_are_shown_with_their_reasons():
    lost = replace(
        FAILED, page_id="b-p00002", source="/in/b|c.pdf", page_number=2, detail="<b>no</b>", attempts=({}, {})
    )
    assert display.display_failures([]) == "No page failed."
    shown = (display.display_failures([FAILED, lost, FAILED, FAILED], n=2) or "").splitlines()
    assert shown[2:4] == [
        "| /in/b.pdf | all | encrypted | 0 |",
        "| /in/b\\|c.pdf | 2 | encrypted: &lt;b&gt;no&lt;/b&gt; | 2 |",
    ]
    assert shown[-1] == "2 more"


def test_notebooks_show_pages_and_documents_without_running_text():
    bad = "<script>alert(1)</script>"
    figure = replace(record().figures[0], caption=bad, described=bad, inside=bad)
    page = record(source=bad, detail=bad, reason=Reason.LOOP, markdown=bad, figures=(figure,), quality=0.5)
    text = Document("d", bad, "d.md", f"# Title\n\n{bad}")
    for shown in (page._repr_html_(), figure._repr_html_(), text._repr_markdown_()):
        assert "<script>" not in shown and "alert(1)" in shown
    assert sizes(page._repr_html_()) == [(300, 400)] and sizes(figure._repr_html_()) == [(60, 40)]
    assert "<th>quality</th><td>0.50</td>" in page._repr_html_()
    assert "<th>reason</th><td>encrypted</td>" in FAILED._repr_html_()


def test_an_image_of_another_type_is_named_and_not_shown():
    image = replace(picture(60, 40), media_type='text/html" onload="alert(1)')
    assert image._repr_html_() == "<p>image of 60 x 40 pixels</p>"
