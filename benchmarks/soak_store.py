"""moto's S3 server in a process of its own, behind a proxy whose faults are set on standard input.

    python benchmarks/soak_store.py

Each line in is a JSON object, kind of fault to share of requests; each line out how often each kind struck so far, how
many requests came, and the resident bytes. The first line out is the address. It ends when standard input is closed.
"""

import json
import logging
import os
import random
import resource
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_REPOSITORY), str(_REPOSITORY / "tests" / "api")]  # the tests' servers import their helpers by name

from tests.storage.proxy import Fault, Proxy  # noqa: E402
from tests.storage.s3 import making  # noqa: E402

BUCKET = "soak"
#: What a service says when it is asked too much, lost connections, answers that are cut, and slow ones.
FAULTS: Mapping[str, Mapping[str, Any]] = {
    "503 SlowDown": {"status": 503, "code": "SlowDown"},
    "429": {"status": 429, "code": "TooManyRequests"},
    "500": {"status": 500, "code": "InternalError"},
    "lost before": {"lost": "before"},
    "lost after": {"lost": "after"},
    "torn": {"torn": True},
    "slow": {"wait": 2.0},
}


class FaultyProxy(Proxy):
    """Faults by chance; nothing of the requests is kept."""

    def __init__(self, seed: int) -> None:
        self.rates: dict[str, float] = {}
        self.hit: Counter[str] = Counter()
        self.requests = 0
        self._chance = random.Random(seed)
        self._mutex = threading.Lock()
        super().__init__(making.moto_url())
        self._server.handle_error = lambda *_: None  # who was killed has closed its connections

    def take(self, method: str, path: str, headers: dict[str, str]) -> Fault | None:
        with self._mutex:
            self.requests += 1
            left = self._chance.random()
            for kind, rate in self.rates.items():
                left -= rate
                if left < 0:
                    # Half of an answer to a write looks as if it were lost after it was done.
                    kind = "lost after" if kind == "torn" and method != "GET" else kind
                    self.hit[kind] += 1
                    return Fault(**FAULTS[kind])
        return None


def main() -> int:
    os.environ.update(making.ENVIRONMENT)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    making.raw().create_bucket(Bucket=BUCKET)
    proxy = FaultyProxy(int(sys.argv[1]))
    said: dict[str, Any] = {"url": proxy.url, "direct": making.moto_url()}
    print(json.dumps(said), flush=True)
    for line in sys.stdin:
        proxy.rates = dict(json.loads(line))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"hit": proxy.hit, "requests": proxy.requests, "peak_bytes": peak}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
