# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["llm-ocr[vllm]==0.1.0"]
#
# [tool.hf-jobs]
# flavor = "l40sx1"
# timeout = "3h"
# secrets = ["HF_TOKEN"]
# ///
"""Describe as one job: figures to descriptions. It takes the flags of `llm-ocr describe`."""

import sys

from llm_ocr.stages.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["describe", *sys.argv[1:]]))
