"""Model of an LLM engine's scheduler on a virtual clock. No I/O, no randomness."""

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in seconds of an engine: on the GPU, on one core of the engine's process, and on the API server.

    A step takes max(step + context * tokens read, token * tokens computed) + image * images on the GPU. The first
    operand is bound by memory bandwidth, the second by arithmetic. Images pass through the vision encoder in the step
    in which their sequence enters.

    The engine's process (vLLM's EngineCore) uses one core for engine_step + engine_token * sequences + engine_image *
    images: scheduling, logits processors, sampled tokens, and the transfer of image tensors. vLLM prepares a step
    while the GPU computes the one before (asynchronous scheduling), so a step lasts as long as the slower of the two.

    `preprocess` is spent per image before the queue, by one thread of an API server.
    """

    step: float
    context: float
    token: float
    image: float
    preprocess: float
    engine_step: float = 0.0
    engine_token: float = 0.0
    engine_image: float = 0.0

    def faster(self, speed: float) -> "Costs":
        """Return the same engine with all times divided by `speed`."""
        return Costs(*(seconds / speed for seconds in astuple(self)))

    def sharing(self, engines: int) -> "Costs":
        """Return one of `engines` equal engines on one GPU: each has its own core and an equal part of the GPU."""
        return replace(
            self,
            step=self.step * engines,
            context=self.context * engines,
            token=self.token * engines,
            image=self.image * engines,
        )

    def on_gpu(self, context: int, tokens: int, images: int) -> float:
        """Return the GPU's seconds of a step: KV tokens that it reads, tokens to compute, and images to encode."""
        return max(self.step + self.context * context, self.token * tokens) + self.image * images

    def on_core(self, sequences: int, images: int) -> float:
        """Return the engine process's seconds of a step with `sequences`, `images` of which enter."""
        return self.engine_step + self.engine_token * sequences + self.engine_image * images

    def decode_steps(self, steps: int, context: int, running: int) -> float:
        """Return the seconds of `steps` steps in which `running` sequences gain a token each, from `context` tokens."""
        return self._decoding(steps, context, running, max(self.token * running, self.on_core(running, 0)))

    def decode_on_gpu(self, steps: int, context: int, running: int) -> float:
        """Return the GPU's seconds of such steps."""
        return self._decoding(steps, context, running, self.token * running)

    def _decoding(self, steps: int, context: int, running: int, least: float) -> float:
        """Return the seconds of such steps if each takes at least `least`.

        Step i (from 1) reads context + running * i tokens. The sum is that of an arithmetic series, plus a constant for
        the first steps if those take `least`.
        """
        bound = 0  # steps that take `least` are first, since the context only grows
        if self.step + self.context * (context + running) < least:
            growth = self.context * running
            bound = steps if growth <= 0 else min(steps, int((least - self.step - self.context * context) / growth))
        read = steps - bound
        series = running * (read * bound + read * (read + 1) // 2)
        return bound * least + read * (self.step + self.context * context) + self.context * series

    def steps_within(self, seconds: float, most: int, context: int, running: int) -> int:
        """Return the largest number of such steps, up to `most`, that takes at most `seconds`."""
        if self.decode_steps(most, context, running) <= seconds:
            return most
        fits, too_many = 0, most
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.decode_steps(middle, context, running) <= seconds:
                fits = middle
            else:
                too_many = middle
        return fits


# GPUs of the engine model, for DeepSeek-OCR in bfloat16. Computed from data sheets, except for the H200.


# DeepSeek-OCR's language model: 12 layers, hidden size 1280, 10 KV heads of 128, no MLA; 64 experts, 6 of them and 2
# shared ones active: 2.93 B parameters, 0.573 B active (its config.json).
#: Bytes read in each step once a batch of 32 or more touches nearly all experts.
WEIGHT_BYTES = 5.5e9
#: Bytes of KV cache per token: 12 layers x 2 (keys, values) x 1280 x 2 bytes.
KV_BYTES = 61_440
#: Floating point operations to compute one token: twice the active parameters.
TOKEN_FLOP = 2 * 0.573e9
#: Floating point operations of the vision towers for one page: 1024 px global view and six 640 px tiles.
IMAGE_FLOP = 3.35e12
#: Shares of the data sheet values that real kernels reach.
BANDWIDTH_REACHED, FLOP_REACHED = 0.8, 0.4
#: Seconds per image in one API server of vLLM: its preprocessing is one thread, 14 pages/s (vllm-project/vllm#58266).
PREPROCESS_SECONDS = 1 / 14


@dataclass(frozen=True, slots=True)
class Preset:
    """GPU: memory bandwidth in bytes/s, peak dense bfloat16 in FLOP/s, and tokens in its KV cache.

    The other values are seconds, as in `Costs`. `image` is computed from `flops` unless it was measured. Without
    measured times of the engine's process, they are 0.
    """

    name: str
    bandwidth: float
    flops: float
    kv_tokens: int
    image: float | None = None
    preprocess: float = PREPROCESS_SECONDS
    engine_step: float = 0.0
    engine_token: float = 0.0
    engine_image: float = 0.0

    def costs(self) -> Costs:
        """Return the step times of one server on this GPU."""
        bandwidth = self.bandwidth * BANDWIDTH_REACHED
        flops = self.flops * FLOP_REACHED
        return Costs(
            WEIGHT_BYTES / bandwidth,
            KV_BYTES / bandwidth,
            TOKEN_FLOP / flops,
            IMAGE_FLOP / flops if self.image is None else self.image,
            self.preprocess,
            self.engine_step,
            self.engine_token,
            self.engine_image,
        )


# Bandwidth and dense bfloat16 peak: NVIDIA's data sheets (L4; A100 40 GB; H100 SXM; H200 SXM). KV tokens: the memory
# left by weights and activations: 150, 330, and 780 pages of 256 + 1000 tokens, in whole blocks of 16.
L4 = Preset("l4", 300e9, 121e12, 188_400)
A100 = Preset("a100", 1555e9, 312e12, 414_480)
H100 = Preset("h100", 3350e9, 989e12, 979_680)
# Measured on 2026-11-26: one H200 and 16 cores, vLLM 0.25.1, dummy weights, pages of 906 prompt tokens and 1000 output
# tokens, PNG. KV tokens: vLLM's log. Preprocessing: 5.9 pages/s admitted by one API server at one core (decoding of a
# PNG 15 to 34 ms, image processor 98 to 121 ms, and the rest of a request). The other times: least squares over the
# 111 seconds of two runs (64 and up to 206 sequences) in which the engine's process used a whole core:
# 1 s = steps * engine_step + tokens * engine_token + pages * engine_image. A token includes 34 to 38 us of vLLM's
# n-gram processor. GPU use of the same seconds is that of the data sheet (step and context) plus 28 ms a page.
H200 = Preset(
    "h200",
    4800e9,
    989e12,
    2_119_408,
    image=28e-3,
    preprocess=0.170,
    engine_step=2.4e-3,
    engine_token=93e-6,
    engine_image=77e-3,
)

PRESETS = {preset.name: preset for preset in (L4, A100, H100, H200)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Capacity of the engine; the names are those of vLLM's settings.

    `blocks` are KV blocks of `block_size` tokens. `max_num_batched_tokens` is the token budget of one step. The budget
    is at least `max_num_seqs`, so that every running sequence receives its token in every step. Images are prepared by
    `renderer_num_workers` threads in each of `api_server_count` API servers, one image per thread.
    """

    max_num_seqs: int
    blocks: int
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    api_server_count: int = 1
    renderer_num_workers: int = 1

    def __post_init__(self) -> None:
        if min(self.max_num_seqs, self.blocks, self.block_size) < 1:
            raise ValueError("max_num_seqs, blocks and block_size must be positive")
        if min(self.api_server_count, self.renderer_num_workers) < 1:
            raise ValueError("api_server_count and renderer_num_workers must be positive")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must not be smaller than max_num_seqs")

    def blocks_for(self, tokens: int) -> int:
        """Return the number of blocks for `tokens`."""
        return -(-tokens // self.block_size)


class Place(Enum):
    """State of a sequence."""

    PREPARING = auto()  # image preprocessing, or its queue
    WAITING = auto()
    PREFILLING = auto()
    DECODING = auto()
    ENDED = auto()


@dataclass(eq=False, slots=True)
class RunningSequence:
    """Request in the engine. Times are those of the engine's clock in seconds; None: not yet.

    `output` tokens will be generated, including the end-of-sequence token. `queued` is the time of joining the queue,
    after preprocessing. `admitted` is the start of its first step. `first` and `end` are the times of its first and
    last tokens.
    """

    number: int
    prompt: int
    output: int
    images: int
    queued: float
    admitted: float | None = None
    first: float | None = None
    end: float | None = None
    preemptions: int = 0
    aborted: bool = False
    place: Place = Place.PREPARING
    # Internal counters of the engine. While the sequence decodes, its tokens = the engine's decode counter - offset.
    made: int = 0  # tokens generated before it last stopped decoding
    offset: int = 0
    prefilled: int = 0  # computed tokens of this prefill
    blocks: int = 0  # KV blocks held during the prefill

    @property
    def to_prefill(self) -> int:
        """Return the tokens that a prefill computes: the prompt, and after a preemption the generated tokens."""
        return self.prompt + self.made


# Model of an LLM engine's scheduler with its own clock: no I/O, no waiting, no randomness. It follows vLLM's V1
# scheduler in everything that determines throughput: continuous batching with FIFO admission, chunked prefill under a
# token budget per step, KV blocks, and preemption of the newest with recomputation. Steps without arrivals or ends are
# not simulated singly: their times are summed in closed form.


#: Times closer than this are equal: float sums in another order must not shift an admission by a step.
SAME = 1e-9


@dataclass(slots=True)
class _Step:
    """Step in progress with arrivals: the prefills, and whether each ends with the step."""

    end: float
    prefills: list[tuple[RunningSequence, int]]  # with the tokens computed in this step
    decoding: int


class EngineModel:
    """Engine: `submit` requests in order of time, then `advance`; real and virtual clocks give the same results.

    With a real clock: `advance(now)` before each `submit(now, ...)`, and again at `next_event()`. With a virtual one:
    submit everything, then `advance(float("inf"))`.
    """

    def __init__(self, costs: Costs, limits: Limits) -> None:
        self.costs = costs
        self.limits = limits
        self.time = 0.0  # end of the last finished step
        self.free = limits.blocks
        self.preemptions = 0
        self.prompt_tokens = 0  # computed prompt tokens
        self.generated = 0  # generated tokens
        self._numbers = 0
        self.gpu_seconds = 0.0  # of all steps
        self.core_seconds = 0.0  # of the engine's process, likewise
        self.began = math.inf  # first arrival
        self._intake = [0.0] * (limits.api_server_count * limits.renderer_num_workers)  # heap: times of free threads
        self._arriving: list[tuple[float, int, RunningSequence]] = []
        self._waiting: deque[RunningSequence] = deque()
        self._decoding: dict[RunningSequence, None] = {}  # oldest first
        self._partial: RunningSequence | None = None  # prefill over several steps; the newest of all
        self._step: _Step | None = None
        self._aborted: list[RunningSequence] = []
        # Counters of the decoding sequences. A decode step adds one to `_count` and one token to each sequence.
        self._count = 0
        self._context = 0  # KV tokens of these sequences
        self._boundaries = [0] * limits.block_size  # sequences that need a block when `_count` % block_size is this
        self._ends: list[tuple[int, int, RunningSequence]] = []  # (count at its end, number, sequence)

    def submit(self, at: float, prompt: int, output: int, images: int = 1) -> RunningSequence:
        """Submit a request that arrives at `at`, not before any earlier submitted one.

        Raises:
            ValueError: The request can never fit.
        """
        if prompt < 1 or output < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        if self.limits.blocks_for(prompt + output) > self.limits.blocks:
            raise ValueError(f"{prompt + output} tokens do not fit into the KV cache")
        self.began = min(self.began, at)
        queued = at
        if images:
            queued = max(at, self._intake[0]) + self.costs.preprocess * images
            heapq.heapreplace(self._intake, queued)
        sequence = RunningSequence(self._numbers, prompt, output, images, queued)
        self._numbers += 1
        heapq.heappush(self._arriving, (queued, sequence.number, sequence))
        return sequence

    def abort(self, sequence: RunningSequence) -> None:
        """Drop a request: its blocks are free from the next step on."""
        if sequence.place is Place.ENDED or sequence.aborted:
            return
        sequence.aborted = True
        self._aborted.append(sequence)
        if self._step is None:
            self._apply_aborts()

    def advance(self, until: float) -> list[RunningSequence]:
        """Run all steps that end by `until`; return the sequences that ended, in order of time."""
        ended: list[RunningSequence] = []
        while self._begin(until):
            if self._step is not None:
                if self._step.end > until:
                    break
                self._finish_step(self._step, ended)
            elif not self._decode(until, ended):
                break
        return ended

    def next_event(self) -> float | None:
        """Return the time of the next end, arrival, or readiness without further submissions; None if idle."""
        if self._step is not None:
            return self._step.end
        if self._decoding:
            steps = self._steps_to_event()
            return self.time + self.costs.decode_steps(steps, self._context, len(self._decoding))
        if self._waiting:
            return self.time
        return self._arriving[0][0] if self._arriving else None

    def made(self, sequence: RunningSequence) -> int:
        """Return the generated tokens of a sequence."""
        return self._count - sequence.offset if sequence.place is Place.DECODING else sequence.made

    @property
    def running(self) -> int:
        """Return the number of admitted sequences that have not ended."""
        entering = len(self._step.prefills) if self._step else int(self._partial is not None)
        return len(self._decoding) + entering

    @property
    def waiting(self) -> int:
        """Return the number of sequences in the queue, without those whose images are still being prepared."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Return the share of the KV blocks in use, 0 to 1."""
        return 1 - self.free / self.limits.blocks

    @property
    def gpu_busy(self) -> float:
        """Return the share of the time in which the GPU computed, 0 to 1, from the first arrival to the last step.

        Of an engine that shares its GPU, it is the share of its own part.
        """
        return self.gpu_seconds / (self.time - self.began) if self.time > self.began else 0.0

    @property
    def core_busy(self) -> float:
        """Return the share of one core that the engine's process used, 0 to 1, in the same time."""
        return self.core_seconds / (self.time - self.began) if self.time > self.began else 0.0

    def _begin(self, until: float) -> bool:
        """Start the next step by `until` if possible; return False if no sequence can run by then."""
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

    def _admit(self) -> list[tuple[RunningSequence, int]]:
        """Return the prefills of this step: the rest of the current one, then new ones while they fit."""
        budget = self.limits.max_num_batched_tokens - len(self._decoding)
        free = self.free - self._blocks_needed(1)
        prefills: list[tuple[RunningSequence, int]] = []
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

    def _begin_step(self, prefills: list[tuple[RunningSequence, int]]) -> None:
        decoding = len(self._decoding)
        context = self._context + decoding + sum(sequence.prefilled + chunk for sequence, chunk in prefills)
        tokens = decoding + sum(chunk for _, chunk in prefills)
        images = sum(sequence.images for sequence, _ in prefills if not sequence.prefilled)
        self.free -= self._blocks_needed(1)
        gpu = self.costs.on_gpu(context, tokens, images)
        core = self.costs.on_core(decoding + len(prefills), images)
        self.gpu_seconds += gpu
        self.core_seconds += core
        self._step = _Step(self.time + max(gpu, core), prefills, decoding)

    def _finish_step(self, step: _Step, ended: list[RunningSequence]) -> None:
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

    def _first_token(self, sequence: RunningSequence, ended: list[RunningSequence]) -> None:
        """Complete a prefill: its first token exists, and the sequence decodes from now on."""
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

    def _decode(self, until: float, ended: list[RunningSequence]) -> bool:
        """Run steps up to the next event or `until`; return False if `until` is first."""
        running = len(self._decoding)
        most = self._steps_to_event()
        steps = self.costs.steps_within(until - self.time + SAME, most, self._context, running)
        if steps:
            self.time += self.costs.decode_steps(steps, self._context, running)
            self.gpu_seconds += self.costs.decode_on_gpu(steps, self._context, running)
            self.core_seconds += steps * self.costs.on_core(running, 0)
            self.free -= self._blocks_needed(steps)
            self._count_decode(steps, running)
            self._end_decoded(ended)
        return steps == most

    def _steps_to_event(self) -> int:
        """Return the steps until a sequence ends, blocks run out, or an arrival could be admitted; at least 1."""
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
        """Return the count at which the next sequence ends; drop entries of preempted and aborted sequences."""
        while True:
            count, _, sequence = self._ends[0]
            if sequence.place is Place.DECODING and sequence.offset + sequence.output == count:
                return count
            heapq.heappop(self._ends)

    def _blocks_needed(self, steps: int) -> int:
        """Return the blocks that the decoding sequences need in the next `steps` steps."""
        size, count = self.limits.block_size, self._count
        if steps == 1:
            return self._boundaries[count % size]
        whole, rest = divmod(steps, size)
        return whole * len(self._decoding) + sum(self._boundaries[(count + ahead) % size] for ahead in range(rest))

    def _count_decode(self, steps: int, running: int) -> None:
        self._count += steps
        self._context += steps * running
        self.generated += steps * running

    def _end_decoded(self, ended: list[RunningSequence]) -> None:
        while self._decoding and self._first_end() <= self._count:
            sequence = heapq.heappop(self._ends)[2]
            self._leave_decoding(sequence)
            self._end(sequence, ended)

    def _leave_decoding(self, sequence: RunningSequence) -> None:
        """Remove a sequence from the counters of the decoding ones, and free its blocks."""
        sequence.made = self._count - sequence.offset
        computed = sequence.prompt + sequence.made - 1
        del self._decoding[sequence]
        self._context -= computed
        self._boundaries[(self._count - computed) % self.limits.block_size] -= 1
        self.free += self.limits.blocks_for(computed)

    def _end(self, sequence: RunningSequence, ended: list[RunningSequence]) -> None:
        sequence.place = Place.ENDED
        sequence.end = self.time
        ended.append(sequence)

    def _preempt(self) -> None:
        """Move the newest sequences to the front of the queue until the others can allocate their next block."""
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
        """Remove aborted sequences between steps."""
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


# Lower bound for any client: all requests arrive at once, in the same order, on a virtual clock.


def ends(requests: Iterable[tuple[int, int, int]], costs: Costs, limits: Limits) -> list[float]:
    """Return the end of each request, in seconds from a start at which all are present in this order.

    A request is the tokens of its prompt and of its answer, and the number of its images.
    """
    model = EngineModel(costs, limits)
    sequences = [model.submit(0.0, *request) for request in requests]
    model.advance(math.inf)
    return [sequence.end or 0.0 for sequence in sequences]
