"""Ports for servers that need a given port."""

import contextlib
import random
import socket

#: Below the ports of outgoing connections (Linux: from 32768 on, macOS: from 49152 on), since those may be taken
#: between the check and the server's own binding.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a free port of loopback."""
    for port in random.sample(_PORTS, 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")
