"""OpenVINO reads scans as onnxruntime does, is used only on processors with AMX, and sends no telemetry."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ocr_pages import needs_ocr
from PIL import Image, ImageDraw, ImageFont

from llm_ocr.cli import doctor
from llm_ocr.cli.doctor import State
from llm_ocr.engines.embedded.ocr import Recogniser, models

_FLAGS = "import sys; from llm_ocr.engines.embedded.ocr import models; models.has_amx = lambda: True; "
_FLAGS += "models._openvino(); "


@pytest.fixture(scope="module")
def usable():
    code = _FLAGS + "sys.exit(models._openvino() is None)"
    if subprocess.run([sys.executable, "-c", code], check=False).returncode:
        pytest.skip("OpenVINO is not installed")


@pytest.fixture(autouse=True)
def undecided():
    models._openvino.cache_clear()
    yield
    models._openvino.cache_clear()


def page() -> np.ndarray:
    image = Image.new("RGB", (1000, 400), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(28)
    for row, text in enumerate(("The river rose again in March", "Table 7: 1,423 readings", "Signed: M. Hollins")):
        draw.text((40, 60 + 110 * row), text, "black", font)
    return np.asarray(image)


def texts() -> list[str]:
    with ThreadPoolExecutor(1) as thread:  # networks belong to one thread
        lines = thread.submit(lambda: Recogniser().read(page()).lines).result()
    return [line.text for line in sorted(lines, key=lambda line: line.box.y0)]


@needs_ocr
def test_both_runtimes_read_the_same(usable, monkeypatch):
    monkeypatch.setattr(models, "has_amx", lambda: True)
    with_openvino = texts()
    monkeypatch.setattr(models, "_openvino", lambda: None)
    assert with_openvino == texts()
    assert with_openvino == ["The river rose again in March", "Table 7: 1,423 readings", "Signed: M. Hollins"]


def test_the_telemetry_of_openvino_is_not_imported(usable):
    code = _FLAGS + "sys.exit(any('telemetry' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_ocr
def test_a_network_that_openvino_cannot_load_runs_in_onnxruntime(monkeypatch):
    class Core:
        def read_model(self, model):
            raise RuntimeError("unsupported operation")

    monkeypatch.setattr(models, "_openvino", Core)
    assert texts()[0] == "The river rose again in March"


def test_a_damaged_installation_leaves_onnxruntime(tmp_path):
    (tmp_path / "openvino.py").write_text("raise ImportError('libopenvino.so is missing')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); " + _FLAGS.removeprefix("import sys; ")
    code += "print(models._openvino(), sys.modules.get('openvino'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"


@pytest.mark.parametrize(
    ("flags", "amx"), [("avx512_bf16 amx_bf16 amx_tile", True), ("avx512_bf16 avx512_vnni", False)]
)
def test_openvino_is_used_only_on_processors_with_amx(monkeypatch, tmp_path, flags, amx):
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags} sse2\n")
    monkeypatch.setattr(models, "_CPU_INFO", tmp_path / "cpuinfo")
    assert models.has_amx() is amx
    assert amx or models._openvino() is None
    monkeypatch.setattr(models, "_CPU_INFO", tmp_path / "missing")  # not Linux
    assert not models.has_amx()


def test_doctor_names_openvino_only_where_it_saves_time(monkeypatch):
    monkeypatch.setattr(doctor, "package_version", lambda package: None)
    monkeypatch.setattr(doctor, "has_amx", lambda: False)
    assert (doctor.openvino().state, doctor.openvino().fix) == (State.MISSING, "")
    monkeypatch.setattr(doctor, "has_amx", lambda: True)
    assert "openvino" in doctor.openvino().fix
    monkeypatch.setattr(doctor, "package_version", lambda package: "2026.4.1")
    assert doctor.openvino().state is State.WORKS
