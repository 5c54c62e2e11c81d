"""Quality scores from the command line: who sees them, --min-quality with a real server, and reading again."""

import json
from pathlib import Path

import pyarrow.dataset
import pytest
from running import FRUGAL, Told, cli, said, status_of

import llm_ocr
from llm_ocr.types import Reason, Status
from llm_ocr_simulator import running


@pytest.fixture(scope="module")
def done(golden, examples) -> Path:
    """The examples, read by the embedded engine, and a page of which nobody can read most."""

    def make(folder: Path) -> None:
        scribble(folder / "scribble.png")
        sources = [examples / "paper.pdf", examples / "scan.pdf", "scribble.png"]
        small = ("--pages", "1", "--image-size", "700")
        run = cli("run", *sources, "-w", "out", *FRUGAL, *small, cwd=folder)
        assert run.returncode == 0, said(run)

    return golden("quality", make) / "out"


def scribble(path: Path) -> None:
    """Three lines of text above rows of strokes that look like text and are none."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (560, 700), "white")
    pen = ImageDraw.Draw(image)
    for number, top in enumerate(range(40, 660, 34)):
        if number < 3:
            pen.text((40, top), "The minutes of the meeting of May were read", "black", ImageFont.load_default(size=18))
            continue
        for left in range(40, 520, 12):
            pen.line((left, top + 16, left + 5, top + 2, left + 10, top + 16), fill="black", width=2)
    image.save(path)


@pytest.mark.slow
def test_status_names_the_worst_pages_and_what_is_wrong(done):
    run = cli("status", "-w", done, "--worst", "2", cwd=done.parent)
    assert run.returncode == 0, said(run)
    assert "pages below 0.8" in run.stdout
    table = run.stdout[run.stdout.index("worst") :].splitlines()
    assert table[1].split() == ["score", "document", "page", "problem"]
    assert "scribble.png" in table[2]
    assert "text on the page that was not read" in table[2]
    scores = [float(line.split()[0]) for line in table[2:]]
    assert scores == sorted(scores)
    assert scores[0] < 0.5


@pytest.mark.slow
def test_status_json_has_histogram_and_requested_worst_pages(done):
    status = status_of(done)
    assert len(status["quality"]) == 20
    assert sum(status["quality"]) == 3
    assert (status["pages"]["ok"], status["pages"]["degraded"]) == (2, 1)
    assert status["worst"][0]["source"].endswith("scribble.png")
    assert set(status["worst"][0]) == {"score", "page_id", "source", "page", "wrong", "degraded"}
    one = json.loads(cli("status", "-w", done, "--json", "--worst", "1", cwd=done.parent).stdout)
    assert one["worst"] == status["worst"][:1]


@pytest.mark.slow
def test_rows_and_the_dataset_have_the_score(done):
    run = llm_ocr.open(str(done))
    rows = list(run.pages(images=False))
    assert all(row.quality is not None and 0 <= row.quality <= 1 for row in rows)
    (weak,) = [row for row in rows if row.source.endswith("scribble.png")]
    assert (weak.status, weak.reason) == (Status.DEGRADED, Reason.UNREAD)
    assert "text on the page that was not read" in weak.detail
    assert weak.detail.endswith("a model may read it better")
    good = [row for row in rows if row.source.endswith("paper.pdf")]
    assert good and all(row.quality > 0.8 and row.quality_parts["read"] > 0.95 for row in good)
    scanned = [row for row in rows if row.source.endswith("scan.pdf")]
    assert scanned and all(row.quality_parts["confident"] > 0.9 for row in scanned)
    table = pyarrow.dataset.dataset(done / "dataset").to_table(columns=["sample_id", "quality"])
    assert {one["sample_id"]: one["quality"] for one in table.to_pylist()} == {row.page_id: row.quality for row in rows}
    weakest = sorted(row.quality for row in rows)[:2]
    assert [page.score for page in run.worst(2)] == [score for score in weakest if score < 0.9]  # others are good


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Answers with made-up text that no page holds. The client judges it as soon as there is an answer of the user."""
    said = tmp_path_factory.mktemp("answers") / "said.json"
    said.write_text(json.dumps({"Who are you?": "The simulator"}))
    with running(preset="h100", speed=50, mean_tokens=200, said=said) as simulator:
        yield simulator


READ = {"render_workers": 1, "ocr_workers": 1, "image_size": 320}
SERVED = READ | {"pages": "1", "fallback": "none"}


@pytest.fixture(scope="module")
def invented(server, examples, tmp_path_factory):
    """A page of the paper with the first answer, with the best of some, without a threshold, and by another prompt."""
    folder = tmp_path_factory.mktemp("served")
    runs = {}
    ways = {"plain": {}, "asked": {"min_quality": 0.5}, "off": {"min_quality": 0.0}, "prompt": {"prompt": "A poem?"}}
    for name, more in ways.items():
        before = len(server.log()["requests"])
        run = llm_ocr.extract(examples / "paper.pdf", workspace=folder / name, server_url=server.url, **SERVED, **more)
        runs[name] = (run, len(server.log()["requests"]) - before)
    return runs


def test_answer_that_differs_from_the_page_is_requested_again(invented):
    (plain, once), (asked, often) = invented["plain"], invented["asked"]
    assert (once, often) == (1, 4)
    (first,), (best,) = plain.pages(images=False), asked.pages(images=False)
    assert first.quality < 0.1
    assert "text on the page that was not read" in plain.worst()[0].wrong
    for page in (first, best):
        assert (page.status, page.reason) == (Status.DEGRADED, Reason.UNREAD)
        assert "text on the page that was not read" in page.detail
        assert "`llm-ocr repair` reads it again" in page.detail
    assert len(best.attempts) == 4
    assert best.quality >= first.quality
    assert len({attempt["temperature"] for attempt in best.attempts}) == 4
    assert all("quality" in attempt for attempt in best.attempts)


def test_made_up_answers_of_the_simulator_are_not_judged(examples, tmp_path):
    lines = Told()
    with running(preset="h100", speed=50, mean_tokens=200) as simulator:
        run = llm_ocr.extract(
            examples / "paper.pdf", workspace=tmp_path / "w", server_url=simulator.url, progress=lines, **SERVED
        )
    assert [page.status for page in run.pages(images=False)] == [Status.OK]
    assert "its answers are made up, and their quality is not judged" in "\n".join(lines.lines)


@pytest.mark.parametrize("name", ["off", "prompt"])
def test_without_threshold_or_with_user_prompt_nothing_is_judged(invented, name):
    (run, requests) = invented[name]
    (page,) = run.pages(images=False)
    assert (page.status, requests) == (Status.OK, 1)
    assert page.quality < 0.1


@pytest.mark.slow
def test_weak_pages_are_read_again_and_the_better_row_counts(invented, server):
    run, _ = invented["plain"]
    (before,) = run.pages(images=False)
    folder = Path(run.url)
    planned = cli("retry-failed", "-w", folder, "--below-quality", "0.5", cwd=folder.parent)
    assert planned.returncode == 0, said(planned)
    asked = len(server.log()["requests"])
    llm_ocr.extract(workspace=run.url, server_url=server.url, fallback="none", **READ)
    assert len(server.log()["requests"]) > asked
    (after,) = run.pages(images=False)
    assert after.ledger.imbalance <= before.ledger.imbalance
    assert run.status.pages.expected == run.status.pages.degraded == 1
    assert sum(run.status.quality) == 1
    assert run.status.worst[0].score == after.quality
    nothing = cli("retry-failed", "-w", folder, "--below-quality", "0", cwd=folder.parent)
    assert "none has a quality below 0" in nothing.stderr
