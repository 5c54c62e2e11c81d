"""How many requests a server has at once, and which server is next."""

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.engines import ServerFacts
from llm_ocr.engines.client.endpoint import Gauges
from llm_ocr.engines.pool.session import GaugeSteering, LatencySteering, Window, describe, first_size, queue_band

A100 = ServerFacts(True, "0.32.0", max_model_len=8192, kv_tokens=1_115_616, max_num_seqs=128)
STEP = 0.05  # seconds of a toy's time


class Toy:
    """A server in virtual time: images one after the other, a queue, `slots` that each take about `seconds`.

    Every client keeps its window full.
    """

    def __init__(self, *, slots: int, seconds: float, preprocess: float = 0.01, clients: int = 1) -> None:
        self.slots = slots
        self.seconds = seconds
        self.preprocess = preprocess
        self.random = random.Random(0)
        self.now = 0.0
        self.under_way = [0] * clients
        self.finished = [0] * clients
        self.idle = 0.0  # slot-seconds that nobody used
        self._preprocessing: deque[int] = deque()
        self._free_at = 0.0  # the preprocessor's time
        self._waiting: deque[int] = deque()
        self._running: list[tuple[float, int]] = []

    def gauges(self) -> Gauges:
        running = len(self._running)
        return Gauges(running=running, waiting=len(self._waiting), kv_usage=running / self.slots)

    def step(self, windows: list[Window]) -> None:
        self.now += STEP
        for client, window in enumerate(windows):
            while self.under_way[client] < window.size:
                self.under_way[client] += 1
                self._preprocessing.append(client)
        self._free_at = max(self._free_at, self.now - STEP)
        while self._preprocessing and self._free_at + self.preprocess <= self.now:
            self._free_at += self.preprocess
            self._waiting.append(self._preprocessing.popleft())
        for end, client in [one for one in self._running if one[0] <= self.now]:
            self._running.remove((end, client))
            self.under_way[client] -= 1
            self.finished[client] += 1
        while self._waiting and len(self._running) < self.slots:
            self._running.append((self.now + self.seconds * self.random.uniform(0.5, 1.5), self._waiting.popleft()))
        self.idle += STEP * (self.slots - len(self._running))

    def run(self, steerings: list[GaugeSteering], seconds: float) -> list[int]:
        """Steer for a while; the sum of the windows after each reading."""
        sizes = []
        end, reading = self.now + seconds, self.now + 0.7
        while self.now < end:
            self.step([steering.window for steering in steerings])
            if self.now >= reading:
                reading += 0.7
                for client, steering in enumerate(steerings):
                    steering.read(self.gauges(), self.under_way[client])
                sizes.append(sum(steering.window.size for steering in steerings))
        return sizes


def steered(size: int, cap: int | None = None) -> GaugeSteering:
    return GaugeSteering(Window(size, cap))


def test_first_window_is_server_concurrency_plus_a_small_queue() -> None:
    first, why = first_size(A100, 2000, None)
    assert first == 128 + 16
    assert describe(A100, first, why) == (
        "1,115,616 KV tokens; window 144: KV for 557 pages of 2,000 tokens, 128 sequences at once + 16 waiting"
    )


def test_the_first_window_fits_into_a_small_kv_cache() -> None:
    assert first_size(ServerFacts(True, kv_tokens=20_000, max_num_seqs=256), 2000, None)[0] == 10 + 4


@pytest.mark.parametrize(
    ("facts", "size"), [(ServerFacts(True), 72), (ServerFacts(True, max_num_seqs=16), 20), (ServerFacts(), 16)]
)
def test_a_server_that_says_little_gets_a_modest_first_window(facts: ServerFacts, size: int) -> None:
    assert first_size(facts, 2000, None)[0] == size


def test_the_users_cap_is_never_passed() -> None:
    first, why = first_size(A100, 2000, 50)
    assert first == 50
    assert "configured maximum" in why
    steering = steered(first, 50)
    steering.read(Gauges(running=50), 50)
    assert steering.window.size == 50


def test_a_window_converges_to_the_slots_and_a_small_queue() -> None:
    toy = Toy(slots=128, seconds=10)
    sizes = toy.run([steered(64)], 120)
    low, high = queue_band(128)
    assert all(128 + low // 2 <= size <= 128 + 3 * high for size in sizes[-50:])
    before = toy.idle
    toy.run([steered(sizes[-1])], 100)
    assert toy.idle - before < 0.01 * 128 * 100


def test_a_window_that_is_too_large_gives_up_the_surplus() -> None:
    sizes = Toy(slots=32, seconds=5).run([steered(400)], 60)
    assert sizes[-1] <= 32 + 2 * queue_band(32)[1]


def test_a_window_follows_a_server_that_gets_slower_or_faster() -> None:
    toy = Toy(slots=128, seconds=5)
    steering = steered(64)
    toy.run([steering], 60)
    toy.slots = 24
    toy.run([steering], 60)
    assert steering.window.size <= 24 + 2 * queue_band(24)[1]
    toy.slots = 200
    toy.run([steering], 60)
    assert 200 <= steering.window.size <= 200 + 3 * queue_band(200)[1]


def test_a_wall_of_preprocessing_does_not_draw_in_more_and_more() -> None:
    """14 images a second and 4 s for each: 56 run, whatever is sent."""
    sizes = Toy(slots=1000, seconds=4, preprocess=1 / 14).run([steered(64)], 400)
    assert max(sizes) <= 3 * 56
    assert min(sizes[-100:]) >= 56


def test_two_clients_share_a_server_without_flood_or_starvation() -> None:
    toy = Toy(slots=64, seconds=5, clients=2)
    toy.run([steered(64), steered(16)], 60)
    done = list(toy.finished)
    waiting = []
    steerings = [steered(toy.under_way[0]), steered(toy.under_way[1])]
    for _ in range(100):
        toy.run(steerings, 1)
        waiting.append(toy.gauges().waiting)
    assert max(waiting) <= 4 * queue_band(64)[1]
    gained = [now - then for now, then in zip(toy.finished, done, strict=True)]
    assert sum(gained) >= 0.97 * 100 * 64 / 5
    assert min(gained) >= 0.1 * sum(gained)


def test_preemptions_shrink_window_once_until_fewer_requests_run() -> None:
    steering = steered(100)
    steering.read(Gauges(running=90, waiting=8, preemptions=0), 100)
    steering.read(Gauges(running=90, waiting=8, preemptions=3), 100)
    assert steering.window.size == 90
    steering.read(Gauges(running=90, waiting=8, preemptions=5), 98)
    assert steering.window.size == 90
    steering.read(Gauges(running=84, waiting=0, preemptions=5), 90)
    assert steering.window.size == 90 or steering.window.size == 91


def test_preemptions_before_the_first_reading_are_somebody_elses() -> None:
    steering = steered(100)
    steering.read(Gauges(running=90, waiting=8, preemptions=70), 100)
    assert steering.window.size == 100


def test_a_window_that_is_not_full_does_not_grow() -> None:
    steering = steered(100)
    steering.read(Gauges(running=40), 40)
    assert steering.window.size == 100


@given(
    st.integers(1, 500),
    st.lists(
        st.tuples(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 100), st.integers(0, 1000)), max_size=40
    ),
)
def test_window_stays_within_bounds_for_any_gauge_values(size: int, readings: list[tuple[int, int, int, int]]) -> None:
    steering = steered(size, 500)
    for running, waiting, preemptions, under_way in readings:
        before = steering.window.size
        steering.read(Gauges(running, waiting, preemptions=preemptions), under_way)
        assert 1 <= steering.window.size <= 500
        assert steering.window.size <= max(2 * before, before + 4, before + 1 + max(2, running // 16))


class Provider:
    """`slots` requests at once, each for about `seconds`; more wait, and above `limit` are refused."""

    def __init__(self, slots: int, seconds: float, limit: int | None = None) -> None:
        self.slots, self.seconds, self.limit = slots, seconds, limit
        self.random = random.Random(1)
        self.now = 0.0
        self.refusals = 0
        self._waiting: list[float] = []
        self._running: list[tuple[float, float]] = []

    def run(self, steering: LatencySteering, seconds: float) -> list[int]:
        sizes = []
        end, tick = self.now + seconds, self.now + 1
        while self.now < end:
            self.now += 0.1
            self._send(steering)
            for ends, began in [one for one in self._running if one[0] <= self.now]:
                self._running.remove((ends, began))
                steering.answered(self.now, self.now - began, self.random.randint(500, 1500))
            while self._waiting and len(self._running) < self.slots:
                began = self._waiting.pop(0)
                self._running.append((self.now + self.seconds * self.random.uniform(0.6, 1.4), began))
            if self.now >= tick:
                tick += 1
                steering.tick(self.now, steering.window.full(len(self._running) + len(self._waiting)))
                sizes.append(steering.window.size)
        return sizes

    def _send(self, steering: LatencySteering) -> None:
        while len(self._running) + len(self._waiting) < steering.window.size:
            if self.limit is not None and len(self._running) + len(self._waiting) >= self.limit:
                self.refusals += 1
                steering.refused(self.now)
                return
            self._waiting.append(self.now)


def test_the_window_grows_while_throughput_does_and_then_holds() -> None:
    provider = Provider(slots=100, seconds=4)
    sizes = provider.run(LatencySteering(Window(16), 0.0), 600)
    assert all(85 <= size <= 220 for size in sizes[-200:])
    assert max(sizes) <= 250


def test_a_slower_provider_gets_less_and_a_faster_one_more() -> None:
    provider = Provider(slots=100, seconds=3)
    steering = LatencySteering(Window(16), 0.0)
    provider.run(steering, 400)
    before = steering.window.size
    provider.slots = 30
    sizes = provider.run(steering, 600)
    assert sizes[-1] < before
    provider.slots = 200
    sizes = provider.run(steering, 1500)
    assert sizes[-1] >= 120


def test_refusals_halve_the_window_once_and_it_comes_back() -> None:
    window = Window(64)
    steering = LatencySteering(window, 0.0)
    steering.answered(0.5, 2.0, 100)
    for _ in range(30):
        steering.refused(1.0)
    assert window.size == 32
    steering.refused(2.0)
    assert window.size == 32
    steering.refused(4.0)
    assert window.size == 16


def test_a_provider_with_a_limit_is_rarely_asked_for_more() -> None:
    provider = Provider(slots=1000, seconds=3, limit=40)
    steering = LatencySteering(Window(16), 0.0)
    sizes = provider.run(steering, 900)
    assert sum(sizes[-400:]) / 400 >= 20
    assert max(sizes[-400:]) <= 60


def test_the_window_never_falls_below_one() -> None:
    window = Window(3)
    steering = LatencySteering(window, 0.0)
    for second in range(0, 100, 6):
        steering.refused(float(second))
    assert window.size == 1


def test_a_window_that_is_not_full_is_left_alone() -> None:
    window = Window(16)
    steering = LatencySteering(window, 0.0)
    for second in range(200):
        steering.answered(float(second), 1.0, 100)
        steering.tick(float(second), False)
    assert window.size == 16
