"""The wheel that jobs install: of a checkout, of an installation, and how a job fetches it."""

import hashlib
import http.server
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from llm_ocr.launch.hf_jobs.plan import _FETCH, _KEEP
from llm_ocr.launch.hf_jobs.wheel import _packed, library_wheel


def installed(wheel: Path, folder: Path) -> Path:
    words = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", *words], check=True)
    return folder


def test_a_checkout_is_built(wheel, repository):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        one = "llm_ocr/launch/hf_jobs/wheel.py"
        assert archive.read(one) == (repository / one).read_bytes()
    assert "llm_ocr/stages/__main__.py" in names


@pytest.mark.slow
def test_an_installation_is_packed_again_as_it_was(wheel, tmp_path):
    site = installed(Path(wheel), tmp_path / "a")
    (found,) = distributions(name="llm-ocr", path=[str(site)])
    made, again = _packed(found), _packed(found)
    assert made == again  # the same bytes, so the same place on the Hub
    path = tmp_path / made.name
    path.write_bytes(made.data)
    second = installed(path, tmp_path / "b")
    (other,) = distributions(name="llm-ocr", path=[str(second)])
    assert _packed(other).sha256 == made.sha256
    assert (second / "llm_ocr/stages/__main__.py").read_bytes() == (site / "llm_ocr/stages/__main__.py").read_bytes()
    assert library_wheel(str(path)) == made


class Server(http.server.ThreadingHTTPServer):
    """`/wheel` asks for the token and sends on to the other server, which refuses one."""

    target = ""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        signed = self.headers.get("Authorization")
        if self.server.target:
            self.send_response(302 if signed == "Bearer secret" else 401)
            self.send_header("Location", self.server.target)
            self.end_headers()
        else:
            self.send_response(400 if signed else 200)
            self.end_headers()
            self.wfile.write(b"" if signed else b"content")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def servers() -> Iterator[str]:
    made = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    made[0].target = f"http://127.0.0.1:{made[1].server_port}/storage"
    threads = [threading.Thread(target=one.serve_forever, args=(0.02,)) for one in made]
    for thread in threads:
        thread.start()
    yield f"http://127.0.0.1:{made[0].server_port}/wheel"
    for one in made:
        one.shutdown()
        one.server_close()
    for thread in threads:
        thread.join()


def test_the_token_is_not_sent_to_the_storage_behind_the_hub(servers, tmp_path):
    sha256 = hashlib.sha256(b"content").hexdigest()
    words = [sys.executable, "-c", _FETCH, servers, sha256, str(tmp_path / "wheel")]
    run = subprocess.run(words, input="secret", env={}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "wheel").read_bytes() == b"content"


def test_what_an_image_has_stays_as_it_is(tmp_path):
    """Each version is a constraint, but those of system packages that pip cannot read, and our own."""
    there = {"first/vllm": "0.32.0+cu130", "first/distro_info": "1.1build1", "first/llm_ocr": "0.0.1"}
    for place, version in {**there, "second/vllm": "0.1", "second/torch": "2.13.0rc1.dev3"}.items():
        folder = tmp_path / f"{place}-{version}.dist-info"
        folder.mkdir(parents=True)
        name = place.partition("/")[2]
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    path = f"{tmp_path}/first:{tmp_path}/second"
    words = [sys.executable, "-S", "-c", _KEEP]
    run = subprocess.run(words, env={"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(run.stdout.split()) == ["torch==2.13.0rc1.dev3", "vllm==0.32.0+cu130"]
