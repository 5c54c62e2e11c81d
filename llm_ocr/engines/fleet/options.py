"""What a user may set of a fleet."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Times in seconds."""

    max_inflight: int | None = None  # requests under way at all servers together; None: as the servers allow
    page_tokens: int = 2000  # of a full page, prompt and answer
    stall: float = 180.0  # without progress of any answer: the server hangs
    kills: int = 4  # deaths of the server, the last one alone with it, that set a question aside
    hangs: int = 4  # hangs of the server that do so, in the same way
    scatter: float = 4.0  # answers' times, over which suspects are spread that are asked alone where others ask, too
    max_restarts: int = 5  # of one server, without `ENOUGH_ANSWERS` since
    busy_timeout: float = 1800.0  # of nothing but 429 and 503
    grace: float = 1.0  # after a lost connection, for the server's death to be seen; twice as long after a 500
    interval: float = 0.7  # between two readings of the gauges
