"""Web servers that do anything: each document comes whole or fails with a reason, soon, and harms no other."""

import asyncio
import random
import time

import pytest
from fuzz_counts import COUNTS
from fuzz_runs import fault_of_reason
from mad_web import handler, inward
from web_servers import PDF, moved, remote, sending, serving, speaking

from llm_ocr.documents.remote.http import check_literal
from llm_ocr.errors import PageFailure

LIMITS = {"seconds": 3.0, "stall_seconds": 0.5, "tries": 2, "most_bytes": 1 << 20}


async def fetched(documents, url: str) -> str:
    """`whole`, `failed`, or what is wrong."""
    start = time.monotonic()
    try:
        async with documents.open(url) as copy:
            end = "whole" if copy.path.stat().st_size <= LIMITS["most_bytes"] else "larger than allowed"
    except PageFailure as failure:
        said = fault_of_reason(failure.detail)
        end = said if "an IP address in its usual form" not in failure.detail and said else "failed"
        if "secret-word" in failure.detail:
            end = "a password in a reason"
    # Each waits for its turn among the others; a hang would last for ever.
    return end if time.monotonic() - start < 120 else "hung"


@pytest.mark.slow
def test_bad_downloads_come_or_fail_and_good_ones_always_come(tmp_path):
    pages = {f"/{number}": handler(random.Random(f"web {number}")) for number in range(COUNTS["web"])}
    good = {f"/good/{number}": sending(PDF + bytes([number])) for number in range(5)}

    async def every():
        async with serving({**pages, **good}) as server, remote(tmp_path, **LIMITS) as documents:
            ends = await asyncio.gather(*(fetched(documents, server.url + path) for path in (*pages, *good)))
            return dict(zip((*pages, *good), ends, strict=True))

    ends = asyncio.run(every())
    assert {path: end for path, end in ends.items() if end not in ("whole", "failed")} == {}
    assert {ends[path] for path in good} == {"whole"}
    assert list(ends.values()).count("failed") > COUNTS["web"] // 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_spelling_of_an_inward_address_is_connected_to():
    for number in range(COUNTS["addresses"]):
        host = inward(random.Random(f"address {number}"))
        with pytest.raises(PageFailure):
            check_literal(host)


def test_server_text_is_cut_in_reasons_and_signatures_are_hidden(tmp_path):
    """Fuzzing found that the client's error for an answer that is no HTTP quotes all of it, and the URL as it is."""

    async def every():
        pages = {
            "/garbage": speaking(b"\xc0\x98\0\xb7" * 500),
            "/reason": speaking(b"HTTP/1.1 418 " + b"teapot " * 900 + b"\r\n\r\n"),
            "/place": moved("gopher://" + "h" * 3000),
        }
        details = []
        async with serving(pages) as server, remote(tmp_path, **LIMITS) as documents:
            for path in pages:
                with pytest.raises(PageFailure) as caught:
                    async with documents.open(f"{server.url}{path}?X-Amz-Signature=SESAME"):
                        pass
                details.append(caught.value.detail)
        return details

    for detail in asyncio.run(every()):
        assert fault_of_reason(detail) == ""
        assert "SESAME" not in detail
