"""Generated test pages: equal for equal seeds, and scored 1.0 only if right."""

import copy
import json
import shutil
import sys
from pathlib import Path

import pytest

FACTORY = Path(__file__).parents[1] / "benchmarks" / "truth_factory"
if not FACTORY.is_dir():
    pytest.skip("the benchmarks are no part of an installed package", allow_module_level=True)
sys.path += [str(FACTORY), str(FACTORY.parent)]

pytest.importorskip("websocket")
pytest.importorskip("rapidfuzz")
import pypdfium2  # noqa: E402
import scoring  # noqa: E402
import truth_render  # noqa: E402
import truth_scans  # noqa: E402
import truth_score  # noqa: E402
from truth_score import Answer  # noqa: E402

SEEDS = (0, 2)  # together they have all subjects


@pytest.fixture(scope="module")
def generated(require, golden, tmp_path_factory):
    """Return folder and truth of 8 pages, generated twice by separate browsers."""
    require("chromium")

    def make(root: Path) -> None:
        for name in ("first", "second"):
            (root / name).mkdir()
            with truth_render.chromium() as tab:
                pages = [page for seed in SEEDS for page in truth_render.generate(tab, seed, 4, root / name)]
            (root / name / "truth.json").write_text(json.dumps(pages))

    root = shutil.copytree(golden("generated pages", make), tmp_path_factory.mktemp("generated") / "pages")
    return [(root / name, json.loads((root / name / "truth.json").read_text())) for name in ("first", "second")]


@pytest.mark.slow
def test_the_same_seed_generates_the_same_pages(generated):
    (folder, pages), (again, same) = generated
    assert pages == same
    assert [page["id"] for page in pages[:2]] == ["d000000-p1", "d000000-p2"]
    for file in {page["file"] for page in pages}:
        assert _texts(folder / file) == _texts(again / file)
    assert pages[0]["blocks"] != pages[4]["blocks"]


def _texts(path: Path) -> list[str]:
    with pypdfium2.PdfDocument(path) as pdf:
        return [page.get_textpage().get_text_range() for page in pdf]


@pytest.mark.slow
def test_boxes_contain_the_text_of_their_blocks(generated):
    folder, pages = generated[0]
    page = pages[0]
    with pypdfium2.PdfDocument(folder / page["file"]) as pdf:
        text = pdf[0].get_textpage()
        width, height = pdf[0].get_size()
        for block in page["blocks"]:
            x0, y0, x1, y1 = block["boxes"][0]
            inside = text.get_text_bounded(x0 * width - 1, (1 - y1) * height - 2, x1 * width + 1, (1 - y0) * height + 2)
            assert "".join(inside.split()) == "".join(block["text"].split())


@pytest.mark.slow
def test_a_scan_is_equal_for_equal_pages_and_its_boxes_move(generated):
    (folder, pages), (again, same) = generated
    for place in range(4):
        scan = truth_scans.scan(pages[place], folder, place)
        assert scan == truth_scans.scan(same[place], again, place)
        if not scan["file"].endswith("pdf"):  # a PDF contains its time of creation
            assert (folder / scan["file"]).read_bytes() == (again / scan["file"]).read_bytes()
        moved = {"skew", "curl"} & set(scan["tags"])
        assert (scan["blocks"] != pages[place]["blocks"]) is bool(moved)


@pytest.mark.slow
def test_a_perfect_answer_scores_1_in_every_measure(generated):
    scores = [truth_score.score(page, truth_score.perfect(page)) for page in generated[0][1]]
    found = truth_score.total(scores)
    assert {name: sums["share"] for name, sums in found.items()} == dict.fromkeys(found, 1.0)
    assert {"text", "order", "cells", "tables", "figures", "formulas exact", "marks kept", "list items"} <= set(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "damage"),
    [
        ("text", lambda markdown: markdown[: len(markdown) // 2]),
        ("similarity", lambda markdown: markdown + "\n\n" + markdown[:300]),
        ("order", lambda markdown: "\n\n".join(reversed(markdown.split("\n\n")))),
        ("headings", lambda markdown: markdown.replace("# ", "")),
        ("headings true", lambda markdown: markdown + "\n\n# Not in the document"),
        ("paragraphs whole", lambda markdown: markdown.replace(". ", ".\n\n")),
        ("list items", lambda markdown: markdown.replace("\n- ", "\n")),
        ("cells", lambda markdown: markdown.replace("</tr><tr>", "")),
        ("formulas exact", lambda markdown: markdown.replace("_{", "^{")),
        ("formulas near", lambda markdown: markdown.replace("$$", "$$z^2+1+y^2=")),
        ("inline formulas", lambda markdown: markdown.replace("^{", "")),
        ("marks kept", lambda markdown: markdown.replace("<su", "<b").replace("</su", "</b")),
    ],
)
def test_a_damaged_answer_scores_less(generated, measure, damage):
    pages = generated[0][1]
    answers = [(page, truth_score.perfect(page)) for page in pages]
    damaged = [truth_score.score(page, Answer(damage(one.markdown), one.figures, one.tables)) for page, one in answers]
    assert truth_score.total(damaged)[measure]["share"] < 1


@pytest.mark.slow
def test_wrong_boxes_and_running_text_score_less(generated):
    page = copy.deepcopy(next(page for page in generated[0][1] if "figures" in page["tags"]))
    one = truth_score.perfect(page)
    head = next(block["text"] for block in page["blocks"] if block["kind"] in truth_score.FURNITURE)
    moved = [[x0, y0 + 0.3, x1, y1 + 0.3] for x0, y0, x1, y1 in one.figures]
    scores = truth_score.score(page, Answer(f"{head}\n\n{one.markdown}", moved, [[0, 0, 1, 1]]))
    assert scores["figures"][0] == scores["figures true"][0] == scores["tables true"][0] == 0
    assert scores["furniture absent"][0] == scores["furniture absent"][1] - 1


@pytest.mark.parametrize(
    ("value", "columns"), [("2", 2), (" 3px", 3), ("x", 1), ("-1", 1), ("0", 1), ("", 1), ("²", 1)]
)
def test_odd_spans_of_a_table_are_read_as_browsers_do(value, columns):
    (grid,) = scoring.grids(f'<table><tr><td colspan="{value}">a</td><td>b</td></tr></table>')
    assert grid == {**{(0, column): "a" for column in range(columns)}, (0, columns): "b"}
