"""--max-cost and --max-hours: a run ends cleanly with exit code 5, and the same command goes on with a higher limit."""

import asyncio
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from running import FRUGALLY, cli, environment, program, said, status_of, unfinished

import llm_ocr
from llm_ocr.errors import LimitReached, UsageError
from llm_ocr.stages import Silent
from llm_ocr.stages.job import worker_name
from llm_ocr.types import DocumentPart
from llm_ocr_simulator import running

PAGES = 24
#: Four answers within half a second, each of about 300 tokens.
SERVER = {"preset": "h100", "speed": 2, "mean_tokens": 300, "sigma": 0.0}
#: A page is a unit; an answer costs about 30 cents.
SMALL = ("--pages-per-unit", "1", "--render-workers", "1", "--image-size", "256", "--fallback", "none")
PRICED = (*SMALL, "--max-inflight-requests", "4", "--price-out", "1000")


@pytest.fixture(scope="module")
def documents(numbered_pages) -> Path:
    return numbered_pages(PAGES)


@pytest.fixture(scope="module")
def server():
    with running(**SERVER) as simulator:
        yield simulator


def asked(server) -> int:
    return len(server.log()["requests"])


def extract(documents: Path, workspace: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    return cli("extract", documents, "-w", workspace, *flags, cwd=workspace.parent)


def counts(workspace: Path) -> Counter[str]:
    """How many rows each page of the plan has."""
    return Counter(page.page_id for page in llm_ocr.open(str(workspace)).pages(images=False))


@pytest.fixture(scope="module")
def stopped(documents, server, tmp_path_factory):
    """A workspace whose money was spent before all was read, and how its command ended."""
    workspace = tmp_path_factory.mktemp("stopped") / "w"
    ended = extract(documents, workspace, "--server-url", server.url, *PRICED, "--max-cost", "2")
    return workspace, ended


@pytest.fixture
def left(stopped, tmp_path) -> Path:
    """A copy of that workspace, to go on with."""
    return shutil.copytree(stopped[0], tmp_path / "left")


def test_run_ends_when_the_money_is_spent_and_reports_progress(stopped):
    workspace, ended = stopped
    assert ended.returncode == 5, said(ended)
    status = status_of(workspace)
    assert 0 < status["pages"]["ok"] < PAGES and status["cost"] >= 2
    last = ended.stderr.strip().splitlines()[-2:]
    spent = re.match(r"llm-ocr: stopped by --max-cost: \$(\d\.\d\d) of \$2\.00 spent, over all runs", last[0])
    assert spent is not None and 2 <= float(spent[1]) <= status["cost"] + 0.01, last
    assert f"{status['pages']['ok']} of {PAGES} pages read" in last[0]
    assert "Run the same command again with a higher --max-cost" in last[1]
    assert unfinished(workspace) == []


def test_workspace_already_at_its_cost_limit_sends_no_request(stopped, documents, server):
    workspace, _ = stopped
    before = asked(server)
    ended = extract(documents, workspace, "--server-url", server.url, *PRICED, "--max-cost", "2")
    assert ended.returncode == 5 and "no work was started" in ended.stderr, said(ended)
    assert asked(server) == before


def test_no_server_of_our_own_is_started_when_the_money_is_spent(left, documents, tmp_path):
    trace = tmp_path / "started"
    vllm = tmp_path / "vllm"
    vllm.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    vllm.chmod(0o755)
    own = ("--engine", "vllm", "--vllm-command", str(vllm), "--offline", "--price-per-hour", "3", *PRICED)
    ended = extract(documents, left, *own, "--max-cost", "1")
    assert ended.returncode == 5 and not trace.exists(), said(ended)
    assert extract(documents, left, *own, "--max-cost", "100").returncode == 1 and trace.exists()


def test_higher_limit_continues_and_no_page_is_lost_or_doubled(left, documents, server):
    before = status_of(left)
    ended = extract(documents, left, "--server-url", server.url, *PRICED, "--max-cost", "100")
    assert ended.returncode == 0, said(ended)
    status = status_of(left)
    assert status["pages"] == {"expected": PAGES, "ok": PAGES, "degraded": 0, "failed": 0}
    assert set(counts(left).values()) == {1} and len(counts(left)) == PAGES
    assert status["cost"] > before["cost"], "what the first run has spent is on record still"
    assert len(status["workers"]) >= 2


def test_stopped_repair_says_how_many_of_its_pages_are_read(left, documents, server):
    assert extract(documents, left, "--server-url", server.url, *PRICED).returncode == 0
    chosen = left.parent / "chosen.txt"
    chosen.write_text("\n".join(counts(left)))
    limit = str(status_of(left)["cost"] + 1)
    priced = ("--max-inflight-requests", "4", "--price-out", "1000", "--image-size", "300", "--render-workers", "1")
    url = ("--server-url", server.url)
    ended = cli("repair", "-w", left, "--pages-from", chosen, *url, *priced, "--max-cost", limit, cwd=left.parent)
    assert ended.returncode == 5, said(ended)
    read = re.search(rf"{PAGES} of {PAGES} pages read, (\d+) of {PAGES} pages of the repair read again", said(ended))
    assert read is not None and 0 < int(read[1]) < PAGES, said(ended)


@pytest.mark.slow
def test_two_workers_with_leases_end_and_leave_no_lease(documents, tmp_path):
    workspace = tmp_path / "w"
    llm_ocr.plan(documents, workspace=workspace, pages_per_unit=1)
    with running(**SERVER) as server:
        flags = ("--server-url", server.url, "--lease-seconds", "60", *PRICED[2:], "--max-cost", "1.5")
        command = program("extract", "-w", str(workspace), *flags)
        workers = [subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)]
        ends = [(worker.communicate(timeout=240)[1], worker.returncode) for worker in workers]
        assert 5 in [code for _, code in ends], ends
        done = sum(counts(workspace).values()) == PAGES
        for text, code in ends:  # what the other had begun may have been all that was left
            assert code == (5 if "stopped by --max-cost" in text else 0), ends
            assert code == 5 or done or "claimed by other workers" in text, ends
        assert list(workspace.rglob("*.lease")) == []
        assert status_of(workspace)["workers"]  # the second may have come when all was spent
        again = cli("extract", "-w", workspace, *flags[:-2], "--max-cost", "100", cwd=tmp_path)
    assert again.returncode == 0, said(again)
    assert counts(workspace) == dict.fromkeys(counts(workspace), 1) and len(counts(workspace)) == PAGES


@pytest.mark.slow
def test_max_hours_ends_the_embedded_engine_and_counts_per_run(documents, tmp_path):
    workspace = tmp_path / "w"
    flags = ("--engine", "embedded", *SMALL[:4], "--ocr-workers", "1", "--price-per-hour", "3.6")
    ended = extract(documents, workspace, *flags, "--max-hours", "0.0002")
    assert ended.returncode == 5 and "stopped by --max-hours: this run took 0.00" in ended.stderr, said(ended)
    assert "Run the same command again to continue for the same time" in ended.stderr
    assert extract(documents, workspace, *flags, "--max-hours", "1").returncode == 0
    status = status_of(workspace)
    assert status["pages"]["failed"] == 0 and status["pages"]["expected"] == len(counts(workspace)) > 1
    paid = sum(worker["paid"] for worker in status["workers"])
    assert status["cost"] == pytest.approx(paid * 3.6 / 3600, abs=1e-4) and paid > 1
    text = cli("status", "-w", workspace, cwd=tmp_path).stdout
    assert "for time" in text and llm_ocr.open(str(workspace)).costs().to_json()["cost"]["hours"] > 0


def test_each_command_of_a_process_has_its_own_costs():
    assert len({worker_name() for _ in range(3)}) == 3  # costs are stored by name


def test_max_cost_without_a_price_is_refused_and_leaves_nothing(documents, tmp_path):
    ended = extract(documents, tmp_path / "w", "--engine", "embedded", "--max-cost", "1")
    assert ended.returncode == 2 and "--price-per-hour" in ended.stderr and "--price-in" in ended.stderr
    assert not (tmp_path / "w").exists()


def test_describe_ends_at_a_limit_too(examples, tmp_path):
    workspace = tmp_path / "w"
    llm_ocr.extract(examples / "paper.pdf", workspace=workspace, **FRUGALLY)
    with pytest.raises(LimitReached, match="figures described") as caught:
        llm_ocr.describe(workspace=workspace, engine="embedded", max_cost=1e-9, price_per_hour=1.0)
    assert caught.value.exit_code == 5
    llm_ocr.describe(workspace=workspace, engine="embedded", ocr_workers=1, max_cost=1.0, price_per_hour=1.0)
    assert llm_ocr.open(str(workspace)).status.stages["describe"].finished


def test_the_line_of_progress_tells_the_money(documents, server, tmp_path):
    from llm_ocr.cli.progress import PlainProgress

    file = (tmp_path / "said").open("w+")
    llm_ocr.extract(
        documents,
        workspace=tmp_path / "w",
        progress=PlainProgress(file),
        server_url=server.url,
        price_out=1000.0,
        max_inflight_requests=4,
        fallback="none",
    )
    file.seek(0)
    lines = [line for line in file if "of about $" in line]
    assert lines and all(f"/{PAGES} pages" in line for line in lines)


def test_a_session_begins_no_page_beyond_its_limit(documents):
    read: list[int] = []

    async def both() -> None:
        files = sorted(documents.iterdir())

        async def finished(position: int, record: object) -> None:
            read.append(position)

        async with llm_ocr.Session(engine="embedded", max_cost=1e-9, price_per_hour=1.0) as session:
            with pytest.raises(LimitReached, match="stopped by `max_cost`"):
                await session.read(DocumentPart("d", str(files[0]), files[0].name, "", (1,), 1, 0), finished)

    asyncio.run(both())
    assert read == []


def test_limits_change_no_key_and_any_progress_will_do(documents, tmp_path):
    keys = []
    for name, more in (("a", {}), ("b", {"max_cost": 9.0, "price_per_hour": 1.0, "max_hours": 1.0})):
        source, workspace = documents / "000.png", tmp_path / name
        run = llm_ocr.extract(source, workspace=workspace, progress=Silent(), **FRUGALLY, **more)
        keys.append(run.status.stages["extract"].key)
        assert "max" not in json.dumps(json.loads((workspace / "run.json").read_text()))
    assert keys[0] == keys[1]
    with pytest.raises(UsageError, match="max_hours"):
        asyncio.run(llm_ocr.read_page(documents / "000.png", engine="embedded", max_hours=1.0))
