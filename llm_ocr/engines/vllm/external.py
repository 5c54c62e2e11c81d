"""A server that this library did not start: probed and awaited, never ended."""

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

# Whether a server answers, and what it says of itself.


_PATIENCE = 10.0  # seconds for /health
_WORD_BYTES = 64 * 1024  # read of the answer to one word

#: From what a server's models were loaded from, by their names ("": it does not say), to the name to ask for.
Chooser = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True, slots=True)
class NotReady:
    """A server that does not answer yet. `why`: nobody answers at its address; "": it is there and loads its model."""

    why: str = ""


async def look(address: Address, choose: Chooser | None = None) -> tuple[Address, ServerFacts] | NotReady:
    """What the server says of itself, `NotReady` while it does not answer; vLLM must call itself healthy too.

    An address without a model comes back with the one that `choose` names, without it the only one that the server has.
    Raises `ServerError` when the server refuses our key, or has several models and the address names none, and what
    `choose` raises.
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


async def converses(address: Address, patience: float) -> bool:
    """False when one word gets no answer within `patience` seconds; an error, or a lost connection, is an answer."""
    asked = {"model": address.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    try:
        async with (
            asyncio.timeout(patience),
            open_session(address.key) as session,
            session.post(f"{address.url}/chat/completions", json=asked, allow_redirects=False) as response,
        ):
            await read_whole(response, _WORD_BYTES)
    except TimeoutError:
        return False
    except (aiohttp.ClientError, OSError):
        return True  # it does not hang; whether it is dead is seen by what is asked next
    return True


async def _healthy(address: Address) -> bool:
    # Its engine may be dead while /v1/models still answers; a proxy in front may not pass /health on.
    try:
        async with (
            asyncio.timeout(_PATIENCE),
            open_session(address.key) as session,
            session.get(f"{address.root}/health") as response,
        ):
            return response.status < 500
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return False


def _only(address: Address, models: tuple[str, ...]) -> str:
    if len(models) == 1:
        return models[0]
    several = f"has {len(models)} models, and none is named: {', '.join(models)}"
    what = several if models else "does not say which model it has"
    raise ServerError(f"the server {address.url} {what}", hint="Say which to ask for: --server-model NAME")


# A server that somebody else runs: waited for, never started or ended.


#: Seconds for one word from a server that hung, the first time; then twice as long, as others may be before us.
_FIRST_PATIENCE = 30.0
#: Seconds until an address at which nobody answers is taken for a wrong one.
WRONG_ADDRESS = 5.0


class ExternalServer:
    """Implements `serving.Server` for `--server-url`.

    An address without a model stands for the one that `choose` picks, without it for the only one that the server has.
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
        """All times in seconds.

        Args:
            address: of the server.
            timeout: until a server that loads its model, or is to come back, is given up.
            wait: until a server is given up at whose address nobody has answered yet.
            stall: the longest silence of an answer; a server that hangs is given up after `LONGEST` times as long.
            poll: between two looks.
            say: is told what is waited for.
            choose: picks the model of an address without one.
        """
        self.address = self._given = address
        self._serves = ""  # the model that it listed first
        self._choose = choose
        self._timeout = timeout
        self._wait_for = wait
        self._stall = stall
        self._poll = poll
        self._say = say

    @property
    def name(self) -> str:
        """Its URL."""
        return self.address.url

    @property
    def ours(self) -> bool:
        """Never: others may ask it, too."""
        return False

    async def start(self) -> tuple[Address, ServerFacts]:
        """Returns when it answers.

        Raises `ServerError` after the time-out, and at once when it refuses the key, and what `choose` raises.
        """
        return await self._wait(f"waiting for {self.name}", self._timeout, self._wait_for)

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """Returns when it answers again, a question too: one that hangs says nothing of it under /health."""
        told, patience = f"{self.name}: {why}; waiting until it is back", min(_FIRST_PATIENCE, self._stall)
        longest = min(self._timeout, LONGEST * self._stall)
        answer = await self._wait(told, self._timeout, self._timeout)
        deadline = time.monotonic() + longest
        while True:
            left = deadline - time.monotonic()
            if await converses(answer[0], min(patience, left)):
                return answer
            if left <= patience:
                raise ServerError(
                    f"the server {self.name} lists its models and answered no question within {longest:g} s",
                    hint="It hangs: restart it. The same command goes on where this one stopped.",
                )
            patience *= 2
            answer = await self._wait(told, self._timeout, self._timeout)

    async def ended(self) -> str:
        """Never returns: it is not ours to see."""
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None:
        """Nothing: it goes on."""

    async def _wait(self, told: str, there: float, absent: float) -> tuple[Address, ServerFacts]:
        """Look until it answers: for `absent` seconds while nobody is there, for `there` seconds once somebody is."""
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
        if self._choose is None or self._given.model:  # nothing else says which model it is
            self._serves = self._serves or facts.serves
            if facts.serves not in ("", self._serves):
                raise ServerError(
                    f"the server {self.name} served {self._serves} before, and now serves {facts.serves}",
                    hint="Start the first model there again. The same command goes on where this one stopped.",
                )
        return answer

    def _given_up(self, last: NotReady, seconds: float) -> ServerError:
        hint = f"Check --server-url and that the server runs: curl {self.address.url}/models"
        if last.why:
            hint += "\nOne that is being started is waited for with --server-wait SECONDS."
        return ServerError(f"the server {self.name} did not answer within {seconds:g} s{_because(last)}", hint=hint)


def _because(last: NotReady) -> str:
    return f": {last.why}" if last.why else ": it is there and not ready"
