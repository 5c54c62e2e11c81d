"""OCR of other scripts: recognizers by name or file, downloaded once, and the order of right-to-left words."""

import asyncio
import hashlib
import http.server
import json
import os
import threading
import time
from contextlib import contextmanager

import pytest
from ocr_pages import PROSE, needs_ocr, page, prose

import llm_ocr
from llm_ocr.engines import EngineOptions
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.types import EncodedImage, Page
from llm_ocr_cpu.ocr import languages
from llm_ocr_cpu.ocr.languages import (
    SCRIPTS,
    LanguageModel,
    has_foreign_words,
    language_model,
    logical,
    scripts_of,
)
from llm_ocr_cpu.ocr.models import find_models
from llm_ocr_cpu.probe import script_supported
from llm_ocr_cpu.reader import EmbeddedReader
from llm_ocr_simulator import running

OWN_WORKERS = True  # a worker keeps the recognizer of its first request


@contextmanager
def server(content, status=200, missing=0, wait=lambda: None):
    """A server that returns the content for any path; yields its URL and the requested paths.

    The connection ends with `missing` more bytes announced; the second half of the content comes after `wait`.
    """
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) + missing))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
            wait()
            self.wfile.write(content[len(content) // 2 :])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{one.server_port}", asked
        one.shutdown()
        thread.join()


def expect(monkeypatch, content):
    monkeypatch.setitem(languages.LANGUAGES, "greek", ("el", hashlib.sha256(content).hexdigest()))


def test_a_model_is_downloaded_once(tmp_path, monkeypatch):
    expect(monkeypatch, b"weights")
    with server(b"weights") as (url, asked):
        first, second = (language_model("greek", tmp_path / "ocr", url) for _ in range(2))
        assert asked == ["/el_PP-OCRv5_rec_mobile.onnx"]
        assert first == second
        assert first.model.read_bytes() == b"weights"
        first.model.write_bytes(b"damaged")
        assert language_model("greek", tmp_path / "ocr", url).model.read_bytes() == b"weights"


@pytest.mark.parametrize(("content", "status", "why"), [(b"other", 200, "SHA-256"), (b"weights", 404, "404")])
def test_a_failed_download_leaves_no_file_and_names_the_way_out(tmp_path, monkeypatch, content, status, why):
    expect(monkeypatch, b"weights")
    with server(content, status) as (url, _), pytest.raises(LlmOcrError, match=why) as failure:
        language_model("greek", tmp_path / "ocr", url)
    assert f"{url}/el_PP-OCRv5_rec_mobile.onnx" in failure.value.hint
    assert not list(tmp_path.rglob("*.*"))


def test_interrupted_download_leaves_no_file_and_shows_progress(tmp_path, monkeypatch):
    expect(monkeypatch, b"weights")
    with server(b"weights", missing=100) as (url, _), pytest.raises(LlmOcrError, match="ended after 7 of 107 bytes"):
        language_model("greek", tmp_path / "ocr", url)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_download_can_be_stopped_and_stale_parts_are_removed(tmp_path, monkeypatch):
    content = bytes(1 << 20)
    expect(monkeypatch, content)
    left = tmp_path / ".el_PP-OCRv5_rec_mobile.onnx.abcd"
    left.write_bytes(b"part")
    os.utime(left, (1, 1))
    with server(content) as (url, _), pytest.raises(LlmOcrError, match=r"stopped after 0\.3 MB"):
        language_model("greek", tmp_path, url, stopped=lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_a_download_says_its_size_and_progress(tmp_path, monkeypatch):
    content = bytes(3 << 20)
    expect(monkeypatch, content)
    monkeypatch.setattr(languages, "_EVERY", 0.0)
    messages = []
    with server(content) as (url, _):
        language_model("greek", tmp_path, url, say=messages.append)
    assert messages[0] == f"downloading the OCR model of greek (3.1 MB) to {tmp_path}"
    assert "OCR model of greek: 0.3 of 3.1 MB" in messages


@needs_ocr
def test_documents_are_planned_during_the_download(tmp_path, monkeypatch, examples):
    """The server waits for the plan, and the file is none, so that the run ends before a page is read."""
    expect(monkeypatch, b"weights")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    planned = threading.Event()

    def wait():
        for _ in range(800):
            if (tmp_path / "w" / "plan" / "0001.done").exists():
                planned.set()
                return
            time.sleep(0.05)

    with server(b"another", wait=wait) as (url, _):
        monkeypatch.setattr("llm_ocr_cpu.ocr.languages.SOURCE", url)
        with pytest.raises(LlmOcrError, match="SHA-256"):
            llm_ocr.run(
                examples / "invoice.png", workspace=tmp_path / "w", engine="embedded", ocr_language="greek",
                render_workers=1, ocr_workers=1,
            )  # fmt: skip
    assert planned.is_set()


def test_unreachable_server_gives_error_that_names_the_language(tmp_path):
    with server(b"") as (url, _):
        pass
    with pytest.raises(LlmOcrError, match="`ocr_language=thai` could not be downloaded: no connection"):
        language_model("thai", tmp_path, url)


@pytest.mark.parametrize("language", ["klingon", "missing.onnx"])
def test_an_unknown_language_lists_the_known_ones(tmp_path, language):
    with pytest.raises(UsageError, match=f"`ocr_language={language}`") as failure:
        language_model(language, tmp_path)
    assert all(name in failure.value.hint for name in languages.LANGUAGES)


def test_a_file_without_characters_needs_a_dictionary(tmp_path):
    model = tmp_path / "mine.onnx"
    model.write_bytes(b"weights")
    with pytest.raises(UsageError, match="does not contain its characters") as failure:
        language_model(str(model), tmp_path)
    assert "mine.txt" in failure.value.hint
    (tmp_path / "mine.txt").write_text("a\nb\n")
    assert language_model(str(model), tmp_path).dictionary == tmp_path / "mine.txt"


@needs_ocr
@pytest.mark.slow
def test_a_worker_process_reads_with_the_given_model(tmp_path):
    """The file lies in a folder that a confined worker may not read, and its dictionary has another letter for e."""
    import onnxruntime

    source = find_models().recogniser.model
    (tmp_path / "mine.onnx").write_bytes(source.read_bytes())
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    characters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    dictionary = tmp_path / "mine.txt"
    dictionary.write_text("\n".join("є" if one == "e" else one for one in characters), encoding="utf-8")
    inside = language_model(str(tmp_path / "mine.onnx"), tmp_path)
    assert inside.dictionary is None
    beside = LanguageModel(inside.model, dictionary, "0123")

    async def text(model):
        reader = EmbeddedReader(EngineOptions(workers=1, language=model))
        try:
            attempt = await reader.read(Page("d-p00001", "d", 1, EncodedImage(_png(), "image/png", 800, 632), None))
        finally:
            await reader.close()
        return " ".join(block.text for block in attempt.blocks), reader.identity()

    plain, first = asyncio.run(text(inside))
    other, second = asyncio.run(text(beside))
    assert plain == " ".join(PROSE)
    assert other == plain.replace("e", "є")
    assert first["ocr_language"] != second["ocr_language"]
    assert "ocr_language" not in EmbeddedReader(EngineOptions(workers=1)).identity()


@needs_ocr
@pytest.mark.slow
def test_the_recognizer_of_a_language_verifies_a_model(tmp_path, monkeypatch):
    """Its dictionary has a 6 in place of the 5, which contradicts the year of a good answer."""
    import onnxruntime

    source = find_models().recogniser.model
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    characters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    (tmp_path / "mine.txt").write_text("\n".join("6" if one == "5" else one for one in characters), encoding="utf-8")
    model = LanguageModel(source, tmp_path / "mine.txt", "0123")
    monkeypatch.setattr(languages, "language_model", lambda *_, **__: model)
    (tmp_path / "page.png").write_bytes(_png())
    (tmp_path / "answers.json").write_text(json.dumps({"*": "\n".join(PROSE)}))

    async def read(url, **settings):
        settings |= {"server_url": url, "server_model": name, "model": "olmocr-2"}
        async with llm_ocr.Session(**settings, verify="ocr", fallback="none", ocr_workers=1) as session:
            return await session.read_page(tmp_path / "page.png")

    name = "allenai/olmOCR-2-7B-1025-FP8"
    with running(said=tmp_path / "answers.json", model=name, speed=100, max_model_len=65_536) as server:
        row = asyncio.run(read(server.url, ocr_language="greek"))
    assert row.ledger.verified_by == "ocr"
    assert "1 number that OCR of the page lacks, the first is 1953" in row.detail


def _png():
    import io

    from ocr_pages import pixels
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels(page(*prose()))).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("seen", "read"),
    [
        ("from left to right", "from left to right"),
        ("ملاعلا لوح ةلحر", "رحلة حول العالم"),
        ("1953 ماع يف", "في عام 1953"),
        (".(1953) ماع", "عام (1953)."),
        ("50% ىلإ 12.5 نم", "من 12.5 إلى 50%"),
        ("ةيرادإلا Open Source ةصنم", "منصة Open Source الإدارية"),
        ("the word ةملك ةيبرع is Arabic", "the word عربية كلمة is Arabic"),
    ],
)
def test_words_of_right_to_left_scripts_come_in_reading_order(seen, read):
    assert " ".join(word for _, word in logical(seen.split())) == read


def test_words_keep_their_boxes():
    assert logical(["ملاعلا", "لوح", "ةلحر"]) == [(2, "رحلة"), (1, "حول"), (0, "العالم")]


def test_the_scripts_of_a_recognizer_are_those_of_its_letters():
    cyrillic = [chr(code) for code in (*range(0x410, 0x450), *range(65, 91), *range(97, 123))]
    scripts = scripts_of([*cyrillic, "α", "1", "."])
    assert script_supported("привет", scripts)
    assert script_supported("plain", scripts)
    assert not script_supported("και", scripts)
    assert not script_supported("привет")


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("\u03a3\u03c5\u03bc\u03c6\u03c9\u03bd\u03b7 boat", True),
        ("\u0394x = \u03b1\u03b2\u03b3 + \u03c3\u03c4", False),
        ("Stra\u00dfe \u6e2f \uff21\uff22\uff23\uff24", False),
    ],
)
def test_words_of_an_unsupported_script_are_no_reading(reading, expected):
    assert has_foreign_words(reading, SCRIPTS) is expected
