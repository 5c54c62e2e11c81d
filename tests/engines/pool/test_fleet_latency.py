import random

from llm_ocr.engines.pool.window import LatencySteering, Window

STEP = 0.1


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
            self.now += STEP
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
