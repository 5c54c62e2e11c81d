"""In the place of `vllm serve`: its flags, its log lines, its ways to start, to stop and not to."""

import asyncio
import os
import signal
import subprocess
import sys

import aiohttp
import pytest
from free_ports import free_port
from simulator_client import ask, body_of, metrics, until, url_of

from llm_ocr_simulator.__main__ import main

SERVE = (sys.executable, "-m", "llm_ocr_simulator", "serve", "deepseek-ai/DeepSeek-OCR")
FLAGS = (
    *("--served-model-name", "deepseek-ocr", "--no-enable-prefix-caching", "--mm-processor-cache-gb", "0"),
    *("--limit-mm-per-prompt", '{"image": 1}', "--logits-processors"),
    *("vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor", "--gpu-memory-utilization=0.9"),
)


@pytest.fixture
def serve():
    """Starts a server with more options by environment; all are killed at the end."""
    started = []

    def start(*flags, options="--speed 300", **environment):
        port = free_port()
        more = {"LLM_OCR_SIMULATOR": options, **environment}
        process = subprocess.Popen(
            [*SERVE, "--host", "127.0.0.1", "--port", str(port), *FLAGS, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **more},
        )
        started.append(process)
        return process, f"http://127.0.0.1:{port}/v1"

    yield start
    for process in started:
        process.kill()
        process.communicate()


def log_until_ready(process):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "startup complete" in line:
            break
    return "".join(lines)


async def under_way(asking, url):
    """The server has begun with the question, or has answered it."""
    await until(lambda: asking.done() or metrics(url.removesuffix("/v1"))["num_requests_running"] == 1)


async def one_answer(url, key="", **more):
    async with aiohttp.ClientSession() as session:
        return await ask(session, url, body_of(url_of("served"), **more), key)


def test_it_takes_vllms_flags_and_key_and_prints_vllms_lines(serve, tmp_path):
    config = tmp_path / "key.yaml"
    config.write_text("api-key: key-of-the-file\n")
    flags = ("--max-model-len", "4096", "--config", str(config))
    process, url = serve(*flags, VLLM_API_KEY="sk-of-the-environment")
    log = log_until_ready(process)
    assert "GPU KV cache size: 414,480 tokens\n" in log
    assert "Maximum concurrency for 4,096 tokens per request: 101.19x\n" in log
    assert log.endswith("Application startup complete.\n")
    assert "sk-of" not in log and "key-of" not in log
    assert asyncio.run(one_answer(url, "sk-of-the-environment")).status == 401
    assert asyncio.run(one_answer(url, "key-of-the-file")).finish == "stop"
    process.terminate()  # without a request it ends soon
    assert process.wait(300) == 0


async def test_sigterm_waits_until_clients_of_open_requests_leave(serve):
    process, url = serve(options="--speed 0.1")  # an answer takes most of a minute
    log_until_ready(process)
    asking = asyncio.create_task(one_answer(url))
    await under_way(asking, url)
    process.send_signal(signal.SIGTERM)
    done, _ = await asyncio.wait([asking], timeout=1.5)
    alive = process.poll() is None
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert (done, alive) == (set(), True)
    assert process.wait(300) == 0


async def test_a_shutdown_timeout_lets_requests_end(serve):
    process, url = serve("--shutdown-timeout", "20", options="--speed 10")
    log_until_ready(process)
    asking = asyncio.create_task(one_answer(url))
    await under_way(asking, url)
    process.send_signal(signal.SIGTERM)
    assert (await asking).finish == "stop"
    assert process.wait(300) == 0


def test_too_many_sequences_are_out_of_memory_at_start(capsys):
    assert main(["serve", "m", "--oom-above", "64", "--max-num-seqs", "128"]) == 1
    assert "torch.OutOfMemoryError: CUDA out of memory." in capsys.readouterr().out


def test_a_slow_start_does_not_listen(serve):
    process, url = serve(options="--speed 300 --startup-seconds 600")
    assert process.stdout.readline()
    with pytest.raises(aiohttp.ClientConnectorError):
        asyncio.run(one_answer(url))


def test_it_says_its_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "0.32.0\n"
