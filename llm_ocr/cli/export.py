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
    files = f"{done.files:,} file{'' if done.files == 1 else 's'}"
    unit = done.unit.removesuffix("s") if done.rows == 1 else done.unit
    write_line(f"{done.rows:,} {unit} in {files} ({done.size / 1e6:,.1f} MB, {done.written:,} written now): {done.url}")
    if done.dropped:
        documents = f"{done.dropped:,} document{'' if done.dropped == 1 else 's'}"
        write_line(f"{documents} with too many bad pages left out: {done.url}/dropped-documents.jsonl")
    write_line(f"Open it: {done.load}")
    return 0
