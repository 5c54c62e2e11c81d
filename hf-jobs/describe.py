# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = []
#
# [tool.hf-jobs]
# image = "vllm/vllm-openai:v0.33.0"
# flavor = "l40sx1"
# timeout = "3h"
# secrets = ["HF_TOKEN"]
# ///
"""Run Describe as one job: figures to descriptions.

The flags are those of `llm-ocr describe`. `hf jobs uv run --with` brings the library: README.md in this folder.
"""

import sys
from importlib.util import find_spec

if find_spec("llm_ocr") is None:
    print("The library is not installed in this job. Add its wheel to the flags of `hf jobs uv run`:", file=sys.stderr)
    print("--volume ./dist:/wheels --with /wheels/llm_ocr-VERSION-py3-none-any.whl", file=sys.stderr)
    sys.exit(2)

from llm_ocr.stages.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["describe", *sys.argv[1:]]))
