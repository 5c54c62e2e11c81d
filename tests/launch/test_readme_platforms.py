"""The lines of the guide's table of platforms: each is a command that plans."""

import json
import re
import shlex

import pytest
from running import REPOSITORY, cli, said

from llm_ocr.plugins import PLATFORMS

TABLE = (REPOSITORY / "docs/guides/rented-gpus.md").read_text()
LINES = re.findall(r"`llm-ocr (launch [^`]+)`", TABLE)
FOLDERS = re.findall(r"\]\(\.\./\.\./([a-z-]+)/README\.md\)", TABLE)


def test_every_platform_has_its_row_and_its_folder():
    rows = re.findall(r"^\| `([a-z-]+)` \|", TABLE, re.MULTILINE)
    assert sorted(rows) == sorted(PLATFORMS.names())
    assert len(LINES) + len(FOLDERS) == len(PLATFORMS.names())


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_readmes_of_platforms_have_the_same_headings(folder):
    text = (REPOSITORY / folder / "README.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Needs", "Run", "Watch", "Cost", "Clean up"]


def test_hints_lead_to_pages_that_say_how():
    """`Mirror the image there (sagemaker/README.md)`: the page exists, and its text has the verb."""
    found = 0
    core, package = REPOSITORY / "llm_ocr" / "launch", REPOSITORY / "packages" / "platforms" / "llm_ocr_platforms"
    for source in (*core.rglob("*.py"), *package.rglob("*.py")):
        for page in re.findall(r"[\w/-]+/[\w-]+\.md\b", source.read_text()):
            if page.partition("/")[0] in ("docs", *FOLDERS, "docker"):
                assert (REPOSITORY / page).is_file(), f"{source.name} names {page}"
        for verb, page in re.findall(
            r"(Mirror|Create|Build|Deploy)\b[^.]*?\(([\w-]+/README\.md)\)", source.read_text()
        ):
            said_there = re.search(rf"\b{verb}\b", (REPOSITORY / page).read_text(), re.IGNORECASE)
            assert said_there, f"{source.name}: {page} does not say how to {verb}"
            found += 1
    assert found >= 5


@pytest.mark.parametrize("line", LINES)
def test_its_command_plans(line, tmp_path):
    words = [word for word in shlex.split(line) if word not in ("--wait", "--dry-run")]
    words = [str(REPOSITORY / word) if word == "examples/" else word for word in words]
    run = cli(*words, "--dry-run", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    assert json.loads(run.stdout)[0]["requests"]
