"""Stands in for `vllm`: takes its words, prints its kind of log, listens, and misbehaves as `--fake-…` says."""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.6 GiB"


def value(name, default=""):
    words = sys.argv[1:]
    for position, word in enumerate(words):
        if word == f"--{name}":
            return words[position + 1]
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return default


def say(line, process="APIServer", level="INFO"):
    print(f"({process} pid={os.getpid()}) {level} 11-21 01:01:18 [core.py:1] {line}", flush=True)


def key():
    """The key in the file of --config, or in the environment."""
    config = value("config")
    text = Path(config).read_text() if config else f"api-key: {os.environ['VLLM_API_KEY']}"
    return text.removeprefix("api-key: ").strip()


KEY = "" if "--version" in sys.argv else key()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/v1") and self.headers.get("Authorization") != f"Bearer {KEY}":
            return self.answer(401, {"error": "Unauthorized"})
        if self.path == "/oom":
            say(OOM, "EngineCore", "ERROR")
            self.answer(500, {})
            os._exit(1)
        model = {"id": value("served-model-name"), "owned_by": "vllm", "max_model_len": int(value("max-model-len"))}
        pages = {
            "/health": {},
            "/version": {"version": "0.32.0"},
            "/v1/models": {"object": "list", "data": [model]},
        }
        return self.answer(200, pages[self.path]) if self.path in pages else self.answer(404, {})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def engine():
    """A second process that holds the device, and does not hear SIGTERM where the fake is stubborn."""
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if value("fake-stubborn") else ""
    return subprocess.Popen([sys.executable, "-c", f"import signal, time; {stubborn} time.sleep(600)"])


SCATTERED = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
if sys.argv[1] == "twice" and os.fork():
    os._exit(0)
with open(sys.argv[2], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def scatter(path):
    """Processes in sessions of their own, one of them without a parent, deaf to SIGTERM and without our environment."""
    for how in ("once", "twice"):
        child = subprocess.Popen([sys.executable, "-c", SCATTERED, how, path], env={})
        if how == "twice":
            child.wait()
    while not Path(path).exists() or len(Path(path).read_text().splitlines()) < 2:
        time.sleep(0.02)


def fail_as_told():
    sequences = int(value("max-num-seqs", "256"))
    if sequences > int(value("fake-fits", "100000")):
        say(OOM, "EngineCore", "ERROR")
        say("RuntimeError: Engine core initialization failed. See root cause above.", level="ERROR")
        sys.exit(1)
    once = value("fake-port-taken-once")
    if once and not Path(once).exists():
        Path(once).touch()
        print("OSError: [Errno 98] Address already in use", flush=True)
        sys.exit(1)
    if text := value("fake-fails"):
        print(Path(text).read_text(), flush=True)
        sys.exit(2)


def main():
    if "--version" in sys.argv:
        print("0.32.0")
        return
    say(f"non-default args: {{'key': '{KEY}', 'token': 'hf_abcdefghijklmnopqrstuvwxyz'}}")
    child = engine()
    if path := value("fake-scatter"):
        scatter(path)
    if record := value("fake-record"):
        told = {"pid": os.getpid(), "engine": child.pid, "group": os.getpgrp(), "words": sys.argv[1:], "key": KEY}
        if config := value("config"):
            told |= {"config": config, "mode": Path(config).stat().st_mode & 0o777}
        Path(record + ".new").write_text(json.dumps(told | {"environment": dict(os.environ)}))
        Path(record + ".new").rename(record)
    fail_as_told()
    if value("fake-stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("Loading safetensors checkpoint shards:  45% Completed | 5/11 [00:10<00:12]", end="\r", flush=True)
    time.sleep(float(value("fake-slow", "0")))
    print("\nLoading safetensors checkpoint shards: 100% Completed | 11/11 [00:20<00:00]", flush=True)
    say("Chunked prefill is enabled with max_num_batched_tokens=8192.")
    say("GPU KV cache size: 1,115,616 tokens", "EngineCore_DP0")
    say("Maximum concurrency for 8,192 tokens per request: 136.18x", "EngineCore_DP0")
    ThreadingHTTPServer((value("host"), int(value("port"))), Handler).serve_forever()


main()
