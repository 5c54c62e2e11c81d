"""The HTTP server, in a thread of its own."""

import asyncio
import contextlib
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import web

from llm_ocr.testing.fake_hub.accounts import TOKEN
from llm_ocr.testing.fake_hub.answers import JSON, Answer, Refused, Request
from llm_ocr.testing.fake_hub.faults import Fault, Faults, How
from llm_ocr.testing.fake_hub.routes import find
from llm_ocr.testing.fake_hub.state import State

_HOST = "127.0.0.1"
_LARGEST_BODY = 4 << 30
_THREADS = 32

#: Rows of one page of a listing, as on the Hub.
_PAGE = 1000


class FakeHub:
    """`state` and `faults` may be used directly by a test in the same process. Begun by `start`, ended by `stop`."""

    def __init__(self, *, port: int = 0, page: int = _PAGE) -> None:
        self.page = page
        self.state = State()
        self.faults = Faults()
        self._port = port
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fake-hub")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-hub", daemon=True)
        self._runner: web.AppRunner | None = None
        self.url = ""

    @property
    def requests(self) -> dict[str, int]:
        """How many requests of each operation came, those that were made to fail among them."""
        with self._lock:
            return dict(self._counts)

    def environment(self, home: str | Path) -> dict[str, str]:
        """What makes huggingface_hub use this server in a process that is started with it. `home`: a folder for it."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",  # large files of repositories by plain HTTP; with Xet it works too
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    def start(self) -> None:
        """Listen on loopback; `url` is known afterwards. Raises OSError for a port that is taken."""
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except BaseException:
            self.stop()
            raise

    async def _listen(self) -> None:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _HOST, self._port, backlog=256)
        await site.start()
        self.url = f"http://{_HOST}:{self._runner.addresses[0][1]}"

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._pool.shutdown()
        self.state.jobs.close()
        self.state.xet.close()

    async def _handle(self, asked: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        body = await asked.read()
        request = Request(asked.method, asked.rel_url.raw_path, asked.query, headers, body, self.url, self.page)
        if request.path.startswith("/_fake/"):
            return _sent(self._own(request))
        answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._answer, request)
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            answer = await asyncio.get_running_loop().run_in_executor(self._pool, self._act, request)
        if answer is None:
            if asked.transport is not None:
                asked.transport.abort()
            return web.Response()
        return _sent(answer) if answer.more is None else await self._stream(asked, answer, answer.more)

    async def _stream(self, asked: web.Request, answer: Answer, more: Callable[[], bytes | None]) -> web.StreamResponse:
        """Until there is no more, or nobody listens any more."""
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(asked)
        loop = asyncio.get_running_loop()
        while asked.transport is not None and not asked.transport.is_closing():
            part = await loop.run_in_executor(self._pool, more)
            if part is None:
                break
            with contextlib.suppress(ConnectionResetError):
                await response.write(part)
        return response

    def _answer(self, request: Request) -> Answer | float | None:
        """The answer; seconds after which it is to be made; None for a connection that is closed instead."""
        try:
            operation, _ = find(request)
        except Refused as refused:
            return refused.answer()
        with self._lock:
            self._counts[operation] += 1
        fault = self.faults.take(operation, request.path)
        if fault is None:
            return self._act(request)
        if fault.how is How.DELAY:
            return fault.seconds
        if fault.how in (How.LOSE, How.CUT):
            self._act(request)
        if fault.how in (How.DROP, How.CUT):
            return None
        if fault.body:
            return Answer(fault.status, fault.body.encode(), {**JSON, **fault.headers})
        return Refused(fault.status, "", fault.message, headers=fault.headers).answer()

    def _act(self, request: Request) -> Answer:
        try:
            return find(request)[1](self.state)
        except Refused as refused:
            return refused.answer()

    def _own(self, request: Request) -> Answer:
        what = (request.method, request.path)
        if what == ("POST", "/_fake/faults"):
            try:
                self.faults.add(Fault.of(request.json()))
            except (ValueError, Refused) as problem:
                return Refused(400, "", str(problem)).answer()
        elif what == ("DELETE", "/_fake/faults"):
            self.faults.clear()
        elif what == ("GET", "/_fake/requests"):
            return Answer.of(self.requests)
        elif what != ("GET", "/_fake/faults"):
            return Refused(404, "", f"No route {request.method} {request.path}").answer()
        return Answer.of(self.faults.listed())


def _sent(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


@contextlib.contextmanager
def running(*, port: int = 0, page: int = _PAGE) -> Iterator[tuple[FakeHub, dict[str, str]]]:
    """A server in a thread of this process, and the environment for programs that are to use it; gone at the end."""
    hub = FakeHub(port=port, page=page)
    with tempfile.TemporaryDirectory(prefix="llm-ocr-hf-home-") as home:
        hub.start()
        try:
            yield hub, hub.environment(home)
        finally:
            hub.stop()
