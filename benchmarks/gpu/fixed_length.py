"""llm-ocr with answers of given lengths, whatever the model writes.

    python benchmarks/gpu/fixed_length.py TOKENS TIMES extract FILES -w WORKSPACE ...

Everything behind TIMES, a file to write, is a command of llm-ocr and runs as usual, but for three things. The server is
told how many tokens to write (`ignore_eos`, `max_tokens`): TOKENS on average, more or fewer by page as in real answers.
With equal lengths all sequences would end in the same step. The watch for repetitions sees every piece of an
answer, and what it says is ignored: dummy weights write loops. A page of invented text of that length takes the
answer's place before it is judged, so that layout, figures and rows are made as from a real one. TIMES gets the seconds
from the first request to the last answer, as clients that only send requests count them.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from llm_ocr.cli import main
from llm_ocr.engines import Completion, CompletionRequest, Finish, TextWatch, noop
from llm_ocr.engines.pool.pool import ServerPool
from llm_ocr_simulator.answers import CHARACTERS, Form, page

#: Deviation of the logarithm of an answer's length: the simulator's default.
DEVIATION = 0.5


def length(page: str, mean: int) -> int:
    """Return the tokens of a page's answer: lognormal with the simulator's deviation, the same in every run."""
    drawn = random.Random(page).lognormvariate(-(DEVIATION**2) / 2, DEVIATION)
    return max(mean // 4, min(3 * mean, round(mean * drawn)))


def fixed(request: CompletionRequest, mean: int) -> CompletionRequest:
    """Return the same request for an answer of its page's length."""
    return replace(
        request,
        settings={**request.settings, "max_tokens": length(request.id, mean)},
        vllm_settings={**request.vllm_settings, "ignore_eos": True},
        watch=_unheeded(request.watch) if request.watch else None,
    )


@dataclass(slots=True)
class Span:
    """From the first request that went out to the last answer, in `time.monotonic`."""

    first: float = 0.0
    last: float = 0.0

    def sent(self) -> None:
        self.first = self.first or time.monotonic()

    def answered(self) -> None:
        self.last = time.monotonic()


def fix_answers(tokens: int, span: Span) -> None:
    """Give every answer of every pool its page's length; `complete` raises `ValueError` for any other count."""
    real = ServerPool.complete

    async def complete(
        self: ServerPool, request: CompletionRequest, on_dispatched: Callable[[], None] = noop
    ) -> Completion:
        def sent() -> None:
            span.sent()
            on_dispatched()

        answer = await real(self, fixed(request, tokens), sent)
        span.answered()
        if answer.tokens_out != length(request.id, tokens):
            raise ValueError(f"{request.id}: {answer.tokens_out} tokens instead of {length(request.id, tokens)}")
        text = page(random.Random(0), "page", answer.tokens_out * CHARACTERS, Form.GROUNDED)
        return replace(answer, text=text, finish=Finish.STOP)

    ServerPool.complete = complete  # type: ignore[method-assign]  # wherever a command takes its engine from


class _Unheeded:
    """Passes all pieces on, and never asks for a cut."""

    def __init__(self, watch: TextWatch) -> None:
        self._watch = watch

    def feed(self, piece: str) -> bool:
        self._watch.feed(piece)
        return False


def _unheeded(make: Callable[[], TextWatch]) -> Callable[[], TextWatch]:
    return lambda: _Unheeded(make())


def run(tokens: int, times: Path, command: list[str]) -> int:
    """Carry out the command; its exit code."""
    span = Span()
    fix_answers(tokens, span)
    code = main(command)
    times.write_text(json.dumps({"requests_s": span.last - span.first}))
    return code


if __name__ == "__main__":
    if len(sys.argv) < 4 or not sys.argv[1].isdecimal():
        sys.exit("usage: fixed_length.py TOKENS TIMES COMMAND ...")
    sys.exit(run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
