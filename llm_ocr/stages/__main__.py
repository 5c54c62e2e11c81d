"""`python -m llm_ocr.stages extract ...` is `llm-ocr extract ...`; the one import upward (ARCHITECTURE.md)."""

import sys
from collections.abc import Sequence

from llm_ocr import cli
from llm_ocr.launch.bootstrap import use_cuda_compatibility


def main(argv: Sequence[str] | None = None) -> int:
    """Run a stage in a container; jobs whose image contains the library start here."""
    use_cuda_compatibility()
    return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main())
