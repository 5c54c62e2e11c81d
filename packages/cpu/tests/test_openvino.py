"""OpenVINO reads scans as onnxruntime does, is used only on processors where it saves time, and sends no telemetry."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ocr_pages import needs_ocr
from PIL import Image, ImageDraw, ImageFont

from llm_ocr import checks
from llm_ocr.checks import State
from llm_ocr_cpu import parts
from llm_ocr_cpu.ocr import Recogniser, models, quantizing

_FLAGS = "import sys; from llm_ocr_cpu.ocr import models; models.profits_from_openvino = lambda: True; "
_FLAGS += "models._openvino(); "


@pytest.fixture(scope="module")
def usable():
    code = _FLAGS + "sys.exit(models._openvino() is None)"
    if subprocess.run([sys.executable, "-c", code], check=False).returncode:
        pytest.skip("OpenVINO is not installed")


@pytest.fixture(autouse=True)
def undecided():
    decide = models._openvino
    decide.cache_clear()
    yield
    decide.cache_clear()


LINES = ["The river rose again in March", "Table 7: 1,423 readings", "Signed: M. Hollins"]


def page() -> np.ndarray:
    image = Image.new("RGB", (1000, 400), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(28)
    for row, text in enumerate(LINES):
        draw.text((40, 60 + 110 * row), text, "black", font)
    return np.asarray(image)


def set_flags(flags, monkeypatch, tmp_path) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags} sse2\n")
    monkeypatch.setattr(models, "_CPU_INFO", tmp_path / "cpuinfo")


def texts() -> list[str]:
    with ThreadPoolExecutor(1) as thread:  # networks belong to one thread
        lines = thread.submit(lambda: Recogniser().read(page()).lines).result()
    return [line.text for line in sorted(lines, key=lambda line: line.box.y0)]


@pytest.mark.slow
@needs_ocr
@pytest.mark.parametrize(
    ("flags", "networks"),
    [
        ("avx512_vnni", [(2 * len(quantizing.RANGES), "f32")]),  # the detector runs in onnxruntime
        ("avx512_vnni amx_bf16", [(0, "bf16")] * 2),
    ],
)
def test_runtimes_read_the_same_in_integers_only_without_amx(usable, monkeypatch, tmp_path, flags, networks):
    opened: list[tuple[int, str]] = []

    class Network(models._OpenVinoNetwork):
        def __init__(self, core, network, precision):
            rounded = sum(layer.get_type_name() == "FakeQuantize" for layer in network.get_ordered_ops())
            opened.append((rounded, precision))
            super().__init__(core, network, precision)

    monkeypatch.setattr(models, "_OpenVinoNetwork", Network)
    set_flags(flags, monkeypatch, tmp_path)
    assert texts() == LINES
    assert opened == networks


def test_the_telemetry_of_openvino_is_not_imported(usable):
    code = _FLAGS + "sys.exit(any('telemetry' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@needs_ocr
def test_a_network_that_openvino_cannot_load_runs_in_onnxruntime(monkeypatch):
    class Core:
        def read_model(self, model):
            raise RuntimeError("unsupported operation")

    monkeypatch.setattr(models, "_openvino", Core)
    assert texts() == LINES


def test_a_damaged_installation_leaves_onnxruntime(tmp_path):
    (tmp_path / "openvino.py").write_text("raise ImportError('libopenvino.so is missing')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); " + _FLAGS.removeprefix("import sys; ")
    code += "print(models._openvino(), sys.modules.get('openvino'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"


@pytest.mark.parametrize(
    ("flags", "amx", "profits"),
    [("amx_bf16 avx512_vnni", True, True), ("avx512_bf16 avx512_vnni", False, True), ("avx512_bf16", False, False)],
)
def test_openvino_is_used_only_where_it_saves_time(monkeypatch, tmp_path, flags, amx, profits):
    set_flags(flags, monkeypatch, tmp_path)
    assert (models.has_amx(), models.profits_from_openvino()) == (amx, profits)
    assert profits or models._openvino() is None
    monkeypatch.setattr(models, "_CPU_INFO", tmp_path / "missing")  # not Linux
    assert not models.profits_from_openvino()


def test_doctor_names_openvino_only_where_it_saves_time(monkeypatch):
    monkeypatch.setattr(checks, "package_version", lambda package: None)
    monkeypatch.setattr(parts, "profits_from_openvino", lambda: False)
    assert (parts.openvino().state, parts.openvino().fix) == (State.MISSING, "")
    monkeypatch.setattr(parts, "profits_from_openvino", lambda: True)
    assert "openvino" in parts.openvino().fix
    monkeypatch.setattr(checks, "package_version", lambda package: "2026.4.1")
    assert parts.openvino().state is State.WORKS
