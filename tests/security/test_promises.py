"""What SECURITY.md promises of a whole run: connections, secrets, paths."""

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llm_ocr.testing.simulator import running

SMALL = ["--render-workers", "1", "--ocr-workers", "1"]
#: Put before the program: writes each address that is asked for or connected to into a file.
WATCHED = """
import os, sys
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{event} {arguments[1:] if event != 'socket.getaddrinfo' else arguments[:2]}\\n")
sys.addaudithook(hook)
from llm_ocr.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(tmp_path, *words, **more):
    connections = tmp_path / "connections"
    connections.write_text("")
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")},
        **{"HOME": str(tmp_path), "CONNECTIONS": str(connections)},
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *map(str, words)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done, connections.read_text().splitlines()


@pytest.mark.slow
def test_a_run_on_this_machine_connects_to_nothing(examples, tmp_path):
    done, connections = run(tmp_path, "run", examples / "invoice.png", "-w", "w", "--engine", "embedded", *SMALL)
    assert done.returncode == 0, done.stderr
    assert connections == []


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0,
    reason="this system does not let users make a network of their own (unshare -rn)",
)
def test_the_processes_that_read_documents_need_no_network_either(examples, tmp_path):
    words = [sys.executable, "-m", "llm_ocr", "run", str(examples / "fax.tiff"), "-w", "w", "--engine", "embedded"]
    done = subprocess.run(["unshare", "-rn", *words, *SMALL], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


SECRET = "geheimnis-4711"
KEYS = {
    "LLM_OCR_SERVER_KEY": SECRET,
    "LLM_OCR_PASSWORD": f"{SECRET}-password",
    "HF_TOKEN": f"hf_{SECRET}",
    "AWS_SECRET_ACCESS_KEY": f"{SECRET}-aws",
}


@pytest.mark.slow
def test_no_secret_is_in_a_file_a_log_or_a_list_of_processes(examples, tmp_path):
    seen: list[str] = []
    over = threading.Event()
    watcher = threading.Thread(target=watch_processes, args=(seen, over))
    with running(api_key=SECRET) as server:
        watcher.start()
        done, connections = run(
            *(tmp_path, "run", examples / "paper.pdf", "--pages", "1", "-w", "w", "--server-url", server.url),
            *("--model", "deepseek-ocr", "--revision", "0" * 40, "--log-level", "debug", "--log-file", "log", *SMALL),
            **KEYS,
        )
        over.set()
        watcher.join()
    assert done.returncode in (0, 3), done.stderr
    assert connections, "it asked the server"
    assert all("127.0.0.1" in line or "localhost" in line for line in connections), connections
    assert SECRET not in done.stdout + done.stderr
    assert any("llm_ocr" in line for line in seen)
    assert not [line for line in seen if SECRET in line and "llm_ocr.testing" not in line]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def watch_processes(seen, over):
    """The command lines of this machine's processes, until told to stop."""
    while not over.is_set():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue  # it has ended
        time.sleep(0.02)


HOSTILE = [
    *("../../outside", "/etc/outside", "..\\..\\outside", "a/../../../outside"),
    *("x\n../outside", "con", "\u202eoutside"),
]


def test_a_document_cannot_choose_a_place_outside_of_the_workspace(examples, tmp_path):
    home = tmp_path / "deep" / "down" / "here"
    home.mkdir(parents=True)
    manifest = tmp_path / "list.jsonl"
    image = str(examples / "invoice.png")
    copies = []
    for number, name in enumerate(HOSTILE):
        copy = tmp_path / "sources" / f"{number}.png"
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(Path(image).read_bytes() + bytes([number]))  # else they were one document
        copies.append({"document_id": name, "pdf_path": str(copy)})
    manifest.write_text("".join(json.dumps(one) + "\n" for one in copies))
    before = set(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "llm_ocr", "run", str(manifest), "-w", "w", "--engine", "embedded", *SMALL],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    written = set(tmp_path.rglob("*")) - before
    assert written
    assert all(path.is_relative_to(home / "w") for path in written), written
    assert not Path("/etc/outside").exists()
    assert len(list((home / "w" / "documents").rglob("*.md"))) == len(HOSTILE)


@pytest.fixture(scope="module")
def signed(examples, tmp_path_factory):
    """A run over documents whose URLs carry a name, a password and a signature; one of them is not there."""
    folder = tmp_path_factory.mktemp("signed")
    (folder / "served").mkdir()
    (folder / "served" / "page.png").write_bytes((examples / "invoice.png").read_bytes())
    handler = functools.partial(Quiet, directory=str(folder / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://user:{SECRET}@127.0.0.1:{server.server_port}"
        urls = [f"{base}/{name}?X-Amz-Signature={SECRET}&token={SECRET}" for name in ("page.png", "gone.png")]
        lines = [json.dumps({"document_id": str(number), "pdf_path": url}) for number, url in enumerate(urls)]
        (folder / "list.jsonl").write_text("\n".join(lines))
        words = ["--engine", "embedded", "--allow-private-addresses", "--log-level", "debug", "--log-file", "log"]
        done, _ = run(folder, "run", "list.jsonl", "-w", "w", *words, *SMALL)
        server.shutdown()
    return folder, done


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        """Nothing."""


@pytest.mark.slow
def test_what_grants_access_in_a_url_stands_in_the_plan_alone(signed):
    """Other workers fetch the document by it; nobody else is told."""
    folder, done = signed
    assert done.returncode == 3, done.stderr  # one is not there
    assert SECRET not in done.stdout + done.stderr
    holding = {path for path in (folder / "w").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()}
    assert holding and all(path.relative_to(folder / "w").parts[0] == "plan" for path in holding), holding
    assert SECRET not in (folder / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("status", "--json"),
        ("report", "--output", "report.html"),
        ("view", "--output", "site"),
        ("export", "--format", "jsonl", "--output", "out"),
    ],
    ids=lambda words: words[0],
)
def test_what_grants_access_is_in_nothing_that_is_passed_on(signed, words):
    folder, _ = signed
    before = set(folder.rglob("*"))
    done, connections = run(folder, words[0], "-w", "w", *words[1:])
    assert done.returncode in (0, 3), done.stderr
    assert connections == []
    assert SECRET not in done.stdout + done.stderr
    made = [path for path in set(folder.rglob("*")) - before if path.is_file()]
    assert made or words[0] == "status"
    assert not [path for path in made if SECRET.encode() in path.read_bytes()]
