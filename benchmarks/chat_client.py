"""CPU seconds that the chat client spends on one answer: a 300 KB image goes out, 1000 tokens come back as a stream.

    python benchmarks/chat_client.py [--repeats N] [--step SECONDS]

The server is another process and costs nothing here: it writes events made beforehand, one step for all streams as
vLLM does. What is measured is `time.process_time` of the client, connections, JSON and event loop included.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

from llm_ocr.engines import Completion, CompletionRequest, Finish
from llm_ocr.engines.client.connections import address_of
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.types import EncodedImage

TOKENS = 1000
IMAGE = EncodedImage(b"\x89PNG\r\n" * 37_500, "image/png", 1000, 1400)  # 300 KB in base64
PIECES = ("The ", "wind ", "was ", "\\u00e9t\\u00e9 ", "\\n", "| 3.5 ", "and ", "(so) ")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(delta: str, finish: str | None, usage: dict[str, int] | None = None, last: bool = False) -> bytes:
    """One event as vLLM writes it, in one HTTP chunk."""
    choices = "[]" if last else f'[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{json.dumps(finish)}}}]'
    event = (
        'data: {"id":"chatcmpl-5f0d1c9be1f84b6b8a0a1f3c2d4e6f70","object":"chat.completion.chunk","created":1763600000,'
        f'"model":"deepseek-ai/DeepSeek-OCR","choices":{choices},"usage":{json.dumps(usage)}}}\n\n'
    ).encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def script(tokens: int) -> list[bytes]:
    """What is written at each step of `tokens` tokens; the last one ends the answer."""
    usage = {"prompt_tokens": 300, "total_tokens": 300 + TOKENS, "completion_tokens": TOKENS}
    steps = []
    for start in range(0, TOKENS, tokens):
        text = "".join(PIECES[number % len(PIECES)] for number in range(start, start + tokens))
        counts = {"prompt_tokens": 300, "total_tokens": 300 + start, "completion_tokens": start}
        steps.append(chunk(f'{{"content":"{text}"}}', None, counts))
    done = b"data: [DONE]\n\n"
    end = chunk('{"content":""}', "stop", usage) + chunk("", None, usage, last=True)
    steps.append(end + b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))
    return steps


class Stream(asyncio.Protocol):
    """One connection of the server: reads a request by its length, then is written to at each step."""

    def __init__(self, open_streams: "set[Stream]") -> None:
        self.open = open_streams
        self.transport: asyncio.WriteTransport
        self.missing = 0  # bytes of the request
        self.step = 0
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.missing == 0:
            head, _, data = data.partition(b"\r\n\r\n")
            self.missing = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        self.missing -= len(data)
        if self.missing == 0:
            self.transport.write(HEAD)
            self.step = 0
            self.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self)


async def serve(tokens: int, step: float) -> None:
    """Listen, print the port, and write the next event to all streams every `tokens` steps."""
    steps = script(tokens)
    streams: set[Stream] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(streams), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    due = loop.time()
    while True:
        due = max(due + step * tokens, loop.time())
        await asyncio.sleep(due - loop.time())
        for stream in list(streams):
            stream.transport.write(steps[stream.step])
            stream.step += 1
            if stream.step == len(steps):
                streams.discard(stream)


def request(number: int) -> CompletionRequest:
    return CompletionRequest(
        f"page-{number}", IMAGE, "<|grounding|>Convert the document to markdown.", {"max_tokens": TOKENS}
    )


async def complete(endpoint: Endpoint, in_flight: int) -> list[Completion]:
    return await asyncio.gather(*(endpoint.complete(request(number)) for number in range(in_flight)))


async def measure(port: int, in_flight: int, repeats: int) -> tuple[list[float], float]:
    """CPU milliseconds an answer in each round after the first, and the seconds of a round."""
    endpoint = Endpoint(address_of(f"http://127.0.0.1:{port}", "deepseek-ai/DeepSeek-OCR"), vllm=True)
    await complete(endpoint, in_flight)
    costs, began = [], time.perf_counter()
    for _ in range(repeats):
        cpu = time.process_time()
        answers = await complete(endpoint, in_flight)
        costs.append((time.process_time() - cpu) / in_flight * 1000)
        assert all(answer.finish is Finish.STOP and answer.tokens_out == TOKENS for answer in answers)
        assert len({answer.text for answer in answers}) == 1
    seconds = (time.perf_counter() - began) / repeats
    await endpoint.close()
    return costs, seconds


def row(tokens: int, in_flight: int, repeats: int, step: float) -> str:
    command = [sys.executable, __file__, "--serve", str(tokens), "--step", str(step)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            costs, seconds = asyncio.run(measure(int(server.stdout.readline()), in_flight, repeats))
        finally:
            server.terminate()
    cells = (tokens, TOKENS // tokens, in_flight, f"{statistics.median(costs):.2f}", f"{min(costs):.2f}")
    ideal = step * (TOKENS + tokens)
    return "| " + " | ".join(map(str, (*cells, f"{max(costs):.2f}", f"{seconds:.2f}", f"{ideal:.2f}"))) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step", type=float, default=0.01, help="seconds a token")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.step))
        return
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {options.step * 1000:g} ms a token")
    print("| tokens an event | events | in flight | CPU ms an answer | least | most | s a round | s of the server |")
    print("|---|---|---|---|---|---|---|---|")
    for tokens in (20, 1):
        for in_flight in (32, 128):
            print(row(tokens, in_flight, options.repeats, options.step), flush=True)


if __name__ == "__main__":
    main()
