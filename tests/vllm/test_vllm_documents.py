"""Documents to Markdown by the console program, with a real vLLM: one of our own, and one that runs already."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import descendants, is_alive, still_alive
from tiny_server import TINY_ARGUMENTS

PROGRAM = (sys.executable, str(Path(__file__).with_name("tiny_program.py")))
#: One renderer: the cores are the server's. The model's answer is made up, and no page may be of low quality for that.
FRUGAL = ("--render-workers", "1", "--model", "tiny-ocr", "--describe-mode", "classify", "--min-quality", "0")
#: Room for one restart beside the steps of the test.
TIMEOUT = 270


def started(*words: str | Path, cwd: Path) -> subprocess.Popen[str]:
    command = [*PROGRAM, *map(str, words)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done(*words: str | Path, cwd: Path) -> str:
    """What a run that succeeds prints."""
    with started(*words, cwd=cwd) as process:
        said, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, said
    return said


def status_of(workspace: Path) -> dict:
    process = subprocess.run(
        [*PROGRAM, "status", "-w", str(workspace), "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(process.stdout)


def when(holds, process: subprocess.Popen[str], timeout: float = TIMEOUT):
    """What `holds` returns once it is true, while the process runs."""
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
    return found


def markers(workspace: Path) -> list[Path]:
    """The units that Extract has published."""
    return list(workspace.glob("extract/*/*/*.done"))


def many_pages(folder: Path, examples: Path, copies: int) -> Path:
    """Documents of three pages and a blank one each, all different."""
    import pypdfium2

    folder.mkdir()
    for number in range(copies):
        document = pypdfium2.PdfDocument(examples / "paper.pdf")
        document.new_page(100 + number, 200)
        document.save(folder / f"{number:02}.pdf")
    return folder


def assert_all_read(workspace: Path, pages: int) -> None:
    status = status_of(workspace)
    counts = {name: status["pages"][name] for name in ("expected", "ok", "degraded", "failed")}
    assert counts == {"expected": pages, "ok": pages, "degraded": 0, "failed": 0}
    # The server is not asked about the blank page of each four, which has no figure.
    assert status["figures"]["ok"] == status["figures"]["expected"] == pages * 3 // 4


@pytest.fixture
def running(server, tmp_path) -> tuple[str, ...]:
    """The flags for the server that runs already."""
    key = tmp_path / "key"
    key.write_text(server.address.key + "\n")
    # Its context is smaller than the profile's.
    return ("--server-url", server.address.root, "--server-key-file", str(key), "--max-tokens", "2000")


def test_own_server_reads_documents_and_is_restarted_if_it_dies(vllm, tiny_models, examples, tmp_path):
    workspace = tmp_path / "out"
    words = [
        *FRUGAL,
        "--engine",
        "vllm",
        "--vllm-command",
        shlex.quote(str(vllm)),
        "--weights",
        tiny_models / "deepseek-ocr",
    ]
    words += [f"--vllm-arg={argument}" for argument in TINY_ARGUMENTS]
    sources = many_pages(tmp_path / "in", examples, 6)
    with started("run", sources, "-w", workspace, "--pages-per-unit", "4", *words, cwd=tmp_path) as process:
        when(lambda: markers(workspace), process)
        below = descendants(process.pid)
        os.kill(next(one.pid for one in below if one.name.startswith("VLLM::Engine")), signal.SIGKILL)
        said, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, said
    assert_all_read(workspace, 24)
    assert still_alive(below, 0) == []
    assert "naïve café 表" in (workspace / "documents" / "00.pdf.md").read_text()
    (log,) = workspace.rglob("vllm-0.log")
    # vLLM's lines begin with the name and number of the process: two servers were there, and none is left.
    engines = set(re.findall(r"^\(EngineCore pid=(\d+)\)", log.read_text(), re.MULTILINE))
    assert len(engines) == 2
    assert [number for number in engines if is_alive(int(number))] == []
    # Nothing is left to do: no other server starts.
    done("run", sources, "-w", workspace, "--pages-per-unit", "4", *words, cwd=tmp_path)
    assert len(list(workspace.rglob("vllm-0.log"))) == 1


def test_a_server_that_runs_already_is_used_and_left_running(server, running, examples, tmp_path, run):
    workspace = tmp_path / "out"
    done("run", examples / "paper.pdf", examples / "fax.tiff", "-w", workspace, *FRUGAL, *running, cwd=tmp_path)
    status = status_of(workspace)
    assert status["pages"]["ok"] == status["pages"]["expected"] > 3
    text = (workspace / "documents" / "paper.pdf.md").read_text()
    assert text.count("# What the tiny model read: naïve café 表") == 3
    assert text.count("](paper.pdf.figures/") >= 3
    run(server.gauges_when(lambda now: now.running == now.waiting == 0))
    assert server.address.key not in "".join(
        path.read_text(errors="replace") for path in workspace.rglob("*.json") if path.is_file()
    )


def test_stopped_run_goes_on_and_loses_nothing(server, running, examples, tmp_path, run):
    workspace = tmp_path / "out"
    sources = many_pages(tmp_path / "in", examples, 8)
    words = ("run", sources, "-w", workspace, "--pages-per-unit", "4", *FRUGAL, *running)
    standing: dict[Path, bytes] = {}
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 4)):
        with started(*words, cwd=tmp_path) as process:
            before = len(standing)
            when(lambda before=before: len(markers(workspace)) > before, process)
            left = descendants(process.pid)
            process.send_signal(number)
            said, _ = process.communicate(timeout=30)
        assert process.returncode == code, said
        assert still_alive(left, 10) == []
        run(server.gauges_when(lambda now: now.running == now.waiting == 0))
        assert {path: path.read_bytes() for path in standing} == standing
        standing = {path: path.read_bytes() for path in markers(workspace)}
        assert len(standing) < 8, "the run was over before it could be stopped"
    done(*words, cwd=tmp_path)
    assert_all_read(workspace, 32)
    assert {path: path.read_bytes() for path in standing} == standing
