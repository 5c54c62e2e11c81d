"""A server that somebody else runs: waited for, never started or ended."""

import asyncio
import time
from collections.abc import Callable

from llm_ocr.engines.chat.endpoint import LONGEST
from llm_ocr.engines.serving import Address, ServerFacts
from llm_ocr.engines.vllm.probing import Chooser, NotReady, converses, look
from llm_ocr.errors import ServerError

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
