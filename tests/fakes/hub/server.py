"""HTTP server of the fake Hub, its routes, and its faults."""

import asyncio
import contextlib
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from tests.fakes.hub import buckets, jobs, repos
from tests.fakes.hub.answers import JSON, TOKEN, Answer, Refused, Request
from tests.fakes.hub.state import State

# Faults on demand: the failing request, the kind of failure, and its frequency.


class How(StrEnum):
    """Effect of a fault on a request."""

    REFUSE = "refuse"  # answered with `status`, not executed
    LOSE = "lose"  # executed, and answered with `status`
    DROP = "drop"  # not executed, connection closed without an answer
    CUT = "cut"  # executed, connection closed without an answer
    DELAY = "delay"  # executed after `seconds`


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault; `operation` is one of `server.ROUTES`, or empty for all; `name` is a part of the path, empty for any.

    The first `after` matching requests succeed, then `times` requests fail. `body` is sent instead of `message`.
    """

    operation: str = ""
    name: str = ""
    how: How = How.REFUSE
    status: int = 503
    times: int = 1
    after: int = 0
    seconds: float = 0.0
    message: str = "injected"
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def fits(self, operation: str, path: str) -> bool:
        """Return whether the fault applies to such a request."""
        return self.operation in ("", operation) and self.name in path


class Faults:
    """Pending faults, thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def add(self, *faults: Fault) -> None:
        """Add faults; they are searched in the order of addition."""
        with self._lock:
            self._waiting.extend(faults)

    def clear(self) -> None:
        """Remove the pending faults."""
        with self._lock:
            self._waiting.clear()

    def listed(self) -> list[dict[str, Any]]:
        """Return the pending faults for JSON."""
        with self._lock:
            return [asdict(fault) for fault in self._waiting]

    def take(self, operation: str, path: str) -> Fault | None:
        """Return the fault of this request, and reduce its count."""
        with self._lock:
            for place, fault in enumerate(self._waiting):
                if not fault.fits(operation, path):
                    continue
                if fault.after > 0:
                    self._waiting[place] = replace(fault, after=fault.after - 1)
                    continue
                left = replace(fault, times=fault.times - 1)
                self._waiting[place : place + 1] = [left] if left.times > 0 else []
                return fault
        return None


# Routing of requests.


_REPO = r"/api/(?P<kind>model|dataset|space)s/(?P<repository>[^/]+/[^/]+)"
_PAGE_ROUTE = r"/(?:(?P<kind>dataset|space)s/)?(?P<repository>[^/]+/[^/]+)"
_BUCKET = r"/api/buckets/(?P<bucket>[^/]+/[^/]+)"
_JOBS = r"/api/jobs/(?P<namespace>[^/]+)"
_JOB = rf"{_JOBS}/(?P<job>[^/]+)"


@dataclass(frozen=True, slots=True)
class Route:
    """Route; `operation` is its name in faults and counts."""

    operation: str
    methods: str
    pattern: re.Pattern[str]
    answer: Callable[..., Answer]


def _route(operation: str, methods: str, pattern: str, answer: Callable[..., Answer]) -> Route:
    return Route(operation, methods, re.compile(pattern), answer)


#: The first matching route answers.
ROUTES = (
    _route("whoami", "GET", r"/api/whoami-v2", repos.whoami),
    _route("create_repo", "POST", r"/api/repos/create", repos.create),
    _route("delete_repo", "DELETE", r"/api/repos/delete", repos.delete),
    _route("validate_yaml", "POST", r"/api/validate-yaml", repos.validate_yaml),
    _route("bucket_tree", "GET", rf"{_BUCKET}/tree(?:/(?P<prefix>.*))?", buckets.tree),
    _route("bucket_paths_info", "POST", rf"{_BUCKET}/paths-info", buckets.paths_info),
    _route("bucket_batch", "POST", rf"{_BUCKET}/batch", buckets.batch),
    _route("xet_token", "GET", rf"{_BUCKET}/xet-(?P<what>read|write)-token", buckets.xet_token),
    _route("create_bucket", "POST", _BUCKET, buckets.create),
    _route("bucket_info", "GET", _BUCKET, buckets.info),
    _route("bucket_resolve", "GET HEAD", r"/buckets/(?P<bucket>[^/]+/[^/]+)/resolve/(?P<path>.+)", buckets.resolve),
    _route("jobs_hardware", "GET", r"/api/jobs/hardware", jobs.hardware),
    _route("run_job", "POST", _JOBS, jobs.run),
    _route("list_jobs", "GET", _JOBS, jobs.listed),
    _route("inspect_job", "GET", _JOB, jobs.inspect),
    _route("cancel_job", "POST", rf"{_JOB}/cancel", jobs.cancel),
    _route("job_logs", "GET", rf"{_JOB}/logs", jobs.logs),
    _route("auth_check", "GET", rf"{_REPO}/auth-check(?:/(?P<write>write))?", repos.auth_check),
    _route("xet_token", "GET", rf"{_REPO}/xet-(?P<what>read|write)-token(?:/(?P<revision>[^/]+))?", repos.xet_token),
    _route("refs", "GET", rf"{_REPO}/refs", repos.refs),
    _route("branch", "POST", rf"{_REPO}/branch/(?P<branch>.+)", repos.branch),
    _route("commits", "GET", rf"{_REPO}/commits/(?P<revision>[^/]+)", repos.commits),
    _route("tree", "GET", rf"{_REPO}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?", repos.tree),
    _route("paths_info", "POST", rf"{_REPO}/paths-info/(?P<revision>[^/]+)", repos.paths_info),
    _route("preupload", "POST", rf"{_REPO}/preupload/(?P<revision>[^/]+)", repos.preupload),
    _route("commit", "POST", rf"{_REPO}/commit/(?P<revision>[^/]+)", repos.commit),
    _route("info", "GET", rf"{_REPO}(?:/revision/(?P<revision>[^/]+))?", repos.info),
    _route("lfs_batch", "POST", rf"{_PAGE_ROUTE}\.git/info/lfs/objects/batch", repos.lfs_batch),
    _route("lfs_verify", "POST", r"/_lfs/(?P<oid>[0-9a-f]{64})/verify", repos.lfs_verify),
    _route("lfs_put", "PUT", r"/_lfs/(?P<oid>[0-9a-f]{64})", repos.lfs_put),
    _route("lfs_get", "GET HEAD", r"/_lfs/(?P<oid>[0-9a-f]{64})", repos.lfs_get),
    _route("resolve", "GET HEAD", rf"{_PAGE_ROUTE}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", repos.resolve),
)


def find(request: Request) -> tuple[str, Callable[[State], Answer]]:
    """Return the operation and its handler. Raises `Refused` (404) for an unknown path."""
    for route in ROUTES:
        if request.method in route.methods.split() and (found := route.pattern.fullmatch(request.path)):
            return route.operation, _bound(route, request, found)
    raise Refused(404, "", f"No route {request.method} {request.path}")


def _bound(route: Route, request: Request, found: re.Match[str]) -> Callable[[State], Answer]:
    names = {name: unquote(value) for name, value in found.groupdict().items() if value is not None}
    if "kind" in route.pattern.groupindex:
        names.setdefault("kind", "model")
    return lambda state: route.answer(state, request, **names)


# HTTP server in a separate thread.


_HOST = "127.0.0.1"
_LARGEST_BODY = 4 << 30
_THREADS = 32

#: Rows per page of a listing, as on the Hub.
_PAGE = 1000


class FakeHub:
    """Server with `start` and `stop`; a test in the same process may use `state` and `faults` directly."""

    def __init__(self, *, page: int = _PAGE) -> None:
        self.page = page
        self.state = State()
        self.faults = Faults()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fake-hub")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-hub", daemon=True)
        self._runner: web.AppRunner | None = None
        self.url = ""

    @property
    def requests(self) -> dict[str, int]:
        """Return the number of requests per operation, including those that a fault hit."""
        with self._lock:
            return dict(self._counts)

    def environment(self, home: str | Path) -> dict[str, str]:
        """Return the variables with which huggingface_hub in a new process uses this server; `home` is its folder."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",  # large files of repositories by plain HTTP; Xet works, too
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }

    def start(self) -> None:
        """Listen on loopback; `url` is known afterward."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    async def _listen(self) -> None:
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _HOST, 0, backlog=256)
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
        """Stream the answer until its end, or until the client disconnects."""
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
        """Return the answer; seconds of delay; or None for a connection that is closed without an answer."""
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


def _sent(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


@contextlib.contextmanager
def running() -> Iterator[tuple[FakeHub, dict[str, str]]]:
    """Run a server in a thread of this process; yield the server and the environment for client programs."""
    hub = FakeHub()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-hf-home-") as home:
        hub.start()
        try:
            yield hub, hub.environment(home)
        finally:
            hub.stop()
