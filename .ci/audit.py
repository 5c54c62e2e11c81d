"""Known weaknesses of pinned packages: `audit.py CONSTRAINTS ALLOWED`. Runs pip-audit, installed beside it.

Exit code 1 for a finding that ALLOWED (TOML: `[[allowed]]` with `id`, `reason`, `until`) does not hold, or no longer.
Where the services that know weaknesses cannot be asked, or do not know a package, that is said and nothing fails: a
check that could not be made is no finding.
"""

import datetime
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

#: Asked one after the other, until one has answered for all packages. (pip-audit's names.)
SERVICES = ("pypi", "osv")


def main(constraints: Path, allowed_file: Path, services: tuple[str, ...] = SERVICES) -> int:
    """Print what was found and what was not proven; returns the exit code."""
    passed = allowed(tomllib.loads(allowed_file.read_text()), datetime.date.today())
    unproven = requirements(constraints.read_text())
    audited, found, trouble = len(unproven), [], ""
    for service in services:
        answers, words = asked(service, unproven)
        trouble = words or trouble
        known = [one for one in answers if "vulns" in one]
        found += [(one, weakness) for one in known for weakness in one["vulns"]]
        unproven -= {f"{one['name']}=={one['version']}" for one in known}
        if not unproven:
            break
    open_findings = [(one, weakness) for one, weakness in found if not passed & names(weakness)]
    for one, weakness in open_findings:
        fix = ", ".join(weakness.get("fix_versions", [])) or "none yet"
        print(f"audit: {one['name']} {one['version']}: {weakness['id']} (fixed in: {fix})")
    if unproven:
        print(
            f"not proven here: audit of {len(unproven)} of {audited} packages ({trouble or 'not known to the service'})"
        )
    print(
        f"audit: {audited - len(unproven)} packages, {len(found)} findings, {len(found) - len(open_findings)} allowed"
    )
    return 1 if open_findings else 0


def requirements(text: str) -> set[str]:
    """`name==version` of each line, for whatever system it is meant."""
    lines = (line.partition(";")[0].partition("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line}


def allowed(table: dict, today: datetime.date) -> set[str]:
    """The findings that stand on this day. Each needs a reason and a date until which it stands."""
    entries = table.get("allowed", [])
    for entry in entries:
        if not (entry.get("reason") and isinstance(entry.get("until"), datetime.date)):
            sys.exit(f"audit: {entry.get('id', 'an entry')} needs a reason and a date (until = 2030-01-31)")
    return {entry["id"] for entry in entries if entry["until"] >= today}


def names(weakness: dict) -> set[str]:
    """All names of a finding."""
    return {weakness["id"], *weakness.get("aliases", [])}


def asked(service: str, wanted: set[str]) -> tuple[list[dict], str]:
    """pip-audit's answer for each package, and what went wrong."""
    answers: list[dict] = []
    trouble = ""
    rest = sorted(wanted)
    while rest:  # a package that stands twice, for two Pythons, needs two questions
        once = {line.partition("==")[0]: line for line in reversed(rest)}
        rest = [line for line in rest if line not in once.values()]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(once.values()) + "\n")
            file.flush()
            words = ["-r", file.name, "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
            command = [sys.executable, "-m", "pip_audit", *words, "--vulnerability-service", service, "--timeout", "20"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            answers += json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            said = done.stderr.strip().splitlines() or [f"pip-audit ended with code {done.returncode}"]
            trouble = f"{service}: {said[-1][:200]}"
    return answers, trouble


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
