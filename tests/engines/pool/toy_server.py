"""A toy server in virtual time: preprocessing one image after the other, a queue, slots, a KV cache in pages."""

import random
from collections import deque

from llm_ocr.engines.client.endpoint import Gauges
from llm_ocr.engines.pool.session import GaugeSteering, Window

STEP = 0.05


class Toy:
    """Every client keeps its window full. `slots` run at once, each for about `seconds`."""

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
        self.preemptions = 0

    def gauges(self) -> Gauges:
        return Gauges(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_usage=len(self._running) / self.slots,
            preemptions=self.preemptions,
        )

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

    def run(self, steerings: list[GaugeSteering], seconds: float, interval: float = 0.7) -> list[int]:
        """Steer for a while; the sum of the windows after each reading."""
        sizes = []
        end, reading = self.now + seconds, self.now + interval
        while self.now < end:
            self.step([steering.window for steering in steerings])
            if self.now >= reading:
                reading += interval
                for client, steering in enumerate(steerings):
                    steering.read(self.gauges(), self.under_way[client])
                sizes.append(sum(steering.window.size for steering in steerings))
        return sizes
