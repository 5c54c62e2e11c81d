"""llm-ocr view: a static site of the results."""

from llm_ocr.cli.output import write_line
from llm_ocr.cli.progress import progress_for
from llm_ocr.settings.models import ViewSettings


def run_view(command: str, settings: ViewSettings) -> int:
    """Write the site, and say which file is to be opened; returns 0."""
    from llm_ocr.api.viewing import view

    progress = progress_for(settings)
    try:
        done = view(settings, progress)
    finally:
        progress.close()
    write_line(f"{done.pages:,} page{'' if done.pages == 1 else 's'}: open {done.index}")
    return 0
