"""llm-ocr doctor: what works on this machine, what is missing and the command that brings it."""

from collections.abc import Mapping
from dataclasses import asdict

from llm_ocr.cli.checks import Check, State, all_checks
from llm_ocr.cli.output import write_json, write_line
from llm_ocr.cli.platform_checks import platform_checks
from llm_ocr.settings.models import DoctorSettings

_MARKS = {State.WORKS: "ok", State.LIMITED: "note", State.MISSING: "missing", State.BROKEN: "broken"}


def run_doctor(command: str, settings: DoctorSettings) -> int:
    """Print the checks; returns 0 when the embedded engine works here, else 1. With `--image` the gates of an image.

    Raises `UsageError` for an unknown profile and an allowlist that cannot be used.
    """
    if settings.image is not None:
        return _run_image(settings, settings.image)
    checks = all_checks(confined=settings.confinement != "off") + platform_checks()
    works = engine_works(checks)
    _print(settings, {"embedded_engine": works}, checks, verdict(checks))
    return 0 if works else 1


def engine_works(checks: list[Check]) -> bool:
    """Whether everything that the embedded engine, or an image, needs is there."""
    return all(check.state in (State.WORKS, State.LIMITED) for check in checks if check.needed)


def verdict(checks: list[Check], image: str | None = None) -> str:
    """The last line; `image`: the model that an image is to serve."""
    if engine_works(checks):
        return f"This image can serve {image}." if image else "The embedded engine works here: llm-ocr demo"
    what = f"This image cannot serve {image}" if image else "The embedded engine does not work here"
    lacking = [check for check in checks if check.needed and check.state not in (State.WORKS, State.LIMITED)]
    fixes = list(dict.fromkeys(check.fix for check in lacking if check.fix))
    names = ", ".join(dict.fromkeys(check.name for check in lacking))
    return f"{what}: {names}." + (f" Do: {'; '.join(fixes)}" if fixes else "")


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


def _run_image(settings: DoctorSettings, name: str) -> int:
    from llm_ocr.api.models import named_model
    from llm_ocr.cli.image_checks import image_checks
    from llm_ocr.cli.image_edges import allowed_edges
    from llm_ocr.cli.image_site import Site

    profile = named_model(name, own_prompt=False).profile
    checks = image_checks(profile, allowed_edges(settings.allowed_edges), Site())
    passes = engine_works(checks)
    _print(settings, {"image": profile.name, "passes": passes}, checks, verdict(checks, profile.name))
    return 0 if passes else 1


def _print(settings: DoctorSettings, head: Mapping[str, object], checks: list[Check], last: str) -> None:
    if settings.json_output:
        report = {**head, "checks": [asdict(check) for check in checks]}
        write_json(report)
        return
    if not settings.quiet:
        write_line(table(checks))
    write_line(last)
