"""How long a request to S3 is tried again.

botocore's own pauses after lost connections and 5xx begin at 50 ms since 1.44, and a client may have 35 such retries
under way before it gives up at once, for all requests (botocore/retries/standard.py, `RetryQuotaChecker`). A service
that answers nobody for some seconds would end a worker that reads in parallel. Ours come before them and know no quota;
what they do not know stays with botocore.
"""

import random
from collections.abc import Callable
from typing import Any

#: Seconds of the first pause: after a lost connection or an error of the service, and when it asks for patience.
_FIRST, _FIRST_THROTTLED = 0.1, 1.0
_LONGEST = 20.0
_THROTTLED = frozenset({429, 503})
_FAULTY = frozenset({500, 502, 504})


def be_patient(client: Any, retries: int) -> None:
    """Have the client try a request again up to `retries` times, with pauses that double, up to 20 s.

    With 8 retries a request outlasts an outage of 12 s, mostly of 20 s.
    """
    client.meta.events.register_first("needs-retry.s3", _handler(retries), unique_id="llm-ocr-patience")


def _handler(retries: int) -> Callable[..., float | None]:
    def needs_retry(*, response: Any, attempts: int, caught_exception: Any, **_: Any) -> float | None:
        """Seconds until the next try; None leaves it to botocore. `attempts` counts from 1."""
        first = _first_pause(response, caught_exception)
        if first is None or attempts > retries:
            return None
        least = 0.0 if first == _FIRST_THROTTLED else 0.5  # those who are throttled spread, as with botocore
        return float(min(first * 2 ** (attempts - 1), _LONGEST) * random.uniform(least, 1.0))

    return needs_retry


def _first_pause(response: Any, error: Any) -> float | None:
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError

    if response is None:
        return _FIRST if isinstance(error, NoConnection | HTTPClientError) else None
    status = response[0].status_code
    if status in _THROTTLED:
        return _FIRST_THROTTLED
    return _FIRST if status in _FAULTY else None
