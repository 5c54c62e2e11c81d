"""llm-ocr report: one HTML page about a run."""

from llm_ocr.cli.output import write_line
from llm_ocr.settings.models import ReportSettings


def run_report(command: str, settings: ReportSettings) -> int:
    """Write the page and say where it is; returns 0 whatever failed in the run."""
    from llm_ocr.api.reporting import write_report
    from llm_ocr.work.stored import workspace_options
    from llm_ocr.work.workspace import Workspace

    with Workspace.open(settings.workspace, options=workspace_options(settings)) as workspace:
        done = write_report(workspace, settings.output)
    write_line(f"Report: {done.path} ({done.size / 1e3:,.0f} kB; open it in a browser)")
    return 0
