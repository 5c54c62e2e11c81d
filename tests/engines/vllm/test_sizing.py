"""How many servers a machine gets, and how large they are."""

import asyncio
from types import SimpleNamespace

import pytest
from supervised import COMMAND, PACE, made_profile

from llm_ocr.engines.vllm.command import ServeOptions, serve_command, value_of
from llm_ocr.engines.vllm.server import servers
from llm_ocr.engines.vllm.sizing import Plan, plan
from llm_ocr.errors import UsageError
from llm_ocr.models.choosing import weights_of
from llm_ocr.models.profiles.markers import DEEPSEEK_OCR

H200, H100, A100, L40S, L4 = (
    SimpleNamespace(memory=gib << 30, capability=major) for gib, major in ((140, 9), (79, 9), (80, 8), (45, 8), (22, 8))
)


def planned(card=H200, cores=16, gpus=1, profile=DEEPSEEK_OCR, **options) -> Plan:
    names = tuple(map(str, range(gpus)))
    return plan(
        profile,
        ServeOptions(**options),
        names,
        cores=cores,
        memory=dict.fromkeys(names, card.memory),
        capability=dict.fromkeys(names, card.capability),
        weights=weights_of(profile),
    )


@pytest.mark.parametrize(
    ("card", "cores", "servers", "sequences", "workers"),
    [
        (H200, 16, 2, 128, 6),
        (H100, 16, 2, 128, 6),
        (H200, 4, 1, 128, 2),
        (A100, 12, 1, 128, 8),
        (L40S, 8, 1, 128, 6),
        (L4, 4, 1, 104, 2),
        (L4, 1, 1, 104, 1),
    ],
)
def test_a_fast_gpu_with_cores_gets_two_servers(card, cores, servers, sequences, workers):
    found = planned(card, cores)
    assert len(found.devices) == servers
    assert (found.sizes.max_num_seqs, found.sizes.renderer_workers) == (sequences, workers)


def test_two_servers_share_the_memory_and_say_so():
    found = planned()
    assert found.devices == ("", "")
    assert found.sizes.gpu_memory_utilization == 0.45
    assert "2 servers per GPU" in found.why and "`replicas_per_gpu=1`" in found.why
    words = serve_command(DEEPSEEK_OCR, ServeOptions(sizes=found.sizes), 8000, version=(0, 25, 1))
    assert value_of(words, "gpu-memory-utilization") == "0.45"
    assert value_of(words, "max-num-seqs") == "128"
    assert value_of(words, "renderer-num-workers") == "6"


def test_four_gpus_share_the_cores():
    found = planned(cores=32, gpus=4)
    assert found.devices == ("0", "0", "1", "1", "2", "2", "3", "3")
    assert found.sizes.renderer_workers == 2
    assert planned(cores=16, gpus=4).devices == ("0", "1", "2", "3")


@pytest.mark.parametrize(
    "options",
    [
        {"replicas": 1},
        {"replicas_per_gpu": 1},
        {"gpu_memory_utilization": 0.8},
        {"args": ("--gpu-memory-utilization=0.8",)},
        {"args": ("--kv-cache-memory-bytes=1000",)},
        {"preset": ("--max-num-seqs", "128", "--gpu-memory-utilization", "0.9")},
    ],
)
def test_a_choice_of_the_user_stays_one_server(options):
    found = planned(**options)
    assert len(found.devices) == 1
    assert found.sizes.gpu_memory_utilization is None


def test_an_unknown_size_of_the_cache_does_not_limit_sequences():
    assert planned(L4, 4, profile=made_profile(parameters=3.0)).sizes.max_num_seqs == 128


def test_a_large_or_unknown_model_gets_one_server():
    assert len(planned(profile=made_profile(parameters=8.0)).devices) == 1
    assert len(planned(profile=made_profile()).devices) == 1


def test_the_user_chooses_servers_per_gpu_and_their_memory():
    found = planned(L40S, replicas_per_gpu=3, gpu_memory_utilization=0.75)
    assert len(found.devices) == 3
    words = serve_command(
        DEEPSEEK_OCR, ServeOptions(sizes=found.sizes, gpu_memory_utilization=0.75), 8000, version=(0, 25, 1)
    )
    assert value_of(words, "gpu-memory-utilization") == "0.25"


@pytest.mark.parametrize("options", [{"tensor_parallel": 2}, {"data_parallel": 2}])
def test_servers_per_gpu_contradict_a_split_model(options):
    with pytest.raises(UsageError, match="replicas_per_gpu=2"):
        planned(gpus=2, replicas_per_gpu=2, **options)


@pytest.mark.parametrize(
    ("version", "args", "name", "value"),
    [
        ((0, 25, 0), (), "renderer-num-workers", "6"),
        ((0, 24, 0), (), "api-server-count", "4"),
        ((0, 25, 0), ("--mm-processor-cache-gb=4",), "api-server-count", "4"),
        ((0, 25, 0), ("--renderer-num-workers=3",), "renderer-num-workers", "3"),
    ],
)
def test_the_intake_follows_the_version(version, args, name, value):
    words = serve_command(DEEPSEEK_OCR, ServeOptions(sizes=planned().sizes, args=args), 8000, version=version)
    assert value_of(words, name) == value
    assert ("renderer-num-workers" in str(words)) != ("api-server-count" in str(words))


@pytest.mark.parametrize("options", [{"data_parallel": 2}, {}])
def test_no_intake_argument_where_none_is_known(options):
    version = (0, 24, 0) if options else ()
    words = serve_command(DEEPSEEK_OCR, ServeOptions(sizes=planned().sizes, **options), 8000, version=version)
    assert "api-server-count" not in str(words) and "renderer-num-workers" not in str(words)


async def test_servers_of_a_gpu_start_one_after_the_other(tmp_path):
    sizes = planned().sizes
    options = ServeOptions(
        command=COMMAND, sizes=sizes, log_folder=tmp_path, startup_timeout=30.0, args=("--fake-slow=0.2",)
    )
    first, second = servers(made_profile(), options, ("", ""), pace=PACE)
    later = asyncio.create_task(second.start())
    await asyncio.sleep(0.05)
    assert second.command == ""
    await first.start()
    try:
        await later
        assert second.command
    finally:
        await first.stop()
        await second.stop()


async def test_a_server_that_fails_lets_the_next_one_start(tmp_path):
    text = tmp_path / "failure"
    text.write_text("RuntimeError: no")
    options = ServeOptions(command=COMMAND, sizes=planned().sizes, args=(f"--fake-fails={text}",), startup_timeout=30.0)
    first, second = servers(made_profile(), options, ("", ""), pace=PACE)
    both = await asyncio.gather(second.start(), first.start(), return_exceptions=True)
    assert all("RuntimeError: no" in str(error) for error in both)
