"""vLLM's metrics, as its text of /metrics has them."""

from llm_ocr.engines.client.probing import Gauges, cache_tokens, parse

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


def test_what_is_not_vllms_gives_nothing():
    for text in ("", "<html>", "python_gc_objects_collected_total 3.0\n", ONE.replace("vllm:", "sglang:")):
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
