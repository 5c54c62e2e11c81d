"""Ports of our servers."""

import socket

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def reached_at(host: str, port: int) -> str:
    """The URL at which we reach a server that listens on `host`."""
    host = _EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def free_port(host: str, wanted: int = 0) -> int | None:
    """`wanted` if nobody listens there, or any free port for 0; None when it is taken.

    Nothing holds it until the server binds it: whoever starts one must be ready to try another.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As vLLM does: connections of the server before, which linger for a minute, do not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError:
            return None
        return int(probe.getsockname()[1])
