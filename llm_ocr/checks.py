"""Check the parts of an installation for `llm-ocr doctor`. A check tries the real thing, such as an import."""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Result of a check."""

    WORKS = "works"
    LIMITED = "limited"  # works, with a limit that the user should know
    MISSING = "missing"
    BROKEN = "broken"  # installed, but fails


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. `needed`: the embedded engine does not work without this part."""

    name: str
    state: State
    detail: str
    fix: str = ""
    needed: bool = False


def tried(name: str, packages: tuple[str, ...], use: str, attempt: Callable[[], str], fix: str) -> Check:
    """Check a needed part: its packages are installed, and the attempt succeeds. The attempt may return a remark."""
    versions = {package: package_version(package) for package in packages}
    lacking = [package for package, version in versions.items() if version is None]
    if lacking:
        return Check(name, State.MISSING, f"{', '.join(lacking)} not installed: {use}", fix, needed=True)
    try:
        remark = attempt()
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Check(name, State.BROKEN, f"installed, but fails: {reason}", fix, needed=True)
    text = ", ".join(f"{package} {version}" for package, version in versions.items())
    if remark:
        return Check(name, State.LIMITED, f"{text}, {remark}", fix, needed=True)
    return Check(name, State.WORKS, f"{text}: {use}", needed=True)


def optional(name: str, package: str, use: str, fix: str) -> Check:
    """Check an optional part: its package is installed."""
    version = package_version(package)
    if version is None:
        return Check(name, State.MISSING, f"optional: {use}", fix)
    return Check(name, State.WORKS, f"{version}: {use}")


def package_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
