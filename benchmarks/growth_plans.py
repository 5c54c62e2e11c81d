"""Listing very many documents by the library's own code: of a folder, of a bucket; time, memory, the first document.

Each step is a process of its own, also those after the listing: cutting, planning again, status.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qs

from llm_ocr.documents.manifests import SourceDocument
from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.cache import LocalCopy
from llm_ocr.documents.sources import find_documents
from llm_ocr.results.documents import DocumentNames
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages.counting import CountOptions, PageCounter, counted
from llm_ocr.stages.extract import expected_pages
from llm_ocr.stages.plan import known_totals
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations, read_units
from llm_ocr.workspace.items import items
from llm_ocr.workspace.plan import Planner, PlanResult
from llm_ocr.workspace.status import run_status

# An S3 server (moto's) that counts what it is asked, and one that only lists: made-up objects, answered at once.


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


# Plans of very many documents: time, memory and stored bytes; then what reads such a plan.


PAGES_PER_UNIT = 64
BYTES_A_PAGE = 100_000
SEED = 17


def documents(count: int) -> Iterator[SourceDocument]:
    """PDFs of a bucket, most of them short; their bytes per page vary tenfold."""
    random_ = random.Random(SEED)
    for number in range(count):
        size = int(pages_of(number) * BYTES_A_PAGE * 10 ** random_.uniform(-0.5, 0.5))
        name = f"year-{number % 30 + 1990}/{number:08d}-some-report.pdf"
        yield SourceDocument(f"s3://bucket/papers/{name}", name, "pdf", f"etag:{number:032x}:{size}", size=size)


def pages_of(number: int) -> int:
    """How many pages the document has: 8 in the mean, few of them more than a unit holds."""
    return 1 + int(random.Random(number).expovariate(1 / 7.5))


class Opened:
    """A renderer and remote documents in one: knows the pages by the number in the name."""

    def __init__(self) -> None:
        self.count = 0

    async def open(self, source: str, kind: str = "", version: str = "") -> int:
        self.count += 1
        return pages_of(int(Path(source).name[:8]))

    @asynccontextmanager
    async def copy(self, source: str, version: str) -> Any:
        yield LocalCopy(Path(source), version)


class Remote:
    """Gives every document at once."""

    def __init__(self, opened: Opened) -> None:
        self.open = opened.copy


def plan(folder: Path, count: int) -> dict[str, Any]:
    """As `llm-ocr plan` does with a listing."""
    with Workspace.open(str(folder), create=True) as workspace:
        opened = Opened()
        with known_totals(workspace) as totals:
            counter = PageCounter(opened, Remote(opened), totals=totals)  # type: ignore[arg-type]
            stream = counted(documents(count), counter, CountOptions(pages_per_unit=PAGES_PER_UNIT))

            async def planned() -> PlanResult:
                with Planner(workspace, PAGES_PER_UNIT) as planner:
                    async for document in stream:
                        planner.add(document)
                    return planner.finish()

            result = asyncio.run(planned())
        return {"opened": opened.count, "new": result.generation.documents if result.generation else 0}


def units(folder: Path, count: int) -> dict[str, Any]:
    """Every unit, once."""
    with Workspace.open(str(folder)) as workspace:
        return {"units": sum(1 for _ in read_units(workspace))}


def status(folder: Path, count: int) -> dict[str, Any]:
    """`llm-ocr status`."""
    with Workspace.open(str(folder)) as workspace:
        return {"expected": run_status(workspace).pages.expected}


def start(folder: Path, count: int) -> dict[str, Any]:
    """What a worker of Extract reads before its first page."""
    with Workspace.open(str(folder)) as workspace:
        expected = expected_pages(workspace, "0" * 12)
        return {"expected": expected.pages, "first": PlannedUnits(workspace)[0].id}


def names(folder: Path, count: int) -> dict[str, Any]:
    """What Assemble reads before its first item."""
    with Workspace.open(str(folder)) as workspace:
        parts = (part for item in items(workspace) for part in item.parts)
        DocumentNames.of_plan((part.document_id, path) for part in parts for path in (part.relative, *part.aliases))
        return {}


STEPS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "plan": plan,
    "plan_again": plan,
    "units": units,
    "status": status,
    "worker_start": start,
    "assemble_start": names,
}


def _step(name: str, folder: Path, count: int, answer: Any) -> None:
    list(documents(10))
    before, began, cpu = _peak(), time.perf_counter(), time.process_time()
    about = STEPS[name](folder, count)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    answer.send(
        {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "peak_growth_mib": round((_peak() - before) / 2**20, 1),
            "peak_growth_bytes_per_document": round((_peak() - before) / count),
            **about,
        }
    )


def _peak() -> int:
    """Largest resident memory of this process so far, in bytes: on Linux ru_maxrss would begin with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def planned(count: int, folder: Path) -> dict[str, Any]:
    """All steps for a plan of so many documents."""
    found: dict[str, Any] = {"documents": count}
    for name in STEPS:
        found[name] = in_process(_step, name, folder, count)
        _say(count, name, found[name])
        if name == "status":
            real = sum(map(pages_of, range(count)))
            found["real_pages"], found["wrong_by"] = real, round(found[name]["expected"] / real - 1, 4)
        if name == "plan":
            with Workspace.open(str(folder)) as workspace:
                (generation,) = generations(workspace)
            found["units"], found["parts"] = generation.units, len(generation.parts)
            found["stored_bytes_per_document"] = round(sum(part.size for part in generation.parts) / count)
    return found


# Listings.


#: Bytes of memory that a step may take, at most, whatever the number of documents, and for each of them.
ALLOWED = 64 << 20
ALLOWED_EACH = {"list_folder": 16, "list_flat_folder": 32, "list_bucket": 16, "assemble_start": 160}
ALLOWED_EACH_OTHERWISE = 64
_IN_A_FOLDER = 10_000


def name_of(number: int) -> str:
    """Its key in the bucket, and its path in the folder."""
    return f"{number // _IN_A_FOLDER:05d}/{number:09d}-some-report.pdf"


def make_folder(folder: Path, count: int, *, flat: bool = False) -> None:
    """So many names of one small PDF: to list them each is opened, and they need not differ."""
    folder.mkdir(parents=True)
    content = folder.parent / f"{folder.name}.one"
    content.write_bytes(b"%PDF-1.4\n%%EOF\n")
    for number in range(count):
        path = folder / (Path(name_of(number)).name if flat else name_of(number))
        if not number % _IN_A_FOLDER:
            path.parent.mkdir(exist_ok=True)
        os.link(content, path)
    content.unlink()


def measured(count: int, scratch: Path) -> dict[str, Any]:
    """All ways to list so many documents, then all that is done with a plan of them."""
    found: dict[str, Any] = {"documents": count}
    for name, flat in (("list_folder", False), ("list_flat_folder", True)):
        make_folder(scratch / name, count, flat=flat)
        found[name] = in_process(_listed, [str(scratch / name)], None)
        _remove(scratch / name)
        _say(count, name, found[name])
    with listing(count, name_of) as url:
        found["list_bucket"] = in_process(_listed, [f"s3://{BUCKET}/"], url)
        _say(count, "list_bucket", found["list_bucket"])
    found |= planned(count, scratch / "planned")
    found["bounded"] = {name: _bounded(name, step, count) for name, step in found.items() if isinstance(step, dict)}
    found["wrong"] = sorted(name for name, fits in found["bounded"].items() if not fits)
    return found


def _bounded(name: str, step: dict[str, Any], count: int) -> bool:
    allowed = ALLOWED + count * ALLOWED_EACH.get(name, ALLOWED_EACH_OTHERWISE)
    return bool(step["peak_growth_mib"] * 2**20 <= allowed)


def _listed(sources: list[str], endpoint: str | None, answer: Any) -> None:
    """In a process of its own: every document, once."""
    with mock.patch.dict(os.environ, CREDENTIALS):
        next(iter(documents(1)))
        options = RemoteOptions(StoreOptions(endpoint=endpoint))
        before, began, cpu = _peak(), time.perf_counter(), time.process_time()
        found = find_documents(sources, remote=options)
        first = time.perf_counter() - began
        count = sum(1 for _ in found.documents)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    growth = _peak() - before
    answer.send(
        {
            "documents": count,
            "to_first_s": round(first, 2),
            "seconds": round(seconds, 2),
            "cpu_seconds": round(cpu, 2),
            "peak_growth_mib": round(growth / 2**20, 1),
            "peak_growth_bytes_per_document": round(growth / count),
        }
    )


def in_process(step: Any, *arguments: Any) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")  # its memory is its own
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=step, args=(*arguments, theirs))
    process.start()
    theirs.close()
    answer: dict[str, Any] = ours.recv()
    process.join()
    return answer


def _remove(folder: Path) -> None:
    for below in _folders(folder):
        for entry in os.scandir(below):
            if not entry.is_dir():
                Path(entry.path).unlink()
        below.rmdir()


def _folders(folder: Path) -> Iterable[Path]:
    yield from sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()
    yield folder


def _say(count: int, name: str, step: dict[str, Any]) -> None:
    print(f"{count:>9,} {name:<17} {json.dumps(step)}", file=sys.stderr, flush=True)
