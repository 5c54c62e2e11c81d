"""What SECURITY.md promises of a whole run: connections, secrets, paths."""

import contextlib
import functools
import gzip
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet
import pytest
from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from running import FRUGAL, environment, said

import llm_ocr
from llm_ocr.config.fields import settings_of
from llm_ocr.config.models import ExportSettings
from llm_ocr.types import Status
from llm_ocr_simulator import running

#: Worker processes are what is tested here.
OWN_WORKERS = True


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
def test_a_run_on_this_machine_connects_to_nothing(digital, tmp_path):
    done, connections = run(tmp_path, "run", digital, "-w", "w", "--engine", "embedded", *SMALL)
    assert done.returncode == 0, done.stderr
    assert connections == []


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode != 0,
    reason="this system does not let users make a network of their own (unshare -rn)",
)
def test_processes_that_read_documents_need_no_network(small_examples, tmp_path):
    scan = str(small_examples / "fax.tiff")
    words = [sys.executable, "-m", "llm_ocr", "run", scan, "-w", "w", "--engine", "embedded"]
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
    with running(api_key=SECRET) as server, process_lines() as seen:
        done, connections = run(
            *(tmp_path, "run", examples / "paper.pdf", "--pages", "1", "-w", "w", "--server-url", server.url),
            *("--model", "deepseek-ocr", "--revision", "0" * 40, "--log-level", "debug", "--log-file", "log", *SMALL),
            **KEYS,
        )
    assert done.returncode in (0, 3), done.stderr
    assert connections, "it asked the server"
    assert all("127.0.0.1" in line or "localhost" in line for line in connections), connections
    assert SECRET not in done.stdout + done.stderr
    assert any(str(examples / "paper.pdf") in line for line in seen)
    assert not [line for line in seen if SECRET in line and "llm_ocr_simulator" not in line]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if tells(path)]


def tells(path):
    """Whether the secret is in the file, compressed or not."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".parquet":
        data += repr(pyarrow.parquet.read_table(path).to_pylist()).encode()
    return SECRET.encode() in data


@contextlib.contextmanager
def process_lines():
    """The command lines of all processes of this machine that run within the block."""
    seen, over = set(), threading.Event()

    def watch():
        while not over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has ended
                    seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


HOSTILE = [
    *("../../outside", "/etc/outside", "..\\..\\outside", "a/../../../outside"),
    *("x\n../outside", "con", "\u202eoutside"),
]


@pytest.mark.slow
def test_document_cannot_choose_a_place_outside_the_workspace(tmp_path):
    photo = Image.radial_gradient("L").convert("RGB")
    home = tmp_path / "deep" / "down" / "here"
    home.mkdir(parents=True)
    manifest = tmp_path / "list.jsonl"
    lines = []
    for number, name in enumerate(HOSTILE):
        page = tmp_path / "sources" / f"{number}.pdf"
        page.parent.mkdir(exist_ok=True)
        letter = Canvas(str(page), pagesize=(300, 400))
        letter.drawString(20, 370, f"Letter {number} is not the same as the others.")
        letter.drawImage(ImageReader(photo), 50, 50, 200, 250)  # a figure is a file with the id in its name
        letter.save()
        lines.append(json.dumps({"document_id": name, "pdf_path": str(page)}))
    manifest.write_text("\n".join(lines))
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
    for kind in ("*.pdf.md", "*-f01.*"):
        assert len(list((home / "w" / "documents").rglob(kind))) == len(HOSTILE)


@pytest.fixture
def signed(golden, examples, tmp_path):
    """A copy of a run over documents whose URLs carry a name, a password and a signature; one of them is not there."""

    def make(folder):
        (folder / "served").mkdir()
        (folder / "served" / "page.png").write_bytes((examples / "invoice.png").read_bytes())
        with serving(folder / "served") as url_of:
            urls = map(url_of, ("page.png", "gone.png"))
            lines = [json.dumps({"document_id": str(number), "pdf_path": url}) for number, url in enumerate(urls)]
            (folder / "list.jsonl").write_text("\n".join(lines))
            words = ["--engine", "embedded", "--allow-private-addresses", "--log-level", "debug", "--log-file", "log"]
            done, _ = run(folder, "run", "list.jsonl", "-w", "w", *words, *SMALL)
        (folder / "done.json").write_text(json.dumps(vars(done)))

    folder = shutil.copytree(golden("signed", make), tmp_path / "signed")
    return folder, subprocess.CompletedProcess(**json.loads((folder / "done.json").read_text()))


@contextlib.contextmanager
def serving(folder):
    """Over HTTP; gives the function that makes of a file's name its URL, with what grants access."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://user:{SECRET}@127.0.0.1:{server.server_port}"
        try:
            yield lambda name: f"{base}/{name}?X-Amz-Signature={SECRET}&token={SECRET}"
        finally:
            server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        """Nothing."""


@pytest.mark.slow
def test_what_grants_access_in_a_url_stands_in_the_plan_alone(signed):
    """Other workers fetch the document by it; nobody else is told."""
    folder, done = signed
    assert done.returncode == 3, done.stderr  # one is not there
    assert SECRET not in done.stdout + done.stderr
    holding = {path for path in (folder / "w").rglob("*") if path.is_file() and tells(path)}
    assert holding and all(path.relative_to(folder / "w").parts[0] == "plan" for path in holding), holding
    assert SECRET not in (folder / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("status", "--json"), ("report", "--output", "report.html"), ("view", "--output", "site")],
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
    assert not [path for path in made if tells(path)]


@pytest.mark.slow
@pytest.mark.parametrize("form", settings_of(ExportSettings)["format"].choices)
def test_what_grants_access_is_in_no_export(signed, form):
    folder, _ = signed
    if form == "fields":
        answers = folder / "answers.json"
        answers.write_text(json.dumps({"": json.dumps({"name": {"quote": "", "value": None}})}))
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        with running(forced=answers, served_model_name="qwen3-vl-8b") as server:
            llm_ocr.fields(workspace=folder / "w", schema=schema, server_url=server.url, max_failed_rate=1)
    llm_ocr.export(workspace=folder / "w", output=folder / form, format=form)
    made = [path for path in (folder / form).rglob("*") if path.is_file()]
    assert made
    assert not [path for path in made if tells(path)]


@pytest.mark.slow
def test_what_grants_access_is_in_no_document_of_the_python_api(signed):
    documents = list(llm_ocr.open(str(signed[0] / "w")).documents())
    assert documents and SECRET not in repr(documents)


@pytest.mark.slow
def test_what_grants_access_is_in_no_complaint_about_the_list(examples, tmp_path):
    with serving(examples) as url_of:
        lines = [json.dumps({"pdf_path": url_of("paper.pdf"), "pages": pages}) for pages in ([1], [2])]
        (tmp_path / "list.jsonl").write_text("\n".join(lines))
        done, _ = run(tmp_path, "plan", "list.jsonl", "-w", "w", "--engine", "embedded", "--allow-private-addresses")
    assert done.returncode == 2, done.stderr
    assert "given twice with different pages" in done.stderr
    assert SECRET not in done.stdout + done.stderr


PROGRAM = """
import sys
from llm_ocr.stages import rendering
rendering.MODULE = "tests.fakes.taken_over_renderer"
from llm_ocr.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_hijacked_renderer_gets_nothing_and_the_run_goes_on(examples, tmp_path):
    words = [sys.executable, "-m", "llm_ocr.sandbox.confinement"]
    if not all(json.loads(subprocess.run(words, capture_output=True, check=True).stdout).values()):
        pytest.skip("this kernel offers no Landlock, or no seccomp")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "key").write_text("s3cret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        evil = f"evil-{server.getsockname()[1]}.png"
        shutil.copy(examples / "invoice.png", documents / evil)
        (documents / "good.png").write_bytes((examples / "invoice.png").read_bytes() + b"\0")  # else they were one
        command = [sys.executable, "-c", PROGRAM, "run", str(documents), "-w", "w", *FRUGAL]
        run = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert run.returncode == 3, said(run)
    pages = {page.source.rpartition("/")[2]: page for page in llm_ocr.open(str(tmp_path / "w")).pages(images=False)}
    assert pages["good.png"].status is not Status.FAILED and pages["good.png"].markdown
    assert pages[evil].status is Status.FAILED
    assert "all that the document tried was refused" in pages[evil].detail
    assert {path.name for path in documents.iterdir()} == {"key", evil, "good.png"}
