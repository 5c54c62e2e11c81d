"""A document that runs code of its own in the renderer costs its page, and gets nothing."""

import json
import shutil
import socket
import subprocess
import sys

import pytest
from running import FRUGAL, environment, said

import llm_ocr
from llm_ocr.types import Status

#: Worker processes are what is tested here.
OWN_WORKERS = True

PROGRAM = """
import sys
from llm_ocr.documents import rendering
rendering.MODULE = "tests.fakes.taken_over_renderer"
from llm_ocr.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_document_that_takes_over_its_renderer_gets_nothing_and_the_run_goes_on(examples, tmp_path):
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
