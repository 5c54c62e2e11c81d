"""Pages by their regions: what a user of --layout-first is promised, with a model on a running server."""

import json

import pytest
from running import Told

import llm_ocr
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import ExtractSettings
from llm_ocr.engines.regions.doclayout import installed
from llm_ocr.errors import UsageError, WorkspaceMismatch
from llm_ocr.stages.model_choice import model_choice
from llm_ocr.stages.readers import chosen_detector
from llm_ocr.types import BlockKind
from llm_ocr_simulator import running

WORDS, TABLE, WHOLE = "Words of a region.", "<table><tr><td>Cell of a region</td></tr></table>", "A page read whole."
GLM = "zai-org/GLM-OCR"


def serving(folder, said: dict[str, str], model: str = GLM):
    file = folder / "said.json"
    file.write_text(json.dumps(said))
    return running(said=file, model=model, max_model_len=65_536, preset="h100", speed=100)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    said = {"Text Recognition:": WORDS, "Table Recognition:": TABLE, "Formula Recognition:": "E = mc^2"}
    with serving(tmp_path_factory.mktemp("said"), said) as simulator:
        yield simulator


@pytest.fixture
def without_detector():
    if installed():
        pytest.skip("a detector is installed here")


def extract(sources, server, workspace, **more):
    told = Told()
    settings = {
        "model": "glm-ocr",
        "server_url": server.url,
        "render_workers": 1,
        "ocr_workers": 1,
        "min_quality": 0.0,
        **more,
    }
    return llm_ocr.extract(sources, workspace=workspace, progress=told, **settings), told.lines


def chosen(**settings) -> tuple[str | None, list[str]]:
    """Return the detector that the settings choose, and the messages for the user."""
    lines: list[str] = []
    given = settings_from(ExtractSettings, "extract", {"workspace": "-", "model": "glm-ocr", **settings})
    return chosen_detector(given, model_choice(given).profile, lines.append), lines


@pytest.fixture(scope="module")
def regions(server, examples, tmp_path_factory):
    """A paper and a scan by the regions of the embedded engine's layout."""
    server.reset()
    sources = [examples / "paper.pdf", examples / "invoice.png"]
    workspace = tmp_path_factory.mktemp("regions") / "w"
    run, lines = extract(sources, server, workspace, layout_first="always", detector="embedded")
    return run, lines, len(server.log()["requests"])


def test_every_region_is_read_and_every_page_has_one_row(regions):
    run, _, requests = regions
    pages = list(run.pages())
    assert run.status.pages.ok == run.status.pages.expected == len(pages)
    assert requests > 5 * len(pages)
    assert all(page.engine == "glm-ocr" and page.text_source == "model" for page in pages)
    assert all(WORDS in page.markdown for page in pages)
    tables = [block for page in pages for block in page.blocks if block.kind is BlockKind.TABLE]
    assert tables and {block.text for block in tables} == {TABLE}
    assert f"# {WORDS}" in pages[0].markdown


def test_blocks_lie_in_their_regions_and_figures_are_cropped(regions):
    pages = list(regions[0].pages())
    boxes = [block.box for page in pages for block in page.blocks]
    assert all(0 < box.area < 0.9 for box in boxes)
    figures = [figure for page in pages for figure in page.figures]
    assert figures and all(figure.image.data for figure in figures)


def test_same_command_sends_no_request_other_mapping_is_refused(regions, server, examples):
    run, _, _ = regions
    server.reset()
    sources = [examples / "paper.pdf", examples / "invoice.png"]
    same = {"layout_first": "always", "detector": "embedded"}
    extract(sources, server, run.url, **same)
    assert server.log()["requests"] == []
    with pytest.raises(WorkspaceMismatch, match="layout_first"):
        extract(sources, server, run.url, **same, region_task=("header=text",))


@pytest.mark.usefixtures("without_detector")
def test_the_embedded_layout_stands_in_where_it_must_and_says_so():
    name, lines = chosen(layout_first="always")
    assert name == "embedded"
    assert any("Using the embedded engine's layout" in line and '"torch>=' in line for line in lines)


@pytest.mark.usefixtures("without_detector")
def test_missing_detector_reads_whole_pages_with_one_warning(server, small_examples, tmp_path):
    server.reset()
    run, lines = extract(small_examples / "invoice.png", server, tmp_path / "w")
    assert [page.markdown for page in run.pages()] == [WORDS]
    assert len(server.log()["requests"]) == 1
    assert len([line for line in lines if "reading whole pages" in line and '"torch>=' in line]) == 1


@pytest.mark.parametrize("settings", [{"layout_first": "never"}, {"model": "deepseek-ocr"}])
def test_whole_pages_are_the_way_of_most_models(settings):
    assert chosen(**settings) == (None, [])


def test_a_prompt_about_pages_is_about_pages():
    name, lines = chosen(mode="text", detector="embedded")
    assert name is None
    assert any("reading whole pages because of `mode`" in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "olmocr-2"}, r"olmocr-2 has no prompts for regions(.|\n)*glm-ocr"),
        ({"prompt": "Read."}, "`prompt` applies to whole pages"),
        ({"mode": "text"}, "`mode` applies to whole pages"),
        ({"region_task": ("header=read",)}, "unknown task 'read'"),
        ({"detector_device": "tpu"}, "detector_device"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_read(server, small_examples, tmp_path, settings, said):
    server.reset()
    with pytest.raises(UsageError, match=said):
        extract(small_examples / "invoice.png", server, tmp_path / "w", layout_first="always", **settings)
    assert server.log()["requests"] == []
