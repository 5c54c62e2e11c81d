"""llm-ocr doctor: what works on this machine, what is missing and the command that brings it."""

import json
from dataclasses import asdict

from llm_ocr.cli.checks import Check, State, all_checks
from llm_ocr.cli.output import write_line
from llm_ocr.settings.models import DoctorSettings

_MARKS = {State.WORKS: "ok", State.LIMITED: "note", State.MISSING: "missing", State.BROKEN: "broken"}


def run_doctor(command: str, settings: DoctorSettings) -> int:
    """Print the checks; returns 0 when the embedded engine works here, else 1."""
    checks = all_checks()
    works = engine_works(checks)
    if settings.json_output:
        report = {"embedded_engine": works, "checks": [asdict(check) for check in checks]}
        write_line(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        if not settings.quiet:
            write_line(table(checks))
        write_line(verdict(checks))
    return 0 if works else 1


def engine_works(checks: list[Check]) -> bool:
    """Whether everything that the embedded engine needs is there."""
    return all(check.state in (State.WORKS, State.LIMITED) for check in checks if check.needed)


def verdict(checks: list[Check]) -> str:
    """The last line."""
    if engine_works(checks):
        return "The embedded engine works here: llm-ocr demo"
    lacking = [check for check in checks if check.needed and check.state not in (State.WORKS, State.LIMITED)]
    fixes = list(dict.fromkeys(check.fix for check in lacking if check.fix))
    names = ", ".join(check.name for check in lacking)
    return f"The embedded engine does not work here: {names}." + (f" Do: {'; '.join(fixes)}" if fixes else "")


def table(checks: list[Check]) -> str:
    """One line a check, and below it what to do."""
    width = max(len(check.name) for check in checks)
    mark = max(len(text) for text in _MARKS.values())
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.state]:<{mark}}  {check.name:<{width}}  {check.detail}".rstrip())
        if check.fix and check.state is not State.WORKS:
            lines.append(f"{'':<{mark}}  {'':<{width}}  -> {check.fix}")
    return "\n".join(lines)
