"""modal-app/README.md, word for word: its commands in their order; the app's own functions do the work."""

import os
import shlex
import subprocess
import sys

import pytest
from readme_commands import blocks
from store_servers import AWS, aws_environment, s3_server
from stub_modal import APP, StubModal

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.launch import launching
from llm_ocr_platforms.modal.batch import batch_from

pytestmark = pytest.mark.filterwarnings("ignore:The .* function is executing locally")

SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])
JOBS = {"LLM_OCR_VLLM_COMMAND": SIMULATOR, "LLM_OCR_RENDER_WORKERS": "1"}
BUCKET = "ocr-of-modal"  # moto keeps one state for the whole process, and other READMEs have the same example
TEXT = APP.with_name("README.md").read_text().replace("my-ocr-bucket", BUCKET)
COMMANDS = [
    shlex.split(line, comments=True) for block in blocks(TEXT) for line in block.replace("\\\n", " ").splitlines()
]


@pytest.fixture
def desk(repository, monkeypatch):
    """The repository's root, S3, and an account of Modal."""
    for name in list(os.environ):
        if name.startswith(("LLM_OCR_", "DOTS_MODAL_")):
            monkeypatch.delenv(name)
    for name, value in JOBS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(repository)
    monkeypatch.setattr(launching, "EVERY", 0.5)
    stub = StubModal()
    stub.apps.clear()  # nothing is deployed yet
    stub.secrets.clear()
    with s3_server(BUCKET) as endpoint, aws_environment(AWS_ENDPOINT_URL=endpoint):
        stub.install(monkeypatch)
        yield stub
        stub.finish()


def as_modal(stub: StubModal, words: list[str]) -> None:
    """What the `modal` command does to an account; each command line is one that the real one has."""
    match words:
        case ["deploy", path]:
            assert path == "modal-app/app.py"
            stub.apps.add(stub.app.app.name)
        case ["secret", "create", name, *pairs]:
            stub.secrets[name] = dict(pair.split("=", 1) for pair in pairs)
        case ["run", path, *flags]:
            assert path == "modal-app/app.py"
            given = dict(zip([flag[2:].replace("-", "_") for flag in flags[::2]], flags[1::2], strict=True))
            assert batch_from(given).output == "/data/dots_predictions.jsonl"
        case ["app", "stop", name]:
            stub.apps.remove(name)
        case ["volume", "delete", name]:
            assert name in {volume.name for volume in stub.app.VOLUMES.values()}
        case ["dict", "delete", name]:
            assert not stub.boards[name]  # the launcher has cleaned up
        case ["secret", "delete", name]:
            del stub.secrets[name]
        case _:
            raise AssertionError(words)


@pytest.mark.long
def test_every_command_works_in_its_order(desk, monkeypatch, capsys):
    for words in COMMANDS:
        program, *rest = [os.path.expandvars(word) for word in words]
        if program == "export":
            monkeypatch.setenv(*rest[0].split("=", 1))
        elif program == "modal":
            as_modal(desk, rest)
        else:
            assert program == "llm-ocr"
            code = main(rest)
            assert code == 0, (words, capsys.readouterr())
    said = capsys.readouterr()
    assert "9 ok" in said.out + said.err
    status = llm_ocr.open(f"s3://{BUCKET}/run").status
    assert status.finished
    assert status.pages.ok == 9
    # Before Extract, the number of units is unknown, so that both shards start. The documents are one unit: a second
    # shard of Describe would have nothing to do.
    stages = [arguments["argv"][-1] for arguments in desk.arguments]
    assert stages == ["extract", "extract", "describe", "assemble"]
    assert [options.get("gpu") for options in desk.options] == ["L40S"] * 3 + [None]
    assert AWS["AWS_SECRET_ACCESS_KEY"] not in said.out + said.err


@pytest.mark.slow
def test_modal_has_each_of_the_commands():
    named = {
        tuple(words[1:3]) if words[1] not in ("deploy", "run") else (words[1],)
        for words in COMMANDS
        if words[0] == "modal"
    }
    program = (
        "import sys; from click.testing import CliRunner; from modal.cli.entry_point import entrypoint_cli as cli\n"
        "for line in sys.argv[1:]:\n"
        "    done = CliRunner().invoke(cli, [*line.split(), '--help'])\n"
        "    assert done.exit_code == 0 and 'Usage' in done.output, (line, done.output)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *map(" ".join, named)], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
