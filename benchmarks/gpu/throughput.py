"""Pages a minute of a real vLLM with llm-ocr, beside vLLM's own benchmark client on the same requests.

    python benchmarks/gpu/throughput.py PDFS... --weights FOLDER --dollars-per-hour X
        [--output benchmarks/results/gpu.json]

FOLDER is made by `model.py`: DeepSeek-OCR's architecture with dummy weights, so all figures are of speed and none of
OCR. First `llm-ocr extract` runs with a server of its own; then one server answers each client in turn. README.md says
what is measured.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import proctree
from clients import (
    BENCH,
    IDEAL,
    OURS,
    Work,
    bench,
    bench_figures,
    completion_requests,
    extract,
    extract_seconds,
    ideal,
    write_requests,
)
from gauging import Sample, Served, served, watching
from gpu_report import dollars, median, ratios, table
from served import check_rows, corpus

import llm_ocr
from llm_ocr.engines import Address
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.client.probing import Gauges
from llm_ocr.engines.vllm.command import ServeOptions, free_port
from llm_ocr.engines.vllm.hardware import gpus
from llm_ocr.engines.vllm.server import servers
from llm_ocr.models.registry import find_profile

_LIMIT = 3600.0  # seconds for one run
_HOST = "127.0.0.1"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs")
    add("--weights", type=Path, required=True, metavar="FOLDER", help="made by model.py")
    add("--pages", type=int, default=2000, metavar="N", help="documents repeated; 4 x max-num-seqs or more")
    add("--tokens", type=int, default=1000, metavar="N", help="of each answer (default 1000)")
    add("--clients", default=f"{OURS},{BENCH}", metavar="NAMES", help=f"{OURS}, {BENCH}, {IDEAL} (a plain window)")
    add("--repeats", type=int, default=2, metavar="N", help="the clients take turns; medians are shown (default 2)")
    add("--concurrency", type=int, metavar="N", help="requests of the other clients (default 2 x max-num-seqs)")
    add("--dollars-per-hour", type=float, metavar="X", help="price of the machine, for the cost of 10,000 pages")
    add("--image-format", default="png", choices=("png", "jpeg"))
    add("--vllm-command", default="vllm", metavar="COMMAND", help="as llm-ocr takes it")
    add("--vllm-arg", action="append", default=[], metavar="ARG", help="as llm-ocr takes it, for both servers")
    add("--scratch", type=Path, metavar="FOLDER", help="disk to work on (default: the system's temporary folder)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Bench:
    """What stays the same over the runs."""

    arguments: argparse.Namespace
    work: Work
    scratch: Path

    @property
    def command(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.arguments.vllm_command))

    @property
    def vllm_args(self) -> tuple[str, ...]:
        return ("--load-format=dummy", *self.arguments.vllm_arg)

    @property
    def model(self) -> str:
        return str(self.arguments.weights.resolve())

    def keep(self, report: dict[str, Any]) -> None:
        """Write what there is so far: a rented machine may go away."""
        if self.arguments.output:
            self.arguments.output.write_text(json.dumps(report, indent=1) + "\n")

    def folder(self, name: str) -> Path:
        made = self.scratch / name
        made.mkdir()
        return made


async def run(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    profile = find_profile("deepseek-ocr")
    manifest = corpus(arguments.corpus, arguments.pages, scratch / "documents")
    work = Work(manifest, arguments.pages, arguments.tokens, profile, arguments.image_format)
    over = Bench(arguments, work, scratch)
    report: dict[str, Any] = {
        "command": "python benchmarks/gpu/throughput.py " + shlex.join(sys.argv[1:]),
        "weights": "dummy weights: speed only, what the model writes is noise",
        "model": json.loads((arguments.weights / "config.json").read_text())["language_config"],
        "machine": proctree.machine() | {"gpu": gpu_names(), "python": platform.python_version()},
        "pages": work.pages,
        "output_tokens_per_page": work.tokens,
        "image_format": work.format,
    }
    tell("llm-ocr with a server of its own")
    workspace, report["own_server"] = await own_server(over)
    over.keep(report)
    await compared(over, workspace, report)
    return report


async def own_server(over: Bench) -> tuple[Path, dict[str, Any]]:
    """The whole job, as a user starts it; returns the workspace too."""
    folder = over.folder("own")
    port = free_port(_HOST, 0)
    options = ["--engine", "vllm", "--replicas", "1", "--weights", over.model, "--offline"]
    options += ["--vllm-command", over.arguments.vllm_command, "--vllm-port", str(port)]
    options += [f"--vllm-arg={word}" for word in over.vllm_args]
    command = extract(over.work, folder / "workspace", folder / "times", options)
    endpoint = Endpoint(Address(f"http://{_HOST}:{port}/v1", over.model), vllm=True)
    try:
        async with watching(endpoint) as watched:
            usage = await asyncio.to_thread(measured, command, folder)
    finally:
        await endpoint.close()
    rows = check_rows(folder / "workspace", over.work.pages)
    # The server ends with the job, so that its last counts may be missed: the rows have them too.
    did = replace(served([Sample(watched.began, Gauges()), *watched.samples]), **counted(folder / "workspace"))
    proof(OURS, did, over.work)
    figures = did.as_json(extract_seconds(folder / "times"))
    return folder / "workspace", {
        "start_of_server_s": round(watched.ready - watched.began, 1),
        "job_s": round(usage.wall, 1),
        **figures,
        "dollars_per_10000_pages": dollars(over.arguments.dollars_per_hour, figures["pages_per_min"]),
        "rows": rows,
    }


def counted(workspace: Path) -> dict[str, int]:
    """Requests and tokens, as the rows tell."""
    pages = list(llm_ocr.open(str(workspace)).pages(images=False))
    return {
        "requests": sum(max(1, len(page.attempts)) for page in pages),
        "tokens_in": sum(page.tokens_in for page in pages),
        "tokens_out": sum(page.tokens_out for page in pages),
    }


async def compared(over: Bench, workspace: Path, report: dict[str, Any]) -> None:
    """Each client in turn on one server, after a round that is not counted; into the report."""
    tell("a server for all clients")
    clients = over.arguments.clients.split(",")
    requests = over.scratch / "requests.jsonl"
    write_requests(over.work, workspace, requests)
    asked = list(completion_requests(over.work, workspace))
    async with server(over) as (address, facts):
        slots = facts.max_num_seqs or 256
        concurrency = over.arguments.concurrency or 2 * slots
        report |= {"vllm": facts.version, "max_num_seqs": facts.max_num_seqs, "kv_tokens": facts.kv_tokens}
        report["concurrency_of_other_clients"] = concurrency
        if over.work.pages < 4 * slots:
            tell(f"only {over.work.pages} pages for {slots} sequences: most of the run is filling and draining")
        await ideal(address, asked[: min(slots, len(asked))], concurrency)
        turn = Turn(over, address, requests, asked, concurrency)
        samples: dict[str, list[dict[str, Any]]] = {}
        for repeat in range(over.arguments.repeats):
            for client in clients[repeat % len(clients) :] + clients[: repeat % len(clients)]:
                tell(f"{repeat + 1} of {over.arguments.repeats}: {client}")
                samples.setdefault(client, []).append(await turn.take(client))
                report["clients"] = {one: {"median": median(taken), "runs": taken} for one, taken in samples.items()}
                report["ratios"] = ratios(report["clients"])
                over.keep(report)
    same = {"requests", "prompt_tokens", "output_tokens"}
    if len({tuple(one[name] for name in sorted(same)) for taken in samples.values() for one in taken}) > 1:
        raise SystemExit(f"the clients did not ask the same: {samples}")


@contextlib.asynccontextmanager
async def server(over: Bench) -> Any:
    """The server that llm-ocr would start, for as long as the block lasts; one, on the first GPU."""
    options = ServeOptions(
        command=over.command, args=over.vllm_args, model=over.model, offline=True, log_folder=over.folder("server")
    )
    one = servers(over.work.profile, options, gpus()[:1], say=tell)[0]
    try:
        yield await one.start()
    finally:
        await one.stop()


@dataclass(frozen=True, slots=True)
class Turn:
    """One client's run on the common server."""

    over: Bench
    address: Address
    requests: Path
    asked: Sequence[Any]
    concurrency: int

    async def take(self, client: str) -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(prefix="turn-", dir=self.over.scratch))
        endpoint = Endpoint(self.address, vllm=True)
        try:
            async with watching(endpoint) as watched:
                seconds, said = await {OURS: self._ours, BENCH: self._bench, IDEAL: self._ideal}[client](folder)
        finally:
            await endpoint.close()
        did = served(watched.samples)
        proof(client, did, self.over.work)
        shutil.rmtree(folder)
        return {**did.as_json(seconds), **said}

    async def _ours(self, folder: Path) -> tuple[float, dict[str, Any]]:
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_text(self.address.key)
        options = ["--server-url", self.address.url, "--server-key-file", str(key)]
        work = self.over.work
        usage = await asyncio.to_thread(
            measured, extract(work, folder / "workspace", folder / "times", options), folder
        )  # fmt: skip
        check_rows(folder / "workspace", work.pages)
        said = {"job_s": round(usage.wall, 2), "cpu_s_per_page": round(usage.cpu / work.pages, 4)}
        return extract_seconds(folder / "times"), said

    async def _bench(self, folder: Path) -> tuple[float, dict[str, Any]]:
        over, result = self.over, folder / "result.json"
        words = bench(
            over.work, over.command, self.address, over.model, self.requests, result, self.concurrency
        )  # fmt: skip
        await asyncio.to_thread(measured, words, folder, OPENAI_API_KEY=self.address.key)
        figures = bench_figures(result)
        return float(figures["duration"]), {"says": figures}

    async def _ideal(self, folder: Path) -> tuple[float, dict[str, Any]]:
        return await ideal(self.address, self.asked, self.concurrency), {}


def measured(command: Sequence[str], folder: Path, **environment: str) -> proctree.Usage:
    """Run a client. Raises SystemExit with its last lines if it failed."""
    names = {**os.environ, **environment}
    usage = proctree.measure(command, folder=folder, environment=names, timeout=_LIMIT, log=folder / "log")
    if usage.code != 0:
        raise SystemExit(f"{shlex.join(command[:4])} ... ended with {usage.code}: {usage.tail}")
    return usage


def proof(client: str, did: Served, work: Work) -> None:
    """A client that asks less, or more, than once a page, or for other lengths, is not comparable."""
    found, wanted = (did.requests, did.tokens_out), (work.pages, work.pages * work.tokens)
    if found != wanted:
        raise SystemExit(f"{client}: requests and tokens {found} instead of {wanted}")


def gpu_names() -> list[str]:
    """What the driver calls them; none without a driver."""
    words = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-gpu-", dir=arguments.scratch) as scratch:
        report = asyncio.run(run(arguments, Path(scratch).resolve()))
    print(table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
