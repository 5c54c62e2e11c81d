"""A server that somebody else runs: waited for, never started or ended."""

import asyncio
import time
from collections.abc import Callable

from llm_ocr.engines.serving import Address, ServerFacts
from llm_ocr.engines.vllm.probing import Chooser, converses, look
from llm_ocr.errors import ServerError

#: Seconds for one word from a server that hung, the first time; then twice as long, as others may be before us.
_FIRST_PATIENCE = 30.0


class ExternalServer:
    """Implements `serving.Server` for `--server-url`; `timeout` and `poll` in seconds.

    An address without a model stands for the one that `choose` picks, without it for the only one that the server has.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = 600.0,
        poll: float = 1.0,
        say: Callable[[str], None] = lambda _: None,
        choose: Chooser | None = None,
    ) -> None:
        self.address = address
        self._choose = choose
        self._timeout = timeout
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
        return await self._wait(f"waiting for {self.name}, at most {self._timeout:g} s", self._deadline())

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """Returns when it answers again, a question too: one that hangs says nothing of it under /health."""
        told, deadline, patience = f"{self.name}: {why}; waiting until it is back", self._deadline(), _FIRST_PATIENCE
        while True:
            answer = await self._wait(told, deadline)
            left = deadline - time.monotonic()
            if await converses(answer[0], min(patience, left)):
                return answer
            if left <= patience:
                raise ServerError(
                    f"the server {self.name} lists its models and answered no question within {self._timeout:g} s",
                    hint="It hangs: restart it. The same command goes on where this one stopped.",
                )
            patience *= 2

    async def ended(self) -> str:
        """Never returns: it is not ours to see."""
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None:
        """Nothing: it goes on."""

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    async def _wait(self, told: str, deadline: float) -> tuple[Address, ServerFacts]:
        silent = True
        while (answer := await look(self.address, self._choose)) is None:
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"the server {self.name} did not answer within {self._timeout:g} s",
                    hint="Check --server-url and that the server runs: curl " + f"{self.address.url}/models",
                )
            if silent:
                self._say(told)
                silent = False
            await asyncio.sleep(self._poll)
        self.address = answer[0]
        return answer
