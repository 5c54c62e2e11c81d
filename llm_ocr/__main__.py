"""`python -m llm_ocr`: the console program; without a command it runs the stage that PIPELINE_STAGE names."""

import sys

from llm_ocr.cli.module import main

if __name__ == "__main__":
    sys.exit(main())
