"""The documentation: Python blocks run, quoted messages exist, and the reference has every setting and command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from llm_ocr.cli.commands import COMMANDS
from llm_ocr.config.fields import all_names

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("**/*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_in_the_documentation_compiles(page):
    for block in blocks(page, "python"):
        compile(block, str(page), "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, as in notebooks


@pytest.mark.slow
def test_the_guide_to_stages_runs_as_written(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (code,) = blocks(ROOT / "docs/guides/extending.md", "python")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)
    assert "THE ARLEN RISES" in (tmp_path / "out/documents/paper.pdf.md").read_text(encoding="utf-8")


def test_messages_in_the_troubleshooting_exist():
    package = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "llm_ocr").rglob("*.py"))
    rows = [line for line in (ROOT / "docs/troubleshooting.md").read_text().splitlines() if line.startswith("| `")]
    messages = [row.split("`")[1] for row in rows]
    assert len(messages) >= 5 and [message for message in messages if message not in package] == []


@pytest.fixture(scope="module")
def reference():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import reference
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return reference


def test_the_reference_has_every_setting_and_command(reference):
    settings = re.findall(r"^## (\w+)$", reference.settings_page(), re.MULTILINE)
    assert settings == sorted(all_names())
    assert re.findall(r"^## ([\w-]+)$", reference.commands_page(), re.MULTILINE) == [one.name for one in COMMANDS]
    assert "`document_final_markdown`" in reference.columns_page()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/reference/settings.html").stat().st_size > 100_000
