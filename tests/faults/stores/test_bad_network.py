"""Servers that ask to wait, connections that break, uploads that are cut off: a run goes through all of it."""

import itertools
import os
import signal
import time
from dataclasses import replace
from unittest import mock

import pytest
from fault_checking import problems
from fault_engine import make_documents
from fault_places import gcs, hub, needed, new_place
from fault_running import ended, pipeline, started

from llm_ocr.stages.clean import OLD, clean
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from tests.fakes import gcs as fake_gcs
from tests.fakes.crash import CrashingLocalStore, CrashPoint, When, die_by_exit
from tests.fakes.hub import Fault as HubFault
from tests.fakes.hub.server import How as HubHow
from tests.storage.proxy import Fault, Proxy
from tests.storage.s3 import making

MEBI = 1 << 20


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("network") / "documents", [2])


@pytest.fixture
def network(request, tmp_path):
    """A place whose server fails in all its ways, again and again, and how often it did."""
    kind = request.param
    needed(kind)
    return {"s3": faulty_s3, "gcs": faulty_gcs}.get(kind, faulty_hub)(new_place(kind, tmp_path))


def faulty_s3(place):
    """Each 12th request and the one after it: what a service says when it is asked too much, and lost connections."""
    faults = itertools.cycle(
        [
            {"status": 503, "code": "SlowDown"},
            {"status": 429, "code": "TooManyRequests"},
            {"status": 500, "code": "InternalError"},
            {"lost": "before"},
            {"lost": "after"},
            {"torn": True},
        ]
    )

    class FaultyProxy(Proxy):
        hit = 0

        def take(self, method, path, headers):
            super().take(method, path, headers)
            if len(self.seen) % 12 > 1 or self.closing:
                return None
            fault = Fault(**next(faults))
            if fault.torn and method != "GET":
                fault = Fault(lost="after")
            self.hit += 1
            return fault

        closing = False

    proxy = FaultyProxy(making.moto_url())

    def end():
        proxy.closing = True
        proxy.close()
        return proxy.hit

    return replace(place, endpoint=proxy.url), end


def faulty_gcs(place):
    faults = [
        fake_gcs.Fault(status=429, reason="rateLimitExceeded", rate=0.05),
        fake_gcs.Fault(status=503, rate=0.05),
        fake_gcs.Fault(status=503, when=fake_gcs.When.AFTER, rate=0.05),
        fake_gcs.Fault(how=fake_gcs.How.DROP, rate=0.03),
        fake_gcs.Fault(how=fake_gcs.How.DROP, when=fake_gcs.When.AFTER, rate=0.05),
        fake_gcs.Fault(how=fake_gcs.How.CUT, operation="read", match=".parquet", rate=0.3),
    ]
    for fault in faults:
        gcs().faults.add(fault)

    def end():
        hit = sum(one["hit"] for one in gcs().faults.listed())
        gcs().faults.clear()
        return hit

    return place, end


def faulty_hub(place):
    ways = [
        {"status": 429, "headers": {"Retry-After": "0"}},
        {"status": 503},
        {"how": HubHow.LOSE, "status": 502},
        {"how": HubHow.DROP},
        {"how": HubHow.CUT},
    ]
    faults = [HubFault(after=16 * number, **way) for number, way in zip(range(8), itertools.cycle(ways), strict=False)]
    hub().faults.add(*faults)

    def end():
        left = len(hub().faults.listed())
        hub().faults.clear()
        return len(faults) - left

    return place, end


@pytest.mark.slow
@pytest.mark.parametrize("network", ["s3", "gcs", "hub-bucket", "hub-dataset"], indirect=True)
def test_throttling_and_lost_connections_lose_or_double_nothing(network, documents):
    place, end = network
    try:
        pipeline(place, documents)
    finally:
        hit = end()
    assert hit >= 6
    place = replace(place, endpoint=making.moto_url()) if place.kind == "s3" else place
    with place.entered():
        assert problems(place.store(), pages=2, before={}) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "s3", "gcs"])
def test_interrupted_upload_is_never_visible_and_is_cleaned_up(kind, documents, tmp_path):
    needed(kind)
    place, file = new_place(kind, tmp_path), tmp_path / "large file"
    file.write_bytes(os.urandom(11 * MEBI))
    pipeline(place, documents)
    {"local": killed_locally, "s3": killed_at_s3, "gcs": killed_at_gcs}[kind](place, file)
    with place.entered():
        store = place.store()
        assert store.stat("dataset/large.parquet") is None
        assert "dataset/large.parquet" not in {info.key for info in store.list()}
        left = list(store.unfinished())
        assert len(left) == (kind != "gcs")  # Google shows nobody what was sent, and drops it
        with Workspace.on(store) as workspace:
            if kind != "s3":  # moto says of every upload that it began in 2010
                assert clean(workspace).objects == ()  # it may be under way
            assert len(clean(workspace, now=time.time() + OLD + 60).objects) == len(left)
        assert problems(store, pages=2, before={}) == []


def killed_locally(place, file):
    assert ended(started(upload_until, place, file)) == 137


def upload_until(place, file):
    CrashingLocalStore(place.store().root, CrashPoint(1, When.AFTER, die_by_exit)).upload(file, "dataset/large.parquet")


def killed_at_s3(place, file):
    """When the second part has arrived."""
    proxy, parts = Proxy(making.moto_url()), []

    def before(method, path):
        parts.append(path) if "partNumber=" in path else None
        if len(parts) == 3:
            os.kill(worker.pid, signal.SIGKILL)

    proxy.before = before
    worker = started(upload, replace(place, endpoint=proxy.url), file)
    assert ended(worker) == -signal.SIGKILL
    proxy.close()


def killed_at_gcs(place, file):
    answer, chunks = gcs().answer, []

    def counting(request):
        chunks.append(request) if request.method == "PUT" else None
        if len(chunks) == 2:
            os.kill(worker.pid, signal.SIGKILL)
        return answer(request)

    with mock.patch.object(gcs(), "answer", counting):
        worker = started(upload, place, file)
        assert ended(worker) == -signal.SIGKILL


def upload(place, file):
    """In parts of 5 MiB."""
    with place.entered():
        if place.kind == "s3":
            from llm_ocr.storage.s3 import S3Store
            from llm_ocr.storage.s3.client import Limits, parse_url

            store = S3Store(parse_url(place.url), StoreOptions(endpoint=place.endpoint), Limits(multipart=5 * MEBI))
        else:
            from llm_ocr.storage.gcs import parse_url
            from llm_ocr.storage.gcs.store import GcsStore, Limits

            store = GcsStore(parse_url(place.url), StoreOptions(endpoint=place.endpoint), Limits(chunk=5 * MEBI))
        store.upload(file, "dataset/large.parquet")
