"""Names, texts, examples, and functions of all commands. The module is light because the help is built from it."""

from difflib import get_close_matches

from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.plugins import COMMANDS, Command

_PIPELINE = "llm_ocr.cli.pipeline:run_stage"

#: Commands of the core. Their functions receive the name of the command and its settings, and return the exit code.
CORE: tuple[Command, ...] = (
    Command(
        "run",
        "Run all three stages on this machine: documents to Markdown, figures, and a dataset",
        "llm_ocr.config.models:RunSettings",
        _PIPELINE,
        "run SOURCE... [-w FOLDER] [options]",
        (
            ("llm-ocr run report.pdf", "Read one document into ./llm-ocr-out"),
            ("llm-ocr run scans/ -w out --server-url http://gpu:8000", "Use a model on a running server"),
            ("llm-ocr run scans/ -w out --text-layer never", "Read every page of a folder with OCR"),
            ("llm-ocr run paper.pdf --pages 1-5,9 --stdout", "Print the Markdown of six pages"),
        ),
        common=(
            *("sources", "workspace", "pages", "stdout", "engine", "model", "server_url", "server_key_file"),
            *("text_layer", "dataset", "max_hours", "quiet"),
        ),
    ),
    Command(
        "plan",
        "List documents, count pages, and divide them into units of work",
        "llm_ocr.config.models:PlanOnlySettings",
        _PIPELINE,
        "plan SOURCE... -w FOLDER [options]",
        (
            ("llm-ocr plan scans/ -w out", "Plan the work of extract"),
            ("llm-ocr plan scans/ -w trial --sample 200", "Plan a random sample of 200 documents"),
            ("llm-ocr plan scans/ -w out --filter-language en --dry-run", "Show what the filter excludes, and why"),
            ("llm-ocr plan list.jsonl -w out --max-samples 100", "Plan the first 100 documents of a manifest"),
        ),
        common=(
            *("sources", "workspace", "pages", "max_samples", "sample", "filter_language", "dry_run", "engine"),
            *("model", "dataset", "password_file"),
        ),
    ),
    Command(
        "extract",
        "Run stage 1: pages to Markdown, figures, and layout",
        "llm_ocr.config.models:ExtractSettings",
        _PIPELINE,
        "extract [SOURCE...] -w FOLDER [options]",
        (
            ("llm-ocr extract scans/ -w out", "Plan, start vLLM on the GPUs here, and read every page"),
            ("llm-ocr extract scans/ -w out --engine embedded", "Read the pages on the CPU, without a model"),
            ("llm-ocr extract -w out --shard-index 0 --shard-count 4", "Read a quarter of the units"),
        ),
        common=(
            *("sources", "workspace", "pages", "engine", "model", "server_url", "server_key_file", "preset"),
            *("shard_index", "shard_count", "max_hours"),
        ),
    ),
    Command(
        "describe",
        "Run stage 2: a description of each figure",
        "llm_ocr.config.models:DescribeSettings",
        _PIPELINE,
        "describe -w FOLDER [options]",
        (
            ("llm-ocr describe -w out", "Describe the figures that extract found"),
            ("llm-ocr describe -w out --describe-mode classify", "Classify them instead"),
        ),
        common=(
            *("workspace", "follow", "describe_mode", "describe_prompt", "describe_model", "server_url"),
            *("server_key_file", "shard_index", "shard_count"),
        ),
    ),
    Command(
        "assemble",
        "Run stage 3: documents and dataset from pages and descriptions",
        "llm_ocr.config.models:AssembleSettings",
        _PIPELINE,
        "assemble -w FOLDER [options]",
        (
            ("llm-ocr assemble -w out", "Write out/documents and out/dataset"),
            ("llm-ocr assemble -w out --no-page-markers --dataset-images figures", "Omit page markers and page images"),
        ),
        common=("workspace", "follow", "page_markers", "dataset_images", "describe_key", "input"),
    ),
    Command(
        "fields",
        "Find the values of a schema in each document, with their quotes",
        "llm_ocr.config.models:FieldsSettings",
        _PIPELINE,
        "fields -w FOLDER --schema FILE [options]",
        (
            (
                "llm-ocr fields -w out --schema invoice.json --server-url http://gpu:8000 --model Qwen/Qwen3-8B",
                "Ask the model of a running server",
            ),
            ("llm-ocr export -w out --format fields --output found/", "Then write JSON lines, Parquet, and CSV"),
        ),
        common=(
            *("workspace", "fields_schema", "model", "server_url", "server_key_file", "passage_tokens"),
            *("shard_index", "shard_count"),
        ),
    ),
    Command(
        "status",
        "Show progress, failures, and their reasons",
        "llm_ocr.config.models:StatusSettings",
        "llm_ocr.cli.outcome:run_status",
        "status [-w FOLDER] [--json] [--watch] [--worst N]",
        (
            ("llm-ocr status -w out", "Show pages, figures, units, and reasons of failures"),
            ("llm-ocr status -w out --worst 10", "Also list the ten pages with the lowest quality"),
            ("llm-ocr status -w out --json", "Print JSON for programs"),
        ),
    ),
    Command(
        "estimate",
        "Estimate time and cost of a run",
        "llm_ocr.config.models:EstimateSettings",
        "llm_ocr.cli.outcome:run_estimate",
        "estimate [SOURCE...] [-w URL] [--hardware PLATFORM:NAME] [options]",
        (
            ("llm-ocr estimate scans/", "Count the pages; rank machines and providers by cost"),
            (
                "llm-ocr estimate scans/ --calibrate --server-url http://gpu:8000",
                "Measure the speed for a minute first",
            ),
            (
                "llm-ocr estimate --page-count 10000 --hardware hf-jobs:a100-large --shards 4",
                "Estimate for four machines",
            ),
            (
                "llm-ocr estimate --tokens-in 75000 --tokens-out 75000 --price-in 0.07 --price-out 0.15",
                "Price tokens at a provider",
            ),
        ),
        common=(
            *("sources", "workspace", "page_count", "engine", "hardware", "shards", "calibrate", "server_url"),
            *("tokens_in", "tokens_out", "price_in", "price_out", "all_options", "json_output"),
        ),
    ),
    Command(
        "retry-failed",
        "Plan failed pages again",
        "llm_ocr.config.models:RetrySettings",
        _PIPELINE,
        "retry-failed -w FOLDER [options]",
        (
            ("llm-ocr retry-failed -w out --password-file secrets.txt", "Add the failed pages to the plan"),
            ("llm-ocr retry-failed -w out --below-quality 0.5", "Also add pages of low quality"),
            ("llm-ocr run -w out --password-file secrets.txt", "Then read them; passwords are not stored"),
        ),
        common=("workspace", "below_quality", "password_file", "engine", "render_timeout", "quiet"),
    ),
    Command(
        "repair",
        "Read bad pages again with other settings, and keep the better results",
        "llm_ocr.config.models:RepairSettings",
        _PIPELINE,
        "repair [-w FOLDER] [--unbalanced | --below-quality Q | --pages-from FILE] [options]",
        (
            ("llm-ocr repair -w out --text-layer never", "Read all failed and degraded pages again with OCR"),
            ("llm-ocr repair -w out --below-quality 0.5 --text-layer never", "Read only pages of low quality"),
            (
                "llm-ocr repair -w out --max-pages 100 --server-url http://gpu:8000",
                "Read the 100 worst pages with a model",
            ),
            ("llm-ocr repair -w out --pages-from bad.txt --image-size 2000", "Read the pages of a list"),
            ("llm-ocr repair -w out --give-up", "End an unfinished repair, for example if its server is gone"),
        ),
        common=(
            *("workspace", "unbalanced", "below_quality", "page_list", "max_pages", "give_up", "text_layer"),
            *("engine", "model", "server_url", "server_key_file", "password_file", "max_cost", "quiet"),
        ),
    ),
    Command(
        "export",
        "Convert results to datasets, Markdown, JSON, and other formats",
        "llm_ocr.config.models:ExportSettings",
        "llm_ocr.cli.outcome:run_export",
        "export [-w FOLDER] --output URL [options]",
        (
            ("llm-ocr export -w out --output hf://datasets/me/scans", "Upload a private dataset to the Hub"),
            ("llm-ocr export -w out --output s3://bucket/scans --shard-size 1000", "Write files of 1 GB to a bucket"),
            (
                "llm-ocr export -w out --format dolma --output corpus/ --drop-over-error-rate",
                "Write training documents",
            ),
            (
                "llm-ocr export -w out --format jsonl --output pages/ --only balanced",
                "Write the pages that you can trust",
            ),
            ("llm-ocr export -w out --format chunks --output chunks/ --chunk-size 1500", "Write retrieval passages"),
        ),
        common=(
            *("workspace", "format", "output", "public", "shard_size", "drop_over_error_rate", "only", "chunk_size"),
            *("tokenizer",),
        ),
    ),
    Command(
        "launch",
        "Run stages as jobs on a cloud platform or cluster",
        "llm_ocr.config.models:LaunchSettings",
        "llm_ocr.cli.launch:run_launch",
        "launch PLATFORM STAGE|pipeline|fields|repair [SOURCE...] -w URL [options]",
        (
            ("llm-ocr launch hf-jobs extract -w hf://buckets/me/scans/run --dry-run", "Print the requests"),
            (
                "llm-ocr launch sagemaker pipeline s3://archive/ -w s3://bucket/run --shards 4 --wait",
                "Run all three stages, and wait",
            ),
            ("llm-ocr launch slurm extract /shared/scans/ -w /shared/run --shards 2", "Start an array of two tasks"),
            (
                "llm-ocr launch hf-jobs repair -w hf://buckets/me/scans/run --unbalanced --model dots.mocr --wait",
                "Read bad pages again with another model",
            ),
        ),
        remembers=False,
        common=(
            *("platform", "stage", "sources", "workspace", "hardware", "shards", "model", "secret", "max_cost"),
            *("wait", "dry_run"),
        ),
    ),
    Command(
        "jobs",
        "List, watch, and cancel the jobs of a workspace",
        "llm_ocr.config.models:JobsSettings",
        "llm_ocr.cli.launch:run_jobs",
        "jobs [list|logs|cancel|clean] [JOB] -w URL",
        (
            ("llm-ocr jobs -w s3://bucket/run", "Show all jobs and their states"),
            ("llm-ocr jobs logs -w s3://bucket/run --follow", "Follow the log of the newest job"),
            ("llm-ocr jobs cancel -w s3://bucket/run", "Cancel all running jobs"),
        ),
        remembers=False,
    ),
    Command(
        "models",
        "List models, show one, or recommend one for this machine",
        "llm_ocr.config.models:ModelsSettings",
        "llm_ocr.cli.models:run_models",
        "models [NAME] [--recommend] [--json] [options]",
        (
            ("llm-ocr models", "Show a table of all models"),
            ("llm-ocr models dots.mocr", "Show one model, with its exact vllm serve command"),
            ("llm-ocr models --recommend --gpu-memory 24 --licence open --language de", "Rank models, with reasons"),
        ),
        common=("name", "recommend", "gpu_memory", "licence", "language", "json_output"),
    ),
    Command(
        "clean",
        "Remove files that no finished unit needs",
        "llm_ocr.config.models:CleanSettings",
        _PIPELINE,
        "clean -w FOLDER [--dry-run]",
        (("llm-ocr clean -w out --dry-run", "List the files"), ("llm-ocr clean -w out", "Remove them")),
    ),
    Command(
        "demo",
        "Run all three stages on the included example documents",
        "llm_ocr.config.models:DemoSettings",
        "llm_ocr.cli.demo:run_demo",
        "demo [-w FOLDER]",
        (("llm-ocr demo", "Write to ./llm-ocr-demo"), ("llm-ocr demo -w /tmp/demo", "Write to /tmp/demo")),
    ),
    Command(
        "doctor",
        "Check what works on this machine, and how to install the rest",
        "llm_ocr.config.models:DoctorSettings",
        "llm_ocr.cli.doctor:run_doctor",
        "doctor [--json]",
        (("llm-ocr doctor", "Show a table of checks"), ("llm-ocr doctor --json", "Print JSON for programs")),
    ),
    Command(
        "debug",
        "Show how the embedded engine reads a page, and draw its blocks",
        "llm_ocr.config.models:DebugSettings",
        "llm_ocr.cli.debug:run_debug",
        "debug page FILE [--page N] [--output IMAGE] [--overwrite] [--json] [options]",
        (
            ("llm-ocr debug page report.pdf --page 3", "Show each step; write report-p0003.png"),
            ("llm-ocr debug page scan.png --output blocks.png --overwrite", "Read an image; write blocks.png"),
            ("llm-ocr debug page report.pdf --text-layer never --json", "Use OCR; print JSON for programs"),
        ),
        common=("subject", "file", "page", "output", "overwrite", "text_layer", "password_file", "json_output"),
    ),
    Command(
        "init",
        "Write a configuration file with every setting explained",
        "llm_ocr.config.models:InitSettings",
        "llm_ocr.cli.setup:run_init",
        "init [PATH] [--force]",
        (("llm-ocr init", "Write ./llm-ocr.toml"), ("llm-ocr run scans/ --config llm-ocr.toml", "Use it")),
    ),
    Command(
        "completion",
        "Print a script that completes commands and flags in bash, zsh, or fish",
        "llm_ocr.config.models:CompletionSettings",
        "llm_ocr.cli.setup:run_completion",
        "completion [bash|zsh|fish]",
        (
            ("llm-ocr completion bash", "Add the output to ~/.bashrc"),
            ("llm-ocr completion zsh", "Save the output as _llm-ocr in a folder of $fpath"),
            ("llm-ocr completion fish", "Save the output as ~/.config/fish/completions/llm-ocr.fish"),
        ),
    ),
)


def all_commands() -> tuple[Command, ...]:
    """Return the commands of the core and of packages, in the order of help, without those that cannot be imported.

    Of the commands after the same one, the last in the alphabet is the first.
    """
    listed = list(CORE)
    for name in COMMANDS.names():
        names = [command.name for command in listed]
        try:
            command = _added(name)
        except LlmOcrError:
            continue
        if command is not None and name not in names:
            listed.insert(names.index(command.after) + 1 if command.after in names else len(names), command)
    return tuple(listed)


def broken_commands() -> dict[str, str]:
    """Return the commands of packages that cannot be imported, each with the reason in one line."""
    own = {command.name for command in CORE}
    reasons = {}
    for name in COMMANDS.names():
        try:
            _added(name)
        except LlmOcrError as error:
            if name not in own:
                reasons[name] = f"not available: {' '.join(str(error.args[0]).split())}"
    return reasons


def find_command(name: str) -> Command:
    """Return the command with this name.

    Raises:
        UsageError: The name is unknown, or two packages provide it. The error contains the nearest name, or the right
            form for a file.
        LlmOcrError: The command cannot be imported. The message names its package.
    """
    command = next((command for command in CORE if command.name == name), None) or _added(name)
    if command is not None:
        return command
    names = [command.name for command in all_commands()]
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        hint = f"Did you mean llm-ocr {near[0]}?"
    elif "." in name or "/" in name:
        hint = f"To read a document: llm-ocr run {name}"
    else:
        hint = f"Commands: {', '.join(names)}"
    raise UsageError(f"unknown command {name!r}", hint=hint)


def _added(name: str) -> Command | None:
    command = COMMANDS.find(name)
    if command is not None and not (isinstance(command, Command) and command.name == name):
        raise LlmOcrError(f"the entry point {name} of the group {COMMANDS.group} is no `Command` with this name")
    return command
