"""The other programs of `agreement.py`: which package, at which version, and how it gets onto this machine."""

import re
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from peers_embedded import NotRun


@dataclass(frozen=True, slots=True)
class Program:
    """`needs` is what its post-processing imports: the package itself is installed without its dependencies."""

    package: str
    version: str
    licence: str
    reads: dict[str, str]  # format -> which of its functions
    needs: tuple[str, ...] = ()


PROGRAMS = (
    Program(
        "glmocr", "0.1.5", "Apache-2.0",
        {"glm": "ResultFormatter.format_ocr_result", "glm-regions": "ResultFormatter.process"},
        ("numpy", "pillow", "portalocker", "pydantic", "python-dotenv", "PyYAML", "requests", "tqdm"),
    ),
    Program("olmocr", "0.4.27", "Apache-2.0", {"olmocr": "FrontMatterParser"}, ("PyYAML",)),
    Program(
        "chandra-ocr", "0.2.0", "Apache-2.0 (code)", {"chandra": "parse_layout, parse_markdown"},
        ("beautifulsoup4", "markdownify==1.1.0", "pillow", "pydantic-settings", "python-dotenv", "six"),
    ),
    Program(
        "surya-ocr", "0.22.1", "Apache-2.0 (code)",
        {"surya": "parse_full_page_html", "surya-layout": "parse_layout"}, ("beautifulsoup4",),
    ),
    Program(
        "mineru-vl-utils", "2.0.7", "Apache-2.0",
        {"mineru-layout": "parse_layout_output", "otsl-mineru": "convert_otsl_to_html"},
        ("aiofiles", "httpx", "httpx-retries", "loguru", "pillow", "pydantic", "tqdm"),
    ),
    Program(
        "paddlex", "3.7.2", "Apache-2.0", {"otsl-paddle": "convert_otsl_to_html"}, ("numpy", "pillow", "pydantic"),
    ),
    Program(
        "docling-slim", "2.143.0", "MIT",
        {
            "dots": "parse_dots_json", "deepseek": "parse_deepseekocr_markdown",
            "unlimited": "parse_unlimited_ocr_markdown", "doctags": "docling-core's load_from_doctags",
        },
        ("docling-core==2.104.0", "lxml", "marko"),
    ),
)  # fmt: skip

#: What was to be compared and is not there.
MISSING = {
    "dots.ocr's own OutputCleaner": "no package of that name on the package index (dots-ocr, dots_ocr); docling's "
    "reader of its answers stands in",
    "DeepSeek-OCR's own scripts": "part of the model's repository, not a package; docling's reader stands in",
    "LightOnOCR's own tools": "no package of that name on the package index (lightonocr)",
    "Nanonets, HunyuanOCR, Nemotron Parse, Qwen-VL": "no package with a post-processor for their pages was found",
}


def install(program: Program, folder: Path) -> str:
    """The Python of the program's environment below `folder`, made if it is not there. Raises NotRun."""
    home = folder / f"{program.package}-{program.version}"
    python, done = home / "bin" / "python", home / "installed"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", f"{program.package}=={program.version}"])
        _run([*pip, *program.needs])
        done.touch()
    return str(python)


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        # The package index of one machine is nothing that a result should name.
        said = re.sub(r"\S+://\S+", "(address)", " ".join(ended.stderr.splitlines()[-2:]))
        raise NotRun(f"cannot be installed: {said[:300]}")
