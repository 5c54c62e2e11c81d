"""A server that somebody else runs: waited for, never started or ended."""

import asyncio
import time
from collections.abc import Callable

from llm_ocr.engines.serving import Address, ServerFacts
from llm_ocr.engines.vllm.probing import Chooser, look
from llm_ocr.errors import ServerError


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

    async def start(self) -> tuple[Address, ServerFacts]:
        """Returns when it answers.

        Raises `ServerError` after the time-out, and at once when it refuses the key, and what `choose` raises.
        """
        return await self._wait(f"waiting for {self.name}")

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        """Returns when it answers again."""
        return await self._wait(f"{self.name}: {why}; waiting until it is back")

    async def ended(self) -> str:
        """Never returns: it is not ours to see."""
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None:
        """Nothing: it goes on."""

    async def _wait(self, told: str) -> tuple[Address, ServerFacts]:
        deadline = time.monotonic() + self._timeout
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
