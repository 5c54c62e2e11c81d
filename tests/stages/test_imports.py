"""Importing a stage loads only what that stage runs."""

import subprocess
import sys

#: Imported only by the commands that need them: a Ray cluster, the predecessor's datasets, exports.
_ON_DEMAND = ("llm_ocr.stages.ray", "llm_ocr.compat", "llm_ocr_outputs")


def _loaded(module: str) -> list[str]:
    code = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith('llm_ocr')))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_stages_load_neither_ray_nor_the_importer_nor_exports():
    loaded = _loaded("llm_ocr.stages.execute")  # which runs all of them
    assert "llm_ocr.stages.extract" in loaded
    assert [name for name in loaded if name.startswith(_ON_DEMAND)] == []


def test_extract_loads_at_most_150_modules():
    assert len(_loaded("llm_ocr.stages.extract")) <= 150
