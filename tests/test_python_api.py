"""The Python API as people use it: from a plain script, inside a running loop, without side effects on import."""

import ast
import asyncio
import contextlib
import io
import json
import logging
import os
import pty
import subprocess
import sys
import termios
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import nbclient
import nbformat
import pytest
from PIL import Image, ImageChops

import llm_ocr
from llm_ocr.errors import (
    Interrupted,
    LimitReached,
    LlmOcrError,
    MissingExtra,
    StageMissing,
    UsageError,
    WorkspaceError,
)
from llm_ocr.types import Reason, Status

NAMES = [
    *("Block", "Box", "Figure", "Interrupted", "LaunchError", "LimitReached", "LlmOcrError", "MissingExtra"),
    *("PageFailure", "PageRecord", "Run", "ServerError", "Session", "StageMissing", "Status", "StorageError"),
    *("UsageError", "WorkspaceError", "assemble", "describe", "display", "estimate", "export", "extract", "fields"),
    *("open",),
    *("plan", "read_page", "repair", "retry_failed", "run", "submit", "transform", "view"),
]
HEAVY = {
    *("numpy", "pyarrow", "pandas", "datasets", "PIL", "onnxruntime", "cv2", "pypdfium2", "boto3", "torch", "rich"),
    "ray",
}
ONE_EACH = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1}


@pytest.fixture(scope="module")
def page(examples: Path, golden) -> Path:
    """One page of the paper, as a document of its own: the same file in all processes, because pdfium names each."""
    import pypdfium2

    def save(folder: Path) -> None:
        one = pypdfium2.PdfDocument.new()
        one.import_pages(pypdfium2.PdfDocument(examples / "paper.pdf"), [1])
        one.save(folder / "page.pdf")

    return golden("page of the paper", save) / "page.pdf"


@pytest.fixture(scope="module")
def made(page: Path, golden) -> llm_ocr.Run:
    folder = golden("page of the API", lambda folder: llm_ocr.run(page, workspace=folder / "out", **ONE_EACH))
    return llm_ocr.open(folder / "out")


def on_terminal(command: list[str], folder: Path) -> str:
    """Run a command whose output is a terminal of 80 columns, and return the output."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    with subprocess.Popen(command, cwd=folder, stdout=follower, stderr=follower) as process:
        os.close(follower)
        output = b""
        with contextlib.suppress(OSError):  # Linux ends the reading of a closed terminal with an error
            while part := os.read(leader, 65536):
                output += part
        os.close(leader)
    assert process.returncode == 0, output
    return output.decode()


def python(code: str, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a file, as people do."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, "script.py", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


def test_the_names_of_the_api_are_these():
    assert llm_ocr.__all__ == dir(llm_ocr) == NAMES
    assert all(callable(getattr(llm_ocr, name)) for name in NAMES if name != "display")
    others = {name for name, value in vars(llm_ocr).items() if not isinstance(value, ModuleType)} - {*NAMES}
    assert [name for name in others if not name.startswith("_")] == []  # what editors offer beside `dir`
    assert callable(llm_ocr.display.display_page)


def test_type_checkers_see_every_name_of_the_api():
    tree = ast.parse(Path(llm_ocr.__file__).read_text(encoding="utf-8"))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(imported) == sorted(llm_ocr.__all__)


def test_run_is_an_escaped_table_in_notebooks(made):
    shown = made._repr_html_()
    assert "<th>pages</th><td>1</td><td>1</td><td>0</td><td>0</td>" in shown
    status = replace(made.status, url="s3://<script>", reasons={"<b>": 1})
    assert "<script>" not in status._repr_html_() and "&lt;b&gt;: 1" in status._repr_html_()


@pytest.mark.slow
def test_stage_bars_are_shown_on_a_terminal_only(page, tmp_path):
    code = f"import llm_ocr; llm_ocr.run({str(page)!r}, workspace='out', engine='embedded', **{{keywords}})"
    shown = {}
    for keywords in ("{}", "{'progress': None}"):
        folder = tmp_path / str(len(shown))
        folder.mkdir()
        (folder / "script.py").write_text(code.replace("{keywords}", keywords))
        shown[keywords] = on_terminal([sys.executable, "script.py"], folder)
    assert all(f"{stage}: 100%" in shown["{}"] for stage in ("extract", "describe", "assemble"))
    assert "100%" not in shown["{'progress': None}"]
    assert "100%" not in python(code.replace("{keywords}", "{}"), tmp_path).stderr


@pytest.mark.slow
def test_a_notebook_shows_bars_runs_and_pages(page, tmp_path):
    read = f"llm_ocr.run({str(page)!r}, workspace={{}}, engine='embedded', render_workers=1, ocr_workers=1"
    cells = [
        "import llm_ocr\nrun = " + read.format("'a'") + ")",
        "run",
        "next(run.pages())",
        "silent = " + read.format("'b'") + ", progress=None)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    bars, shown_run, shown_page, silent = [cell.outputs for cell in notebook.cells]
    text = "".join(output.text for output in bars)
    assert all(f"{stage}: 100%" in text for stage in ("extract", "describe", "assemble")) and "Warning" not in text
    assert "<th>pages</th>" in shown_run[0].data["text/html"] and "<img src=" in shown_page[0].data["text/html"]
    assert silent == []


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'extrakt'"):
        _ = llm_ocr.extrakt  # type: ignore[attr-defined]


def test_importing_the_library_is_light_and_sets_up_no_logging(tmp_path):
    code = """
import json, logging, sys
import llm_ocr
print(json.dumps([sorted(sys.modules), len(logging.getLogger("llm_ocr").handlers), len(logging.root.handlers)]))
"""
    done = python(code, tmp_path)
    modules, own, root = json.loads(done.stdout)
    assert HEAVY & set(modules) == set()
    assert (own, root) == (0, 0)


@pytest.mark.slow
def test_a_script_without_a_main_guard_runs_once(page, tmp_path):
    code = """
import sys, llm_ocr
print("begun")
run = llm_ocr.run(sys.argv[1], workspace="out", engine="embedded", render_workers=2, ocr_workers=1)
print(run.status.pages.ok, len(list(run.documents())))
"""
    done = python(code, tmp_path, page)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["begun", "1 1"]
    assert done.stderr == ""


def test_it_works_inside_a_running_loop_as_in_a_notebook(page, tmp_path):
    async def cell(source: Path) -> llm_ocr.Run:
        return llm_ocr.run(source, workspace=tmp_path / "out", **ONE_EACH)

    run = asyncio.run(cell(page))
    assert run.status.pages.ok == 1
    assert run.status.finished
    with pytest.raises(UsageError, match=r"gone\.pdf"):
        asyncio.run(cell(tmp_path / "gone.pdf"))


def test_open_gives_pages_documents_failures_and_the_dataset(made):
    run = llm_ocr.open(made.url)
    (page,) = run.pages()
    assert (page.status, page.page_number, page.engine) == (Status.OK, 1, "embedded")
    assert page.image is not None
    assert page.image.data
    (bare,) = run.pages(images=False)
    assert bare.markdown == page.markdown
    assert list(run.failures()) == []
    (document,) = run.documents()
    assert document.document_id == page.document_id
    assert document.source == page.source
    assert document.markdown == (Path(run.url) / document.path).read_text()
    dataset = run.to_dataset()
    assert dataset["sample_id"] == [page.page_id]
    assert repr(run) == f"Run({made.url!r})"


def test_what_is_not_there_yet_says_what_to_run(page, tmp_path):
    with pytest.raises(WorkspaceError, match="llm-ocr run SOURCE"):
        llm_ocr.open(str(tmp_path / "out"))
    run = llm_ocr.plan(page, workspace=tmp_path / "out")
    assert (run.status.pages.expected, run.status.pages.ok) == (1, 0)
    with pytest.raises(StageMissing, match="extract has not started"):
        list(run.pages())
    with pytest.raises(StageMissing, match="llm-ocr assemble"):
        run.to_dataset()


def test_message_without_the_datasets_package_names_the_extra(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r'pip install "datasets>='):
        llm_ocr.open(made.url).to_dataset()


def test_the_stages_as_functions_give_what_run_gives(made, page, tmp_path):
    workspace = tmp_path / "out"
    llm_ocr.extract([page], workspace=workspace, **ONE_EACH)
    llm_ocr.describe(workspace=workspace, engine="embedded", ocr_workers=1)
    run = llm_ocr.assemble(workspace=workspace)
    assert [document.markdown for document in run.documents()] == [document.markdown for document in made.documents()]


def test_a_bad_keyword_is_named(page, tmp_path):
    with pytest.raises(UsageError, match="run has no setting image_sise; did you mean image_size"):
        llm_ocr.run(page, workspace=tmp_path / "out", image_sise=800)
    with pytest.raises(UsageError, match="`image_size=large`: must be"):
        llm_ocr.run(page, workspace=tmp_path / "out", image_size="large")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sources", "workspace", "message"),
    [
        ("a.pdf", None, "`workspace=None`: must be text"),
        (b"%PDF-1.7", "out", "a source of type bytes"),
        (io.BytesIO(b"a.pdf"), "out", "a source of type BytesIO"),
        (["a.pdf", b"b.pdf"], "out", "a source of type bytes"),
    ],
)
def test_values_that_are_no_paths_are_an_error(sources, workspace, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (llm_ocr.run, llm_ocr.plan, partial(llm_ocr.submit, "slurm", "extract")):
        with pytest.raises(UsageError, match=message):
            call(sources, workspace=workspace)
    with pytest.raises(UsageError, match="must be"):
        llm_ocr.open(None)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_read_page_takes_a_picture_or_the_bytes_of_a_file(examples):
    fax = Image.open(examples / "fax.tiff").convert("L").resize((1100, 1560))
    data = io.BytesIO()
    fax.save(data, "PNG")

    async def read() -> list[str]:
        rows = [await llm_ocr.read_page(given, **ONE_EACH) for given in (fax, data.getvalue())]
        return [row.markdown for row in rows if row.status is Status.OK]

    texts = asyncio.run(read())
    assert len(texts) == 2
    assert texts[0] == texts[1]
    assert "The old willow above the weir" in texts[0]


def test_session_reads_pages_of_files_and_bytes_with_one_engine(page, tmp_path):
    (tmp_path / "garbage.png").write_bytes(b"no image")

    async def read() -> list[llm_ocr.PageRecord]:
        async with llm_ocr.Session(**ONE_EACH) as session:
            given = (page, page.read_bytes(), tmp_path / "garbage.png")
            return [*await asyncio.gather(*map(session.read_page, given)), await session.read_page(page, 2)]

    first, same, bad, beyond = asyncio.run(read())
    assert asyncio.run(llm_ocr.read_page(page, **ONE_EACH)).markdown == first.markdown
    assert (first.status, first.text_source, first.page_number) == (Status.OK, "text-layer", 1)
    assert same.markdown == first.markdown
    assert (bad.status, bad.reason) == (Status.FAILED, Reason.UNREADABLE)
    assert (beyond.status, beyond.reason, beyond.page_number) == (Status.FAILED, Reason.NO_SUCH_PAGE, 2)


def test_pictures_of_all_modes_of_pillow_are_read():
    gray = Image.new("L", (64, 64), 255)
    gray.paste(Image.linear_gradient("L").resize((48, 48)), (8, 8))
    between = {"La": "LA", "RGBa": "RGBA", "HSV": "RGB", "YCbCr": "RGB"}
    modes = ["CMYK", "F", "HSV", "I", "La", "RGBa", "YCbCr"]

    async def read() -> list[llm_ocr.PageRecord]:
        async with llm_ocr.Session(**ONE_EACH) as session:
            pictures = [gray.convert(between.get(mode, mode)).convert(mode) for mode in modes]
            return await asyncio.gather(*map(session.read_page, pictures))

    for mode, record in zip(modes, asyncio.run(read()), strict=True):
        assert record.image is not None, (mode, record.detail)
        shown = Image.open(io.BytesIO(record.image.data)).convert("L")
        assert ImageChops.difference(shown, gray).getextrema()[1] <= 4, mode


def test_closed_session_is_an_error(page):
    async def read() -> None:
        async with llm_ocr.Session(**ONE_EACH) as session:
            assert (await session.read_page(page)).status is Status.OK
        await session.close()
        with pytest.raises(UsageError, match="the session is closed"):
            await session.read_page(page)

    asyncio.run(read())


def test_session_of_another_event_loop_is_an_error(page):
    session = llm_ocr.Session(**ONE_EACH)
    with asyncio.Runner() as first:
        assert first.run(session.read_page(page)).status is Status.OK
        for use in (lambda: session.read_page(page), session.close):
            with asyncio.Runner() as other, pytest.raises(UsageError, match="used in another event loop"):
                other.run(use())
        first.run(session.close())


@pytest.mark.parametrize("given", [bytearray(b"x"), [[0, 1]], None, Image.new("L", (0, 4))], ids=type)
def test_other_types_of_images_are_an_error(given):
    with pytest.raises(UsageError, match=r"the image (is of type|has no pixels)"):
        asyncio.run(llm_ocr.read_page(given, engine="embedded"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engin": "embedded"}, "Session has no setting engin; did you mean engine"),
        ({"engine": "embedded", "server_url": "http://a"}, "`server_url` has no effect with `engine=embedded`"),
        ({"engine": "embedded", "max_cost": 1.0}, "`max_cost`: no price is known"),
        ({"engine": "embedded", "pages": "2"}, "`pages` has no effect in Session"),
        ({"workspace": "out", "only": "a*"}, "`workspace` and `only` have no effect in Session"),
    ],
)
def test_a_session_checks_its_settings_before_the_first_page(settings, message):
    with pytest.raises(UsageError, match=message):
        llm_ocr.Session(**settings)


@pytest.mark.parametrize("name", ["pages", "max_samples", "dataset", "sources", "shard_index", "max_cost"])
def test_read_page_refuses_settings_without_effect(name, page):
    with pytest.raises(UsageError, match=f"`{name}` has no effect in read_page"):
        asyncio.run(llm_ocr.read_page(page, engine="embedded", **{name: "2"}))


def test_page_text_is_neither_logged_nor_written_to_the_terminal(page, tmp_path, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        run = llm_ocr.run([page, tmp_path / "gone.pdf"], workspace=tmp_path / "out", **ONE_EACH)
    (text,) = [page.markdown for page in run.pages() if page.status is Status.OK]
    words = [line for line in text.splitlines() if len(line) > 30]
    assert words
    written = "\n".join([*(record.getMessage() for record in caplog.records), *capfd.readouterr()])
    assert not [line for line in words if line[:30] in written]


def test_progress_is_told_to_whoever_asks(page, tmp_path):
    told: list[tuple[str, object]] = []

    class Listener:
        def begin(self, stage, expected, done):
            told.append(("begin", stage))

        def count(self, status):
            told.append(("count", status))

        def say(self, message):
            told.append(("say", message))

        def end(self):
            told.append(("end", ""))

    llm_ocr.run(page, workspace=tmp_path / "out", progress=Listener(), **ONE_EACH)
    assert [stage for kind, stage in told if kind == "begin"] == ["extract", "describe", "assemble"]
    assert ("count", Status.OK) in told


def test_every_error_says_its_exit_code():
    own = {UsageError: 2, Interrupted: 4, LimitReached: 5}
    for error in _all_errors(LlmOcrError):
        expected = next((code for kind, code in own.items() if issubclass(error, kind)), 1)
        assert error.exit_code == expected, error


def _all_errors(error: type[LlmOcrError]) -> list[type[LlmOcrError]]:
    return [error, *(below for one in error.__subclasses__() for below in _all_errors(one))]
