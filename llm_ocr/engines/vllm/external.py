"""Connect to a server that this library did not start: probe and wait, never stop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import aiohttp

from llm_ocr.engines import Address, ServerFacts
from llm_ocr.engines.client.connections import open_session, read_whole
from llm_ocr.engines.client.endpoint import LONGEST, Endpoint
from llm_ocr.engines.client.probing import identity
from llm_ocr.errors import ServerError

# Probes of a server's state and facts.


_HEALTH_TIMEOUT = 10.0  # seconds for /health
_WORD_BYTES = 64 * 1024  # read from the answer to the one-word request

#: Choice of the model name from the source of each listed model by name ("": not reported).
Chooser = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True, slots=True)
class NotReady:
    """Server that is not ready. `why` explains an unreachable address; "" means that the server loads its model."""

    why: str = ""


async def look(address: Address, choose: Chooser | None = None) -> tuple[Address, ServerFacts] | NotReady:
    """Return the server's facts, or `NotReady`; a vLLM server must also report itself as healthy.

    An address without a model returns with the model that `choose` picks, or with the only served model.

    Raises:
        ServerError: The server refuses the key, or serves several models and the address names none.
        LlmOcrError: Any error of `choose`.
    """
    endpoint = Endpoint(address)
    try:
        facts = await endpoint.probe()
        if facts is None:
            return NotReady(str(endpoint.absent or "").removeprefix(f"{address.url}: "))
        if facts.vllm and not await _healthy(address):
            return NotReady()
        if not address.model:
            served = await endpoint.served()
            name = choose(served) if choose is not None and served else _only(address, tuple(served))
            address, facts = replace(address, model=name), replace(facts, serves=identity(name, served.get(name, "")))
        return address, facts
    finally:
        await endpoint.close()


async def completes_request(address: Address, limit: float) -> bool:
    """Return whether a one-word request has an answer within `limit` seconds.

    Errors and lost connections count as answers.
    """
    asked = {"model": address.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    try:
        async with (
            asyncio.timeout(limit),
            open_session(address.key) as session,
            session.post(f"{address.url}/chat/completions", json=asked, allow_redirects=False) as response,
        ):
            await read_whole(response, _WORD_BYTES)
    except TimeoutError:
        return False
    except (aiohttp.ClientError, OSError):
        return True  # not a hang; the next request shows whether the server is dead
    return True


async def _healthy(address: Address) -> bool:
    # The engine may be dead while /v1/models still answers; a proxy in front may not forward /health.
    try:
        async with (
            asyncio.timeout(_HEALTH_TIMEOUT),
            open_session(address.key) as session,
            session.get(f"{address.root}/health") as response,
        ):
            return response.status < 500
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return False


def _only(address: Address, models: tuple[str, ...]) -> str:
    if len(models) == 1:
        return models[0]
    several = f"serves {len(models)} models, and none is chosen: {', '.join(models)}"
    what = several if models else "does not list its model"
    raise ServerError(f"the server {address.url} {what}", hint="Choose one: `server_model=NAME`")


# Server of another operator, never started or stopped here.


#: Seconds for the first one-word answer of a hung server; then doubled, because other clients may be served first.
_FIRST_TIMEOUT = 30.0
#: Seconds until an unreachable address counts as wrong.
WRONG_ADDRESS = 5.0


class ExternalServer:
    """Implements `engines.Server` for `server_url`.

    For an address without a model, `choose` picks the model; without `choose`, the only served model is used.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = 600.0,
        wait: float = WRONG_ADDRESS,
        stall: float = 180.0,
        poll: float = 1.0,
        say: Callable[[str], None] = lambda _: None,
        choose: Chooser | None = None,
    ) -> None:
        """Configure the server; all times in seconds.

        Args:
            address: Address of the server.
            timeout: Limit for loading the model, or for the return of a lost server.
            wait: Limit for an address that has never answered.
            stall: Longest silence of an answer. A hung server is given up after `LONGEST` times as long.
            poll: Interval of probes.
            say: Receives messages about the reason for waiting.
            choose: Picks the model for an address without one.
        """
        self.address = self._given = address
        self._serves = ""  # the first listed model
        self._choose = choose
        self._timeout = timeout
        self._wait_for = wait
        self._stall = stall
        self._poll = poll
        self._say = say

    @property
    def name(self) -> str:
        """URL of the server."""
        return self.address.url

    @property
    def managed(self) -> bool:
        """Always False: other clients may use the server."""
        return False

    async def start(self) -> tuple[Address, ServerFacts]:
        """Return when the server answers.

        Raises:
            ServerError: The timeout has passed, or the server refuses the key (at once).
            LlmOcrError: Any error of `choose`.
        """
        return await self._wait(f"waiting for {self.name}", self._timeout, self._wait_for)

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """Return when the server answers requests again; /health does not reveal a hang."""
        told, limit = f"{self.name}: {why}; waiting for it", min(_FIRST_TIMEOUT, self._stall)
        longest = min(self._timeout, LONGEST * self._stall)
        answer = await self._wait(told, self._timeout, self._timeout)
        deadline = time.monotonic() + longest
        while True:
            left = deadline - time.monotonic()
            if await completes_request(answer[0], min(limit, left)):
                return answer
            if left <= limit:
                raise ServerError(
                    f"the server {self.name} lists its models but completed no request within {longest:g} s",
                    hint="The server hangs. Restart it, then run the same command again to continue.",
                )
            limit *= 2
            answer = await self._wait(told, self._timeout, self._timeout)

    async def ended(self) -> str:
        """Never return: the end of an external server is not observable."""
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None:
        """Do nothing: the server keeps running."""

    async def _wait(self, told: str, there: float, absent: float) -> tuple[Address, ServerFacts]:
        """Probe until the server answers: `absent` seconds while it is unreachable, `there` seconds afterwards."""
        began, said, seconds = time.monotonic(), "", absent
        while isinstance(answer := await look(self._given, self._choose), NotReady):
            if not answer.why:
                seconds = there
            if time.monotonic() - began >= seconds:
                raise self._given_up(answer, seconds)
            words = f"{told}, at most {seconds:g} s{_because(answer)}"
            if words != said:
                self._say(words)
                said = words
            await asyncio.sleep(self._poll)
        self.address, facts = answer
        if self._choose is None or self._given.model:  # only the model name identifies the model
            self._serves = self._serves or facts.serves
            if facts.serves not in ("", self._serves):
                raise ServerError(
                    f"the server {self.name} served {self._serves} before and now serves {facts.serves}",
                    hint="Start the first model on it again, then run the same command again to continue.",
                )
        return answer

    def _given_up(self, last: NotReady, seconds: float) -> ServerError:
        hint = f"Check `server_url`, and check that the server runs: curl {self.address.url}/models"
        if last.why:
            hint += "\nTo wait for a server that is starting, use `server_wait=SECONDS`."
        return ServerError(f"the server {self.name} did not answer within {seconds:g} s{_because(last)}", hint=hint)


def _because(last: NotReady) -> str:
    return f": {last.why}" if last.why else ": it responds but is not ready"
