"""Command line of the simulator, both its own and that as a replacement of `vllm serve`."""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from llm_ocr_simulator.answers import Style
from llm_ocr_simulator.engine import PRESETS, Costs, Limits
from llm_ocr_simulator.faults import Faults, faults_of, parsed

BLOCK = 16
#: Version in `--version` and GET /version: the vLLM release that is imitated.
VERSION = "0.32.0"


@dataclass(frozen=True, slots=True)
class Options:
    """All options; the help of the command line describes them."""

    costs: Costs
    limits: Limits
    style: Style
    faults: Faults
    model: str
    host: str
    port: int
    api_key: str = field(repr=False)
    max_model_len: int
    stream_interval: int
    metrics: bool
    seed: int
    in_order: bool  # answers and faults by the order of first requests for images
    patch: int | None  # side in pixels of the squares that an image is counted in
    lifetime: float
    until_stdin_closes: bool
    follow_parent: bool
    state_file: Path | None
    serve: bool  # replace `vllm serve`: its log lines and its shutdown
    shutdown_timeout: float
    exit_seconds: float
    startup_seconds: float
    oom_above: int | None


def read_options(argv: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Return the options from the words after the program's name.

    The words of LLM_OCR_SIMULATOR precede, so that the command line has precedence. VLLM_API_KEY is the key unless
    --api-key is given. After `serve MODEL`, unknown words are ignored.
    """
    more = shlex.split(environment.get("LLM_OCR_SIMULATOR", ""))
    parser = _parser()
    serve = list(argv[:1]) == ["serve"]
    if serve:  # MODEL --flags, or --model MODEL --flags; the default name of the model is its path
        words = list(argv[1:])
        if "--config" in words[:-1]:  # as vLLM reads it: other words have precedence
            values = yaml.safe_load(Path(words[words.index("--config") + 1]).read_text(encoding="utf-8"))
            more += [word for name, value in values.items() for word in (f"--{name}", str(value))]
        if words and not words[0].startswith("-"):
            more.append("--model")
        given, _ = parser.parse_known_args([*more, *words])
    else:
        given = parser.parse_args([*more, *argv])
    try:
        return _options(given, serve, environment.get("VLLM_API_KEY", ""))
    except ValueError as error:
        parser.error(str(error))


def _options(given: argparse.Namespace, serve: bool, key: str) -> Options:
    settings = parsed(given.fault)
    if given.kill_image:
        settings["die-image"] = given.kill_image
    kv_tokens = given.kv_tokens or PRESETS[given.preset].kv_tokens // given.engines_per_gpu
    if kv_tokens < given.max_model_len:
        raise ValueError(f"--kv-tokens {kv_tokens} is less than --max-model-len {given.max_model_len}")
    times = {
        "preprocess": given.preprocess_seconds,
        "engine_step": given.engine_step_seconds,
        "engine_token": given.engine_token_seconds,
        "engine_image": given.engine_image_seconds,
    }
    costs = replace(
        PRESETS[given.preset].costs(), **{name: seconds for name, seconds in times.items() if seconds is not None}
    )
    return Options(
        costs=costs.sharing(given.engines_per_gpu).faster(given.speed),
        limits=Limits(
            given.max_num_seqs,
            kv_tokens // BLOCK,
            given.max_num_batched_tokens,
            BLOCK,
            given.api_server_count,
            given.renderer_num_workers,
        ),
        style=Style(
            given.mean_tokens,
            given.sigma,
            given.max,
            given.loop_rate,
            given.empty_rate,
            given.malformed_rate,
            given.seed,
            _said("--said", given.said),
            _said("--forced", given.forced),
        ),
        faults=faults_of(settings),
        model=(given.served_model_name or [given.model])[0],
        host=given.host,
        port=given.port,
        api_key=given.api_key if given.api_key is not None else key,
        max_model_len=given.max_model_len,
        stream_interval=given.stream_interval,
        metrics=not given.no_metrics,
        seed=given.seed,
        in_order=given.in_order,
        patch=given.patch,
        lifetime=given.lifetime,
        until_stdin_closes=given.until_stdin_closes,
        follow_parent=not (serve or given.ignore_parent),
        state_file=Path(given.state_file) if given.state_file else None,
        serve=serve,
        shutdown_timeout=given.shutdown_timeout,
        exit_seconds=given.exit_seconds,
        startup_seconds=given.startup_seconds,
        oom_above=given.oom_above,
    )


def _said(flag: str, file: str | None) -> dict[str, str]:
    """Return the answers by prompt, from a JSON object in the file of a flag."""
    if not file:
        return {}
    try:
        return {str(prompt): str(answer) for prompt, answer in json.loads(Path(file).read_bytes()).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{flag} {file}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m llm_ocr_simulator",
        description="Simulate a vLLM server: real HTTP, simulated engine and answers, faults on request.",
        epilog="As a replacement of vLLM: python -m llm_ocr_simulator serve MODEL ..., with vLLM's flags.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    add = parser.add_argument_group("Server").add_argument
    add("--host", default="127.0.0.1", help="Address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=0, help="Port to listen on (default: a free one)")
    add("--model", default="deepseek-ocr", help="Model name (default: deepseek-ocr)")
    add("--served-model-name", nargs="+", help="Model name in the API (default: --model)")
    add("--api-key", help="Required API key (default: VLLM_API_KEY)")
    add("--no-metrics", action="store_true", help="Serve no /metrics and no /version, like a provider")
    add("--stream-interval", type=int, default=50, help="Tokens per chunk of a streamed answer (default: 50)")
    add("--lifetime", type=float, default=3600.0, help="Exit after this many seconds (default: 3600)")
    add("--until-stdin-closes", action="store_true", help="Exit when standard input closes")
    add("--ignore-parent", action="store_true", help="Continue when the parent process exits")
    add = parser.add_argument_group("Engine").add_argument
    add("--preset", choices=sorted(PRESETS), default="a100", help="GPU to simulate (default: a100)")
    add("--speed", type=float, default=1.0, help="Speed factor of the engine (default: 1)")
    add("--engines-per-gpu", type=int, default=1, help="Equal servers on the GPU, this being one of them (default: 1)")
    add("--api-server-count", type=int, default=1, help="API servers of this server (default: 1)")
    add("--renderer-num-workers", type=int, default=1, help="Images that an API server prepares at once (default: 1)")
    add("--preprocess-seconds", type=float, help="Seconds per image before the queue (default: the preset's)")
    add("--engine-step-seconds", type=float, help="Engine process: seconds per step (default: the preset's)")
    add("--engine-token-seconds", type=float, help="Engine process: seconds per token (default: the preset's)")
    add("--engine-image-seconds", type=float, help="Engine process: seconds per image (default: the preset's)")
    add("--max-num-seqs", type=int, default=128, help="Maximum concurrent sequences (default: 128)")
    add("--max-num-batched-tokens", type=int, default=8192, help="Maximum tokens per step (default: 8192)")
    add("--max-model-len", type=int, default=8192, help="Context length in tokens (default: 8192)")
    add("--kv-tokens", type=int, help="Size of the KV cache in tokens (default: the preset's)")
    add("--patch", type=int, help="Side of an image token's square in pixels (default: as DeepSeek-OCR)")
    add = parser.add_argument_group("Answers").add_argument
    add("--seed", type=int, default=0, help="Seed of the answers (default: 0)")
    add("--mean-tokens", type=float, default=1000.0, help="Mean tokens per answer (default: 1000)")
    add("--sigma", type=float, default=0.5, help="Spread of answer lengths (log-normal, default: 0.5)")
    add("--max", type=int, default=4096, help="Maximum tokens of an answer without a loop (default: 4096)")
    add("--loop-rate", type=float, default=0.0, help="Share of answers that loop (default: 0)")
    add("--empty-rate", type=float, default=0.0, help="Share of empty answers (default: 0)")
    add("--malformed-rate", type=float, default=0.0, help="Share of answers without their markup (default: 0)")
    add(
        "--in-order",
        action="store_true",
        help="Assign answers and faults by the order of images, not by their pixels, to compare clients",
    )
    add("--said", metavar="FILE", help='JSON object of prompts and their exact answers; "*" is any other prompt')
    add("--forced", metavar="FILE", help="JSON object of parts of prompts and answers in the form that they enforce")
    add = parser.add_argument_group("Faults").add_argument
    add(
        "--fault", action="append", default=[], metavar="KIND=VALUE", help="Fault to inject, see faults.py (repeatable)"
    )
    add("--kill-image", metavar="HASHPREFIX", help="Same as --fault die-image=HASHPREFIX")
    add("--state-file", help="File that counts starts and requests per image across restarts")
    add = parser.add_argument_group("Replacement of vllm serve").add_argument
    add("--startup-seconds", type=float, default=0.0, help="Seconds until the server listens (default: 0)")
    add("--oom-above", type=int, help="Run out of memory at the start if --max-num-seqs is larger")
    add("--shutdown-timeout", type=float, default=0.0, help="Seconds for requests to end after SIGTERM, as in vLLM")
    add(
        "--exit-seconds",
        type=float,
        default=0.2,
        help="Seconds from SIGTERM, or the last request after it, to the exit",
    )
    return parser
