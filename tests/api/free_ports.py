"""Ports for servers that must be told theirs."""

import contextlib
import random
import socket

#: Below those that systems give to outgoing connections (Linux: from 32768 on, macOS: from 49152 on): any of these may
#: be taken between the look at it and the server's own binding.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port of loopback on which nobody listens."""
    for port in random.sample(_PORTS, 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")
