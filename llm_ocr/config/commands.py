"""Names, texts, examples, and functions of all commands. The module is light because the help is built from it."""

import re
from difflib import get_close_matches

from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.plugins import COMMANDS, Command

_PIPELINE = "llm_ocr.cli.pipeline:run_stage"


def _command(
    usage: str,
    summary: str,
    settings: str,
    function: str,
    examples: str,
    *,
    common: str = "",
    remembers: bool = True,
) -> Command:
    """Return a command, whose usage begins with its name. Examples have the form `command line # effect`."""
    model = f"llm_ocr.config.models:{settings}"
    lines = tuple(re.findall(r"(\S.*?)\s+# (.+)", examples))
    return Command(usage.split()[0], summary, model, function, usage, lines, remembers, tuple(common.split()))


#: Commands of the core. Their functions receive the name of the command and its settings, and return the exit code.
CORE: tuple[Command, ...] = (
    _command(
        "run SOURCE... [-w FOLDER] [options]",
        "Run all three stages on this machine: documents to Markdown, figures, and a dataset",
        "RunSettings",
        _PIPELINE,
        """
        llm-ocr run report.pdf  # Read one document into ./llm-ocr-out
        llm-ocr run scans/ -w out --server-url http://gpu:8000  # Use a model on a running server
        llm-ocr run scans/ -w out --text-layer never  # Read every page of a folder with OCR
        llm-ocr run paper.pdf --pages 1-5,9 --stdout  # Print the Markdown of six pages
        """,
        common="sources workspace pages stdout engine model server_url server_key_file text_layer dataset "
        "max_hours quiet",
    ),
    _command(
        "plan SOURCE... -w FOLDER [options]",
        "List documents, count pages, and divide them into units of work",
        "PlanOnlySettings",
        _PIPELINE,
        """
        llm-ocr plan scans/ -w out  # Plan the work of extract
        llm-ocr plan scans/ -w trial --sample 200  # Plan a random sample of 200 documents
        llm-ocr plan scans/ -w out --filter-language en --dry-run  # Show what the filter excludes, and why
        llm-ocr plan list.jsonl -w out --max-samples 100  # Plan the first 100 documents of a manifest
        """,
        common="sources workspace pages max_samples sample filter_language dry_run engine model dataset password_file",
    ),
    _command(
        "extract [SOURCE...] -w FOLDER [options]",
        "Run stage 1: pages to Markdown, figures, and layout",
        "ExtractSettings",
        _PIPELINE,
        """
        llm-ocr extract scans/ -w out  # Plan, start vLLM on the GPUs here, and read every page
        llm-ocr extract scans/ -w out --engine embedded  # Read the pages on the CPU, without a model
        llm-ocr extract -w out --shard-index 0 --shard-count 4  # Read a quarter of the units
        """,
        common="sources workspace pages engine model server_url server_key_file preset shard_index shard_count "
        "max_hours",
    ),
    _command(
        "describe -w FOLDER [options]",
        "Run stage 2: a description of each figure",
        "DescribeSettings",
        _PIPELINE,
        """
        llm-ocr describe -w out  # Describe the figures that extract found
        llm-ocr describe -w out --describe-mode classify  # Classify them instead
        """,
        common="workspace follow describe_mode describe_prompt describe_model server_url server_key_file "
        "shard_index shard_count",
    ),
    _command(
        "assemble -w FOLDER [options]",
        "Run stage 3: documents and dataset from pages and descriptions",
        "AssembleSettings",
        _PIPELINE,
        """
        llm-ocr assemble -w out  # Write out/documents and out/dataset
        llm-ocr assemble -w out --no-page-markers --dataset-images figures  # Omit page markers and page images
        """,
        common="workspace follow page_markers dataset_images describe_key input",
    ),
    _command(
        "fields -w FOLDER --schema FILE [options]",
        "Find the values of a schema in each document, with their quotes",
        "FieldsSettings",
        _PIPELINE,
        """
        llm-ocr fields -w out --schema invoice.json --server-url http://gpu:8000 --model Qwen/Qwen3-8B
            # Ask the model of a running server
        llm-ocr export -w out --format fields --output found/  # Then write JSON lines, Parquet, and CSV
        """,
        common="workspace fields_schema model server_url server_key_file passage_tokens shard_index shard_count",
    ),
    _command(
        "status [-w FOLDER] [--json] [--watch] [--worst N]",
        "Show progress, failures, and their reasons",
        "StatusSettings",
        "llm_ocr.cli.outcome:run_status",
        """
        llm-ocr status -w out  # Show pages, figures, units, and reasons of failures
        llm-ocr status -w out --worst 10  # Also list the ten pages with the lowest quality
        llm-ocr status -w out --json  # Print JSON for programs
        """,
    ),
    _command(
        "estimate [SOURCE...] [-w URL] [--hardware PLATFORM:NAME] [options]",
        "Estimate time and cost of a run",
        "EstimateSettings",
        "llm_ocr.cli.outcome:run_estimate",
        """
        llm-ocr estimate scans/  # Count the pages; rank machines and providers by cost
        llm-ocr estimate scans/ --calibrate --server-url http://gpu:8000  # Measure the speed for a minute first
        llm-ocr estimate --page-count 10000 --hardware hf-jobs:a100-large --shards 4  # Estimate for four machines
        llm-ocr estimate --tokens-in 75000 --tokens-out 75000 --price-in 0.07 --price-out 0.15
            # Price tokens at a provider
        """,
        common="sources workspace page_count engine hardware shards calibrate server_url tokens_in tokens_out "
        "price_in price_out all_options json_output",
    ),
    _command(
        "retry-failed -w FOLDER [options]",
        "Plan failed pages and figures again",
        "RetrySettings",
        _PIPELINE,
        """
        llm-ocr retry-failed -w out --password-file secrets.txt  # Add the failed pages to the plan
        llm-ocr retry-failed -w out --below-quality 0.5  # Also add pages of low quality
        llm-ocr run -w out --password-file secrets.txt  # Then read them; passwords are not stored
        """,
        common="workspace below_quality password_file engine render_timeout quiet",
    ),
    _command(
        "repair [-w FOLDER] [--unbalanced | --below-quality Q | --pages-from FILE] [options]",
        "Read bad pages again with other settings, and keep the better results",
        "RepairSettings",
        _PIPELINE,
        """
        llm-ocr repair -w out --text-layer never  # Read all failed and degraded pages again with OCR
        llm-ocr repair -w out --below-quality 0.5 --text-layer never  # Read only pages of low quality
        llm-ocr repair -w out --max-pages 100 --server-url http://gpu:8000  # Read the 100 worst pages with a model
        llm-ocr repair -w out --pages-from bad.txt --image-size 2000  # Read the pages of a list
        llm-ocr repair -w out --give-up  # End an unfinished repair, for example if its server is gone
        """,
        common="workspace unbalanced below_quality page_list max_pages give_up text_layer engine model "
        "server_url server_key_file password_file max_cost quiet",
    ),
    _command(
        "export [-w FOLDER] --output URL [options]",
        "Convert results to datasets, Markdown, JSON, and other formats",
        "ExportSettings",
        "llm_ocr.cli.outcome:run_export",
        """
        llm-ocr export -w out --output hf://datasets/me/scans  # Upload a private dataset to the Hub
        llm-ocr export -w out --output s3://bucket/scans --shard-size 1000  # Write files of 1 GB to a bucket
        llm-ocr export -w out --format dolma --output corpus/ --drop-over-error-rate  # Write training documents
        llm-ocr export -w out --format jsonl --output pages/ --only balanced  # Write the pages that you can trust
        llm-ocr export -w out --format chunks --output chunks/ --chunk-size 1500  # Write retrieval passages
        """,
        common="workspace format output public shard_size drop_over_error_rate only chunk_size tokenizer",
    ),
    _command(
        "launch PLATFORM STAGE|pipeline|fields|repair [SOURCE...] -w URL [options]",
        "Run stages as jobs on a cloud platform or cluster",
        "LaunchSettings",
        "llm_ocr.cli.launch:run_launch",
        """
        llm-ocr launch hf-jobs extract -w hf://buckets/me/scans/run --dry-run  # Print the requests
        llm-ocr launch sagemaker pipeline s3://archive/ -w s3://bucket/run --shards 4 --wait
            # Run all three stages, and wait
        llm-ocr launch slurm extract /shared/scans/ -w /shared/run --shards 2  # Start an array of two tasks
        llm-ocr launch hf-jobs repair -w hf://buckets/me/scans/run --unbalanced --model dots.mocr --wait
            # Read bad pages again with another model
        """,
        common="platform stage sources workspace hardware shards model secret max_cost wait dry_run",
        remembers=False,
    ),
    _command(
        "jobs [list|logs|cancel|clean] [JOB] -w URL",
        "List, watch, and cancel the jobs of a workspace",
        "JobsSettings",
        "llm_ocr.cli.launch:run_jobs",
        """
        llm-ocr jobs -w s3://bucket/run  # Show all jobs and their states
        llm-ocr jobs logs -w s3://bucket/run --follow  # Follow the log of the newest job
        llm-ocr jobs cancel -w s3://bucket/run  # Cancel all running jobs
        """,
        remembers=False,
    ),
    _command(
        "models [NAME] [--recommend] [--json] [options]",
        "List models, show one, or recommend one for this machine",
        "ModelsSettings",
        "llm_ocr.cli.models:run_models",
        """
        llm-ocr models  # Show a table of all models
        llm-ocr models dots.mocr  # Show one model, with its exact vllm serve command
        llm-ocr models --recommend --gpu-memory 24 --licence open --language de  # Rank models, with reasons
        """,
        common="name recommend gpu_memory licence language json_output",
    ),
    _command(
        "clean -w FOLDER [--dry-run]",
        "Remove files that no finished unit needs",
        "CleanSettings",
        _PIPELINE,
        """
        llm-ocr clean -w out --dry-run  # List the files
        llm-ocr clean -w out  # Remove them
        """,
    ),
    _command(
        "demo [-w FOLDER]",
        "Run all three stages on the included example documents",
        "DemoSettings",
        "llm_ocr.cli.demo:run_demo",
        """
        llm-ocr demo  # Write to ./llm-ocr-demo
        llm-ocr demo -w /tmp/demo  # Write to /tmp/demo
        """,
    ),
    _command(
        "doctor [--json]",
        "Check what works on this machine, and how to install the rest",
        "DoctorSettings",
        "llm_ocr.cli.doctor:run_doctor",
        """
        llm-ocr doctor  # Show a table of checks
        llm-ocr doctor --json  # Print JSON for programs
        """,
    ),
    _command(
        "debug page FILE [--page N] [--output IMAGE] [--overwrite] [--json] [options]",
        "Show how the embedded engine reads a page, and draw its blocks",
        "DebugSettings",
        "llm_ocr.cli.debug:run_debug",
        """
        llm-ocr debug page report.pdf --page 3  # Show each step; write report-p0003.png
        llm-ocr debug page scan.png --output blocks.png --overwrite  # Read an image; write blocks.png
        llm-ocr debug page report.pdf --text-layer never --json  # Use OCR; print JSON for programs
        """,
        common="subject file page output overwrite text_layer password_file json_output",
    ),
    _command(
        "init [PATH] [--force]",
        "Write a configuration file with every setting explained",
        "InitSettings",
        "llm_ocr.cli.setup:run_init",
        """
        llm-ocr init  # Write ./llm-ocr.toml
        llm-ocr run scans/ --config llm-ocr.toml  # Use it
        """,
    ),
    _command(
        "completion [bash|zsh|fish]",
        "Print a script that completes commands and flags in bash, zsh, or fish",
        "CompletionSettings",
        "llm_ocr.cli.setup:run_completion",
        """
        llm-ocr completion bash  # Add the output to ~/.bashrc
        llm-ocr completion zsh  # Save the output as _llm-ocr in a folder of $fpath
        llm-ocr completion fish  # Save the output as ~/.config/fish/completions/llm-ocr.fish
        """,
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
