"""The simulator over HTTP, asked by a plain client: vLLM's API, errors and gauges, and the oracle in its log."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import aiohttp
import pytest
from simulator_client import ask, ask_all, asked, body_of, fetched, metrics, until, url_of

from llm_ocr_simulator import running
from llm_ocr_simulator.answers import token_of
from llm_ocr_simulator.engine import A100
from llm_ocr_simulator.process import command

IMAGE = {"type": "image_url", "image_url": {"url": url_of(1)}}


@pytest.fixture(scope="module")
def simulator():
    with running(speed=300, api_key="") as one:
        yield one


def test_streamed_answers_are_whole_and_belong_to_their_pages(simulator):
    urls = [url_of(number) for number in range(40)]
    for url, got in zip(urls, asked(simulator.url, *map(body_of, urls)), strict=True):
        assert (got.status, got.finish, got.done) == (200, "stop", True)
        assert token_of(url) in got.text
        assert got.pieces == pytest.approx(got.usage["completion_tokens"] / 50, abs=2)
        assert got.usage["total_tokens"] == got.usage["prompt_tokens"] + got.usage["completion_tokens"]


def test_answers_follow_the_settings_of_their_request(simulator):
    url = url_of("same")
    streamed, whole, unasked, cut, forced = asked(
        simulator.url,
        body_of(url),
        body_of(url, stream=False),
        body_of(url, stream_options={}),
        body_of(url, max_tokens=50),
        body_of(url, structured_outputs={"choice": ["# Just this"]}),
    )
    assert (streamed.text, streamed.finish, streamed.usage) == (whole.text, whole.finish, whole.usage)
    assert (unasked.usage, unasked.done) == (None, True)
    assert (cut.finish, cut.usage["completion_tokens"]) == ("length", 50)
    assert (forced.text, forced.finish) == ("# Just this", "stop")


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"max_tokens": 9000}, 400, "max_tokens=9000 cannot be greater than max_model_len=8192"),
        ({"max_tokens": 8100}, 400, "maximum context length is 8192 tokens"),
        (
            {"messages": [{"role": "user", "content": "word " * 9000}]},
            400,
            "prompt contains at least 8193 input tokens",
        ),
        ({"messages": "none"}, 400, "not understood"),
        ({"messages": [{"role": "user", "content": [IMAGE, IMAGE]}]}, 400, "At most 1 image(s) may be provided in"),
        ({"structured_outputs": {"regex": "a"}}, 400, "only choice and json"),
    ],
)
def test_bad_requests_are_refused_as_vllm_refuses_them(simulator, change, status, says):
    (got,) = asked(simulator.url, body_of(url_of("bad"), **change))
    assert got.status == status
    assert says in got.error


@pytest.mark.parametrize("url", ["https://example.org/a.png", "data:text/plain;base64,AAAA", "data:image/png;base64,*"])
def test_an_image_that_is_no_data_url_is_refused(simulator, url):
    (got,) = asked(simulator.url, body_of(url))
    assert (got.status, got.error[:20]) == (400, "Failed to load image")


def test_models_health_and_version(simulator):
    (model,) = json.loads(fetched(simulator.url + "/models"))["data"]
    assert (model["id"], model["max_model_len"]) == ("deepseek-ocr", 8192)
    assert fetched(simulator.root + "/health") == ""
    assert json.loads(fetched(simulator.root + "/version")) == {"version": "0.32.0"}


def test_a_provider_needs_its_key_and_shows_no_gauges():
    with running(speed=300, api_key="sk-right", no_metrics=True) as simulator:
        for path in ("/metrics", "/version"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetched(simulator.root + path)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetched(simulator.url + "/models")
        assert fetched(simulator.root + "/health") == ""

        async def with_keys():
            async with aiohttp.ClientSession() as session:
                return [await ask(session, simulator.url, body_of(url_of(1)), key) for key in ("sk-wrong", "sk-right")]

        assert [got.status for got in asyncio.run(with_keys())] == [401, 200]


def gauges(simulator):
    """How many run, how many wait, the share of the cache in use."""
    seen = metrics(simulator.root)
    return tuple(seen[name] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))


def test_gauges_show_running_and_waiting_and_aborts_free_cache():
    async def leave_in_the_middle(simulator):
        everyone = asyncio.create_task(ask_all(simulator.url, [body_of(url_of(number)) for number in range(12)]))
        await until(lambda: gauges(simulator)[:2] == (4, 8))
        during = await asyncio.to_thread(gauges, simulator)
        everyone.cancel()
        await until(lambda: gauges(simulator) == (0, 0, 0))
        return during

    with running(speed=0.5, preprocess_seconds=0, max_num_seqs=4) as simulator:
        running_then, waiting_then, cache = asyncio.run(leave_in_the_middle(simulator))
        assert (running_then, waiting_then) == (4, 8)
        assert 0 < cache < 0.1
        assert {entry["finish"] for entry in simulator.log()["requests"]} == {"abort"}


def test_metrics_count_tokens_and_finishes_and_show_cache_size(simulator):
    before = metrics(simulator.root)
    (got,) = asked(simulator.url, body_of(url_of(1)))
    seen = metrics(simulator.root)
    for name, counted in (("prompt_tokens_total", "prompt_tokens"), ("generation_tokens_total", "completion_tokens")):
        assert seen[name] - before[name] == got.usage[counted]
    text = fetched(simulator.root + "/metrics")
    assert 'request_success_total{finished_reason="stop",engine="0",model_name="deepseek-ocr"}' in text
    assert f'cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{A100.kv_tokens // 16}"}}' in text


def test_log_holds_requests_an_unbeaten_oracle_and_busy_shares():
    # A step takes 50 ms of the core (before --speed), and a few milliseconds of the GPU.
    times = {"engine_step_seconds": 0.05, "renderer_num_workers": 8, "api_server_count": 2}
    with running(speed=100, preset="h200", max_num_seqs=8, **times) as simulator:
        bodies = [body_of(url_of(number)) for number in range(30)]
        answers = asked(simulator.url, *bodies)
        log = simulator.log()
        assert len(log["requests"]) == 30
        for entry in log["requests"]:
            times = [entry[name] for name in ("arrival", "queued", "admitted", "first_token", "end")]
            assert times == sorted(times)
            assert (entry["finish"], entry["fault"], entry["status"], entry["asked"]) == ("stop", "", 200, 0)
        tokens = sorted(entry["output_tokens"] for entry in log["requests"])
        assert tokens == sorted(got.usage["completion_tokens"] for got in answers)
        assert log["oracle"] == max(entry["oracle_end"] for entry in log["requests"])
        assert log["measured"] > log["oracle"] * 0.97
        assert 0 < log["gpu_busy"] < log["core_busy"] <= 1.001
        assert log["gpu_busy"] < 0.1
        simulator.reset()
        assert simulator.log()["requests"] == []


def test_it_ends_when_a_pipe_closes():
    words = command(speed=300, until_stdin_closes=True)
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
    assert json.loads(process.stdout.readline())["pid"] == process.pid
    process.stdin.close()
    assert process.wait(300) == 0
    process.stdout.close()


def test_wrong_options_say_so():
    with pytest.raises(RuntimeError, match="exit code 2"), running(fault={"nonsense": 1}):
        pass


def test_it_ends_when_its_parent_has_died():
    code = (
        "import subprocess, sys; process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE); "
        "print(process.stdout.readline().decode(), flush=True)"
    )
    # Its standard error would stay open, and with it this call, for as long as the simulator lives.
    words = [sys.executable, "-c", code, *command()]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    url = json.loads(done.stdout)["url"]
    deadline = time.monotonic() + 60
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            fetched(url.removesuffix("/v1") + "/health")
            time.sleep(0.1)


def test_a_busy_port_is_said_in_one_line_with_the_way_out():
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = subprocess.run(command(port=port), capture_output=True, text=True)
    assert done.returncode == 1
    said = f"simulator: cannot listen on 127.0.0.1:{port}: Address already in use. Use --port 0 for a free port.\n"
    assert done.stderr == said
