# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["llm-ocr==0.1.0"]
#
# [tool.hf-jobs]
# flavor = "cpu-upgrade"
# timeout = "3h"
# secrets = ["HF_TOKEN"]
# ///
"""Assemble as one job: pages and descriptions to Markdown and a dataset. It takes the flags of `llm-ocr assemble`."""

import sys

from llm_ocr.stages.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["assemble", *sys.argv[1:]]))
