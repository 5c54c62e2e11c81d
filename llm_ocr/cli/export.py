"""llm-ocr export: results in the form of what comes next."""

from llm_ocr.cli.output import write_line
from llm_ocr.cli.progress import progress_for
from llm_ocr.settings.models import ExportSettings


def run_export(command: str, settings: ExportSettings) -> int:
    """Write the results, and say where they are and how they are opened; returns 0."""
    from llm_ocr.api.exporting import export

    progress = progress_for(settings)
    try:
        done = export(settings, progress)
    finally:
        progress.close()
    files = f"{done.files} file{'' if done.files == 1 else 's'}"
    write_line(f"{done.rows:,} rows in {files} ({done.size / 1e6:,.1f} MB, {done.written} written now): {done.url}")
    write_line(f"Open it: {done.load}")
    return 0
