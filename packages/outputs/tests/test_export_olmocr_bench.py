"""`export --format olmocr-bench`: the rules of the files that the scorer reads."""

import re
from pathlib import Path

import pytest
from export_workspaces import make

import llm_ocr
from llm_ocr.errors import UsageError
from llm_ocr_outputs.exports.olmocr_bench import bench_file


def export(workspace, output, **more):
    return llm_ocr.export(workspace=workspace, output=output, format="olmocr-bench", **more)


def candidates(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))


def test_each_page_is_a_file_named_as_the_scorer_looks_for_it(real, tmp_path):
    done = export(real, tmp_path / "bench_data/mine")
    files = candidates(tmp_path / "bench_data/mine")
    for base in ("a", "sub/copy", "日本 #1", "broken"):
        pattern = re.compile(rf"^{re.escape(base)}_pg\d+_repeat\d+\.md$")
        assert any(pattern.match(file) for file in files), base
    assert bench_file("old_scans/1_pg46.pdf", 2) == "old_scans/1_pg46_pg2_repeat1.md"
    assert bench_file("math/b.v2.pdf", 1) == "math/b.v2_pg1_repeat1.md"
    assert (done.unit, len(files) - done.rows) == ("pages", 3)  # the copy has files of its own
    assert done.load.endswith(f'--dir "{tmp_path}/bench_data" --candidate "mine"')


def test_pages_count_from_one_and_hold_their_text(real, tmp_path):
    export(real, tmp_path / "o")
    text = (tmp_path / "o/a_pg2_repeat1.md").read_text()
    assert "Then comes a, sheet 2." in text
    assert "<!--" not in text and text.endswith("\n")


def test_a_document_that_does_not_open_is_an_empty_first_page(real, tmp_path):
    export(real, tmp_path / "o")
    assert (tmp_path / "o/broken_pg1_repeat1.md").read_bytes() == b""


def test_pages_that_failed_are_empty_files(tmp_path):
    export(make(str(tmp_path / "w"), 2, fails=frozenset({"1.pdf"})), tmp_path / "o")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "o").glob("*.md")}
    assert sorted(name for name, size in sizes.items() if not size) == [f"1_pg{n}_repeat1.md" for n in (1, 2, 3)]
    assert len(sizes) == 6


def test_figures_are_plain_links_with_descriptions_as_alt_text(tmp_path):
    export(make(str(tmp_path / "w"), 1), tmp_path / "o")
    text = (tmp_path / "o/0_pg1_repeat1.md").read_text()
    assert re.fullmatch(r"Page 1 of 0\.pdf\n\n!\[a chart on [\w-]+\]\(figure\.png\)\n", text)


def test_documents_cannot_be_left_out(real, tmp_path):
    with pytest.raises(UsageError, match="`drop_over_error_rate` is not possible"):
        export(real, tmp_path / "o", drop_over_error_rate=True)
    assert not (tmp_path / "o").exists()
