"""A model of an LLM engine's scheduler on a clock of its own: no I/O, no waiting, no randomness.

It follows vLLM's V1 scheduler in what decides throughput: continuous batching with FIFO admission, chunked prefill
under a token budget per step, KV blocks, preemption of the newest with recomputation. Steps in which nothing enters or
leaves are not taken one by one: their times are summed in closed form.
"""

import heapq
from collections import deque
from dataclasses import dataclass

from llm_ocr.testing.simulator.sequence import Limits, Place, Sequence
from llm_ocr.testing.simulator.timing import Costs

#: Two times closer than this are the same moment: sums of floats in another order must not move an admission by a step.
SAME = 1e-9


@dataclass(slots=True)
class _Step:
    """A step under way in which something enters: the prefills and whether each ends with it."""

    end: float
    prefills: list[tuple[Sequence, int]]  # with the tokens computed in this step
    decoding: int


class EngineModel:
    """An engine. `submit` requests in order of time, then `advance`; a clock that runs and one that jumps do alike.

    With a real clock: `advance(now)` before each `submit(now, ...)`, and again at `next_event()`.
    With a virtual one: submit everything, then `advance(float("inf"))`.
    """

    def __init__(self, costs: Costs, limits: Limits) -> None:
        self.costs = costs
        self.limits = limits
        self.time = 0.0  # the end of the last finished step
        self.free = limits.blocks
        self.preemptions = 0
        self.prompt_tokens = 0  # of prompts that were computed
        self.generated = 0  # tokens made
        self._numbers = 0
        self._preprocessor_free = 0.0
        self._arriving: list[tuple[float, int, Sequence]] = []
        self._waiting: deque[Sequence] = deque()
        self._decoding: dict[Sequence, None] = {}  # oldest first
        self._partial: Sequence | None = None  # prefills over several steps; the newest of all
        self._step: _Step | None = None
        self._aborted: list[Sequence] = []
        # Books of the decoding sequences. A decode step adds one to `_count` and one token to each of them.
        self._count = 0
        self._context = 0  # KV tokens that they hold
        self._boundaries = [0] * limits.block_size  # how many need a block when `_count` % block_size is this
        self._ends: list[tuple[int, int, Sequence]] = []  # (count at which it ends, number, sequence)

    # -- what goes in ---------------------------------------------------------------------------------------------

    def submit(self, at: float, prompt: int, output: int, images: int = 1) -> Sequence:
        """A request that arrives at `at`, not before any other submitted one. Raises ValueError if it can never fit."""
        if prompt < 1 or output < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        if self.limits.blocks_for(prompt + output) > self.limits.blocks:
            raise ValueError(f"{prompt + output} tokens do not fit into the KV cache")
        queued = at
        if images:
            queued = max(at, self._preprocessor_free) + self.costs.preprocess * images
            self._preprocessor_free = queued
        sequence = Sequence(self._numbers, prompt, output, images, at, queued)
        self._numbers += 1
        heapq.heappush(self._arriving, (queued, sequence.number, sequence))
        return sequence

    def abort(self, sequence: Sequence) -> None:
        """Drop a request: its blocks are free from the next step on."""
        if sequence.place is Place.ENDED or sequence.aborted:
            return
        sequence.aborted = True
        self._aborted.append(sequence)
        if self._step is None:
            self._apply_aborts()

    # -- the clock ------------------------------------------------------------------------------------------------

    def advance(self, until: float) -> list[Sequence]:
        """Take all steps that end by `until`; the sequences that ended, in order of time."""
        ended: list[Sequence] = []
        while self._begin(until):
            if self._step is not None:
                if self._step.end > until:
                    break
                self._finish_step(self._step, ended)
            elif not self._decode(until, ended):
                break
        return ended

    def next_event(self) -> float | None:
        """When something next ends, enters or is ready, if nothing else is submitted; None for an idle engine."""
        if self._step is not None:
            return self._step.end
        if self._decoding:
            steps = self._steps_to_event()
            return self.time + self.costs.decode_steps(steps, self._context, len(self._decoding))
        if self._waiting:
            return self.time
        return self._arriving[0][0] if self._arriving else None

    # -- what can be read -----------------------------------------------------------------------------------------

    def made(self, sequence: Sequence) -> int:
        """Tokens that exist of a sequence's output."""
        return self._count - sequence.offset if sequence.place is Place.DECODING else sequence.made

    @property
    def running(self) -> int:
        """Sequences that were admitted and have not ended."""
        entering = len(self._step.prefills) if self._step else int(self._partial is not None)
        return len(self._decoding) + entering

    @property
    def waiting(self) -> int:
        """Sequences in the queue; those whose images are still being prepared are not in it."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return 1 - self.free / self.limits.blocks

    @property
    def idle(self) -> bool:
        """Nothing is under way or waits."""
        return not (self._arriving or self._waiting or self._decoding or self._partial or self._step)

    # -- one step -------------------------------------------------------------------------------------------------

    def _begin(self, until: float) -> bool:
        """Start the next step by `until` if one can start; False when there is nothing to run by then."""
        if self._step is not None:
            return True
        if self.time > until:
            return False
        if not (self._decoding or self._partial or self._waiting):
            if not self._arriving or self._arriving[0][0] > until:
                return False
            self.time = max(self.time, self._arriving[0][0])
        self._take_arrivals()
        if self._blocks_needed(1) > self.free:
            self._preempt()
            self._begin_step([])
        elif self._partial or self._can_admit():
            self._begin_step(self._admit())
        return True

    def _take_arrivals(self) -> None:
        while self._arriving and self._arriving[0][0] <= self.time + SAME:
            sequence = heapq.heappop(self._arriving)[2]
            sequence.place = Place.WAITING
            self._waiting.append(sequence)

    def _can_admit(self) -> bool:
        if not self._waiting or len(self._decoding) >= self.limits.max_num_seqs:
            return False
        return self.limits.blocks_for(self._waiting[0].to_prefill) <= self.free - self._blocks_needed(1)

    def _admit(self) -> list[tuple[Sequence, int]]:
        """The prefills of this step: what is left of the one under way, then new ones while they fit."""
        budget = self.limits.max_num_batched_tokens - len(self._decoding)
        free = self.free - self._blocks_needed(1)
        prefills: list[tuple[Sequence, int]] = []
        if self._partial:
            chunk = min(budget, self._partial.to_prefill - self._partial.prefilled)
            prefills.append((self._partial, chunk))
            budget -= chunk
        self._partial = None
        while self._waiting and budget > 0 and len(self._decoding) + len(prefills) < self.limits.max_num_seqs:
            sequence = self._waiting[0]
            blocks = self.limits.blocks_for(sequence.to_prefill)
            if blocks > free:
                break
            self._waiting.popleft()
            sequence.place, sequence.blocks, sequence.prefilled = Place.PREFILLING, blocks, 0
            if sequence.admitted is None:
                sequence.admitted = self.time
            free -= blocks
            self.free -= blocks
            chunk = min(budget, sequence.to_prefill)
            prefills.append((sequence, chunk))
            budget -= chunk
        return prefills

    def _begin_step(self, prefills: list[tuple[Sequence, int]]) -> None:
        decoding = len(self._decoding)
        context = self._context + decoding + sum(sequence.prefilled + chunk for sequence, chunk in prefills)
        tokens = decoding + sum(chunk for _, chunk in prefills)
        images = sum(sequence.images for sequence, _ in prefills if not sequence.prefilled)
        self.free -= self._blocks_needed(1)
        self._step = _Step(self.time + self.costs.one_step(context, tokens, images), prefills, decoding)

    def _finish_step(self, step: _Step, ended: list[Sequence]) -> None:
        self._step = None
        self.time = step.end
        self._count_decode(1, step.decoding)
        self._end_decoded(ended)
        for sequence, chunk in step.prefills:
            sequence.prefilled += chunk
            self.prompt_tokens += chunk
            if sequence.prefilled < sequence.to_prefill:
                self._partial = sequence
            else:
                self._first_token(sequence, ended)
        self._apply_aborts()

    def _first_token(self, sequence: Sequence, ended: list[Sequence]) -> None:
        """A prefill is complete: it made a token, and the sequence decodes from here on."""
        computed = sequence.to_prefill
        sequence.made += 1
        self.generated += 1
        if sequence.first is None:
            sequence.first = self.time
        if sequence.made == sequence.output:
            self.free += sequence.blocks
            self._end(sequence, ended)
            return
        sequence.place = Place.DECODING
        sequence.offset = self._count - sequence.made
        self._decoding[sequence] = None
        self._context += computed
        self._boundaries[(self._count - computed) % self.limits.block_size] += 1
        heapq.heappush(self._ends, (sequence.offset + sequence.output, sequence.number, sequence))

    # -- many steps in which only decoding goes on ----------------------------------------------------------------

    def _decode(self, until: float, ended: list[Sequence]) -> bool:
        """Steps up to the next event or `until`; False when `until` stopped it."""
        running = len(self._decoding)
        most = self._steps_to_event()
        steps = self.costs.steps_within(until - self.time + SAME, most, self._context, running)
        if steps:
            self.time += self.costs.decode_steps(steps, self._context, running)
            self.free -= self._blocks_needed(steps)
            self._count_decode(steps, running)
            self._end_decoded(ended)
        return steps == most

    def _steps_to_event(self) -> int:
        """Steps until a sequence ends, blocks run out or an arrival could be admitted; at least 1."""
        running = len(self._decoding)
        steps = self._first_end() - self._count
        if running * (steps // self.limits.block_size + 1) > self.free and self._blocks_needed(steps) > self.free:
            fits, too_many = 0, steps
            while too_many - fits > 1:
                middle = (fits + too_many) // 2
                fits, too_many = (middle, too_many) if self._blocks_needed(middle) <= self.free else (fits, middle)
            steps = max(fits, 1)
        if self._arriving and not self._waiting and running < self.limits.max_num_seqs:
            until_arrival = self._arriving[0][0] - SAME - self.time
            steps = min(steps, self.costs.steps_within(until_arrival, steps, self._context, running) + 1)
        return steps

    def _first_end(self) -> int:
        """The count at which the next sequence ends; entries of preempted and aborted ones are dropped on the way."""
        while True:
            count, _, sequence = self._ends[0]
            if sequence.place is Place.DECODING and sequence.offset + sequence.output == count:
                return count
            heapq.heappop(self._ends)

    def _blocks_needed(self, steps: int) -> int:
        """Blocks that the decoding sequences take in the next `steps` steps."""
        size, count = self.limits.block_size, self._count
        if steps == 1:
            return self._boundaries[count % size]
        whole, rest = divmod(steps, size)
        return whole * len(self._decoding) + sum(self._boundaries[(count + ahead) % size] for ahead in range(rest))

    def _count_decode(self, steps: int, running: int) -> None:
        self._count += steps
        self._context += steps * running
        self.generated += steps * running

    def _end_decoded(self, ended: list[Sequence]) -> None:
        while self._decoding and self._first_end() <= self._count:
            sequence = heapq.heappop(self._ends)[2]
            self._leave_decoding(sequence)
            self._end(sequence, ended)

    # -- leaving --------------------------------------------------------------------------------------------------

    def _leave_decoding(self, sequence: Sequence) -> None:
        """Take a sequence out of the books of the decoding ones and free its blocks."""
        sequence.made = self._count - sequence.offset
        computed = sequence.prompt + sequence.made - 1
        del self._decoding[sequence]
        self._context -= computed
        self._boundaries[(self._count - computed) % self.limits.block_size] -= 1
        self.free += self.limits.blocks_for(computed)

    def _end(self, sequence: Sequence, ended: list[Sequence]) -> None:
        sequence.place = Place.ENDED
        sequence.end = self.time
        ended.append(sequence)

    def _preempt(self) -> None:
        """Put the newest back to the front of the queue until the others can take their next block."""
        while self._blocks_needed(1) > self.free:
            if self._partial:
                sequence, self._partial = self._partial, None
                self.free += sequence.blocks
            else:
                sequence = next(reversed(self._decoding))
                self._leave_decoding(sequence)
            sequence.place = Place.WAITING
            sequence.preemptions += 1
            self.preemptions += 1
            self._waiting.appendleft(sequence)

    def _apply_aborts(self) -> None:
        """Between steps: let go of what was aborted."""
        if any(sequence.place is Place.PREPARING for sequence in self._aborted):
            self._arriving = [entry for entry in self._arriving if not entry[2].aborted]
            heapq.heapify(self._arriving)
        for sequence in self._aborted:
            if sequence.place is Place.DECODING:
                self._leave_decoding(sequence)
            elif sequence.place is Place.PREFILLING:
                self._partial = None
                self.free += sequence.blocks
            elif sequence.place is Place.WAITING:
                self._waiting.remove(sequence)
            sequence.place = Place.ENDED
        self._aborted.clear()
