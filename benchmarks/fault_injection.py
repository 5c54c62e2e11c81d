"""What is around the workers: two simulated model servers and a store, and the faults that come and go in them."""

import json
import random
import subprocess
import sys
import time
import urllib.error
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_ocr.config.environment import worker_environment
from llm_ocr_simulator import running
from llm_ocr_simulator.faults import RATES
from llm_ocr_simulator.process import Running

#: Seconds of calm, and of a storm, of each part for itself.
_CALM, _STORM = (15.0, 45.0), (15.0, 60.0)
#: How likely each kind of storm is at a model server. "faults": some kinds by chance, each of this share of requests.
_STORMS = {"faults": 6, "few at a time": 1, "hangs": 1, "killed": 2, "engine dies": 1}
_SHARE = (0.01, 0.06)
_STORE_SHARE = (0.01, 0.05)
_BLACKOUT = (2.0, 6.0)  # seconds in which the store answers nobody
_ANSWERS = {"mean_tokens": 600, "longest": 1600, "loop_rate": 0.01, "empty_rate": 0.01}


class Server:
    """A model server that dies and comes again at the same address."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self.state = folder / f"server-{number}.state"
        self.events: Counter[str] = Counter()
        self.storm = ""
        self._options: dict[str, Any] = {
            **{"mean_tokens": _ANSWERS["mean_tokens"], "max": _ANSWERS["longest"], "lifetime": 7 * 86400},
            **{"loop_rate": _ANSWERS["loop_rate"], "empty_rate": _ANSWERS["empty_rate"]},
            **{"speed": 1, "max_num_seqs": 32, "seed": seed, "state_file": self.state},
        }
        self._chance = random.Random(f"server {number} {seed}")
        self._process: running | None = None
        self._server: Running | None = None
        self._again_at = self._next = 0.0
        self.url = ""

    def start(self) -> None:
        self._process = running(**self._options)
        self._server = self._process.__enter__()
        self.url = self._server.url
        self._options["port"] = int(self._server.root.rpartition(":")[2])
        self._again_at = 0.0

    def close(self) -> None:
        if self._process is not None:
            self._process.__exit__()
        self._process = self._server = None

    def tick(self, stormy: bool) -> None:
        """Note whether the server lives, and begin or end a storm when it is time."""
        now = time.monotonic()
        if self._server is not None and not self._server.process.is_alive():
            self.close()
            self.events["deaths"] += 1
            self._again_at = now + self._chance.uniform(2.0, 10.0)
        if self._again_at and now >= self._again_at:
            self.start()
            self.storm = ""
            self._next = now + self._chance.uniform(*_CALM)
        if self._server is not None and not stormy and self.storm:
            self._faults("", {})
        if self._server is not None and stormy and now >= self._next:
            self._change(now)

    def count(self) -> int:
        """Take the requests' fates out of the server's log; how many there were. What a dead one knew is lost."""
        if self._server is None:
            return 0
        try:
            requests = self._server.log()["requests"]
            self._server.reset()
        except (OSError, ValueError):
            return 0
        self.events.update(one["fault"] for one in requests if one["fault"])
        return len(requests)

    def asked(self) -> Counter[str]:
        """How often each image was asked, over all starts."""
        lines = self.state.read_text().splitlines() if self.state.exists() else []
        return Counter(line.partition(" ")[2] for line in lines if line.startswith("asked "))

    def forget(self) -> None:
        """Restart with no memory of what was asked."""
        self.close()
        self.state.unlink(missing_ok=True)
        self.start()
        self.storm = ""

    def _change(self, now: float) -> None:
        chance = self._chance
        if self.storm:
            self._faults("", {})
            self._next = now + chance.uniform(*_CALM)
            return
        kind = chance.choices(list(_STORMS), list(_STORMS.values()))[0]
        self.events[f"storm: {kind}"] += 1
        self._next = now + chance.uniform(*_STORM)
        if kind == "killed":
            self.count()
            if self._server is not None:
                self._server.kill()
            return
        self._faults(kind, self._of(kind))

    def _of(self, kind: str) -> dict[str, Any]:
        chance = self._chance
        if kind == "few at a time":
            return {"max-inflight": chance.randint(2, 6)}
        if kind == "hangs":
            return {"hang-after-seconds": 0.1}
        if kind == "engine dies":
            return {"engine-death": 1, "die-after": chance.randint(5, 40)}
        return {name: round(chance.uniform(*_SHARE), 3) for name in chance.sample(RATES, chance.randint(2, 6))}

    def _faults(self, storm: str, faults: Mapping[str, Any]) -> None:
        self.storm = storm
        if self._server is not None:
            try:
                self._server.set_faults(faults)
            except (OSError, urllib.error.URLError):
                self.storm = storm or "unknown"  # it is just dying: seen in the next tick


class Store:
    """moto's S3 server behind a proxy; see soak_store.py."""

    def __init__(self, seed: int, environment: Mapping[str, str]) -> None:
        program = str(Path(__file__).with_name("soak_store.py"))
        self._process = subprocess.Popen(
            [sys.executable, program, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**worker_environment(), **environment},
            start_new_session=True,
        )
        said = self._read()
        self.url, self.direct = str(said["url"]), str(said["direct"])
        self.pid = self._process.pid
        self.storms: Counter[str] = Counter()
        self.storm = ""
        self.last: dict[str, Any] = {}
        self._chance = random.Random(f"store {seed}")
        self._next = 0.0

    def tick(self, stormy: bool) -> None:
        """Begin or end a storm when it is time."""
        now, chance = time.monotonic(), self._chance
        if self.storm and (not stormy or now >= self._next):
            self.set({})
            self.storm, self._next = "", now + chance.uniform(*_CALM)
        elif stormy and now >= self._next:
            self._begin(now)

    def _begin(self, now: float) -> None:
        chance = self._chance
        if chance.random() < 0.2:
            self.storm, self._next = "blackout", now + chance.uniform(*_BLACKOUT)
            self.set({"lost before": 1.0})
        else:
            self.storm, self._next = "faults", now + chance.uniform(*_STORM)
            kinds = ["503 SlowDown", "429", "500", "lost before", "lost after", "torn", "slow"]
            self.set({kind: chance.uniform(*_STORE_SHARE) for kind in chance.sample(kinds, chance.randint(2, 5))})
        self.storms[self.storm] += 1

    def set(self, rates: Mapping[str, float]) -> dict[str, Any]:
        """Change the faults; return the counts of the store."""
        if self._process.stdin is None:
            raise RuntimeError("the store was started without pipes")
        self._process.stdin.write(json.dumps(dict(rates)).encode() + b"\n")
        self._process.stdin.flush()
        self.last = self._read()
        return self.last

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise RuntimeError(f"the store's server ended with {self._process.wait()}")
        return dict(json.loads(line))

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()
