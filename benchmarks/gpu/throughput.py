"""Pages a minute of a real vLLM on a GPU, setting by setting, with llm-ocr and with vLLM's own benchmark client.

    python benchmarks/gpu/throughput.py PDFS... --weights FOLDER --output FOLDER [--seconds 560]

FOLDER of --weights is made by `model.py`: DeepSeek-OCR's architecture with dummy weights, so all figures are of speed
and none of OCR. All servers start at once and share the GPU's memory; then the clients take turns, and idle servers use
nothing. The report is written after each step. README.md says what is measured.
"""

import argparse
import asyncio
import json
import os
import platform
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import proctree
from clients import Work, bench, bench_figures, completion_requests, extract, extract_seconds, ideal, write_requests
from sampling import Sampler, served
from served import corpus

import llm_ocr
from llm_ocr.engines import Address
from llm_ocr.engines.vllm.command import ServeOptions, Sizes
from llm_ocr.engines.vllm.server import VllmServer
from llm_ocr.engines.vllm.sizing import gpus
from llm_ocr.errors import LlmOcrError
from llm_ocr.models.registry import find_profile

_VLLM_PROCESSOR = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
_ENCODER_GRAPHS = '--compilation-config={"cudagraph_mm_encoder": true}'


@dataclass(frozen=True, slots=True)
class Setting:
    """How one server is started. `kv_gib`: GiB of its KV cache; 64 sequences of 1,910 tokens need 7."""

    workers: int = 8  # renderer workers
    sequences: int = 64
    processor: str = "llm_ocr"  # or "vllm", or "" for none
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    kv_gib: float = 7.25
    cache: str = ""  # setting whose compiled code it finds; "": its own


SETTINGS = {
    "before": Setting(workers=1, processor="vllm"),  # as llm-ocr started vLLM until November 2026
    "workers": Setting(processor="vllm"),
    "fast": Setting(),
    "none": Setting(processor="", environment={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
    "wide": Setting(sequences=128, kv_gib=14.5),
    "servers": Setting(workers=1, args=("--api-server-count=4",)),
    "graphs": Setting(args=(_ENCODER_GRAPHS,)),
    # Started for the turns of two servers, when the compiled code is there and the first servers have ended.
    "fast2": Setting(cache="fast"),
    "graphs2": Setting(args=(_ENCODER_GRAPHS,), cache="graphs"),
    "wide2": Setting(sequences=128, kv_gib=14.5, cache="wide"),
}
LATE = ("fast2", "graphs2", "wide2")
DONE = ("before", "workers", "servers")


@dataclass(frozen=True, slots=True)
class Turn:
    """One client on one or more servers."""

    client: str  # llm-ocr, vllm-bench, or intake (answers of one token)
    servers: tuple[str, ...]
    share: float = 1.0  # of the pages
    image_format: str = "png"
    profile: bool = False  # sample the engine's functions with py-spy

    @property
    def label(self) -> str:
        return f"{self.client}:{'+'.join(self.servers)}" + (":jpeg" if self.image_format == "jpeg" else "")


#: In the order of worth: the last ones are left out when time is short.
TURNS = (
    Turn("llm-ocr", ("before",), profile=True),
    Turn("llm-ocr", ("workers",)),
    Turn("llm-ocr", ("fast",), profile=True),
    Turn("vllm-bench", ("fast",)),
    Turn("llm-ocr", ("none",), profile=True),
    Turn("llm-ocr", ("wide",)),
    Turn("intake", ("before",), share=0.25),
    Turn("intake", ("fast",), share=0.5),
    Turn("intake", ("servers",), share=0.5),
    Turn("llm-ocr", ("graphs",), profile=True),
    Turn("llm-ocr", ("fast", "fast2")),
    Turn("llm-ocr", ("wide", "wide2")),  # as llm-ocr starts vLLM on such a machine
    Turn("llm-ocr", ("graphs", "graphs2"), profile=True),
    Turn("llm-ocr", ("fast", "fast2", "graphs")),
    Turn("llm-ocr", ("fast", "fast2"), image_format="jpeg"),
    Turn("llm-ocr", ("none", "fast2")),
)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("corpus", type=Path, nargs="+", help="folders of PDFs, or PDFs; their pages are repeated")
    add("--weights", type=Path, required=True, metavar="FOLDER", help="made by model.py")
    add("--output", type=Path, required=True, metavar="FOLDER", help="report.json, samples, logs")
    add("--pages", type=int, default=192, metavar="N", help="pages of a turn (default 192)")
    add("--tokens", type=int, default=1000, metavar="N", help="of an answer, on average (default 1000)")
    add("--seconds", type=float, default=560, metavar="S", help="no turn begins that would end later (default 560)")
    add(
        "--settings",
        default=",".join(name for name in SETTINGS if name not in LATE),
        metavar="NAMES",
        help=f"servers to start at once: {', '.join(SETTINGS)}",
    )
    add("--turns", metavar="LABELS", help=f"clients and servers: {', '.join(turn.label for turn in TURNS)}")
    add("--dollars-per-hour", type=float, default=3.5, metavar="X", help="price of the machine (default 3.50)")
    add("--vllm-command", default="vllm", metavar="COMMAND", help="as llm-ocr takes it")
    add("--vllm-arg", action="append", default=[], metavar="ARG", help="for every server")
    add("--dataset-name", default="custom_image", help="vLLM's name for images from a file; custom_mm in old versions")
    return parser.parse_args()


class Bench:
    """The servers, the work, and the report."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.given.output.mkdir(parents=True, exist_ok=True)
        self.folder = given.output.resolve()
        self.profile = find_profile("deepseek-ocr")
        self.model = str(given.weights.resolve())
        self.sampler = Sampler(self.folder / "samples.jsonl")
        program, *words = shlex.split(given.vllm_command)
        self.command = (str(Path(shutil.which(program) or program).absolute()), *words)
        self.key = f"key-{secrets.token_hex(16)}"
        self.servers: dict[str, tuple[VllmServer, Address]] = {}
        self.report: dict[str, Any] = {
            "command": shlex.join(sys.argv),
            "machine": proctree.machine() | {"gpu": gpu_names(), "python": platform.python_version()},
            "pages": given.pages,
            "output_tokens_per_page": given.tokens,
            "starts": {},
            "turns": [],
            "failures": [],
        }
        self.work = Work(Path(), given.pages, given.tokens, self.profile, "png")
        self.asked: list[Any] = []
        self.lasted: dict[str, float] = {}

    def tell(self, text: str) -> None:
        line = f"{time.monotonic() - self.sampler.began:6.1f} {text}"
        print(line, flush=True)
        with (self.folder / "log").open("a") as log:
            log.write(line + "\n")

    def keep(self) -> None:
        """Write what there is so far: a rented machine may go away."""
        (self.folder / "report.json").write_text(json.dumps(self.report, indent=1) + "\n")

    def left(self) -> float:
        return float(self.given.seconds) - (time.monotonic() - self.sampler.began)

    def server(self, name: str, setting: Setting, index: int) -> VllmServer:
        profile = self.profile
        args = ["--load-format=dummy", *self.given.vllm_arg, *setting.args]
        if setting.kv_gib and gpus():
            args += [f"--kv-cache-memory-bytes={round(setting.kv_gib * 2**30)}", "--gpu-memory-utilization=0.1"]
        if setting.processor == "vllm":
            args.append(f"--logits-processors={_VLLM_PROCESSOR}")
        if not setting.processor:
            words = list(profile.server_args)
            place = words.index("--logits-processors")
            profile = replace(profile, server_args=tuple(words[:place] + words[place + 2 :]))
        options = ServeOptions(
            command=self.command,
            args=tuple(args),
            model=self.model,
            offline=True,
            compile_cache=self.folder / f"cache-{setting.cache or name}",
            log_folder=self.folder / f"server-{name}",
            sizes=Sizes(max_num_seqs=setting.sequences, renderer_workers=setting.workers),
        )
        before = dict(os.environ)
        os.environ.update(setting.environment)
        try:
            server = VllmServer(profile, options, index=index, say=self.tell)
        finally:
            os.environ.clear()
            os.environ.update(before)
        server._key = self.key  # `--server-url` of several servers has one key
        return server

    async def start(self, name: str, setting: Setting) -> None:
        server = self.server(name, setting, len(self.report["starts"]))
        began = time.monotonic()
        try:
            address, facts = await server.start()
        except (LlmOcrError, OSError) as error:  # the other servers go on
            self.tell(f"{name} FAILED: {str(error)[:1500]}")
            self.report["failures"].append({"server": name, "error": str(error)[:6000]})
            self.keep()
            return
        self.servers[name] = (server, address)
        self.sampler.addresses.add(address.root)
        self.report["starts"][name] = {
            "seconds": round(time.monotonic() - began, 1),
            "command": server.command,
            "vllm": facts.version,
            "max_num_seqs": facts.max_num_seqs,
            "kv_tokens": facts.kv_tokens,
        }
        self.tell(f"{name} is ready after {time.monotonic() - began:.1f} s")
        self.keep()

    async def stop(self, *names: str) -> None:
        for name in names:
            if name in self.servers:
                server, address = self.servers.pop(name)
                self.sampler.addresses.discard(address.root)
                await server.stop()

    async def take(self, turn: Turn) -> None:
        """Run one client, and add what the servers did to the report."""
        missing = [name for name in turn.servers if name not in self.servers]
        likely = self.lasted.get(turn.client, 40.0) + 3.0
        if missing or self.left() < likely:
            self.tell(f"{turn.label} is left out: " + (f"no server {missing}" if missing else "no time"))
            return
        addresses = [self.servers[name][1] for name in turn.servers]
        self.sampler.label = turn.label
        self.tell(turn.label)
        folder = self.folder / "work" / turn.label.replace(":", "-").replace("+", "-")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        spies = asyncio.create_task(self.spy(turn, addresses)) if turn.profile else None
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(10.0, self.left())):
                seconds, pages, more = await {"llm-ocr": self.ours, "vllm-bench": self.bench, "intake": self.intake}[
                    turn.client
                ](turn, addresses, folder)
        except (LlmOcrError, OSError, RuntimeError, ValueError, KeyError, SystemExit) as error:
            self.tell(f"{turn.label} FAILED: {type(error).__name__} {str(error)[-1500:]}")
            self.report["failures"].append(
                {"turn": turn.label, "error": f"{type(error).__name__} {str(error)[-6000:]}"}
            )
            self.keep()
            return
        finally:
            if spies:
                spies.cancel()
                await asyncio.gather(spies, return_exceptions=True)
        await asyncio.sleep(1.1)
        self.sampler.label = ""
        self.lasted[turn.client] = time.monotonic() - began
        did = served(self.sampler.during(turn.label), [address.root for address in addresses])
        lengths = [int(one.settings["max_tokens"]) for one in self.asked]
        wanted = (pages, pages if turn.client == "intake" else sum(lengths))
        counted = (did.requests, did.output_tokens) if did else (0, 0)
        if counted != wanted:  # not comparable with the other turns
            error = f"the servers counted {counted} requests and output tokens instead of {wanted}"
            self.report["failures"].append({"turn": turn.label, "error": error})
            self.tell(f"{turn.label}: {error}")
        rate = 60 * pages / seconds
        row = {
            "turn": turn.label,
            "pages": pages,
            "seconds": round(seconds, 2),
            "pages_per_min": round(rate, 1),
            "dollars_per_10000_pages": round(self.given.dollars_per_hour * 10_000 / (60 * rate), 3),
            **(asdict(did) if did else {}),
            "output_tokens_per_s": round(did.output_tokens / seconds, 1) if did else 0.0,
            **more,
        }
        self.report["turns"].append(row)
        self.tell(json.dumps(row))
        self.keep()

    async def ours(self, turn: Turn, addresses: Sequence[Address], folder: Path) -> tuple[float, int, dict[str, Any]]:
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_text(addresses[0].key)
        options = [word for address in addresses for word in ("--server-url", address.url)]
        options += ["--server-key-file", str(key), "--server-model", self.model, "--min-quality", "0"]
        work = replace(self.work, format=turn.image_format)
        command = extract(work, folder / "workspace", folder / "times", options)
        usage = await asyncio.to_thread(
            proctree.measure, command, folder=folder, environment=dict(os.environ), timeout=self.left(),
            log=folder / "log",
        )  # fmt: skip
        if usage.code:
            raise RuntimeError(f"llm-ocr ended with {usage.code}: {usage.tail}")
        rows = list(llm_ocr.open(str(folder / "workspace")).pages(images=False))
        if not self.asked:
            self.asked = list(completion_requests(work, folder / "workspace"))
            write_requests(work, folder / "workspace", self.folder / "work" / "requests.jsonl")
            self.report["image_bytes_mean"] = round(sum(len(one.image.data) for one in self.asked) / len(self.asked))
        states = [row.status.value for row in rows]
        return extract_seconds(folder / "times"), len(rows), {
            "rows": {state: states.count(state) for state in set(states)},
            "job_s": round(usage.wall, 1),
            "client_cpu_s_per_page": round(usage.cpu / len(rows), 4),
        }  # fmt: skip

    async def bench(self, turn: Turn, addresses: Sequence[Address], folder: Path) -> tuple[float, int, dict[str, Any]]:
        sequences = sum(SETTINGS[name].sequences for name in turn.servers)
        words = bench(
            self.work, Path(self.command[0]), addresses[0], self.model, self.given.dataset_name,
            self.folder / "work" / "requests.jsonl", folder / "result.json", 2 * sequences,
        )  # fmt: skip
        names = {**os.environ, "OPENAI_API_KEY": addresses[0].key}
        usage = await asyncio.to_thread(
            proctree.measure, words, folder=folder, environment=names, timeout=self.left(), log=folder / "log"
        )
        if usage.code:
            raise RuntimeError(f"vllm bench serve ended with {usage.code}: {usage.tail}")
        figures = bench_figures(folder / "result.json")
        return float(figures["duration"]), int(figures["completed"]), {"says": figures, "job_s": round(usage.wall, 1)}

    async def intake(self, turn: Turn, addresses: Sequence[Address], folder: Path) -> tuple[float, int, dict[str, Any]]:
        """Answers of one token: the server decodes, preprocesses, and encodes images, and writes nothing."""
        asked = [replace(one, settings={**one.settings, "max_tokens": 1}) for one in self.asked]
        asked = asked[: max(1, round(turn.share * len(asked)))]
        return await ideal(addresses[0], asked, 128), len(asked), {}

    async def spy(self, turn: Turn, addresses: Sequence[Address]) -> None:
        """Write which functions the busiest engine runs, once the servers are full."""
        if shutil.which("py-spy") is None:
            return
        await asyncio.sleep(8.0)
        engines = [one for one in self.sampler.samples[-1].processes if "EngineCore" in one.name]
        if not engines:
            return
        pid = max(engines, key=lambda one: one.cores).pid
        file = self.folder / f"{turn.label.replace(':', '-').replace('+', '-')}.folded"
        words = ["py-spy", "record", "--pid", str(pid), "--duration", "6", "--rate", "150", "--nonblocking"]
        process = await asyncio.create_subprocess_exec(
            *words, "--format", "raw", "--output", str(file),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await process.wait()

    async def run(self) -> None:
        documents = self.folder / "documents"
        shutil.rmtree(documents, ignore_errors=True)
        names = self.given.settings.split(",")
        starting = [asyncio.create_task(self.start(name, SETTINGS[name])) for name in names]
        manifest = await asyncio.to_thread(corpus, self.given.corpus, self.given.pages, documents)
        self.work = replace(self.work, manifest=manifest)
        await asyncio.gather(*starting)
        wanted = self.given.turns.split(",") if self.given.turns else [turn.label for turn in TURNS]
        for turn in (turn for turn in TURNS if turn.label in wanted):
            for name in turn.servers:
                if name in LATE and name not in self.report["starts"]:
                    await self.stop(*DONE)  # for their memory
                    await self.start(name, SETTINGS[name])
            await self.take(turn)
        await self.stop(*list(self.servers))


def gpu_names() -> list[str]:
    """What the driver calls them; none without a driver."""
    words = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


def table(report: Mapping[str, Any]) -> str:
    """The turns, a line each."""
    lines = [f"{'turn':<34} pages/min  tokens/s    steady  GPU %  engine cores  API cores  running  waiting  $/10,000"]
    for row in report["turns"]:
        lines.append(
            f"{row['turn']:<34} {row['pages_per_min']:>9.1f} {row['output_tokens_per_s']:>9.0f} "
            f"{row.get('steady_tokens_per_s', 0):>9.0f} {row.get('gpu_busy') or 0:>6.1f} "
            f"{row.get('engine_cores', 0):>13.2f} {row.get('api_cores', 0):>10.2f} {row.get('running', 0):>8.1f} "
            f"{row.get('waiting', 0):>8.1f} "
            f"{row['dollars_per_10000_pages']:>9.3f}"
        )
    starts = ", ".join(f"{name} {start['seconds']} s" for name, start in report["starts"].items())
    return "\n".join([*lines, f"starts: {starts}", *(f"FAILED {one}"[:300] for one in report["failures"])])


def main() -> int:
    bench = Bench(parse())
    bench.sampler.start()
    bench.keep()
    try:
        asyncio.run(bench.run())
    finally:
        bench.keep()
        if bench.sampler.smi:
            bench.sampler.smi.terminate()
        print(table(bench.report), flush=True)
    return 1 if bench.report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
