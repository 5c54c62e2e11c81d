"""What is read from a server's log, and what is kept of it."""

import pytest

from llm_ocr.engines.vllm.log import Diagnosis, ServerLog, diagnose

PREFIX = "(EngineCore_DP0 pid=12) ERROR 11-21 01:01:18 [core.py:866] "


def log_of(*lines: str, **kwargs) -> ServerLog:
    log = ServerLog(kwargs.pop("path", None), **kwargs)
    log.begin("vllm serve x")
    log.feed("".join(line + "\n" for line in lines).encode())
    return log


@pytest.mark.parametrize(
    ("line", "diagnosis"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", Diagnosis.OUT_OF_MEMORY),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
            Diagnosis.OUT_OF_MEMORY,
        ),
        (
            "ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired GPU memory"
            " utilization (0.9, 71.3 GiB).",
            Diagnosis.DEVICE_TAKEN,
        ),
        ("ValueError: No available memory for the cache blocks.", Diagnosis.CACHE_TOO_SMALL),
        (
            "ValueError: To serve at least one request with the model's max seq len (32768), (4.5 GiB KV cache is"
            " needed, which is larger than the available KV cache memory (2.1 GiB).",
            Diagnosis.CACHE_TOO_SMALL,
        ),
        ("OSError: [Errno 98] Address already in use", Diagnosis.PORT_TAKEN),
        ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", Diagnosis.GATED),
        ("OSError: You are trying to access a gated repo.", Diagnosis.GATED),
        ("huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.", Diagnosis.NO_MODEL),
        ("OSError: x/y is not a local folder and is not a valid model identifier", Diagnosis.NO_MODEL),
        ("huggingface_hub.errors.RevisionNotFoundError: 404 Client Error.", Diagnosis.NO_REVISION),
        ("OSError: main2 is not a valid git identifier (branch name, tag name or commit id)", Diagnosis.NO_REVISION),
        ("vllm: error: unrecognized arguments: --no-such", Diagnosis.ARGUMENT),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/llm-ocr-a1_b/key.yaml'", Diagnosis.NO_FILES),
        ("ModuleNotFoundError: No module named 'llm_ocr_ngram'", Diagnosis.NO_FILES),
        ("vllm serve: error: argument --max-num-seqs: invalid int value: 'x'", Diagnosis.ARGUMENT),
        ("Model architectures ['NewOCRForCausalLM'] are not supported for now.", Diagnosis.ARCHITECTURE),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU"
            " driver by downloading and installing a new version",
            Diagnosis.DRIVER_TOO_OLD,
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver"
            " / cuda driver combination",
            Diagnosis.DRIVER_TOO_OLD,
        ),
        ("Error 804: forward compatibility was attempted on non supported HW", Diagnosis.NO_COMPATIBILITY),
        (
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
            Diagnosis.NO_KERNEL,
        ),
        ("RuntimeError: Failed to infer device type", Diagnosis.NO_DEVICE),
        ("ImportError: libcuda.so.1: cannot open shared object file", Diagnosis.NO_DEVICE),
        ("OSError: [Errno 28] No space left on device", Diagnosis.DISK_FULL),
        ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files", Diagnosis.NOT_CACHED),
        ("WARNING Address already in use. Retrying with a new port.", None),
        ("Application startup complete.", None),
    ],
)
def test_troubles_are_recognised_and_each_has_a_hint(line, diagnosis):
    assert diagnose(PREFIX + line) is diagnosis


def test_missing_model_is_not_mistaken_for_a_gated_one():
    log = log_of(
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://…",
        "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.",
        "If you are trying to access a private or gated repo, make sure you are authenticated.",
    )
    assert log.diagnosis is Diagnosis.NO_MODEL


def test_the_cause_comes_first_and_what_only_repeats_it_later():
    log = log_of(
        "INFO: nothing",
        PREFIX + "Traceback (most recent call last):",
        PREFIX + '  File "x.py", line 3, in load',
        PREFIX + "ValueError: No available memory for the cache blocks.",
        "Traceback (most recent call last):",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        *[f"resource_tracker: {number}" for number in range(50)],
    )
    lines = log.informative_lines(20)
    assert lines[0] == "ValueError: No available memory for the cache blocks."
    assert lines[1].startswith("RuntimeError: Engine core initialization failed")
    assert len(lines) == 20
    assert log.last_words == lines[0]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((), "started in 109 s"),
        (
            (
                "INFO [backends.py:399] Compiling a graph for compile range (1, 8192) takes 17.20 s",
                "INFO [monitor.py:59] torch.compile took 21.53 s in total",
                "INFO [gpu_model_runner.py:6708] Graph capturing finished in 8 secs, took 0.55 GiB",
                "INFO [core.py:338] init engine (profile, create kv cache, warmup model) took 34.50 s "
                "(compilation: 21.53 s)",
            ),
            "started in 109 s: 22 s of it to compile, which a start with a warm compile cache saves, "
            "8 s for CUDA graphs",
        ),
        (
            (
                "INFO [backends.py:293] Directly load the compiled graph(s) for compile range (1, 64) from the cache, "
                "took 2.300 s",
                "INFO [monitor.py:34] torch.compile takes 2.91 s in total",
            ),
            "started in 109 s: compiled code from vLLM's cache in 2.9 s",
        ),
        (
            ("INFO [decorators.py:312] Directly load AOT compilation from path /c/torch_aot_compile/model",),
            "started in 109 s: compiled code from vLLM's cache",
        ),
        (
            (
                "INFO Directly load the compiled graph(s) for compile range (1, 64) from the cache, took 0.300 s",
                "INFO Compiling a graph for compile range (65, 8192) takes 9.00 s",
                "INFO torch.compile and initial profiling/warmup run together took 12.00 s in total",
            ),
            "started in 109 s: 12 s of it to compile, which a start with a warm compile cache saves",
        ),
    ],
)
def test_a_start_tells_its_time_and_the_cache(lines, told):
    assert log_of(*lines).startup(109.2) == told


def test_a_warm_restart_tells_what_the_cache_saved():
    log = log_of("torch.compile took 21.53 s in total")
    log.startup(60)
    log.begin("again")
    log.feed(b"Directly load AOT compilation from path /c\nINFO init engine (x) took 9.00 s (compilation: 1.25 s)\n")
    assert log.startup(30.0) == "started in 30 s: compiled code from vLLM's cache in 1.2 s instead of 22 s"


def test_quoted_lines_end_with_a_whole_word():
    sentence = "ValueError: " + "letters and words " * 40
    for text in (log_of(sentence).last_words, log_of(sentence).latest_words):
        assert text.endswith(("letters…", "and…", "words…")) and sentence.startswith(text[:-1])
    assert len(log_of(sentence).latest_words) <= 150
    assert log_of("ValueError: short").last_words == "ValueError: short"
    assert len(log_of("x" * 1000).latest_words) == 150


def test_the_cause_is_found_however_much_is_printed_after_it():
    log = log_of("ValueError: the cause", *["noise"] * 1000)
    assert log.informative_lines()[0] == "ValueError: the cause"


def test_sizes_of_several_engines_are_added_up():
    log = log_of(
        "(EngineCore_DP0 pid=1) INFO 11-21 01:01:28 [kv.py:1] GPU KV cache size: 1,000 tokens",
        "(EngineCore_DP1 pid=2) INFO 11-21 01:01:28 [kv.py:1] GPU KV cache size: 900 tokens, "
        "Maximum concurrency for 100 tokens per request: 9.00x",
        "(EngineCore_DP1 pid=2) INFO 11-21 01:01:28 Chunked prefill is enabled with max_num_batched_tokens=8192.",
    )
    assert log.facts.kv_tokens == 1900
    assert log.facts.max_num_batched_tokens == 8192


def test_facts_and_troubles_are_of_the_last_start_only():
    log = log_of("GPU KV cache size: 1,000 tokens", "CUDA out of memory")
    log.begin("again")
    assert log.facts.kv_tokens is None and not log.out_of_memory and log.informative_lines() == []


def test_how_far_a_start_has_come_is_told():
    log = ServerLog(None)
    for printed in ("INFO Starting to load model x\n", "Loading checkpoint shards:  45% Completed | 5/11\r", "50% |"):
        log.feed(printed.encode())
        assert log.latest_words == printed.strip()


def test_the_file_holds_whole_lines_without_colours_and_secrets(tmp_path):
    path = tmp_path / "logs" / "vllm-0.log"
    log = ServerLog(path, secrets=["my-secret-key", "short"])
    log.begin("vllm serve --x my-secret-key")
    for piece in (
        b"\x1b[0;36mcol",
        b"our\x1b[0m my-sec",
        b"ret-key\nhf_abcdefghijklmnopqrst short\r\n10%\r",
        b"20%\rdone\n",
    ):
        log.feed(piece)
    log.close()
    assert path.read_text() == "\n=== vllm serve --x ***\ncolour ***\nhf_*** short\ndone\n"


def test_the_file_is_appended_to_and_stays_within_its_bound(tmp_path):
    path = tmp_path / "vllm-0.log"
    path.write_text("before\n")
    log = log_of("first", path=path, bound=10_000)
    assert path.read_text().startswith("before\n")
    log.feed(b"0123456789abcde\n" * 2000)
    log.close()
    assert path.stat().st_size <= 10_000
    assert (tmp_path / "vllm-0.log.1").stat().st_size <= 10_000
    assert path.read_text().endswith("0123456789abcde\n")


def test_a_line_without_end_does_not_fill_the_memory():
    log = ServerLog(None)
    for _ in range(100):
        log.feed(b"x" * 10_000)
    assert len(log.latest) <= 4000
