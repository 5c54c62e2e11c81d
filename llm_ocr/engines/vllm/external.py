"""Connect to a server that this library did not start: probe and wait, never stop."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from llm_ocr.engines import Address, CompletionRequest, ServerFacts
from llm_ocr.engines.client.endpoint import LONGEST, Endpoint, identity
from llm_ocr.errors import LlmOcrError, RequestLost, ServerError

#: Choice of the model name from the source of each listed model by name ("": not reported).
Chooser = Callable[[Mapping[str, str]], str]


async def look(address: Address, choose: Chooser | None = None) -> tuple[Address, ServerFacts] | str:
    """Return the server's address and facts, or why it is not ready; "" while it loads its model.

    A vLLM server must also report itself as healthy. An address without a model returns with the model that `choose`
    picks.

    Raises:
        ServerError: The server refuses the key, or lists no model and the address names none.
        LlmOcrError: Any error of `choose`.
    """
    endpoint = Endpoint(address)
    try:
        facts = await endpoint.probe()
        if facts is None:
            return str(endpoint.absent or "").removeprefix(f"{address.url}: ")
        # The engine may be dead while /v1/models still answers; a proxy in front may not forward /health.
        if facts.vllm and not await endpoint.healthy():
            return ""
        if address.model:
            return address, facts
        served = await endpoint.served()
        if choose is None or not served:
            what = f"serves {', '.join(served)}, and none is chosen" if served else "does not list its model"
            raise ServerError(
                f"the server {address.url} {what}",
                hint="Choose one: `server_model=NAME`\n"
                f"If it is not a model server, check `server_url`: curl {address.url}/models",
            )
        name = choose(served)
        return replace(address, model=name), replace(facts, serves=identity(name, served.get(name, "")))
    finally:
        await endpoint.close()


#: Seconds for the first one-word answer of a hung server; then doubled, because other clients may be served first.
_FIRST_TIMEOUT = 30.0
#: Seconds until an unreachable address counts as wrong.
WRONG_ADDRESS = 5.0


class ExternalServer:
    """Implements `engines.Server` for `server_url`."""

    managed = False  # other clients may use the server

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
        self._answered = False  # whether the server was ready before
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

    async def start(self) -> tuple[Address, ServerFacts]:
        """Return when the server answers.

        Raises:
            ServerError: The timeout has passed, or the server refuses the key (at once).
            LlmOcrError: Any error of `choose`.
        """
        return await self._wait(f"waiting for {self.name}", self._timeout, self._wait_for)

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """Return when the server answers requests again; /health does not reveal a hang."""
        waiting, limit = f"{self.name}: {why}; waiting for it", min(_FIRST_TIMEOUT, self._stall)
        longest = min(self._timeout, LONGEST * self._stall)
        answer = await self._wait(waiting, self._timeout, self._timeout)
        deadline = time.monotonic() + longest
        while True:
            left = deadline - time.monotonic()
            endpoint = Endpoint(answer[0], stall=min(limit, left))
            try:
                await endpoint.complete(CompletionRequest("a word", None, "Hello", {"max_tokens": 1}))
                return answer
            except LlmOcrError as error:
                # Other errors and lost connections are no hang; the next request shows whether the server is dead.
                if not (isinstance(error, RequestLost) and error.stalled):
                    return answer
            finally:
                await endpoint.close()
            if left <= limit:
                raise ServerError(
                    f"the server {self.name} lists its models but completed no request within {longest:g} s",
                    hint="The server hangs. Restart it, then run the same command again to continue.",
                )
            limit *= 2
            answer = await self._wait(waiting, self._timeout, self._timeout)

    async def ended(self) -> str:
        """Never return: the end of an external server is not observable."""
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None:
        """Do nothing: the server keeps running."""

    async def _wait(self, waiting: str, there: float, absent: float) -> tuple[Address, ServerFacts]:
        """Probe until the server answers: `absent` seconds while it is unreachable, `there` seconds afterwards."""
        began, last, seconds = time.monotonic(), "", absent
        while isinstance(answer := await look(self._given, self._choose), str):
            because = f": {answer}" if answer else ": it responds but is not ready"
            if not answer:
                seconds = there
            if time.monotonic() - began >= seconds:
                hint = f"Check `server_url`, and check that the server runs: curl {self.address.url}/models"
                if self._answered:
                    hint = "Restart it, then run the same command again. To wait longer, set `server_timeout=SECONDS`."
                elif answer:
                    hint += "\nTo wait for a server that is starting, use `server_wait=SECONDS`."
                raise ServerError(f"the server {self.name} did not answer within {seconds:g} s{because}", hint=hint)
            message = f"{waiting}, at most {seconds:g} s{because}"
            if message != last:
                self._say(message)
                last = message
            await asyncio.sleep(self._poll)
        (self.address, facts), self._answered = answer, True
        if self._given.model:  # only the model name identifies the model
            self._serves = self._serves or facts.serves
            if facts.serves not in ("", self._serves):
                raise ServerError(
                    f"the server {self.name} served {self._serves} before and now serves {facts.serves}",
                    hint="Start the first model on it again, then run the same command again to continue.",
                )
        return answer
