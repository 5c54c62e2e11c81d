"""MkDocs hook: pages made from the code, and the READMEs of platforms as pages of the site.

MkDocs calls `on_files` once and `on_page_markdown` for each page, see its documentation of hooks.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from llm_ocr.cli.commands import BY_NAME, COMMANDS
from llm_ocr.cli.flags import groups_of
from llm_ocr.config import models
from llm_ocr.config.fields import Setting, command_models, settings_of
from llm_ocr.models.registry import DEFAULT, PROFILES
from llm_ocr.results.dataset import dataset_schema

ROOT = Path(__file__).resolve().parent.parent
PLATFORMS = ("hf-jobs", "sagemaker", "google-cloud-run", "modal-app", "runpod-serverless", "kubernetes-jobs")
#: Files of the repository that are pages of the site.
PAGES = {
    **{f"{name}/README.md": f"platforms/{name}.md" for name in PLATFORMS},
    "ARCHITECTURE.md": "explanation/architecture.md",
    "SECURITY.md": "explanation/security.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    made = {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/columns.md": columns_page(),
        "reference/models.md": models_page(),
        "reference/python.md": python_page(),
        **{page: (ROOT / source).read_text(encoding="utf-8") for source, page in PAGES.items()},
    }
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links between files of the repository to pages of the site; other files are named without a link."""
    here = page.file.src_uri
    of = next((source for source, made in PAGES.items() if made == here), f"docs/{here}")

    def replaced(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(of), match[2]))
        target = f"{target}/README.md" if (ROOT / target / "README.md").is_file() else target
        place = PAGES.get(target, target.removeprefix("docs/") if target.startswith("docs/") else "")
        if not (ROOT / target).exists() and not target.startswith("docs/reference/"):
            return match[0]  # a broken link, which the strict build reports
        if files.get_file_from_path(place) is None:
            return f"`{target}`" if match[1].strip("`/") in target else f"{match[1]} (`{target}`)"
        return f"[{match[1]}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{match[3] or ''})"

    return _LINK.sub(replaced, markdown)


def commands_page() -> str:
    """Return every command with its usage, examples, and settings by group."""
    parts = ["# Commands", "Each flag has a keyword of the Python API and a variable, see [Settings](settings.md)."]
    for command in COMMANDS:
        parts += [f"## {command.name}", f"{command.summary}.", f"```\nllm-ocr {command.usage}\n```"]
        parts.append("\n".join(f"- `{typed}`: {meaning}" for typed, meaning in command.examples))
        for title, members in groups_of(vars(models)[command.model]):
            names = ", ".join(f"[`{_typed(setting)}`](settings.md#{setting.name})" for setting in members)
            parts.append(f"**{title}:** {names}")
    parts += ["## Exit codes", (ROOT / "docs/guides/failures.md").read_text(encoding="utf-8").partition("| exit")[2]]
    parts[-1] = "| exit" + parts[-1].partition("\n\n")[0]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Return every setting once, with its flag, variable, keyword, values, default, and commands."""
    found: dict[str, tuple[Setting, list[str]]] = {}
    for model in command_models():
        name = (model.__doc__ or "").split(":")[0].removeprefix("llm-ocr ")
        for setting in settings_of(model).values():
            found.setdefault(setting.name, (setting, []))[1].append(name)
    parts = [
        "# Settings",
        "Precedence: flags, environment, `.env`, `--config FILE`, the workspace, the default. "
        "`--show-settings` prints each value and its origin.",
    ]
    for name, (setting, commands) in sorted(found.items()):
        rows = [
            ("Flag", f"`{_typed(setting)}`"),
            ("Variable", f"`{setting.variable}`"),
            ("Keyword", f"`{name}`" + (" (list)" if setting.many else "")),
            ("Value", setting.allowed),
            *([] if setting.default in (None, ()) else [("Default", f"`{setting.default}`")]),
            ("Commands", ", ".join(f"[{one}](commands.md#{one})" if one in BY_NAME else one for one in commands)),
        ]
        table = "\n".join(f"| {title} | {_cell(value)} |" for title, value in rows)
        parts += [f"## {name}", f"{setting.description}.", f"| | |\n|---|---|\n{table}"]
    return "\n\n".join(parts) + "\n"


def columns_page() -> str:
    """Return the columns of the dataset, with their types."""
    schema = dataset_schema()
    rows = "\n".join(f"| `{field.name}` | `{_cell(str(field.type))}` |" for field in schema)
    text = (
        "One row is one page; failed pages are rows, too. [Results](../guides/results.md) describes the columns. "
        "The fields of `export --format json` are in `llm_ocr/exports/document.schema.json`."
    )
    return f"# Columns of the dataset\n\n{text}\n\n| Column | Type |\n|---|---|\n{rows}\n"


def models_page() -> str:
    """Return the known models."""
    head = "| Model | Weights | License | Parameters (billions) |\n|---|---|---|---|"
    rows = "\n".join(
        f"| `{one.name}`{' (default)' if one.name == DEFAULT else ''} | `{one.model}` "
        f"| {_cell(one.licence or 'not stated')} | {one.parameters or '-'} |"
        for one in PROFILES
    )
    text = "`llm-ocr models NAME` shows prompts, scores, sources, and the `vllm serve` command."
    return f"# Models\n\n{text}\n\n{head}\n{rows}\n"


def python_page() -> str:
    """Return the public Python API, described by mkdocstrings."""
    return "# Python API\n\n" + "\n\n".join(f"::: {place}" for place in _public()) + "\n"


def _public() -> Iterator[str]:
    for name in ("run", "plan", "extract", "describe", "assemble", "retry_failed", "transform", "export", "view"):
        yield f"llm_ocr.api.{name}"
    yield from ("llm_ocr.api.read_page", "llm_ocr.estimating.estimate", "llm_ocr.launch.calls.submit")
    yield from ("llm_ocr.runs.open", "llm_ocr.runs.Run", "llm_ocr.types.PageRecord", "llm_ocr.display")
    yield "llm_ocr.errors"


def _typed(setting: Setting) -> str:
    if setting.positional:
        return setting.metavar
    return setting.flag if setting.kind is bool else f"{setting.flag} {setting.metavar}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
