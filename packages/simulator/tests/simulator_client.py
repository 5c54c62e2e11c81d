"""A plain client for the simulator."""

import asyncio
import base64
import json
import urllib.request
from dataclasses import dataclass

import aiohttp

PAGE = "<|grounding|>Convert the document to markdown."


@dataclass
class Got:
    status: int
    text: str = ""
    finish: str | None = None
    usage: dict | None = None
    done: bool = False  # [DONE] came
    error: str = ""
    headers: dict | None = None
    pieces: int = 0


def url_of(name):
    return "data:image/png;base64," + base64.b64encode(f"image {name} ".encode() * 20).decode()


def body_of(url, **more):
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": PAGE}]
    settings = {"model": "deepseek-ocr", "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    return {**settings, "messages": [{"role": "user", "content": parts}], **more}


async def ask(session, url, body, key=""):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with session.post(url + "/chat/completions", json=body, headers=headers) as answer:
        got = Got(answer.status, headers=dict(answer.headers))
        if answer.content_type != "text/event-stream":
            return read_whole(got, await answer.read())
        for event in (await answer.read()).decode().split("\n\n"):
            read_event(got, event)
        return got


def read_whole(got, data):
    answer = json.loads(data)
    if got.status != 200:
        error = answer["error"]
        got.error = error["message"] if isinstance(error, dict) else error
        return got
    got.text, got.finish = answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]
    got.usage = answer["usage"]
    return got


def read_event(got, event):
    if not event:
        return
    data = event.removeprefix("data: ")
    if data == "[DONE]":
        got.done = True
        return
    value = json.loads(data)
    if "error" in value:
        got.error = value["error"]["message"]
        return
    got.usage = value.get("usage", got.usage)
    for choice in value["choices"]:
        got.text += choice["delta"].get("content", "")
        got.pieces += bool(choice["delta"].get("content"))
        got.finish = choice["finish_reason"] or got.finish


async def ask_all(url, bodies):
    """All at once, over a connection each; an exception stands where a request got no answer."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await asyncio.gather(*(ask(session, url, body) for body in bodies), return_exceptions=True)


def asked(url, *bodies):
    """The answers, from code that is not async."""
    return asyncio.run(ask_all(url, bodies))


def fetched(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def metrics(root):
    """The gauges and counters of the server at `root`, a URL without /v1."""
    lines = [line for line in fetched(root + "/metrics").splitlines() if not line.startswith("#")]
    return {line.partition("{")[0].removeprefix("vllm:"): float(line.split()[-1]) for line in lines}


def until(condition):
    """Wait until it is true of a server, which is another process."""

    async def wait():
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.02)

    return asyncio.wait_for(wait(), 60)
