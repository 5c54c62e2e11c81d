"""Installs packages into an image without changing what is installed there; fails when that cannot be done.

    python3 install.py [--dry-run] [--extras EXTRA,...] REQUIREMENT...

Every installed version becomes a constraint for pip, and what was there is compared before and after: versions, and
files that another package wrote over. Extras are added to each requirement. Standard library only: it runs before
anything else of ours is there. Exit codes: 0 installed, 1 something would change or did, 2 wrong usage.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

#: Versions that pip takes as a constraint; system packages may have others, which only the comparison guards.
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?(\+[A-Za-z0-9.]+)?")


@dataclass(frozen=True)
class Installed:
    """What is installed: versions by name, and for each recorded file the packages that wrote it, with its hash."""

    versions: dict[str, str]
    files: dict[Path, dict[str, str]]


def installed() -> Installed:
    """What this Python would import; the first distribution of a name counts."""
    versions: dict[str, str] = {}
    files: dict[Path, dict[str, str]] = {}
    for one in distributions():
        name = re.sub(r"[-_.]+", "-", one.metadata["Name"] or "").lower()
        if name and name not in versions:
            versions[name] = one.version
            for place, digest in _recorded(one):
                files.setdefault(place, {})[name] = digest
    return Installed(versions, files)


def constraints(before: Installed) -> list[str]:
    """A line for each installed version."""
    pairs = sorted(before.versions.items())
    return [f"{name}=={version}" for name, version in pairs if _VERSION.fullmatch(version)]


def differences(before: Installed, after: Installed) -> list[str]:
    """What of `before` is not there any more as it was, a sentence each."""
    found = []
    for name, version in sorted(before.versions.items()):
        now = after.versions.get(name)
        if now != version:
            found.append(f"{name} was {version} and is {now or 'gone'}")
    for place, owners in sorted(before.files.items()):
        others = after.files.get(place, {})
        for name in sorted(others.keys() - owners.keys()):
            if others[name] not in owners.values():  # the same content in both does no harm
                found.append(f"{place} of {', '.join(sorted(owners))} was written over by {name}")
    return found


def install(requirements: Sequence[str], *, dry_run: bool = False) -> int:
    """Install, or only find out whether it would work; the exit code."""
    before = installed()
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder, "constraints.txt")
        limits.write_text("".join(f"{line}\n" for line in constraints(before)))
        words = ["--no-cache-dir", "--disable-pip-version-check", "--constraint", str(limits), *requirements]
        pip = [sys.executable, "-m", "pip", "install", *(["--dry-run"] if dry_run else []), *words]
        failed = subprocess.run(pip, check=False).returncode
    if failed:
        _say("Nothing was installed: see above what does not fit the versions of this image.")
        return 1
    if dry_run:
        return 0
    changed = differences(before, installed())
    for line in changed:
        _say(f"changed: {line}")
    if not changed:
        _say(f"{len(before.versions)} packages are as they were.")
    return 1 if changed else 0


def with_extras(requirement: str, extras: str) -> str:
    """`x.whl` as `x.whl[a,b]`."""
    return f"{requirement}[{extras}]" if extras else requirement


def main(words: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="install.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="only find out whether it would work")
    parser.add_argument("--extras", default="", help="of each requirement, with commas")
    parser.add_argument("requirements", nargs="+", metavar="REQUIREMENT")
    asked = parser.parse_args(words)
    return install([with_extras(one, asked.extras) for one in asked.requirements], dry_run=asked.dry_run)


def _recorded(one: Distribution) -> Iterator[tuple[Path, str]]:
    """The files of a distribution with their hashes; scripts and caches of bytecode have none."""
    text = one.read_text("RECORD") or ""
    for row in csv.reader(text.splitlines()):
        if len(row) == 3 and row[1]:
            yield Path(str(one.locate_file(row[0]))), row[1]


def _say(line: str) -> None:
    sys.stderr.write(f"install.py: {line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
