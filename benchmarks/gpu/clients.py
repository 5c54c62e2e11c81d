"""The clients that are compared, and the requests that they share: the page images of one Extract, in its order.

`throughput.py` imports it, and has put the folder above on the path.
"""

import base64
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import control_clients
from fixed_length import fixed

import llm_ocr
from llm_ocr.engines import Address, CompletionRequest
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.models.profile import Profile


@dataclass(frozen=True, slots=True)
class Work:
    """What every client has to do."""

    manifest: Path
    pages: int
    tokens: int  # of an answer, on average
    profile: Profile
    format: str  # of page images: png or jpeg


def extract(work: Work, workspace: Path, times: Path, options: Sequence[str]) -> list[str]:
    """`llm-ocr extract`, with answers of one length; `options` say where the server is, or how to start it."""
    program = [sys.executable, str(Path(__file__).with_name("fixed_length.py")), str(work.tokens), str(times)]
    job = ["extract", str(work.manifest), "-w", str(workspace), "--model", work.profile.name, "--quiet"]
    return [*program, *job, "--image-format", work.format, "--fallback", "none", *options]


def completion_requests(work: Work, workspace: Path) -> Iterator[CompletionRequest]:
    """What llm-ocr asked for each page of a finished Extract. Raises SystemExit for a page without an image."""
    profile = work.profile
    settings = {**profile.settings, "temperature": profile.temperature}
    vllm_settings = {**profile.vllm_settings, **profile.page_settings}
    for page in llm_ocr.open(str(workspace)).pages():
        if page.image is None:
            raise SystemExit(f"{page.page_id} has no image: {page.detail}")
        request = CompletionRequest(page.page_id, page.image, profile.prompts[profile.mode], settings, vllm_settings)
        yield fixed(request, work.tokens)


def write_requests(work: Work, workspace: Path, file: Path) -> int:
    """The same requests as `vllm bench serve` reads them; returns how many there are."""
    count = 0
    with file.open("w", encoding="ascii") as out:
        for request in completion_requests(work, workspace):
            # vLLM puts the image's place before the text, wherever it stands in the message.
            image = f"data:{request.image.media_type};base64,{base64.b64encode(request.image.data).decode('ascii')}"
            row = {"prompt": request.prompt, "image_files": [image], "output_tokens": request.settings["max_tokens"]}
            out.write(json.dumps(row) + "\n")
            count += 1
    return count


def bench(
    work: Work,
    program: Path,
    address: Address,
    model: str,
    dataset: str,
    requests: Path,
    result: Path,
    concurrency: int,
) -> list[str]:
    """vLLM's own client on those requests. `program` is the script `vllm`; `model` is the folder with the tokenizer."""
    profile = work.profile
    body = {**profile.settings, **profile.vllm_settings, **profile.page_settings}
    values = {
        "--backend": "openai-chat",
        "--base-url": address.root,
        "--endpoint": "/v1/chat/completions",
        "--model": model,
        "--served-model-name": address.model,
        "--dataset-name": dataset,
        "--dataset-path": str(requests),
        "--num-prompts": str(work.pages),
        "--max-concurrency": str(concurrency),
        "--temperature": str(profile.temperature),
        "--extra-body": json.dumps(body),
        "--ready-check-timeout-sec": "0",  # no request beside those that are counted
        "--result-dir": str(result.parent),
        "--result-filename": result.name,
    }
    switches = ["--ignore-eos", "--no-oversample", "--disable-shuffle", "--disable-tqdm", "--save-result"]
    interpreter = program.read_text().splitlines()[0].removeprefix("#!").split()
    script = str(Path(__file__).with_name("bench_serve.py"))
    return [*interpreter, script, "bench", "serve", *(word for pair in values.items() for word in pair), *switches]


def extract_seconds(times: Path) -> float:
    """From its first request to its last answer."""
    return float(json.loads(times.read_text())["requests_s"])


def bench_figures(result: Path) -> Mapping[str, Any]:
    """What vLLM's client says of itself. Raises RuntimeError if requests failed."""
    said = json.loads(result.read_text())
    if said["failed"]:
        raise RuntimeError(f"{said['failed']} requests of `vllm bench serve` failed")
    names = ("duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "output_throughput")
    return {name: said[name] for name in names if name in said}


async def ideal(address: Address, asked: Sequence[CompletionRequest], concurrency: int) -> float:
    """All questions, `concurrency` under way at a time; the seconds that it took.

    Raises SystemExit for an answer of another length.
    """
    endpoint = Endpoint(address, vllm=True)
    began = time.monotonic()
    try:
        answers = await control_clients.ideal(endpoint, asked, concurrency // 2)
    finally:
        await endpoint.close()
    seconds = time.monotonic() - began
    wrong = [
        (request.id, answer.tokens_out)
        for request, answer in zip(asked, answers, strict=True)
        if answer.tokens_out != request.settings["max_tokens"]
    ]
    if wrong:
        raise SystemExit(f"{len(wrong)} answers have another length, the first: {wrong[0]}")
    return seconds
