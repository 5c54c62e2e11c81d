"""What a model without boxes, with notes and words of its own makes of a document, from the flags to the dataset."""

import json

import pytest
from pdf_writing import pages, text

import llm_ocr
from llm_ocr.errors import UsageError, WorkspaceMismatch
from llm_ocr.models.registry import find_profile
from llm_ocr.types import BlockKind
from llm_ocr_simulator import running

OLMOCR = find_profile("olmocr-2")
WORDS = ["A chart of three levels.", "A chart of ten days."]
ANSWER = (
    "---\nprimary_language: en\nis_rotation_valid: True\nrotation_correction: 0\n"
    "is_table: False\nis_diagram: True\n---\n"
    f"![{WORDS[0]}](page_1_1_9999_5.png)\n\n"
    "Figure 2: Levels at the three gauges from October to March of the winter of 1979/80.\n\n"
    f"Two simpler rules serve as a yardstick.\n\n![{WORDS[1]}](page_9000_1_20_30.png)"
)
SETTINGS = {"render_workers": 1, "ocr_workers": 1, "pages": "2", "image_size": 640, "fallback": "none"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Answers olmOCR's prompt with the second page of the paper, and all others with a sentence."""
    file = tmp_path_factory.mktemp("said") / "said.json"
    file.write_text(json.dumps({OLMOCR.prompts["markdown"]: ANSWER, "*": "Something else."}))
    with running(said=file, model=OLMOCR.model, max_model_len=65_536, speed=100) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def done(server, examples, tmp_path_factory):
    workspace = tmp_path_factory.mktemp("olmocr") / "w"
    return llm_ocr.run(
        examples / "paper.pdf", workspace=workspace, server_url=server.url, model="olmocr-2",
        server_model=OLMOCR.model, **SETTINGS,
    )  # fmt: skip


def test_figures_without_model_boxes_are_cropped_and_described(done):
    (page,) = done.pages()
    assert [figure.label for figure in page.figures] == ["chart", "chart"]
    assert [figure.described for figure in page.figures] == WORDS
    assert page.figures[0].caption.startswith("Figure 2")
    first, second = (page.markdown.index(f"(figure:{figure.id})") for figure in page.figures)
    assert first < page.markdown.index("Two simpler rules") < second
    assert done.status.figures.ok == 2
    (document,) = done.documents()
    assert all(said in document.markdown for said in WORDS)


def test_the_dataset_says_what_the_model_noted(done):
    (row,) = done.to_dataset()
    names = (
        *("primary_language", "is_rotation_valid", "rotation_correction", "rotation", "is_table", "is_diagram"),
        "is_fallback",
    )
    assert [row[name] for name in names] == ["en", True, 0, 0, False, True, False]
    figures = [block for block in row["blocks"] if block["kind"] == BlockKind.FIGURE]
    assert [block["described"] for block in figures] == WORDS


def test_known_descriptions_are_kept_or_made_by_another_model(done, server):
    before = len(server.log()["requests"])
    served = {"workspace": done.url, "server_url": server.url, "server_model": OLMOCR.model}
    llm_ocr.describe(describe_model="qwen3-vl-8b", describe_known="keep", **served)
    assert len(server.log()["requests"]) == before
    llm_ocr.describe(describe_model="qwen3-vl-8b", **served)
    assert len(server.log()["requests"]) > before
    with pytest.raises(UsageError, match="`describe_known=keep`"):
        llm_ocr.describe(describe_model="qwen3-vl-8b", describe_known="keep", describe_mode="classify", **served)


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"headers": "keep"}, "headers"),
        ({"figures_from": "none"}, "figures_from"),
        ({"rotate": "never"}, "rotate"),
        ({"guided": True}, "guides"),
    ],
)
def test_changed_settings_are_a_mismatch_with_the_difference(done, server, examples, changed, shown):
    with pytest.raises(WorkspaceMismatch, match=shown):
        llm_ocr.run(
            examples / "paper.pdf", workspace=done.url, server_url=server.url, model="olmocr-2",
            server_model=OLMOCR.model, **SETTINGS, **changed,
        )  # fmt: skip


CUT = b"<</Type/XObject/Subtype/Image/Width 200/Height 200/ColorSpace/DeviceGray/BitsPerComponent 8/Length 9000>>"


@pytest.mark.parametrize("engine", ["model", "embedded"])
def test_invisible_text_is_counted_and_undecoded_images_degrade(server, tmp_path, engine):
    words = b"".join(text(f"{number}. The harbor opens at nine.", y=740 - 20 * number) for number in range(9))
    drawn = [words + b" 1 g " + text("Secret order seven", y=400), words + b" q 90 0 0 90 72 300 cm /X Do Q"]
    file = tmp_path / "harbor.pdf"
    file.write_bytes(pages(*drawn, extra=(CUT + b"stream\n" + bytes(range(250)) * 36 + b"\nendstream",)))
    model = {"server_url": server.url, "model": "olmocr-2", "server_model": OLMOCR.model, "fallback": "none"}
    used = model if engine == "model" else {"engine": "embedded"}
    run = llm_ocr.extract(file, workspace=tmp_path / "w", render_workers=1, ocr_workers=1, **used)
    hidden, damaged = run.pages()
    assert (hidden.text_source == "model", hidden.invisible_chars) == (engine == "model", 16)
    assert "Secret" not in hidden.markdown
    assert (damaged.status, damaged.invisible_chars) == ("degraded", 0)
    assert "an image of the page is damaged: its data ends early" in damaged.detail
