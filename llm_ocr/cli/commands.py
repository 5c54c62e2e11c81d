"""Names, texts, examples, and handlers of all commands. The module is light because the help is built from it."""

from dataclasses import dataclass
from difflib import get_close_matches

from llm_ocr.errors import UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """Command of the console program. `model` names a class in `config.models`, `handler` a function."""

    name: str
    summary: str
    model: str
    handler: str  # "module:function" below llm_ocr.cli; called with the command's name and its settings
    usage: str
    examples: tuple[tuple[str, str], ...]  # command line, effect
    remembers: bool = True  # whether stored settings of the workspace fill settings that are not given


_PIPELINE = "pipeline:run_stage"

COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        "all three stages here: documents to Markdown, figures and a dataset",
        "RunSettings",
        _PIPELINE,
        "run SOURCE... [-w FOLDER] [options]",
        (
            ("llm-ocr run report.pdf", "read one document; the result is in ./llm-ocr-out"),
            ("llm-ocr run scans/ -w out --server-url http://gpu:8000", "read by a model on a running server"),
            ("llm-ocr run scans/ -w out --text-layer never", "a folder of documents, every page by OCR"),
            ("llm-ocr run paper.pdf --pages 1-5,9 --stdout", "print the Markdown of some pages"),
        ),
    ),
    Command(
        "plan",
        "list the documents, count their pages, cut units of work",
        "PlanOnlySettings",
        _PIPELINE,
        "plan SOURCE... -w FOLDER [options]",
        (
            ("llm-ocr plan scans/ -w out", "what extract will do"),
            ("llm-ocr plan scans/ -w trial --sample 200", "a trial: 200 documents, drawn by chance"),
            ("llm-ocr plan scans/ -w out --filter-language en --dry-run", "what would be left out, and why"),
            ("llm-ocr plan list.jsonl -w out --max-samples 100", "the first 100 documents of a manifest"),
        ),
    ),
    Command(
        "extract",
        "stage 1: pages to Markdown, figures and layout",
        "ExtractSettings",
        _PIPELINE,
        "extract [SOURCE...] -w FOLDER [options]",
        (
            ("llm-ocr extract scans/ -w out", "plan, start vLLM on the GPUs here, read every page"),
            ("llm-ocr extract scans/ -w out --engine embedded", "the same on the CPU, without a model"),
            (
                "llm-ocr extract -w out --shard-index 0 --shard-count 4",
                "a quarter of the units",
            ),
        ),
    ),
    Command(
        "describe",
        "stage 2: a description for each figure",
        "DescribeSettings",
        _PIPELINE,
        "describe -w FOLDER [options]",
        (
            ("llm-ocr describe -w out", "describe the figures that extract found"),
            ("llm-ocr describe -w out --describe-mode classify", "name their kind instead"),
        ),
    ),
    Command(
        "assemble",
        "stage 3: descriptions into the Markdown; documents and dataset written",
        "AssembleSettings",
        _PIPELINE,
        "assemble -w FOLDER [options]",
        (
            ("llm-ocr assemble -w out", "write out/documents and out/dataset"),
            ("llm-ocr assemble -w out --no-page-markers --dataset-images figures", "with other options"),
        ),
    ),
    Command(
        "status",
        "what is done, what failed and why",
        "StatusSettings",
        "results:run_status",
        "status -w FOLDER [--json] [--watch] [--worst N]",
        (
            ("llm-ocr status -w out", "pages, figures, units, reasons of failures"),
            ("llm-ocr status -w out --worst 10", "and the ten pages of the lowest quality"),
            ("llm-ocr status -w out --json", "the same for programs"),
        ),
    ),
    Command(
        "estimate",
        "what a run will take and cost: pages, times rates, times prices",
        "EstimateSettings",
        "results:run_estimate",
        "estimate [SOURCE...] [-w URL] [--hardware PLATFORM:NAME] [options]",
        (
            ("llm-ocr estimate scans/", "count the pages; own machines and providers, the cheapest first"),
            (
                "llm-ocr estimate scans/ --calibrate --server-url http://gpu:8000",
                "read some of them for a minute first",
            ),
            ("llm-ocr estimate --page-count 10000 --hardware hf-jobs:a100-large --shards 4", "four machines of a kind"),
            (
                "llm-ocr estimate --tokens-in 75000 --tokens-out 75000 --price-in 0.07 --price-out 0.15",
                "tokens at a provider's prices per million",
            ),
        ),
    ),
    Command(
        "retry-failed",
        "plan the failed pages again",
        "RetrySettings",
        _PIPELINE,
        "retry-failed -w FOLDER [options]",
        (
            ("llm-ocr retry-failed -w out --password-file secrets.txt", "a new generation with the failed pages"),
            ("llm-ocr retry-failed -w out --below-quality 0.5", "with those that a model read badly, too"),
            ("llm-ocr run -w out --password-file secrets.txt", "then read them: passwords are not stored"),
        ),
    ),
    Command(
        "export",
        "results in the form of what comes next",
        "ExportSettings",
        "results:run_export",
        "export -w FOLDER --output URL [options]",
        (
            ("llm-ocr export -w out --output hf://datasets/me/scans", "a private dataset on the Hub, with its card"),
            ("llm-ocr export -w out --output s3://bucket/scans --shard-size 1000", "files of 1 GB in a bucket"),
            ("llm-ocr export -w out --format dolma --output corpus/ --drop-over-error-rate", "documents for training"),
            ("llm-ocr export -w out --format chunks --output chunks/ --chunk-size 1500", "passages for retrieval"),
        ),
    ),
    Command(
        "view",
        "a static site of the results that opens from disk",
        "ViewSettings",
        "results:run_view",
        "view -w FOLDER --output FOLDER [options]",
        (
            ("llm-ocr view -w out --output site", "open site/index.html"),
            ("llm-ocr view -w out --compare other --output site", "two runs of the same documents side by side"),
        ),
    ),
    Command(
        "report",
        "one HTML page about a run: throughput, tokens, failures, quality, cost",
        "ReportSettings",
        "results:run_report",
        "report -w FOLDER [--output FILE]",
        (
            ("llm-ocr report -w out", "writes llm-ocr-report.html"),
            ("llm-ocr report -w s3://bucket/run --output run.html", "of any workspace, while it runs or later"),
        ),
    ),
    Command(
        "launch",
        "stages as jobs on rented machines",
        "LaunchSettings",
        "launch:run_launch",
        "launch PLATFORM STAGE|pipeline [SOURCE...] -w URL [options]",
        (
            ("llm-ocr launch hf-jobs extract -w hf://buckets/me/scans/run --dry-run", "what would be sent"),
            (
                "llm-ocr launch sagemaker pipeline s3://archive/ -w s3://bucket/run --shards 4 --wait",
                "all three stages",
            ),
            ("llm-ocr launch local extract scans/ -w out --shards 2", "as jobs on this machine"),
        ),
        remembers=False,
    ),
    Command(
        "jobs",
        "the jobs that were launched on a workspace",
        "JobsSettings",
        "launch:run_jobs",
        "jobs [list|logs|cancel|clean] [JOB] -w URL",
        (
            ("llm-ocr jobs -w s3://bucket/run", "where they are"),
            ("llm-ocr jobs logs -w s3://bucket/run --follow", "the log of the newest one"),
            ("llm-ocr jobs cancel -w s3://bucket/run", "end all that run"),
        ),
        remembers=False,
    ),
    Command(
        "models",
        "the models that are known, one of them, or which suits this machine",
        "ModelsSettings",
        "models:run_models",
        "models [NAME] [--recommend] [--json] [options]",
        (
            ("llm-ocr models", "a table of all"),
            ("llm-ocr models dots.mocr", "everything about one, with its exact vllm serve line"),
            ("llm-ocr models --recommend --gpu-memory 24 --licence open --language de", "ranked, with the reasons"),
        ),
    ),
    Command(
        "clean",
        "remove what no finished unit refers to",
        "CleanSettings",
        _PIPELINE,
        "clean -w FOLDER [--dry-run]",
        (
            ("llm-ocr clean -w out --dry-run", "list what would go"),
            ("llm-ocr clean -w out", "remove it"),
        ),
    ),
    Command(
        "demo",
        "the three stages on documents that come with the library",
        "DemoSettings",
        "demo:run_demo",
        "demo [-w FOLDER]",
        (
            ("llm-ocr demo", "result in ./llm-ocr-demo"),
            ("llm-ocr demo -w /tmp/demo", "result elsewhere"),
        ),
    ),
    Command(
        "doctor",
        "what works on this machine, what is missing and how to get it",
        "DoctorSettings",
        "doctor:run_doctor",
        "doctor [--image PROFILE] [--json]",
        (
            ("llm-ocr doctor", "a table"),
            ("llm-ocr doctor --json", "the same for programs"),
            ("llm-ocr doctor --image glm-ocr", "whether the packages here can serve that model"),
        ),
    ),
    Command(
        "debug",
        "the decisions of the embedded engine on one page, and an image of its blocks",
        "DebugSettings",
        "debug:run_debug",
        "debug page FILE [--page N] [--output IMAGE] [--overwrite] [--json] [options]",
        (
            ("llm-ocr debug page report.pdf --page 3", "each pass's decision; writes report-p0003.png"),
            ("llm-ocr debug page scan.png --output blocks.png --overwrite", "an image; the overlay elsewhere"),
            ("llm-ocr debug page report.pdf --text-layer never --json", "read by OCR; printed for programs"),
        ),
    ),
    Command(
        "init",
        "write a configuration file with every setting explained",
        "InitSettings",
        "init:run_init",
        "init [PATH] [--force]",
        (
            ("llm-ocr init", "writes ./llm-ocr.toml"),
            ("llm-ocr run scans/ --config llm-ocr.toml", "uses it"),
        ),
    ),
)

BY_NAME = {command.name: command for command in COMMANDS}


def find_command(name: str) -> Command:
    """Return the command with this name.

    Raises:
        UsageError: The name is unknown. The error contains the nearest name, or the right form for a file.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    near = get_close_matches(name, BY_NAME, n=1, cutoff=0.6)
    if near:
        hint = f"Did you mean llm-ocr {near[0]}?"
    elif "." in name or "/" in name:
        hint = f"To read documents: llm-ocr run {name}"
    else:
        hint = f"Commands: {', '.join(BY_NAME)}"
    raise UsageError(f"unknown command {name!r}", hint=hint)


def general_help() -> str:
    """Return the text of `llm-ocr --help`."""
    width = max(len(command.name) for command in COMMANDS)
    commands = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS)
    return f"""usage: llm-ocr COMMAND [options]

Documents (PDF, images) to clean Markdown with figures cropped and described, in three resumable stages.

commands:
{commands}

on every command:
  -h, --help       its settings, with defaults and examples
  --config FILE    settings from a TOML or YAML file
  --show-settings  print each setting and where it came from, do nothing
  --version        (without a command) print the version

Settings: flags > environment (LLM_OCR_PAGES=1-5 is --pages 1-5) > .env > --config > what the workspace holds > default.
Exit codes: 0 clean, 1 could not be done, 2 wrong usage, 3 more pages failed than --max-failed-rate, 4 interrupted,
5 stopped by --max-cost or --max-hours.

examples:
  llm-ocr demo                   see it work, on documents that come with it
  llm-ocr run report.pdf         read a document; the result is in ./llm-ocr-out
  llm-ocr doctor                 what works on this machine
"""
