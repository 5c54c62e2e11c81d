"""Failed figures are asked again, without their pages: by `retry-failed` and Describe, and by `repair`."""

import json
import shutil
from pathlib import Path

import bad_documents as bad
import pypdfium2
import pytest
from running import FRUGAL, FRUGALLY, cli, published, said, status_of

import llm_ocr
from llm_ocr.errors import ServerError
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.items import items
from llm_ocr.workspace.keys import EXTRACT, newest_key
from llm_ocr.workspace.published import earlier_readings
from llm_ocr_simulator import running
from llm_ocr_simulator.answers import data_url

MODEL = "qwen3-vl-8b"
FIGURES = 4  # in the example


def serving(folder: Path, answers: dict[str, str], **more):
    file = folder / "forced.json"
    file.write_text(json.dumps(answers))
    return running(forced=file, served_model_name=MODEL, preset="h100", speed=50, **more)


def chart(title: str) -> str:
    return json.dumps({"type": "bar chart", "title": title, "columns": ["a"], "rows": [["1"]]})


def describe(folder: Path, server, **more):
    given = {
        "engine": "server",
        "model": MODEL,
        "server_url": server.url,
        "max_page_attempts": 1,
        "describe_mode": "parse",
    }
    return llm_ocr.describe(workspace=folder / "out", progress=None, **{**given, **more})


@pytest.fixture(scope="module")
def before(golden, examples) -> Path:
    """A paper whose pages the CPU engine read, and whose figures a model described, except the largest."""

    def make(folder: Path) -> None:
        llm_ocr.extract(examples / "paper.pdf", workspace=folder / "out", **FRUGALLY)
        pages = llm_ocr.open(folder / "out").pages()
        sizes = sorted(len(data_url(figure.image)) for page in pages for figure in page.figures)
        with serving(folder, {"": chart("A first answer")}, fault={"too-long": sizes[-2]}) as server:
            describe(folder, server)
        llm_ocr.assemble(workspace=folder / "out", progress=None)

    return golden("failed-figure", make)


@pytest.fixture
def folder(before, tmp_path) -> Path:
    shutil.copytree(before / "out", tmp_path / "out")
    return tmp_path


def figures(folder: Path) -> Counts:
    return llm_ocr.open(folder / "out").status.figures


@pytest.mark.slow
def test_failed_figures_alone_are_asked_again(folder):
    assert figures(folder) == Counts(FIGURES, FIGURES - 1, 0, 1)
    old, pages = published(folder / "out"), status_of(folder / "out")["pages"]
    retried = cli("retry-failed", "-w", "out", cwd=folder)
    assert "Generation 2: 1 figure to be described again" in retried.stderr, said(retried)
    assert "and figures to describe again. Next: llm-ocr describe" in retried.stdout
    assert figures(folder) == Counts(FIGURES, FIGURES - 2)  # the page has two
    with serving(folder, {"": chart("A new answer")}) as server:
        describe(folder, server)
        assert len(server.log()["requests"]) == 1
    llm_ocr.assemble(workspace=folder / "out", progress=None)
    text = (folder / "out/documents/paper.pdf.md").read_text()
    assert (text.count("A first answer"), text.count("A new answer")) == (FIGURES - 1, 1)
    assert figures(folder) == Counts(FIGURES, FIGURES)
    assert old.items() <= published(folder / "out").items()
    assert status_of(folder / "out")["pages"] == pages
    assert llm_ocr.open(folder / "out").status.finished
    again = cli("retry-failed", "-w", "out", cwd=folder)
    assert "Nothing to retry" in again.stderr, said(again)


@pytest.mark.slow
def test_repair_asks_again_for_refused_figures(examples, tmp_path):
    given = {"engine": "server", "model": MODEL, "workspace": tmp_path / "out", "progress": None, "fallback": "none"}
    with running(served_model_name=MODEL, preset="h100", speed=50, mean_tokens=300) as server:
        llm_ocr.extract(examples / "paper.pdf", server_url=server.url, **given)
        expected = llm_ocr.open(tmp_path / "out").status.figures.expected
        assert expected
    with running(served_model_name=MODEL, fault={"400": 1.0}) as server, pytest.raises(ServerError, match="none of"):
        llm_ocr.run(examples / "paper.pdf", server_url=server.url, **given)
    assert figures(tmp_path) == Counts(expected, 0, 0, expected)
    old = published(tmp_path / "out")
    with running(served_model_name=MODEL, preset="h100", speed=50) as server:
        run = llm_ocr.repair(server_url=server.url, **given)
        assert len(server.log()["requests"]) == expected
    assert run.status.figures == Counts(expected, expected)
    assert run.status.finished and old.items() <= published(tmp_path / "out").items()
    assert run.status.pages == Counts(3, 3)


@pytest.mark.slow
def test_rows_that_were_not_copied_are_read_again(folder):
    """The command was killed after it wrote the plan."""
    assert cli("retry-failed", "-w", "out", cwd=folder).returncode == 0
    for path in (folder / "out/extract").glob("*/*/0002-*.done"):
        path.unlink()
    before = status_of(folder / "out")["pages"]
    assert before["expected"] == 3
    extracted = cli("extract", "-w", "out", *FRUGAL, cwd=folder)
    assert extracted.returncode == 0, said(extracted)
    with serving(folder, {"": chart("A new answer")}) as server:
        describe(folder, server)
        assert len(server.log()["requests"]) == 1
    assert (status_of(folder / "out")["pages"], figures(folder)) == (before, Counts(FIGURES, FIGURES))


def test_documents_added_later_keep_all_descriptions(folder, examples):
    """The CPU engine read the pages, and a model described the figures: it is needed only for figures that are new."""

    def texts_with_descriptions() -> int:
        return (folder / "out/documents/paper.pdf.md").read_text().count("A first answer")

    (folder / "words.pdf").write_bytes(bad.text_pdf(*bad.good_pages("words", 1)))
    run = cli("run", "words.pdf", "-w", "out", *FRUGAL, cwd=folder)
    assert run.returncode == 0, said(run)
    assert (folder / "out/documents/words.pdf.md").exists()
    assert texts_with_descriptions() == FIGURES - 1

    one = pypdfium2.PdfDocument.new()
    one.import_pages(pypdfium2.PdfDocument(examples / "paper.pdf"), [1])
    one.save(folder / "chart.pdf")
    run = cli("run", "chart.pdf", "-w", "out", *FRUGAL, cwd=folder)
    assert run.returncode == 1, said(run)
    described, assembled = (cli(stage, "-w", "out", cwd=folder) for stage in ("describe", "assemble"))
    extracted = cli("extract", "-w", "out", *FRUGAL, cwd=folder)
    command = extracted.stdout.partition("Next: llm-ocr ")[2].splitlines()[0]
    options = command.partition("-w out ")[2]
    assert "--describe-mode parse" in options, said(extracted)
    assert all(options in done.stderr for done in (run, described, assembled)), said(described)
    with serving(folder, {"": chart("An answer")}) as server:
        described = cli(*command.replace("URL", server.url).split(), cwd=folder)
        assert described.returncode == 3, said(described)  # the figure that failed before
        assert len(server.log()["requests"]) == 2  # of the new document
    assembled = cli("assemble", "-w", "out", cwd=folder)
    assert assembled.returncode == 0, said(assembled)
    assert texts_with_descriptions() == FIGURES - 1
    assert "An answer" in (folder / "out/documents/chart.pdf.md").read_text()


@pytest.mark.slow
def test_a_figure_has_the_description_of_its_own_reading(examples, tmp_path):
    """A unit may have pages of both kinds: one that a repair has replaced, and others that count."""
    run = llm_ocr.extract(examples / "paper.pdf", workspace=tmp_path / "out", pages_per_unit=16, **FRUGALLY)
    (tmp_path / "pages.txt").write_text(next(page.page_id for page in run.pages(images=False) if page.figures))
    other = ("--text-layer", "never", "--image-size", "1200", "--pages-from", "pages.txt")
    assert cli("repair", "-w", "out", *FRUGAL, *other, cwd=tmp_path).returncode == 0
    with serving(tmp_path, {}) as server:
        described = describe(tmp_path, server, describe_mode="describe")
    assert described.status.figures == Counts(FIGURES, FIGURES)
    assert cli("assemble", "-w", "out", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out/documents/paper.pdf.md").read_text().count("**Figure description:**") == FIGURES


def test_a_copied_page_is_no_second_reading(folder):
    tokens = llm_ocr.open(folder / "out").status.tokens_in
    assert cli("retry-failed", "-w", "out", cwd=folder).returncode == 0
    workspace = Workspace.open(str(folder / "out"))
    (item,) = items(workspace)
    assert earlier_readings(workspace, EXTRACT, newest_key(workspace, EXTRACT) or "", item) == {}
    assert llm_ocr.open(folder / "out").status.tokens_in == tokens


@pytest.mark.slow
def test_figures_of_replaced_readings_cost_nothing(folder):
    """Neither of the older reading, if the new one is better or equal, nor of a new reading that is worse."""
    last = list(llm_ocr.open(folder / "out").pages(images=False))[-1]
    (folder / "pages.txt").write_text(last.page_id)
    other = ("--text-layer", "never", "--image-size", "1200", "--pages-from", "pages.txt")
    assert cli("repair", "-w", "out", *FRUGAL, *other, cwd=folder).returncode == 0
    with serving(folder, {"": chart("An answer")}) as server:
        described = describe(folder, server, describe_mode="kind", describe_prompt="What kind of chart is this?")
        assert len(server.log()["requests"]) == FIGURES
    assert described.status.figures == Counts(FIGURES, FIGURES)
    assert described.processed["describe"] == Counts(FIGURES, FIGURES)
    assert described.status.stages["describe"].finished


@pytest.mark.slow
@pytest.mark.parametrize("by_model", [False, True], ids=["of another stage", "of another model"])
def test_commands_that_a_repair_names_finish_it(before, examples, tmp_path, by_model):
    """For figures that the model of the repair does not describe."""
    answers = {"": chart("An answer")}
    if by_model:
        with running(served_model_name=MODEL, preset="h100", speed=50, mean_tokens=300) as server:
            given = ("--server-url", server.url, "--model", MODEL, "--image-size", "640", "--pages", "3")
            run = cli("run", examples / "paper.pdf", "-w", "out", *given, "--no-page-markers", cwd=tmp_path)
            assert run.returncode == 0, said(run)
        answers = {"": "A new answer"}
    else:
        shutil.copytree(before / "out", tmp_path / "out")
    last = list(llm_ocr.open(tmp_path / "out").pages(images=False))[-1]
    (tmp_path / "pages.txt").write_text(last.page_id)
    ocr = () if by_model else ("--text-layer", "never")
    other = (*ocr, "--headers", "keep", "--pages-from", "pages.txt")
    done = cli("repair", "-w", "out", *FRUGAL, *other, cwd=tmp_path)
    assert "figure left to Describe" in done.stderr, said(done)
    assert "Next" not in done.stdout
    commands = done.stderr.partition("Run: llm-ocr ")[2].splitlines()[0].split(", then: llm-ocr ")
    with serving(tmp_path, answers) as server:
        for command in commands:
            run = cli(*command.replace("URL", server.url).split(), cwd=tmp_path)
            assert run.returncode in (0, 3), said(run)  # 3: the figure that failed before
    units = status_of(tmp_path / "out")["units"]
    assert all(stage["done"] == stage["total"] for stage in units.values())
    assert len(list((tmp_path / "out/describe").iterdir())) == 1  # the key of the earlier descriptions
    assert ("<!-- page" in (tmp_path / "out/documents/paper.pdf.md").read_text()) is not by_model
