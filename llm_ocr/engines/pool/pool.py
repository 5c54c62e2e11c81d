"""Run the servers of one model as one engine."""

import asyncio
import functools
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llm_ocr.engines import Address, Completion, CompletionRequest, Load, Server, ServerFacts, noop
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.pool.scheduler import PoisonDetector, RequestScheduler
from llm_ocr.engines.pool.session import (
    PoolOptions,
    Request,
    ServerSession,
    Window,
    describe,
    first_size,
    harm,
    steer,
)
from llm_ocr.errors import LlmOcrError, PageFailure, RequestLost, RequestRefused, ServerBusy, ServerError
from llm_ocr.types import Reason, plural

#: Answers after which a restart of a server is forgotten.
ENOUGH_ANSWERS = 100


async def moves_again(service: ServerSession, stall: float) -> bool:
    """Return True after a stalled request as soon as another one makes progress, False if the server hangs or exited.

    A server hangs if no answer makes progress for `stall` seconds, whatever it answers to /health. Without other
    requests in flight, recently ended requests decide: if one made recent progress, the server did not hang.
    """
    # A request on an otherwise idle server looks like progress. So nothing is sent from now on, and requests that are
    # being sent at this moment do not count.
    since = time.monotonic() + 0.1
    service.stalled += 1
    try:
        while service.alive:
            silent = time.monotonic() - service.endpoint.received
            if len(service.holders) == 1 and silent < stall / 2:
                return True
            if silent > stall:
                return False
            await asyncio.wait({service.death}, timeout=min(0.5, stall / 10))
            if service.endpoint.received > since:
                return service.alive
    finally:
        service.stalled -= 1
    return False


@dataclass(slots=True)
class ServerSupervisor:
    """Supervisor of one server; `live` runs it, and the pool reads the other members."""

    number: int
    server: Server
    options: PoolOptions
    places: RequestScheduler
    suspects: PoisonDetector
    say: Callable[[str], None]
    service: ServerSession | None = None  # set while the server accepts requests
    answers: int = 0
    restarts: int = 0
    uninvolved: bool = False  # a shared server exited without a request of this client in flight
    gone: Exception | None = None  # final error of a server that is not restarted
    #: Number of answers at each remembered restart, and whether the server hung; at most `max_restarts`.
    remembered: deque[tuple[int, bool]] = field(default_factory=deque)
    forgiven_at: int = 0  # number of answers

    async def live(self) -> None:
        """Start the server and serve through its deaths until canceled.

        Raises `ServerError` when no restart is possible.
        """
        address, facts = await self.server.start()
        while True:
            why, hung = await self._serve(address, facts)
            while self.remembered and self.answers - self.remembered[0][0] >= ENOUGH_ANSWERS:
                self.remembered.popleft()
            if self.uninvolved:
                self.say(f"{self.server.name}: {why}; no request was in flight")
            elif len(self.remembered) >= self.options.max_restarts:
                hangs = hung + sum(hung_before for _, hung_before in self.remembered)
                raise ServerError(
                    f"{self.server.name} {harm(len(self.remembered) + 1 - hangs, hangs)} without {ENOUGH_ANSWERS} "
                    f"answers since the first failure; the last reason: {why}",
                    hint="Check the server's log. Run the same command again to continue. `max_server_restarts` allows "
                    "more restarts." + (" `request_timeout` allows more time without progress." if hangs else ""),
                )
            else:
                self.remembered.append((self.answers, hung))
                nth = f"{len(self.remembered)} of {self.options.max_restarts}"
                what = f"restart {nth}; its requests are sent again"
                if not self.server.managed:  # nothing starts it here
                    what = f"waiting until it answers again, and its requests are sent again (time {nth})"
                self.say(f"{self.server.name}: {why}; {what}")
            self.restarts += 1
            address, facts = await self.server.restart(why)

    def report_death(self, service: ServerSession, why: str, *, hung: bool = False) -> None:
        """Mark requests on a dead or hung server as suspects and replay them; once per session."""
        if not service.alive:
            return
        self.uninvolved = not service.managed and not service.under_way
        service.hung = hung
        self.suspects.record_death(service)
        service.die(why)
        explained = any(request.poisonous or (request.alone and not service.managed) for request in service.holders)
        # The cause is gone with its request. A server that exits at every request has another cause: restarts are
        # forgotten only after a completed request since the last time.
        if explained and self.answers > self.forgiven_at:
            self.forgiven_at = self.answers
            self.remembered.clear()

    async def _serve(self, address: Address, facts: ServerFacts) -> tuple[str, bool]:
        """Serve from readiness to death; return the reason, and whether the server hung."""
        size, why = first_size(facts, self.options.page_tokens, self.options.max_inflight)
        endpoint = Endpoint(address, vllm=facts.vllm, stall=self.options.stall, known=self.answers > 0)
        window = Window(size, self.options.max_inflight)
        service = self.service = ServerSession(
            self.number, self.server.name, endpoint, facts, window, managed=self.server.managed
        )
        kind = f"vLLM {facts.version}".rstrip() if facts.vllm else facts.gauges
        self.say(f"{self.server.name}{kind and f' ({kind})'} is ready: {describe(facts, size, why)}")
        self.places.services.append(service)
        self.places.dispatch()
        for request in self.suspects.by_server.get(self.number, ()):
            asyncio.get_running_loop().call_at(service.began + request.pause, self.places.dispatch)
        watchers: list[asyncio.Future[Any]] = [
            asyncio.create_task(self.server.ended()),
            asyncio.create_task(steer(service, self.places.dispatch, self.options.interval)),
        ]
        try:
            await asyncio.wait([service.death, *watchers], return_when=asyncio.FIRST_COMPLETED)
            for watcher in watchers:
                if watcher.done() and service.alive:
                    self.report_death(service, watcher.result() or "it ended")
            return await service.death, service.hung
        finally:
            self.service = None
            self.places.services.remove(service)  # its requests keep their places until they leave
            service.die("closed")
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await service.close()


def fitted(request: CompletionRequest, facts: ServerFacts) -> CompletionRequest:
    """Return the request with fewer `max_tokens` if the server's context is smaller than the model's.

    vLLM refuses a request if the prompt and `max_tokens` together exceed the context, even if the answer is short.
    """
    wanted = request.settings.get("max_tokens")
    if facts.max_model_len is None or not isinstance(wanted, int):
        return request
    # The reserve of a model with a long context may exceed the whole context of this server. Half is for the answer.
    room = max(1, facts.max_model_len - request.reserve, facts.max_model_len // 2)
    if wanted <= room:
        return request
    return replace(request, settings={**request.settings, "max_tokens": room})


#: Seconds for this pool's tasks to end, and for one server to stop.
_ENDING, _STOPPING = 10.0, 60.0
#: Seconds between checks whether other requests are completed; such waits are rare.
_PROOF = 0.2
#: Part of the longest time with only 429 and 503 responses after which users are told: half a minute of 1800 s.
_BUSY_PARTS = 60
#: Refused requests without an answer after which the server, not the pages, is at fault: more than one unit has.
_MOST_REFUSED = 100


class ServerPool:
    """Engine over one or more servers; implements `engines.Engine`.

    The pool belongs to the event loop of its first use. `say` receives sentences for users when a server is ready,
    exits, or is left out, and when a request is quarantined.
    """

    def __init__(
        self, name: str, servers: Sequence[Server], options: PoolOptions, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.name = name
        self._options = options
        self._say = say
        self._suspects = PoisonDetector(options)
        self._places = RequestScheduler(options.max_inflight, self._suspects)
        self._members = [
            ServerSupervisor(number, server, options, self._places, self._suspects, say)
            for number, server in enumerate(servers)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._tickets = itertools.count()
        self._counts: Counter[str] = Counter()  # by fields of `Load`
        self._busy_since: float | None = None  # start of the time with only 429 and 503 responses
        self._busy_said = False  # whether such a time was reported
        self._refused, self._refusal = 0, ""  # number of requests that servers rejected as such, and the last reason
        self._closing: asyncio.Task[None] | None = None
        self.simulated = False  # whether a request was sent to the simulator, whose answers are made up

    def begin(self) -> None:
        """Start all servers in the background; the first ready server accepts requests. May be called again."""
        if self._tasks or self._closing is not None:
            return
        if not self._members:
            self._places.fail(ServerError(f"{self.name}: the pool has no server"))
        for member in self._members:
            task = asyncio.create_task(member.live())
            task.add_done_callback(functools.partial(self._gone, member))
            self._tasks.append(task)

    async def ready(self) -> None:
        """Start all servers, and return when one accepts requests; raise the error of the last one if none can."""
        self.begin()
        request = Request("ready", next(self._tickets))
        self._places.leave(await self._places.take(request), request)

    async def complete(self, request: CompletionRequest, on_dispatched: Callable[[], None] = noop) -> Completion:
        """Complete a request; see `engines.Engine.complete`."""
        self.begin()
        pooled = Request(request.id, next(self._tickets))
        began = time.monotonic()
        try:
            while True:
                service = await self._places.take(pooled)
                try:
                    if service.alive:
                        pooled.go(time.monotonic())
                        on_dispatched()
                        answer = await self._exchange(service, pooled, request)
                        if answer is not None:
                            return replace(answer, waited=pooled.sent - began)
                except asyncio.CancelledError:
                    if not pooled.pardoned():
                        raise
                    self._counts["lost"] += 1
                finally:
                    pooled.pardoned()  # clears a revocation that the exchange did not observe
                    self._places.leave(service, pooled)
                if pooled.poisonous:
                    await self._prove(pooled)
                    detail = f"the server {pooled.harm} while it read this page"
                    self._say(f"{request.id} is quarantined: {detail}")
                    raise PageFailure(Reason.QUARANTINED, detail)
        finally:
            if self._suspects.clear(pooled):
                self._places.dispatch()

    def load(self) -> Load:
        """Return the current counters; the call is cheap."""
        services = self._places.services
        gauges = [service.gauges for service in services if service.gauges is not None]
        sequences = [service.facts.max_num_seqs for service in services if service.facts.max_num_seqs]
        window = sum(service.window.size for service in services)
        cap = self._options.max_inflight
        return Load(
            servers=len(services),
            window=window if cap is None else min(cap, window),
            in_flight=self._places.taken,
            queued=self._places.queued,
            running=sum(gauge.running for gauge in gauges) if gauges else None,
            waiting=sum(gauge.waiting for gauge in gauges) if gauges else None,
            kv_usage=sum(gauge.kv_usage for gauge in gauges) if gauges else None,
            max_num_seqs=sum(sequences) if sequences and len(sequences) == len(services) else None,
            restarts=sum(member.restarts for member in self._members),
            **self._counts,
        )

    def refused_all(self) -> ServerError | None:
        """Return an error if the servers refused requests and answered none. Too long requests do not count."""
        if not self._refused or self._counts["answers"]:
            return None
        return ServerError(
            f"{self._refusal}; the server answered none of {plural(self._refused, 'request')}",
            hint="Correct the setting that the server names, or its own options. `llm-ocr repair` then reads the pages "
            "and figures again that it refused.",
        )

    def hold(self) -> None:
        """Stop sending requests. Sent requests are completed; all others wait until `close`."""
        self._places.held = True

    async def close(self) -> None:
        """Close the connections, then stop the servers.

        Pending calls raise `ServerError`. The method may be called twice.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._places.fail(ServerError(f"{self.name}: the engine was closed"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # each task closes the connections to its server
            await asyncio.wait(self._tasks, timeout=_ENDING)
        for error in await asyncio.gather(*map(_stop, self._members)):
            if error is not None:
                raise error

    async def _exchange(
        self, service: ServerSession, request: Request, completion_request: CompletionRequest
    ) -> Completion | None:
        """Send the request to one server; return None if the request must be sent again at no cost to its page."""
        try:
            self.simulated = self.simulated or service.facts.simulated
            answer = await service.endpoint.complete(fitted(completion_request, service.facts))
        except ServerBusy as busy:
            self._busy(service, request, busy)
            return None
        except RequestRefused as refused:
            self._busy_since = None
            if not refused.too_long:
                self._refused, self._refusal = self._refused + 1, str(refused.args[0])
            error = self.refused_all()
            if error is not None and self._refused >= _MOST_REFUSED:
                self._places.fail(error)
            raise
        except RequestLost as lost:
            service.doubt()
            self._counts["tokens_in"] += lost.tokens_in
            self._counts["tokens_out"] += lost.tokens_out
            # a death detected during the wait revokes the request
            server_lives = await self._server_lives(service, request, lost)
            self._counts["lost"] += 1
            if server_lives:
                raise
            return None
        if not await service.same():
            self._members[service.number].report_death(service, service.replaced)
            self._counts["lost"] += 1
            return None
        self._busy_since = None
        self._counts["answers"] += 1
        self._suspects.record_answer(answer.seconds)
        self._counts["tokens_in"] += answer.tokens_in
        self._counts["tokens_out"] += answer.tokens_out
        self._members[service.number].answers += 1
        service.answered(answer.seconds, answer.tokens_out)
        return answer

    def _busy(self, service: ServerSession, request: Request, busy: ServerBusy) -> None:
        self._counts["busy"] += 1
        now = time.monotonic()
        service.pause(request.sent, busy.retry_after)
        if busy.status != 429:
            service.doubt()
        if self._busy_since is None:
            self._busy_since = request.sent
        absent = busy.status == 404
        longest = min(self._options.stall, self._options.busy_timeout) if absent else self._options.busy_timeout
        if now - self._busy_since > longest / _BUSY_PARTS and not self._busy_said:
            self._busy_said = True  # a log shows no progress, and would be silent until the end
            self._say(f"{busy.args[0]}; no request succeeds; trying again for at most {longest:g} s")
        if now - self._busy_since > longest:
            overloaded = "The server is overloaded, or its quota is exhausted."
            what = "Check the URL and the model's name." if absent else overloaded
            self._places.fail(
                ServerError(
                    f"{busy.args[0]}; no request succeeded for {longest:g} s",
                    hint=f"{what} Run the same command again later to continue.",
                )
            )
        self._wake(service)

    def _wake(self, service: ServerSession) -> None:
        """Schedule a dispatch for the end of the server's pause."""
        asyncio.get_running_loop().call_at(service.paused_until + 0.001, self._places.dispatch)

    async def _server_lives(self, service: ServerSession, request: Request, lost: RequestLost) -> bool:
        """Return whether only the request failed; False: send it again. The request stays in flight during the wait."""
        if lost.stalled:
            if await moves_again(service, self._options.stall):
                return True
            why = f"no answer made progress for {self._options.stall:g} s"
            self._members[service.number].report_death(service, why, hung=True)  # unless it has exited
            return False
        # A server behind a proxy that resets silent connections hangs without a stalled request.
        silent = time.monotonic() - service.endpoint.received
        # vLLM answers 500 as soon as its engine has exited, and exits up to 5 s later (VLLM_WATCHDOG_TIME_S).
        grace = self._options.grace * (6 if lost.status >= 500 else 1)
        request.out = not lost.unreachable  # a request that never arrived has killed nothing
        await asyncio.wait({service.death}, timeout=grace)
        if not (service.alive and await service.answers() and service.alive):
            why = service.replaced or f"a request was lost and the server no longer responds ({lost})"
            self._members[service.number].report_death(service, why)
            return False
        if lost.unreachable:  # the request never arrived
            service.pause(request.sent, None, refused=False)
            self._wake(service)
            return False
        if silent > self._options.stall:
            why = f"no request made progress for {self._options.stall:g} s"
            self._members[service.number].report_death(service, why, hung=True)
            return False
        return True

    async def _prove(self, request: Request) -> None:
        """Wait for a server to complete another request, or until none is left. Raises `ServerError` without a server.

        A server that exits at every request must not cause the quarantine of all requests.
        """
        if self._suspects.clear(request):
            self._places.dispatch()
        # Without an answer since the first death of the request, the server is at fault.
        while self._suspects.answered <= request.answered_before:
            if self._places.failure is not None:
                raise self._places.failure
            if not self._places.queued and not self._places.taken:
                if self._suspects.answered:
                    return
                more = " If its answers only start late, raise `request_timeout`." if request.hangs else ""
                raise ServerError(
                    f"{self.name}: the server {request.harm} while it read {request.id}, before any completed request",
                    hint=f"Check the server's log. Run the same command again to continue.{more}",
                )
            await asyncio.sleep(_PROOF)

    def _gone(self, member: ServerSupervisor, task: asyncio.Task[None]) -> None:
        """Handle the end of a supervisor: its server could not be started or restarted."""
        if task.cancelled():
            return
        error = task.exception() or ServerError(f"{member.server.name} ended")
        if self._closing is not None:
            return
        member.gone = error if isinstance(error, Exception) else RuntimeError(repr(error))
        others = [other for other in self._members if other.gone is None]
        if not isinstance(error, LlmOcrError) or not others:
            self._places.fail(member.gone)
            return
        self._say(f"{member.server.name} is no longer used: {error}")
        other = min(others, key=lambda other: (other.service is None, other.number in self._suspects.by_server))
        self._suspects.move(member.number, other.number)
        self._places.dispatch()


async def _stop(member: ServerSupervisor) -> ServerError | None:
    """Stop the supervisor's server; return an error instead of raising it, so that the others are stopped as well."""
    try:
        async with asyncio.timeout(_STOPPING):
            await member.server.stop()
    except TimeoutError:
        return ServerError(f"{member.server.name} did not stop within {_STOPPING:g} s")
    except LlmOcrError as error:
        return ServerError(f"{member.server.name} could not be stopped: {error}")
    return None
