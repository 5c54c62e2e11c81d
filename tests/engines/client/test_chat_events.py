"""Server-sent events and vLLM's metrics, as servers send them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.engines.client import replies
from llm_ocr.engines.client.endpoint import Gauges, cache_tokens, parse
from llm_ocr.engines.client.replies import EventSplitter, TooLong

DATA = [b"data: a", b"data:b", b"data:  c", b"data", b"data:", b"data: [DONE]", 'data: {"é": "日本"}'.encode()]


OTHER = [b": comment", b"event: x", b"id: 7", b"retry: 1", b"nonsense", b"database: 1", b""]


LINES = st.sampled_from(DATA + OTHER)


ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=30).map(lambda lines: b"".join(line + end for line, end in lines))


def split(*pieces: bytes) -> list[bytes]:
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.finish()


def by_the_book(stream: bytes) -> list[bytes]:
    """The standard's own words, line by line; the end of the stream counts as an empty line here."""
    found: list[bytes] = []
    data: list[bytes] = []
    for line in [*stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line:
            if data:
                found.append(b"\n".join(data))
            data = []
    return found


@given(STREAMS, st.data())
def test_any_cut_of_the_stream_gives_the_same_events(stream, data):
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert split(*pieces) == split(stream) == split(*(stream[at : at + 1] for at in range(len(stream))))


@given(STREAMS)
def test_the_events_are_those_of_the_standard(stream):
    assert split(stream) == by_the_book(stream)


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data:1\r\n\r\ndata:2\r\n\r\n", [b"1", b"2"]),
        (b": ping\n\ndata: 1\n\n", [b"1"]),
        (b"event: message\nid: 4\ndata: {\ndata: }\n\n", [b"{\n}"]),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
        (b"data: [DONE]", [b"[DONE]"]),
        (b"", []),
    ],
)
def test_the_forms_that_servers_use(stream, found):
    assert split(stream) == found


def test_an_event_is_given_as_soon_as_its_end_has_come():
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n") == []
    assert splitter.feed(b"\n") == [b"1"]
    assert splitter.feed(b"data: 2\r\n\r") == []
    assert splitter.feed(b"\n") == [b"2"]


def test_an_event_without_an_end_is_an_error_and_not_all_memory(monkeypatch):
    monkeypatch.setattr(replies, "LONGEST", 1000)
    splitter = EventSplitter()
    with pytest.raises(TooLong):
        for _ in range(20):
            splitter.feed(b"data: " + b"x" * 100)


ONE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a} b"} 32.0
vllm:num_requests_waiting{engine="0",model_name="a} b"} 8.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a} b",reason="capacity"} 8.0
vllm:kv_cache_usage_perc{engine="0",model_name="a} b"} 0.25
vllm:num_preemptions_total{engine="0",model_name="a} b"} 3.0
vllm:num_preemptions_created{engine="0",model_name="a} b"} 1.7636e+09
vllm:prompt_tokens_total{engine="0",model_name="a} b"} 1.234567e+06
vllm:generation_tokens_total{engine="0",model_name="a} b"} 987.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="a} b"} 40.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="a} b"} 2.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="4096",prefix="a\\"b"} 1.0
"""


def test_the_numbers_of_one_engine():
    assert parse(ONE) == Gauges(32, 8, 0.25, 3, 1234567, 987, 42)
    assert cache_tokens(ONE) == 65536


def test_the_engines_of_a_data_parallel_server_are_added_up():
    two = ONE + ONE.replace('engine="0"', 'engine="1"').replace("0.25", "0.75")
    assert parse(two) == Gauges(64, 16, 0.5, 6, 2469134, 1974, 84)
    assert cache_tokens(two) == 131072


def test_older_names_are_known():
    gauges = parse(ONE.replace("kv_cache_usage_perc", "gpu_cache_usage_perc"))
    assert gauges is not None and gauges.kv_usage == 0.25


def test_text_of_no_known_server_gives_nothing():
    for text in ("", "<html>", "python_gc_objects_collected_total 3.0\n", ONE.replace("vllm:", "other:")):
        assert parse(text) is None
        assert cache_tokens(text) is None


def test_numbers_that_are_none_count_as_zero():
    gauges = parse(ONE.replace(" 32.0", " NaN").replace(" 3.0", " +Inf").replace(" 987.0", " x"))
    assert gauges is not None
    assert (gauges.running, gauges.preemptions, gauges.generation_tokens) == (0, 0, 0)


def test_a_cache_larger_than_any_is_none():
    assert cache_tokens(ONE.replace('"4096"', f'"{"9" * 5000}"')) is None


def test_a_cache_whose_size_is_not_known_yet_is_not_guessed():
    assert cache_tokens(ONE.replace('num_gpu_blocks="4096"', 'num_gpu_blocks="None"')) is None
