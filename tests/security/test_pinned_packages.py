"""What `make` installs is pinned for all systems; a finding of the audit fails it, unless allowed for a while."""

import datetime
import importlib.util
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

SYSTEMS = [
    {
        "sys_platform": system,
        "platform_system": name,
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    for system, name, machine in [
        ("linux", "Linux", "x86_64"),
        ("linux", "Linux", "aarch64"),
        ("darwin", "Darwin", "arm64"),
    ]
]
PYTHONS = [{"python_version": version, "python_full_version": f"{version}.6"} for version in ("3.11", "3.12", "3.13")]
PLACES = [system | python for system in SYSTEMS for python in PYTHONS]


@pytest.fixture(scope="module")
def pins(repository) -> list[Requirement]:
    lines = (repository / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def audit(repository):
    spec = importlib.util.spec_from_file_location("audit_of_packages", repository / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pinned_at(pins: list[Requirement], place: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pin in pins:
        if pin.marker is None or pin.marker.evaluate(place):
            found.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier))
    return found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place['sys_platform']}-{place['python_version']}")
def test_each_system_pins_one_exact_version_per_project_package(pins, place, repository):
    found = pinned_at(pins, place)
    assert all(len(versions) == 1 and re.fullmatch(r"==[\w.]+", versions[0]) for versions in found.values())
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for line in [*project["dependencies"], *extras["embedded"], *extras["dev"]]:
        wanted = Requirement(line)
        (version,) = found[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(Version(version.removeprefix("=="))), line


def test_the_pins_name_no_place(repository):
    text = (repository / "constraints.txt").read_text()
    assert not re.search(r"://|file:|--|/\w+/", text)


def test_the_installing_commands_use_the_pins(repository):
    text = (repository / "Makefile").read_text()
    lines = [line for line in text.splitlines() if "pip install" in line and "--editable" in line]
    assert len(lines) == 2 and all("--constraint constraints.txt" in line for line in lines)


PIP_AUDIT = """
import json, pathlib, sys
arguments = sys.argv[1:]
lines = pathlib.Path(arguments[arguments.index("-r") + 1]).read_text().split()
service = arguments[arguments.index("--vulnerability-service") + 1]
answers = {answers!r}[service]
if isinstance(answers, str):
    sys.exit(answers)
print(json.dumps({{"dependencies": [
    {{"name": name, "version": version, **answers.get(name, {{"vulns": []}})}} for name, version in
    (line.split("==") for line in lines)]}}))
sys.exit(any(answers.get(line.split("==")[0], {{}}).get("vulns") for line in lines))
"""
WEAK = {"vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.0"]}]}
UNKNOWN = {"skip_reason": "not found"}


@pytest.mark.parametrize(
    ("pypi", "osv", "allowed", "code", "said"),
    [
        ({}, {}, "", 0, "audit: 3 packages, 0 findings"),
        ({"weak": WEAK}, {}, "", 1, "weak 1.0: PYSEC-1 (fixed in: 2.0)"),
        ({"weak": UNKNOWN}, {"weak": WEAK}, "", 1, "weak 1.0: PYSEC-1"),
        (
            "no network",
            "no network either",
            "",
            0,
            "not proven here: audit of 3 of 3 packages (osv: no network either)",
        ),
        ({"weak": UNKNOWN}, {"weak": UNKNOWN}, "", 0, "not proven here: audit of 1 of 3 packages"),
        ({"weak": WEAK}, {}, "2999-01-01", 0, "1 findings, 1 allowed"),
        ({"weak": WEAK}, {}, "2001-01-01", 1, "PYSEC-1"),
    ],
)
def test_finding_fails_unless_allowed_and_failed_query_is_shown(
    audit, tmp_path, monkeypatch, capsys, pypi, osv, allowed, code, said
):
    (tmp_path / "pip_audit.py").write_text(PIP_AUDIT.format(answers={"pypi": pypi, "osv": osv}))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pins, list_ = tmp_path / "pins.txt", tmp_path / "allowed.toml"
    pins.write_text("# a comment\nweak==1.0\ntwice==1.0 ; python_version < '3'\ntwice==2.0 ; python_version > '3'\n")
    list_.write_text(f'[[allowed]]\nid = "CVE-1"\nreason = "not called"\nuntil = {allowed}\n' if allowed else "")
    assert audit.main(pins, list_) == code
    assert said in capsys.readouterr().out


def test_what_is_allowed_has_a_reason_and_a_date(audit, repository):
    today = datetime.date.today()
    audit.allowed(tomllib.loads((repository / ".ci" / "audit-allowed.toml").read_text()), today)
    with pytest.raises(SystemExit, match="needs a reason and a date"):
        audit.allowed({"allowed": [{"id": "CVE-1", "reason": "because"}]}, today)


def test_the_audit_is_part_of_what_must_pass(repository):
    assert "make audit" in (repository / ".ci" / "run").read_text()
    assert "make audit" in (repository / ".github/workflows/audit.yml").read_text()
