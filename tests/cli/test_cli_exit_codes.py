"""Exit codes and the words at the end, seen from outside."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from urllib.parse import unquote

import bad_documents as bad
import pytest
from running import FRUGAL, finished, program, said


@pytest.mark.parametrize(
    ("stub", "code", "said"),
    [
        ({}, 0, "10 ok"),
        ({"pages": [10, 9, 0, 1], "failed": [["a.pdf", None, "encrypted"]]}, 3, "9 ok, 1 failed (encrypted: a.pdf)"),
        ({"raises": "usage"}, 2, "no such file: x.pdf\nAccepted: .pdf"),
        ({"raises": "library"}, 1, "the disk is full\nMake room."),
        ({"raises": "interrupt"}, 4, "interrupted. Run the same command again"),
        ({"raises": "terminated"}, 4, "interrupted. Run the same command again"),
    ],
)
def test_the_exit_code_says_how_it_ended(llm_ocr, stub, code, said):
    done = llm_ocr("run", "a.pdf", stub=stub, process=code == 3 or stub == {"raises": "terminated"})
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_signal_while_the_workspace_is_opened_ends_with_code_4():
    pytest.importorskip("boto3")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "llm_ocr", "extract", "-w", "s3://bucket/w", "--workspace-endpoint", url]
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": os.devnull}
        started = subprocess.Popen(command, env={**os.environ, **keys}, stderr=subprocess.PIPE, text=True)
        with silent.accept()[0]:
            started.terminate()
            _, said = started.communicate(timeout=60)
    assert (started.returncode, said) == (4, "llm-ocr: interrupted. Run the same command again to continue.\n")


def test_the_last_line_says_it_in_words_and_how_to_go_on(llm_ocr):
    failed = [["a.pdf", None, "encrypted"], ["dir/b.pdf", 3, "render timeout"], ["b.pdf", 4, "render timeout"]]
    done = llm_ocr("run", "a.pdf", "-w", "my out", stub={"pages": [416, 411, 2, 3], "failed": failed})
    assert done.stdout.splitlines()[-1] == (
        "411 ok, 2 degraded, 3 failed (render timeout 2: b.pdf page 3, b.pdf page 4; encrypted: a.pdf). "
        "Retry: llm-ocr retry-failed -w 'my out' --password-file FILE. "
        "Degraded pages: llm-ocr status -w 'my out' --worst 20"
    )
    assert "my out/documents" in done.stdout


def test_the_allowed_share_of_failed_pages_can_be_set(llm_ocr):
    few = llm_ocr("run", "a.pdf", stub={"pages": [1000, 999, 0, 1], "failed": [["a.pdf", None, "encrypted"]]})
    assert (few.returncode, "1 failed (encrypted: a.pdf)" in few.stdout) == (0, True)
    stub = {"pages": [10, 5, 0, 5]}
    assert llm_ocr("run", "a.pdf", "--max-failed-rate", "0.5", stub=stub).returncode == 0
    assert llm_ocr("run", "a.pdf", "--max-failed-rate", "0.49", stub=stub).returncode == 3


def test_figures_that_failed_are_no_success_of_describe(llm_ocr):
    done = llm_ocr("describe", "-w", "w", stub={"figures": [4, 1, 0, 3]})
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == "4 figures: 1 ok, 3 failed. Retry: llm-ocr retry-failed -w w"


def test_one_of_many_workers_ends_by_its_own_pages(llm_ocr):
    stub = {"pages": [1000, 900, 0, 100], "processed": {"extract": [10, 8, 2, 0]}}
    done = llm_ocr("extract", "-w", "w", stub=stub)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "This worker: 10 pages, 8 ok, 2 degraded. All workers: llm-ocr status -w w"
    stub = {"figures": [4, 4, 0, 0], "processed": {"describe": [2, 1, 0, 1]}}
    done = llm_ocr("describe", "-w", "w", "--quiet", stub=stub)
    assert done.returncode == 3
    assert done.stdout == "This worker: 2 figures, 1 ok, 1 failed. All workers: llm-ocr status -w w\n"


def test_the_traceback_is_there_for_who_asks(llm_ocr):
    told = llm_ocr("run", "a.pdf", stub={"raises": "bug"})
    assert told.returncode == 1
    assert "RuntimeError: first line\nRun with --log-level debug" in told.stderr
    assert "Traceback" not in told.stderr
    done = llm_ocr("run", "a.pdf", "--log-level", "debug", stub={"raises": "bug"})
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-2].startswith("llm-ocr: RuntimeError: first line")


def test_progress_goes_to_stderr_and_results_to_stdout(llm_ocr):
    done = llm_ocr("run", "a.pdf", "-w", "w", stub={"say": ["engine: embedded"]})
    assert done.stderr.splitlines()[:2] == ["engine: embedded", "run: 10 pages"]
    assert done.stdout.splitlines() == [
        "4 figures: 4 ok",
        "Result: w/documents (Markdown), w/dataset (open with load_dataset)",
        "10 ok",
    ]


def test_quiet_leaves_nothing_but_the_last_line(llm_ocr):
    stub = {"say": ["engine: embedded"]}
    done = llm_ocr("run", "a.pdf", "--quiet", stub=stub, env={"MODEL_ID": "x", "LLM_OCR_NONSENSE": "1"})
    assert (done.stdout, done.stderr) == ("10 ok\n", "")


def test_markdown_alone_goes_to_standard_output_when_asked(llm_ocr):
    stub = {"documents": [["a.md", "# A\n"], ["b.md", "# Bé"]]}
    done = llm_ocr("run", "--stdout", stub=stub)
    assert done.stdout == "# A\n\n# Bé\n"
    assert done.stderr.splitlines()[-1] == "10 ok"


@pytest.mark.parametrize("kept", [(), ("-w", "my out")])
def test_markdown_on_stdout_leaves_no_folder_and_no_broken_link(llm_ocr, tmp_path, repository, kept):
    done = llm_ocr("run", str(repository / "examples/paper.pdf"), "--stdout", "--pages", "1", *kept)
    assert done.returncode == 0, done.stderr
    targets = [unquote(one) for one in re.findall(r"!\[[^]]*\]\(([^)]*)\)", done.stdout)]
    if kept:
        assert targets and all((tmp_path / target).is_file() for target in targets)
    else:
        assert targets == [] and "[Figure 1: The lower Arlen" in done.stdout
        assert "1 figure left out: add -w FOLDER to keep them" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_what_standard_output_cannot_hold_is_escaped(llm_ocr):
    stub = {"documents": [["a.md", "# 日本\n"]]}
    done = llm_ocr("run", "--stdout", stub=stub, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "# \\u65e5\\u672c\n")


FORGED = "a\n412 ok\u202e\u2066\u200b\u2028\x85\x1b[2K\r.pdf"
SHOWN = "a\\n412 ok\\u202e\\u2066\\u200b\\u2028\\x85\\x1b[2K\\x0d.pdf"


@pytest.mark.parametrize("command", [("run", "a.pdf"), ("status", "-w", "w"), ("run", "a.pdf", "--log-level", "debug")])
def test_a_file_name_cannot_forge_lines(llm_ocr, command):
    stub = {"pages": [10, 9, 0, 1], "failed": [[FORGED, None, "encrypted"]], "say": [f"Filtered: {FORGED}"]}
    done = llm_ocr(*command, stub=stub)
    assert f"encrypted: {SHOWN}" in done.stdout
    assert not [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("412 ok")]
    assert not set("\u202e\u2066\u200b\u2028\x85\x1b\r") & set(done.stdout + done.stderr)


def test_json_is_safe_to_print_and_says_names_as_they_are(llm_ocr):
    stub = {"pages": [10, 9, 0, 1], "failed": [[FORGED, None, "encrypted"]]}
    done = llm_ocr("status", "-w", "w", "--json", stub=stub)
    assert json.loads(done.stdout)["examples"][0]["source"] == f"/in/{FORGED}"
    assert not set("\u202e\u2066\u200b\u2028\x85\x1b") & set(done.stdout)


def test_a_name_in_an_error_cannot_forge_lines(llm_ocr, tmp_path):
    done = llm_ocr("run", FORGED, "--engine", "embedded")
    assert done.returncode == 2
    assert SHOWN in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("412 ok")]


def test_errors_and_progress_name_settings_as_flags(llm_ocr, tmp_path):
    stub = {"raises": "limits", "say": ["`max_samples=5` leaves out 7 documents"]}
    done = llm_ocr("run", "a.pdf", stub=stub, env={"LLM_OCR_ERROR_FILE": str(tmp_path / "reason")})
    said = "--pages 9- has no page\nCorrect --pages, or leave out --max-samples 5."
    assert done.stderr.endswith(f"--max-samples 5 leaves out 7 documents\nllm-ocr: {said}\n")
    assert (tmp_path / "reason").read_text() == said


def test_a_reader_that_goes_away_is_no_error(llm_ocr):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        stub = {"documents": [["a.md", "x" * 100_000]]}
        done = llm_ocr("run", "--stdout", stub=stub, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "10 ok"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(tmp_path, closed):
    script = ["sh", "-c", f'exec "$@" {closed}', "sh", *program("init", str(tmp_path / "ocr.toml"))]
    assert subprocess.run(script, timeout=60).returncode == 0
    assert "llm-ocr" in (tmp_path / "ocr.toml").read_text()


def test_other_stages_say_what_comes_next(llm_ocr):
    plan = llm_ocr("plan", "a.pdf", "-w", "w", stub={})
    assert plan.stdout == "2 documents, 10 pages, 1 unit. Next: llm-ocr extract -w w\n"
    read = {"units": [1, 1]}
    extract = llm_ocr("extract", "-w", "w", "--engine", "embedded", stub=read)
    assert extract.stdout == "Next: llm-ocr describe -w w\n10 ok\n"
    url = "http://127.0.0.1:8000/v1"
    elsewhere = llm_ocr("extract", "-w", "w", "--server-url", url, stub=read)
    assert elsewhere.stdout == f"Next: llm-ocr describe -w w --server-url {url}\n10 ok\n"
    assert llm_ocr("describe", "-w", "w", stub=read).stdout == "Next: llm-ocr assemble -w w\n4 figures: 4 ok\n"
    retry = llm_ocr("retry-failed", "-w", "w", stub={})
    assert retry.stdout == "1 unit to read. Next: llm-ocr run -w w\n"
    nothing = llm_ocr("retry-failed", "-w", "w", stub={"units": [3, 3]})
    assert nothing.stdout == "0 units to read\n"


def test_an_unfinished_stage_comes_next_with_its_server(llm_ocr):
    server = ("--server-url", "http://127.0.0.1:8000/v1", "--server-key-file", "a key")
    part = llm_ocr("extract", "-w", "w", *server, "--shard-count", "2", stub={"units": [1, 2]})
    again = "Next: llm-ocr extract -w w --server-url http://127.0.0.1:8000/v1 --server-key-file 'a key'"
    assert part.stdout.splitlines()[0] == again
    assert llm_ocr("describe", "-w", "w", stub={"units": [1, 2]}).stdout.startswith("Next: llm-ocr describe -w w\n")
    repaired = llm_ocr("repair", "-w", "w", "--server-url", server[1], stub={"units": [1, 1]})
    assert f"llm-ocr run -w w --server-url {server[1]}\n" in repaired.stdout


def test_printed_commands_reach_the_store_as_this_one_did(llm_ocr):
    reached = ("--workspace-endpoint", "http://127.0.0.1:9000", "--workspace-region", "eu-west-1")
    stub = {"pages": [10, 8, 0, 2]}
    documents = ("--source-endpoint", "http://127.0.0.1:9001")
    plan = llm_ocr("plan", "a.pdf", "-w", "s3://b/w/", *reached, *documents, stub=stub)
    assert plan.stdout.endswith(f"Next: llm-ocr extract -w s3://b/w/ {' '.join((*reached, *documents))}\n")
    run = llm_ocr("run", "a.pdf", "-w", "s3://b/w", *reached, stub=stub)
    assert f"Retry: llm-ocr retry-failed -w s3://b/w {' '.join(reached)}" in run.stdout
    assert "--workspace" not in llm_ocr("run", "a.pdf", "-w", "w", stub=stub).stdout


def test_printed_commands_reach_the_documents_as_this_one_did(llm_ocr):
    reached = ("--source-endpoint", "http://127.0.0.1:9001", "--allow-private-addresses")
    stub = {"pages": [10, 8, 0, 2]}
    run = llm_ocr("run", "a.pdf", "-w", "w", *reached, stub=stub)
    assert f"Retry: llm-ocr retry-failed -w w {' '.join(reached)}" in run.stdout
    for command, following in (("plan", "extract"), ("retry-failed", "run")):
        done = llm_ocr(command, *(["a.pdf"] if command == "plan" else []), "-w", "w", *reached, stub=stub)
        assert done.stdout.endswith(f"Next: llm-ocr {following} -w w {' '.join(reached)}\n")


def test_clean_lists_what_it_removes_as_its_result(llm_ocr):
    stub = {"say": ["removed a", "removed b", "removed 2 files, 12 bytes"]}
    assert llm_ocr("clean", "-w", "w", stub=stub).stdout.splitlines() == stub["say"]
    assert llm_ocr("clean", "-w", "w", "--quiet", stub=stub).stdout == "removed 2 files, 12 bytes\n"
    assert llm_ocr("clean", "-w", "w", stub={}).stdout == "Nothing to remove\n"


def test_status_ends_with_0_whatever_failed_and_prints_json(llm_ocr):
    stub = {"pages": [10, 0, 0, 9], "failed": [["a.pdf", 1, "encrypted"]] * 9}
    done = llm_ocr("status", "-w", "w", stub=stub)
    assert done.returncode == 0
    assert "10 expected: 0 ok, 9 failed, 1 not done yet" in done.stdout
    assert "failed     encrypted 9: a.pdf page 1, ..." in done.stdout
    assert "  /in/a.pdf, page 1: encrypted\n" in done.stdout
    assert "skipped    2 .docx" in done.stdout
    assert "assemble   not started" in done.stdout
    data = json.loads(llm_ocr("status", "-w", "w", "--json", stub=stub).stdout)
    assert data["pages"] == {"expected": 10, "ok": 0, "degraded": 0, "failed": 9}


@pytest.mark.slow
def test_too_many_open_files_names_the_limit(tmp_path):
    (tmp_path / "a.pdf").write_bytes(bad.text_pdf(["A page."]))
    command = shlex.join(program("run", "a.pdf", *FRUGAL))
    done = finished(["/bin/sh", "-c", f"ulimit -n 14; exec {command}"], cwd=tmp_path)
    assert done.returncode == 1, said(done)
    assert done.stderr.splitlines()[-1].endswith("for example: ulimit -n 65536"), said(done)
