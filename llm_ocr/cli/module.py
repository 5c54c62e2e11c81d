"""The command line of `python -m llm_ocr`: as the console program, and the predecessor's PIPELINE_STAGE."""

import sys
from collections.abc import Sequence

from llm_ocr import cli
from llm_ocr.cli.output import complain
from llm_ocr.settings.environment import environment

VARIABLE = "PIPELINE_STAGE"
STAGES = ("extract", "describe", "assemble")


def main(argv: Sequence[str] | None = None) -> int:
    """`llm-ocr` with these arguments; where they name no command, the stage in PIPELINE_STAGE comes first."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    stage = environment().get(VARIABLE, "").strip()
    if stage and _names_no_command(arguments):
        if stage.lower() not in STAGES:
            complain(f"{VARIABLE}={stage}: must be one of {', '.join(STAGES)}")
            return 2
        arguments.insert(0, stage.lower())
    return cli.main(arguments)


def _names_no_command(arguments: Sequence[str]) -> bool:
    return not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "-V", "--version"))
