"""An S3 server (moto's) that counts what it is asked, and one that only lists: made-up objects, answered at once."""

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qs

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAGROWTHGROWTHGROW",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-benchmark",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
BUCKET = "growth"

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

#: Keys by what they are for; the first that fits counts.
_WHAT = {
    "marker": r"\.done$",
    "lease": r"\.lease$|/leases?/",
    "rows": r"^(extract|describe|assemble)/.*\.parquet$",
    "numbers": r"^metrics/",
    "plan": r"^plan",
    "dataset": r"^dataset/",
    "document": r"^documents/",
    "key": r"^(extract|describe|assemble)/",
    "": r"",
}


class Counted:
    """A WSGI application before another: counts requests by what they do, and to what."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        kind = kind_of(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", ""))
        with self._lock:
            self._seen[kind] += 1
        return self._application(environ, start_response)

    def taken(self) -> dict[str, int]:
        """What was counted since the last call."""
        with self._lock:
            seen, self._seen = self._seen, Counter()
        return dict(sorted(seen.items()))


def kind_of(method: str, path: str, query: str) -> str:
    """`list`, or the method in small letters and what the object is for."""
    asked = parse_qs(query, keep_blank_values=True)
    key = path.strip("/").partition("/")[2]
    if method == "GET" and "list-type" in asked:
        return f"list {asked.get('prefix', [''])[0].split('/')[1 if path.count('/') > 2 else 0]}".strip()
    below = re.sub(r"^run/", "", key)
    what = next(name for name, pattern in _WHAT.items() if re.search(pattern, below))
    return f"{method.lower()} {what or below}"


@contextlib.contextmanager
def counting() -> Iterator[tuple[str, Counted]]:
    """The URL of moto's server with an empty bucket, and what counts its requests."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    counted = Counted(DomainDispatcherApplication(create_backend_app))
    with _served(counted) as url:
        import boto3

        boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        ).create_bucket(Bucket=BUCKET)
        counted.taken()
        yield url, counted


@contextlib.contextmanager
def listing(objects: int, name: Callable[[int], str]) -> Iterator[str]:
    """The URL of a server whose bucket holds so many objects with these names, in order: it answers lists alone."""
    with _served(_Lists(objects, name)) as url:
        yield url


class _Lists:
    """ListObjectsV2 over names that ascend; a page has at most 1,000 objects, as at S3."""

    _PAGE = 1000

    def __init__(self, objects: int, name: Callable[[int], str]) -> None:
        self._objects = objects
        self._name = name

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        asked = parse_qs(environ.get("QUERY_STRING", ""))
        if environ["REQUEST_METHOD"] != "GET" or "list-type" not in asked:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        begin = int(asked.get("continuation-token", ["0"])[0])
        end = min(begin + self._PAGE, self._objects)
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
        body = "".join(map(self._object, range(begin, end)))
        data = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><KeyCount>{end - begin}</KeyCount><MaxKeys>{self._PAGE}</MaxKeys>"
            f"{more if end < self._objects else '<IsTruncated>false</IsTruncated>'}{body}</ListBucketResult>"
        ).encode()
        start_response("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(data)))])
        return [data]

    def _object(self, number: int) -> str:
        return (
            f"<Contents><Key>{self._name(number)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{number:032x}&quot;</ETag><Size>{100_000 + number % 1000}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )


@contextlib.contextmanager
def _served(application: Any) -> Iterator[str]:
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            """Nothing."""

    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
