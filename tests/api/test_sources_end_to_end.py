"""Folders, manifests, copies and awkward names, from the command line to the Markdown tree."""

import json
import shutil
from pathlib import Path

import bad_documents as bad
import pytest
from running import FRUGAL, Finished, cli, published, said, status_of

import llm_ocr

#: Names that shells, lists, patterns and URLs read in ways of their own.
NAMES = (
    *("plain.pdf", "a, b; c.pdf", "[draft] {v1} (2)*?.pdf", "  spaces  .pdf", "-w.pdf", "--engine.pdf"),
    *("50%20off #1.pdf", 'it\'s "quoted" $HOME.pdf', "отчёт за май.pdf", "報告書.pdf", "e\u0301te\u0301.pdf"),
)


def blank_document(text: str) -> bytes:
    """A page that needs no reading: what is tested is where it goes. The text makes its content its own."""
    return bad.blank() + f"\n% {text}\n".encode()


def written(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blank_document(name))


def run_in(folder: Path, *arguments: str | Path, code: int = 0) -> Finished:
    run = cli("run", *arguments, "-w", "out", *FRUGAL, "--quiet", cwd=folder)
    assert run.returncode == code, said(run)
    return run


def rows(workspace: Path) -> list[tuple[str, str, int]]:
    """Page id, file name and dataset index of every page, in the order of the plan."""
    pages = llm_ocr.open(str(workspace)).pages(images=False)
    return [(page.page_id, Path(page.source).name, page.dataset_index) for page in pages]


def tree(workspace: Path) -> set[str]:
    """The Markdown files, by their path below `documents/`."""
    folder = workspace / "documents"
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}


@pytest.mark.parametrize("way", ["folder", "arguments", "list"])
def test_names_of_any_kind_work(tmp_path, way):
    names = [name for name in NAMES if way != "list" or name == name.strip()]
    written(tmp_path / "in" if way == "folder" else tmp_path, *names)
    (tmp_path / "list.txt").write_text("\n".join(names) + "\n")
    dashed = [name for name in names if name.startswith("-")]
    others = [name for name in names if not name.startswith("-")]
    ways = {"folder": ["in"], "arguments": [*others, "--", *dashed], "list": ["list.txt"]}
    run = cli("run", "-w", "out", *FRUGAL, "--quiet", *ways[way], cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert sorted(name for _, name, _ in rows(tmp_path / "out")) == sorted(names)
    if way == "folder":
        assert len(tree(tmp_path / "out")) == len(NAMES)
        assert {"plain.pdf.md", "-w.pdf.md", "отчёт за май.pdf.md", "報告書.pdf.md"} <= tree(tmp_path / "out")


def test_variables_name_sources_also_those_of_the_predecessor(tmp_path):
    names = [name for name in NAMES if name == name.strip()]
    written(tmp_path, *names)
    env = {"LLM_OCR_SOURCES": "\n".join(names), "LLM_OCR_WORKSPACE": "by environment"}
    older = {"MAX_SAMPLES": "2", "EXTRACT_BATCH_SIZE": "8", "LLM_OCR_WORKSPACE": "two"}
    for variables, workspace, count in ((env, "by environment", len(names)), ({**env, **older}, "two", 2)):
        planned = cli("plan", cwd=tmp_path, env=variables)
        assert planned.returncode == 0, said(planned)
        assert status_of(tmp_path / workspace)["documents"] == count
    assert planned.stderr.count("EXTRACT_BATCH_SIZE") == 1


def test_added_document_makes_a_generation_and_runs_one_unit(tmp_path):
    written(tmp_path / "in", "b.pdf", "d.pdf")
    run_in(tmp_path, "in")
    before, first = published(tmp_path / "out"), rows(tmp_path / "out")
    written(tmp_path / "in", "a.pdf")
    run_in(tmp_path, "in")
    after = published(tmp_path / "out")
    assert before.items() <= after.items()
    new = after.keys() - before.keys()
    assert "plan/0002.done" in new
    assert {Path(name).name for name in new} == {"0002.done", "0002-000000.done", "0002-000000.0002.done"}
    assert rows(tmp_path / "out")[:2] == first
    assert rows(tmp_path / "out")[2][1:] == ("a.pdf", 2)
    status = status_of(tmp_path / "out")
    assert (status["generations"], status["documents"], status["pages"]["ok"]) == (2, 3, 3)


def test_copies_are_read_once_and_written_under_each_path(tmp_path):
    written(tmp_path / "in", "reports/a.pdf", "other.pdf")
    shutil.copy(tmp_path / "in" / "reports" / "a.pdf", tmp_path / "in" / "z copy.pdf")
    run = cli("run", "in", "-w", "out", *FRUGAL, cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert "duplicate" in run.stderr
    assert len(rows(tmp_path / "out")) == 2
    assert tree(tmp_path / "out") == {"reports/a.pdf.md", "other.pdf.md", "z copy.pdf.md"}
    texts = [(tmp_path / "out" / "documents" / name).read_text() for name in ("reports/a.pdf.md", "z copy.pdf.md")]
    assert texts[0] == texts[1]


def test_a_manifest_gives_ids_and_pages(tmp_path):
    (tmp_path / "long.pdf").write_bytes(bad.text_pdf(*bad.good_pages("Long", 6)))
    written(tmp_path, "short.pdf")
    entries = [
        {"document_id": "year/2024", "pdf_path": "long.pdf", "pages": [5, 2]},
        {"id": "s", "pdf_path": "short.pdf"},
    ]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    run_in(tmp_path, "all.jsonl")
    assert [page for page, _, _ in rows(tmp_path / "out")] == ["year/2024-p00002", "year/2024-p00005", "s-p00001"]
    text = (tmp_path / "out" / "documents" / "long.pdf.md").read_text()
    assert "<!-- page 2 -->" in text
    assert "<!-- page 3 -->" not in text


def test_pages_of_a_long_document_span_units_and_return_in_order(tmp_path):
    (tmp_path / "long.pdf").write_bytes(bad.text_pdf(*bad.good_pages("Long", 7)))
    run = cli("run", "long.pdf", "-w", "out", "--pages", "1,3-", *FRUGAL, "--pages-per-unit", "2", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    status = status_of(tmp_path / "out")
    assert (status["units"]["extract"]["total"], status["units"]["assemble"]["total"]) == (3, 1)
    text = (tmp_path / "out" / "documents" / "long.pdf.md").read_text()
    marks = [line for line in text.splitlines() if line.startswith("<!--")]
    assert marks == [f"<!-- page {number} -->" for number in (1, 3, 4, 5, 6, 7)]
    places = [text.index(f"Long, sheet {number}.") for number in (1, 3, 4, 5, 6, 7)]
    assert places == sorted(places)


def test_a_file_of_two_sources_is_planned_once(tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for name in ("sub/a.pdf", "b.pdf"):
        (tmp_path / "in" / name).write_bytes(bad.text_pdf([name]))
    llm_ocr.plan(tmp_path / "in" / "sub", workspace=tmp_path / "w")
    planned = cli("plan", "in", "-w", "w", cwd=tmp_path)
    assert f"1 document planned by another source, not read again: {tmp_path}/in/sub/a.pdf" in planned.stderr
    assert llm_ocr.open(tmp_path / "w").status.documents == 2
    (tmp_path / "in" / "sub" / "a.pdf").write_bytes(bad.text_pdf(["Other text."]))
    llm_ocr.plan(tmp_path / "in", workspace=tmp_path / "w")
    assert llm_ocr.open(tmp_path / "w").status.documents == 3
