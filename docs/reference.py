"""MkDocs hook: pages made from the code, and the READMEs of platforms as pages of the site.

MkDocs calls `on_files` once and `on_page_markdown` for each page, see its documentation of hooks.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import llm_ocr
from llm_ocr.cli.models import summary_of
from llm_ocr.config.commands import all_commands
from llm_ocr.config.fields import Setting, command_models, groups_of, settings_of
from llm_ocr.errors import LlmOcrError
from llm_ocr.models.registry import PROFILES
from llm_ocr.results.dataset import dataset_schema

ROOT = Path(__file__).resolve().parent.parent
PLATFORMS = ("hf-jobs", "sagemaker", "google-cloud-run", "modal-app", "runpod-serverless", "kubernetes-jobs")
#: Files of the repository that are pages of the site.
PAGES = {
    **{f"{name}/README.md": f"platforms/{name}.md" for name in PLATFORMS},
    "ARCHITECTURE.md": "explanation/architecture.md",
    "SECURITY.md": "explanation/security.md",
    "benchmarks/README.md": "explanation/repeat-benchmarks.md",
    "notebooks/README.md": "guides/notebooks.md",
    "examples/README.md": "explanation/examples.md",
    "CONTRIBUTING.md": "explanation/contributing.md",
}
#: Place of the table in the page about the quality score.
QUALITY = "<!-- table of benchmarks/results/quality.json -->"
LOSSES = "<!-- table of benchmarks/results/losses.json -->"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    made = {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/columns.md": columns_page(),
        "reference/json.md": json_page(),
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
    markdown = markdown.replace(QUALITY, quality_table()).replace(LOSSES, losses_table())
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
    parts = ["# Commands", _COMMANDS]
    for command in all_commands():
        parts += [f"## {command.name}", f"{command.summary}.", f"```\nllm-ocr {command.usage}\n```"]
        parts.append("\n".join(f"- `{typed}`: {meaning}" for typed, meaning in command.examples))
        for title, members in groups_of(command_models()[command.name]):
            names = ", ".join(f"[`{_typed(setting)}`](settings.md#{setting.name})" for setting in members)
            parts.append(f"**{title}:** {names}")
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Return every setting once, with its flag, variable, keyword, values, default, and commands."""
    found: dict[str, tuple[Setting, list[str]]] = {}
    # `estimate` comes last: it gives settings of `launch` another meaning.
    for name, model in sorted(command_models().items(), key=lambda one: one[0] == "estimate"):
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
            ("Commands", ", ".join(f"[{one}](commands.md#{one})" for one in commands)),
        ]
        table = "\n".join(f"| {title} | {_cell(value)} |" for title, value in rows)
        parts += [f"## {name}", f"{setting.description}.", f"| | |\n|---|---|\n{table}"]
    return "\n\n".join(parts) + "\n"


def columns_page() -> str:
    """Return the columns of the dataset, with their types and meanings."""
    rows = "\n".join(
        f"| `{field.name}` | {_cell(COLUMNS[field.name])} | `{_type(field.type)}` |" for field in dataset_schema()
    )
    return f"# Columns of the dataset\n\n{_DATASET}\n\n| Column | Meaning | Type |\n|---|---|---|\n{rows}\n"


def _type(kind: Any) -> str:
    """Return an Arrow type; the fields of a struct are named by the column's meaning."""
    text = re.sub(r"struct<bytes: binary, path: string>", "image", str(kind))
    return re.sub(r"<(?:item|element): ", "<", re.sub(r"struct<.*(?=>$)", "struct<…", text))


def json_page() -> str:
    """Return the schema of `export --format json` as one table per object, and the schema itself."""
    text = (ROOT / "packages/outputs/llm_ocr_outputs/exports/document.schema.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    parts = ["# JSON of a document", _JSON]
    for name, one in {"document file": schema, **schema["$defs"]}.items():
        about = f"{one['description']}\n\n" if "description" in one else ""
        rows = "\n".join(_fields(one))
        parts.append(f"## {name.capitalize()}\n\n{about}| Field | Type | Meaning |\n|---|---|---|\n{rows}")
    code = "\n".join(f"    {line}" for line in ("```json", *text.strip().splitlines(), "```"))
    parts.append(f'## Schema\n\n??? note "document.schema.json"\n\n{code}')
    return "\n\n".join(parts) + "\n"


def _fields(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, one in schema["properties"].items():
        optional = "" if name in schema.get("required", ()) else "Optional. "
        yield f"| `{prefix}{name}` | {_cell(_kind(one))} | {_cell(optional + one['description'])} |"
        inner = next((part for part in (one, *one.get("oneOf", ())) if "properties" in part), None)
        if inner:
            yield from _fields(inner, f"{prefix}{name}.")


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a JSON value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join("null" if one is None else f"`{one}`" for one in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(map(_kind, schema["oneOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    kind = schema.get("type", "any")
    return kind if isinstance(kind, str) else " or ".join(kind)


def quality_table() -> str:
    """Return the share of injected faults that the quality score finds, from the results of `benchmarks/quality.py`."""
    results = json.loads((ROOT / "benchmarks/results/quality.json").read_text(encoding="utf-8"))
    settings = results["settings"]
    rows = [
        f"| {fault} | " + " | ".join(f"{100 * one['found'][fault]:.0f} %" for one in settings.values()) + " |"
        for fault in next(iter(settings.values()))["found"]
    ]
    head = f"| Fault | {' | '.join(settings)} |\n|---{'|---' * len(settings)}|"
    return "\n".join((head, *rows))


def losses_table() -> str:
    """Return the share of faults that the ledger finds, from the results of `benchmarks/losses.py`."""
    results = json.loads((ROOT / "benchmarks/results/losses.json").read_text(encoding="utf-8"))
    columns, blank = results["columns"], "page invented on a blank leaf"
    faults = dict.fromkeys(name for column in columns.values() for name in column["faults"])
    rows = [[name, *(_share(column["faults"].get(name)) for column in columns.values())] for name in faults]
    rows.append([blank, *[_share(results[blank])] * len(columns)])
    rows.append(["*false alarms*", *(f"{100 * column['false alarms']:.1f} %" for column in columns.values())])
    head = f"| Fault | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|"
    return "\n".join((head, *(f"| {' | '.join(row)} |" for row in rows)))


def _share(fault: Mapping[str, float] | None) -> str:
    return "-" if fault is None else f"{100 * fault['found']:.0f} %"


def models_page() -> str:
    """Return the known models with their published scores and the sources of these."""
    head = f"| Model | Weights | License | Size | GPU | Figures | Describes | Languages |\n{'|---' * 8}|"
    rows, scores = [], []
    for profile in PROFILES:
        one = summary_of(profile)
        default = " (default)" if one["default"] else " (experimental)" if one["experimental"] else ""
        size = f"{one['parameters']} B" if one["parameters"] else "-"
        cells = (one["licence"] or "not stated", size, one["smallest_gpu"] or "-", one["figures"], one["describes"])
        told = " | ".join(_cell(str(cell)) for cell in (*cells, one["languages"] or "-"))
        rows.append(f"| `{one['name']}`{default} | `{one['model']}` | {told} |")
        scores += [
            f"| `{one['name']}` | {score.benchmark} | {score.value:g} | {_cell(score.source)} |"
            for score in profile.scores
        ]
    table = "\n".join(("| Model | Benchmark | Score | Source |", "|---|---|---|---|", *scores))
    return f"# Models\n\n{_MODELS}\n\n{head}\n{chr(10).join(rows)}\n\n## Scores\n\n{_SCORES}\n\n{table}\n"


def python_page() -> str:
    """Return the public Python API, described by mkdocstrings."""
    parts = ["# Python API", _PYTHON]
    for title, names in public_names().items():
        parts.append(f"## {title}")
        parts += [f"::: {_place(name)}" for name in names]
    return "\n\n".join(parts) + "\n"


def public_names() -> dict[str, list[str]]:
    """Return the names in `llm_ocr.__all__` by group."""
    groups: dict[str, list[str]] = {"Functions": [], "Results": [], "Errors": []}
    for name in llm_ocr.__all__:
        value = getattr(llm_ocr, name)
        failed = isinstance(value, type) and issubclass(value, LlmOcrError)
        groups["Errors" if failed else "Functions" if name.islower() and name != "display" else "Results"].append(name)
    return groups


def _place(name: str) -> str:
    value = getattr(llm_ocr, name)
    return value.__name__ if name == "display" else f"{value.__module__}.{name}"


def _typed(setting: Setting) -> str:
    if setting.positional:
        return setting.metavar
    return setting.flag if setting.kind is bool else f"{setting.flag} {setting.metavar}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_COMMANDS = (
    "Each flag has a keyword of the Python API and a variable, see [Settings](settings.md). "
    "Each command ends with an [exit code](exit-codes.md)."
)
_DATASET = (
    "One row is one page. Failed pages are rows, too. `load_dataset` opens the folder `dataset/` of a workspace. "
    "The same columns are in `export --format dataset`. For whole documents, see [JSON](json.md)."
)
_JSON = (
    "`llm-ocr export -w out --format json --output json/` writes one file per document. This page is generated from "
    "the schema that the tests check each export against. Later versions may add fields."
)
_MODELS = (
    "`llm-ocr models NAME` shows prompts, sampling, retries, and the `vllm serve` command. "
    "[Choose a model](../guides/choose-a-model.md) explains the columns. "
    "Figures: `boxes` come from the model, `page` from the page itself, and `detector` from a layout detector."
)
_SCORES = (
    "All scores are as published. None was measured with this library. Scores of different versions of OmniDocBench "
    "are not comparable."
)
_PYTHON = (
    "`import llm_ocr` exports all names on this page. Functions accept [settings](settings.md) as keywords: the flag "
    "`--max-hours` is `max_hours`. Type checkers reject unknown keywords and wrong values. "
    "[Python](../guides/python.md) shows typical programs."
)
#: Meaning of each column of the dataset.
COLUMNS: Mapping[str, str] = {
    "sample_id": "Id of the page, the same in every run: `<document_id>-p00012`.",
    "dataset_index": "Position in the plan. With estimated page counts, the numbers have gaps.",
    "source_image": "Page image as the engine read it.",
    "document_with_boxes_image": "Page image with the blocks drawn on it.",
    "document_markdown": "Markdown of the page before descriptions, with `figure:ID` links.",
    "extracted_figures": "Crops of the page, in reading order.",
    "extracted_figures_metadata": "One JSON text per crop: id, label, box in pixels, caption, and description.",
    "document_final_markdown": "Markdown of the page with the descriptions of its figures.",
    "document_id": "Id in the manifest, or a hash of the document's name and content.",
    "source": "Path or URL of the document.",
    "page_number": "Number of the page, from 1. Null if the document could not be opened.",
    "status": "`ok`, `degraded`, or `failed`.",
    "reason": "[Reason](../guides/failures.md#reasons) for a status other than `ok`.",
    "engine": "`embedded`, or the name of the model that gave the text.",
    "blocks": "Layout in reading order: `kind`, `label`, `text`, `level`, `box` (0 to 1 of the page), `continued` "
    "(boxes of the rest of the text), `figure_id`, `caption`, `inside`, `described`.",
    "tokens_in": "Tokens of all requests for the page.",
    "tokens_out": "Tokens of all answers for the page.",
    "attempts": "One JSON text per attempt: status, reason, tokens, and seconds.",
    "primary_language": "Language as stated by the model. Null for models that do not state it.",
    "is_rotation_valid": "Whether the model found the page upright. Null if it does not say.",
    "rotation_correction": "Degrees clockwise that the model suggests.",
    "rotation": "Degrees clockwise by which the page was turned.",
    "is_table": "Whether the page is mostly a table.",
    "is_diagram": "Whether the page is mostly a diagram.",
    "is_fallback": "Whether the text layer or OCR replaced the model's answer.",
    "quality": "[Quality score](../explanation/quality.md), 0 to 1. Null for failed pages.",
    "invisible_chars": "Characters, without spaces, of the file's text that its page does not show; see "
    "`--invisible-text`.",
    "ink": "Share of the page image that is ink, 0 to 1; 0 for a blank page. This and the next columns are the "
    "page's ledger. They are null or empty for pages without one.",
    "unread_share": "Share of the ink that looks like text and that no block contains, 0 to 1.",
    "unsupported_share": "Share of the text that nothing on the page supports, 0 to 1.",
    "furniture_share": "Share of the ink in running heads, feet, and page numbers, 0 to 1.",
    "verified_by": "Evidence that the text was compared with: `ink`, `layer` (with ink), or `ocr` (with ink).",
    "unread": "Boxes of the unread ink, 0 to 1 of the page.",
    "unsupported": "Unsupported text: characters `start` to `end`, from 0, of the text of the page's `block`; of "
    "`inside` for figures.",
}
