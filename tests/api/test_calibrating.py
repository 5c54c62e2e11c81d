"""`estimate --calibrate`: some pages are read for real, and the estimate rests on them."""

import json
from collections import Counter
from pathlib import Path

import pytest
from running import FRUGAL, cli, said

import llm_ocr
from llm_ocr.errors import UsageError
from llm_ocr.estimating import sample_of
from llm_ocr.results.routing import THRESHOLD
from llm_ocr.types import DocumentPart, Unit
from llm_ocr_simulator import running

PAGES = 30
QUICK = ("--image-size", "256", "--render-workers", "1")


@pytest.fixture(scope="module")
def documents(numbered_pages) -> Path:
    return numbered_pages(PAGES)


@pytest.fixture(scope="module")
def server():
    with running(preset="h100", speed=20, mean_tokens=300) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def measured(documents, server, tmp_path_factory):
    """The estimate, as JSON, what the server was asked, and the folder for temporary files."""
    folder = tmp_path_factory.mktemp("tmp")
    before = len(server.log()["requests"])
    flags = ("--calibrate", "--server-url", server.url, *QUICK, "--price-out", "2", "--price-per-hour", "3")
    ended = cli("estimate", documents, *flags, "--json", cwd=folder, env={"TMPDIR": str(folder)})
    assert ended.returncode == 0, said(ended)
    return json.loads(ended.stdout), len(server.log()["requests"]) - before, folder


def test_pages_are_read_by_the_server_and_nothing_is_left_behind(measured):
    found, asked, folder = measured
    assert asked == found["pages"] == PAGES
    assert list(folder.iterdir()) == []


def test_measured_estimate_comes_first_with_its_range_and_basis(measured, server):
    found, _, _ = measured
    here = found["options"][0]
    assert here["name"] == "here" and here["estimate"]["measured"] is True
    hours = here["estimate"]["hours"]
    assert 0 < hours["low"] <= hours["likely"] <= hours["high"]
    words = " ".join(found["assumptions"])
    port = server.url.split(":")[2].split("/")[0]
    assert f"measured now on the server at 127.0.0.1:{port}: {PAGES} of {PAGES} pages" in words
    assert "t-interval" in words and "tokens of a page, measured here" in words


def test_money_is_tokens_and_hours_at_the_prices_given(measured):
    found, _, _ = measured
    here = found["options"][0]
    hours = here["estimate"]["billed_hours"]["likely"]
    tokens = 300 * PAGES
    assert 3 * hours < here["cost"]["likely"] < 3 * hours + 2 * 3 * tokens / 1e6
    assert here["price"] == "$0 in, $2 out; $3.00 an hour"


def test_bytes_and_tokens_are_near_those_of_a_run(measured, documents, server, tmp_path):
    small = {"image_size": 256, "render_workers": 1}
    run = llm_ocr.extract(documents, workspace=tmp_path / "w", server_url=server.url, pages_per_unit=64, **small)
    real = sum(file.stat().st_size for file in (tmp_path / "w" / "extract").rglob("*.parquet"))  # one file
    stored = measured[0]["stored"]["bytes"]
    assert stored["low"] < real < stored["high"]
    found = llm_ocr.estimate(
        documents, calibrate=True, calibrate_pages=20, server_url=server.url, price_out=1e6, **small
    )
    cost = found.options[0].cost
    assert cost is not None and cost.low < run.status.tokens_out < cost.high


def test_without_a_calibration_the_bytes_say_whose_they_are(documents, tmp_path):
    found = json.loads(cli("estimate", documents, "--json", "--model", "embedded", cwd=tmp_path).stdout)
    assert found["stored"]["bytes"]["likely"] > 0 and "PDFs" in found["stored"]["source"]


def test_embedded_engine_is_calibrated_on_a_workspace_plan(examples, tmp_path):
    llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w")
    flags = ("--model", "embedded", "--calibrate", "--calibrate-pages", "1", "--json", "--quiet", *FRUGAL[2:])
    ended = cli("estimate", "-w", tmp_path / "w", *flags, cwd=tmp_path)
    assert ended.returncode == 0, said(ended)
    found = json.loads(ended.stdout)
    assert found["pages"] == 3 and "1 of 3 pages" in " ".join(found["assumptions"])
    assert not (tmp_path / "w" / "extract").exists() and not (tmp_path / "w" / "metrics").exists()


HYBRID = ("--engine", "hybrid", "--calibrate-pages")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--calibrate", "--page-count", "9"), 2, "no documents to read"),
        (("--calibrate",), 2, "no documents to read"),
        (("--calibrate", "--stage", "describe"), 2, "only extract"),
        (("--calibrate", "--model", "embedded", "--server-url", "http://127.0.0.1:9"), 2, "uses no server"),
        (("--calibrate", "--vllm-command", "no-such-program", "--offline"), 1, "no-such-program"),
        ((*HYBRID, "1", "--page-count", "9"), 2, "no documents to read"),
        ((*HYBRID, "1", "--stage", "describe"), 2, "only extract"),
        ((*HYBRID, "1", "--model", "embedded"), 2, "needs a model"),
        ((*HYBRID, "1", "--hardware", "hf-jobs:cpu-basic"), 2, "no GPU"),
    ],
)
def test_what_cannot_be_read_for_an_estimate_is_said(documents, tmp_path, flags, code, words):
    sources = () if words == "no documents to read" else (documents,)
    ended = cli("estimate", *sources, *flags, cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    assert ended.returncode == code and words in ended.stderr, said(ended)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_sample_is_wrong_usage(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UsageError):
        llm_ocr.estimate(tmp_path / "nothing", calibrate=True, model="embedded")


def part(name: str, pages: tuple[int, ...], estimate: int = 0) -> DocumentPart:
    return DocumentPart(name, name, name, "", pages, len(pages), 0, estimate=estimate)


def test_every_page_has_the_same_chance_to_be_drawn():
    units = [
        Unit("a", 1, 0, (part("long", tuple(range(1, 91))),)),
        Unit("b", 1, 1, (part("short", (1, 2)), part("x", (), 8))),
    ]
    drawn = Counter(one.document_id for seed in range(200) for one in sample_of(units, 10, seed))
    assert drawn.total() == 2000
    assert abs(drawn["long"] - 1800) < 120 and abs(drawn["x"] - 160) < 80


def test_the_same_seed_draws_the_same_pages():
    units = [Unit("a", 1, 0, (part("long", tuple(range(1, 91))),))]
    assert sample_of(units, 10, 7) == sample_of(units, 10, 7) != sample_of(units, 10, 8)


@pytest.mark.slow
def test_hybrid_shows_shares_by_a_sample_that_no_model_reads(examples, tmp_path):
    flags = (*HYBRID, "2", "--json", "--quiet", *FRUGAL[2:])
    ended = cli("estimate", examples / "paper.pdf", *flags, cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    assert ended.returncode == 0, said(ended)
    found = json.loads(ended.stdout)
    cpu, *hybrid, model = found["options"]
    shares = [option["model_share"]["likely"] for option in (cpu, *hybrid, model)]
    assert shares == sorted(shares) and (shares[0], shares[-1]) == (0, 1)
    assert cpu["cost"]["likely"] == 0 < model["cost"]["likely"]
    assert [option["model_threshold"] for option in hybrid] == [0.5, THRESHOLD, 0.1]
    assert "2 of 3 pages" in " ".join(found["assumptions"])
    assert list(tmp_path.iterdir()) == []
