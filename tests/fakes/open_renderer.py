"""Renderer without the restrictions by the kernel, for comparison (`benchmarks/isolation.py`)."""

import runpy

from llm_ocr.sandbox import worker
from llm_ocr.sandbox.confinement import Confinement, Protections


def _keep_all(confinement: Confinement) -> Protections:
    return Protections()


if __name__ == "__main__":
    worker.__dict__["confine"] = _keep_all
    runpy.run_module("llm_ocr.documents.renderer", run_name="__main__")
