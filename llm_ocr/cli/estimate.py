"""llm-ocr estimate: what a run will take and cost."""

from typing import TYPE_CHECKING

from llm_ocr.cli.output import write_json, write_line
from llm_ocr.cli.progress import progress_for
from llm_ocr.settings.models import EstimateSettings

if TYPE_CHECKING:
    from llm_ocr.costs.comparison import Comparison


def run_estimate(command: str, settings: EstimateSettings) -> int:
    """Print the table, or JSON; returns 0."""
    from llm_ocr.api.cost_estimate import compared

    progress = progress_for(settings)
    try:
        found = compared(settings, progress)
    finally:
        progress.close()
    if settings.json_output:
        write_json(found.to_json())
    else:
        write_line(_text(found, settings))
    return 0


def _text(found: "Comparison", settings: EstimateSettings) -> str:
    from llm_ocr.costs.tables import money_text

    if found.stage or len(found.options) != 1 or found.options[0].cost is None:
        return str(found)
    money = money_text(found.options[0].cost.likely)
    ins = f"{settings.tokens_in or 0:,} tokens in at ${settings.price_in or 0:g}"
    outs = f"{settings.tokens_out or 0:,} out at ${settings.price_out or 0:g}"
    return f"{money} for {ins} and {outs} per million"
