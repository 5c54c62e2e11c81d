"""What a real vLLM makes of the way in which we start it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from llm_ocr.engines.vllm.command import IN_SERVER, ServeOptions
from llm_ocr.engines.vllm.server import VllmServer
from llm_ocr.models.profiles.markers import DEEPSEEK_OCR

_FACTORS = "import json, vllm.envs as envs; print(json.dumps(envs.compile_factors(), default=str, sort_keys=True))"


def python(vllm: Path, *words: str, environment: dict[str, str]) -> str:
    """What a program prints in vLLM's environment."""
    done = subprocess.run(
        [str(vllm.with_name("python")), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def factors(vllm: Path, environment: dict[str, str]) -> dict[str, object]:
    return json.loads(python(vllm, "-c", _FACTORS, environment=environment).splitlines()[-1])


def test_compile_factors_of_two_starts_are_equal(vllm, tiny_models):
    options = ServeOptions(command=(str(vllm),))
    first, second = (VllmServer(DEEPSEEK_OCR, options)._environment for _ in range(2))
    found = factors(vllm, first)
    assert found == factors(vllm, second)
    assert not any("KEY" in name and value for name, value in found.items())


@pytest.mark.parametrize("seed", [1, 2])
def test_the_ngram_processor_forbids_what_vllms_does(vllm, tiny_models, seed):
    program = Path(__file__).with_name("ngram_program.py")
    environment = {**os.environ, "PYTHONPATH": str(IN_SERVER), "VLLM_LOGGING_LEVEL": "ERROR"}
    said = python(vllm, str(program), str(seed), "400", environment=environment)
    assert "differences 0\n" in said
