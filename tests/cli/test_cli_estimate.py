"""`llm-ocr estimate`: pages counted, times rates, times prices, with what that rests on."""

import json
import shutil

import pytest

from llm_ocr.config.environment import cores
from llm_ocr.costs.comparison import on_own_cores
from llm_ocr.workspace import Workspace

TOKENS = ("--tokens-in", "75000", "--tokens-out", "75000")


@pytest.fixture(scope="module")
def planned(tmp_path_factory, examples):
    """A workspace with a plan of nine pages."""
    import llm_ocr

    url = str(tmp_path_factory.mktemp("planned") / "w")
    llm_ocr.plan(examples, workspace=url)
    return url


def as_json(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tokens_at_a_providers_prices(llm_ocr):
    done = llm_ocr("estimate", *TOKENS, "--price-in", "0.07", "--price-out", "0.15")
    assert (done.returncode, done.stdout) == (
        0,
        "$0.0165 for 75,000 tokens in at $0.07 and 75,000 out at $0.15 per million\n",
    )


def test_tokens_without_prices_are_those_of_the_providers(llm_ocr):
    found = as_json(llm_ocr("estimate", *TOKENS, "--json"))
    assert [(one["name"].split()[0], one["cost"]["likely"]) for one in found["options"]] == [
        ("Cirrascale", 0.0165),
        ("DeepInfra", 0.021),
        ("Parasail", 0.0225),
    ]


@pytest.mark.slow
def test_documents_are_counted_as_in_plan_and_no_files_remain(llm_ocr, examples, planned, tmp_path):
    found = as_json(llm_ocr("estimate", str(examples), "--json", "--quiet", env={"TMPDIR": str(tmp_path)}))
    with Workspace.open(planned) as workspace:
        from llm_ocr.workspace.status import run_status

        assert found["pages"] == run_status(workspace).pages.expected
    assert "counted like Plan" in found["assumptions"][0]
    assert list(tmp_path.iterdir()) == []


def test_machines_and_providers_share_one_table_cheapest_first(llm_ocr):
    found = as_json(llm_ocr("estimate", "--page-count", "10000", "--engine", "vllm", "--json"))
    costs = [one["cost"]["likely"] for one in found["options"]]
    assert costs == sorted(costs)
    assert {one["kind"] for one in found["options"]} == {"machine", "provider"}
    assert {one["name"].split(":")[0] for one in found["options"] if one["kind"] == "machine"} == {
        "hf-jobs",
        "sagemaker",
        "cloud-run",
    }
    a100 = next(one["estimate"] for one in found["options"] if one["name"] == "hf-jobs:a100-large")
    assert a100["hours"]["low"] < a100["hours"]["likely"] < a100["hours"]["high"]
    assert 0 < a100["startup_share"] < 1


def test_the_table_says_what_it_rests_on(llm_ocr):
    text = llm_ocr("estimate", "--page-count", "10000", "--hardware", "hf-jobs:a100-large").stdout
    assert "$4.74 ($3.08 to $10.31)" in text and "1.9 h (1.2 to 4.1)" in text
    assert "91 pages/min: the predecessor's HF Jobs notebook" in text
    assert "prices of hf-jobs: Hugging Face's documentation of Jobs, 2026-08" in text


def test_pages_of_a_plan_are_known_without_its_sources(llm_ocr, planned):
    found = as_json(llm_ocr("estimate", "-w", planned, "--json", "--hardware", "nvidia-l4", "--shards", "2"))
    assert found["pages"] == 9 and found["options"][0]["name"] == "cloud-run:nvidia-l4 x 2"


def test_hardware_without_a_price_takes_the_users(llm_ocr):
    asked = ("estimate", "--page-count", "1000", "--hardware", "slurm:L40S", "--json")
    assert as_json(llm_ocr(*asked))["options"][0]["cost"] is None
    (priced,) = as_json(llm_ocr(*asked, "--price-per-hour", "2"))["options"]
    assert priced["cost"]["likely"] == pytest.approx(2 * priced["estimate"]["billed_hours"]["likely"], rel=1e-3)


def test_what_nobody_measured_has_neither_time_nor_cost(llm_ocr):
    asked = ("estimate", "--page-count", "1000", "--model", "internvl3.5", "--hardware", "hf-jobs:a100-large")
    done = llm_ocr(*asked)
    assert done.returncode == 0
    assert "no measurement for internvl3.5-8b on any GPU" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("hf-jobs:a100-large"))
    assert "no measurement" in row and row.count("not known") == 2 and "$2.50 an hour" in row
    (option,) = as_json(llm_ocr(*asked, "--json"))["options"]
    assert (option["kind"], option["cost"], option["estimate"]) == ("machine", None, None)


def test_machines_without_a_measurement_are_named(llm_ocr):
    text = llm_ocr("estimate", "--page-count", "1000", "--model", "chandra-2", "--all").stdout
    table, _, notes = text.partition("1,000 pages, as given")
    assert "hf-jobs:l40sx1" in table and "hf-jobs:l4x1" not in table
    assert "not listed: no measurement for chandra-2 on L4; the nearest measured GPU is L40S: 16 pages/min" in notes


def test_measured_machines_come_before_those_without(llm_ocr):
    named = [word for name in ("l4x1", "l40sx1") for word in ("--hardware", f"hf-jobs:{name}")]
    asked = llm_ocr("estimate", "--page-count", "1000", "--model", "chandra-2", "--json", *named)
    assert [one["cost"] is None for one in as_json(asked)["options"]] == [False, True]


@pytest.mark.parametrize("flag", ["--engine", "--model"])
def test_embedded_engine_is_estimated_here_then_on_rented_cpus(llm_ocr, flag):
    found = as_json(llm_ocr("estimate", "--page-count", "1000", flag, "embedded", "--json"))
    here, *rented = found["options"]
    assert here["name"] == f"here, embedded ({cores()} cores)"
    assert (here["cost"]["likely"], here["price"]) == (0, "no rent")
    hours = here["estimate"]["hours"]
    assert 0 < hours["low"] < hours["likely"] < hours["high"]
    assert hours["likely"] == pytest.approx((1000 / (50 * cores() / 2) * 60 + 3) / 3600, rel=0.01)
    assert rented and all("cpu" in one["name"] or "ml.c5" in one["name"] for one in rented)
    assert found["stored"]["bytes"]["likely"] == 330_000_000
    assert any("2 cores" in line for line in found["assumptions"])


def test_without_gpu_this_machine_comes_first_with_time_and_disk(llm_ocr):
    text = llm_ocr("estimate", "--page-count", "10000", env={"CUDA_VISIBLE_DEVICES": ""}).stdout
    table = text.split("\n\n")[1].splitlines()
    assert table[1].startswith(f"here, embedded ({cores()} cores)")
    assert any(line.startswith("hf-jobs:") for line in table)
    assert "here: stored: 3.3 GB (1.0 to 20.0)" in text
    assert "--engine embedded and --calibrate measure" in text


@pytest.mark.parametrize("asked", [("--engine", "vllm"), ("--server-url", "http://127.0.0.1:9")])
def test_this_machine_is_left_out_where_a_model_is_asked_for(llm_ocr, asked):
    found = as_json(llm_ocr("estimate", "--page-count", "1000", "--json", *asked, env={"CUDA_VISIBLE_DEVICES": ""}))
    assert not any(one["name"].startswith("here") for one in found["options"])


def test_the_table_shows_the_five_cheapest_and_all_on_request(llm_ocr):
    short = llm_ocr("estimate", "--page-count", "10000").stdout
    whole = llm_ocr("estimate", "--page-count", "10000", "--all").stdout
    lines = [text.split("\n\n")[1].splitlines() for text in (short, whole)]
    assert len(lines[0]) == 7 and lines[0][-1] == f"{len(lines[1]) - 6} more options: add --all"
    assert [line.split()[0] for line in lines[1][:6]] == [line.split()[0] for line in lines[0][:6]]


def test_more_cores_read_more_pages_in_a_wider_range():
    two, eight = on_own_cores("extract", 1000, 2), on_own_cores("extract", 1000, 8)
    assert eight.estimate.rate.likely == 4 * two.estimate.rate.likely
    assert eight.estimate.work.likely == pytest.approx(two.estimate.work.likely / 4)
    assert (two.estimate.known, eight.estimate.known) == (True, False)
    assert any("scaled from 2 cores to 8" in line for line in eight.estimate.assumptions)


def test_prices_that_could_not_be_asked_are_said_to_be_the_files(llm_ocr):
    done = llm_ocr(
        *("estimate", "--page-count", "10", "--hardware", "hf-jobs:h200"),
        *("--live-prices", "--platform-endpoint", "http://127.0.0.1:9"),
    )
    assert done.returncode == 0 and "cannot read" in done.stdout and "$5.00 an hour" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "nothing to estimate"),
        (("--page-count", "0"), 2, "--page-count 0"),
        (("nowhere.pdf",), 2, "nowhere.pdf"),
        (("-w", "nowhere"), 1, "no workspace"),
        (("--page-count", "9", "--hardware", "hf-jobs:a100"), 2, "hf-jobs:a100-large"),
        (("--page-count", "9", "--hardware", "mars:a100"), 2, "--hardware mars:a100 is unknown"),
        (("--page-count", "9", "--model", "qwen3-vl-32b", "--hardware", "hf-jobs:l4x1"), 2, "too little memory"),
        (("--page-count", "9", "--model", "dots.ocr", "--hardware", "hf-jobs:cpu-upgrade"), 2, "cannot run on hf-jobs"),
        (("--page-count", "9", "--engine", "embedded", "--model", "dots.ocr"), 2, "has no model"),
        (("--page-count", "9", "--price-per-hour", "2"), 2, "--hardware PLATFORM:NAME"),
    ],
)
def test_what_cannot_be_estimated_is_said(llm_ocr, arguments, code, words):
    done = llm_ocr("estimate", *arguments)
    assert done.returncode == code and words in done.stderr, done.stderr


def test_what_jobs_cost_is_in_the_status_and_in_the_report(llm_ocr, planned, tmp_path):
    import llm_ocr as library

    url = str(shutil.copytree(planned, tmp_path / "w"))
    end = {"platform": "hf-jobs", "hardware": "a100-large", "seconds": 720, "currency": "USD", "cost": 0.5}
    with Workspace.open(url) as workspace:
        workspace.store.put("launches/l1/extract-1.end.json", json.dumps({"stage": "extract", **end}).encode())
    assert "$0.5000 for jobs (extract $0.5000 on hf-jobs:a100-large)" in llm_ocr("status", "-w", url).stdout
    spent = as_json(llm_ocr("status", "-w", url, "--json"))["spent"]
    assert spent["total"] == {"USD": 0.5} and spent["jobs"][0]["seconds"] == 720
    report = str(library.open(url).costs())
    assert "$0.5000 for jobs" in report and "hf-jobs:a100-large" in report


def test_notebooks_estimate_with_the_same_words(planned):
    import llm_ocr

    found = llm_ocr.estimate(workspace=planned, hardware="hf-jobs:a100-large")
    assert found.pages == 9 and "<table>" in found._repr_html_() and "hf-jobs:a100-large" in found._repr_markdown_()
    assert llm_ocr.estimate(page_count=10_000).options
