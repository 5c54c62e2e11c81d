"""Entry point of `python -m tests.fakes.hub`: serve until interrupted or killed."""

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence

from tests.fakes.hub import Fault
from tests.fakes.hub.server import FakeHub


def main(argv: Sequence[str] | None = None) -> int:
    """Serve, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fakes.hub",
        description="A stand-in for the Hugging Face Hub. It prints the variables that make huggingface_hub use it.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 (default): one that is free")
    parser.add_argument("--commits-per-hour", type=int, help="429 for more; default: no limit")
    parser.add_argument("--fault", action="append", default=[], help="a fault to begin with, as JSON; may be repeated")
    options = parser.parse_args(argv)
    hub = FakeHub(port=options.port)
    hub.state.quota.per_hour = options.commits_per_hour
    hub.faults.add(*(Fault.of(json.loads(fault)) for fault in options.fault))
    end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    with tempfile.TemporaryDirectory(prefix="llm-ocr-hf-home-") as home:
        hub.start()
        for name, value in hub.environment(home).items():
            sys.stdout.write(f"export {name}={value}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            end.wait()
        hub.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
