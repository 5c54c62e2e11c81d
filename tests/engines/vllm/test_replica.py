"""A server of our own: it starts, says what is wrong, is brought back, and leaves nothing behind."""

import asyncio
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from free_ports import free_port
from running import alive
from supervised import COMMAND, PACE, end, fetch, made_profile, scattered, started_and_stopped, wait_for

from llm_ocr.engines.vllm import server
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import Pace, VllmServer
from llm_ocr.errors import ServerError
from llm_ocr.models.profile import Profile


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """`fake("--fake-stubborn=1", port=…)`: a server, what was said of it, its record and log."""
    everything: list[Path] = []

    def make(*args: str, profile: Profile | None = None, pace: Pace = PACE, **options) -> SimpleNamespace:
        folder = tmp_path / f"server-{len(everything)}"
        folder.mkdir()
        record = folder / "record.json"
        everything.append(record)
        said: list[str] = []
        usual = {"command": COMMAND, "log_folder": folder / "logs", "startup_timeout": 30.0}
        chosen = ServeOptions(args=(*args, f"--fake-record={record}"), **(usual | options))
        made = VllmServer(profile or made_profile(), chosen, say=said.append, pace=pace)
        log = folder / "logs" / "vllm-0.log"
        return SimpleNamespace(
            server=made, said=said, log=log, begun=record.exists, record=lambda: json.loads(record.read_text())
        )

    yield make
    for record in everything:
        if record.exists():
            told = json.loads(record.read_text())
            for pid in (told["pid"], told["engine"]):
                assert not alive(pid), "a test left a server behind"


async def test_a_started_server_answers_and_its_facts_are_known(fake):
    one = fake()
    address, facts = await started_and_stopped(one.server)
    assert address.url.startswith("http://127.0.0.1:") and address.url.endswith("/v1")
    assert address.model == "maker/tiny"
    assert (facts.vllm, facts.version, facts.max_model_len) == (True, "0.32.0", 8192)
    assert facts.kv_tokens == 1_115_616
    assert sum("serve" in line and "maker/tiny" in line for line in one.said) == 1


def test_the_key_is_in_a_private_file_and_nowhere_else(fake, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "cloud-secret")
    monkeypatch.setenv("VLLM_API_KEY", "of-another-server")
    monkeypatch.setenv("HF_TOKEN", "token-for-downloads")
    one = fake(offline=True, model_cache=Path("cache"))
    address, _ = asyncio.run(started_and_stopped(one.server))
    told = one.record()
    assert "VLLM_API_KEY" not in told["environment"]
    assert (told["key"], told["mode"]) == (address.key, 0o600)
    assert not Path(told["config"]).exists()
    assert told["environment"]["HF_TOKEN"] == "token-for-downloads"
    assert told["environment"]["HF_HUB_OFFLINE"] == "1"
    assert told["environment"]["HF_HUB_CACHE"] == str(Path("cache").absolute())
    assert "AWS_SECRET_ACCESS_KEY" not in told["environment"]
    assert address.key not in str(told["environment"])
    shown = "\n".join([*told["words"], *one.said, one.server.command, one.log.read_text(), repr(address)])
    assert address.key not in shown
    assert "token-for-downloads" not in shown
    assert "hf_abcdefghij" not in shown
    assert "'key': '***'" in one.log.read_text()


async def test_a_container_receives_the_key_by_name(tmp_path):
    record = tmp_path / "record.json"
    # `env` stands for a container runtime that passes variables by name.
    command = ("env", "VLLM_API_KEY_IS_PASSED=1", *COMMAND)
    options = ServeOptions(command=command, args=(f"--fake-record={record}",), startup_timeout=300.0)
    one = VllmServer(made_profile(), options, pace=PACE)
    address, _ = await started_and_stopped(one)
    told = json.loads(record.read_text())
    assert told["environment"]["VLLM_API_KEY"] == address.key
    assert "--config" not in told["words"]


def test_environments_of_two_servers_are_equal(fake):
    """vLLM hashes its environment into the key of its compile cache: a different variable misses the cache."""
    first, second = fake().server, fake().server
    assert first._environment == second._environment


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists and adopts the processes")
@pytest.mark.parametrize("how", ["stopped", "stubborn", "killed"])
async def test_a_server_that_ends_leaves_no_process_in_other_sessions(fake, tmp_path, how):
    path = tmp_path / "scattered"
    words = ["--fake-stubborn=1"] if how == "stubborn" else []
    one = fake(f"--fake-scatter={path}", *words, pace=Pace(poll=0.03, stop_timeout=0.3 if words else 5.0))
    await one.server.start()
    told = one.record()
    assert told["group"] != os.getpgrp()
    pids = [told["pid"], told["engine"], *scattered(path)]
    try:
        assert len(pids) == 4 and all(alive(pid) for pid in pids)
        if how == "killed":
            os.kill(told["pid"], signal.SIGKILL)
            assert "was killed by SIGKILL" in await one.server.ended()
        else:
            await one.server.stop()
            assert await one.server.ended() == "stopped"
        assert not any(alive(pid) for pid in pids)
    finally:
        end(pids)
    await one.server.stop()


async def test_stop_before_start_does_nothing(fake):
    await fake().server.stop()


async def test_killed_server_is_noticed_and_restarted_with_same_key(fake):
    # Another test's server without a key can take a port of the kernel's choice before this one binds it. It would then
    # answer in place of this server, whose process has ended.
    one = fake(port=free_port())
    first, _ = await one.server.start()
    before = one.record()
    ended = asyncio.create_task(one.server.ended())
    await asyncio.sleep(0)
    os.kill(before["pid"], signal.SIGKILL)
    assert "was killed by SIGKILL" in await ended
    assert not alive(before["engine"])
    second, facts = await one.server.restart("it was killed")
    assert one.record()["pid"] != before["pid"]
    assert second.key == first.key and facts.kv_tokens == 1_115_616
    await one.server.stop()
    assert sum("serve" in line and "maker/tiny" in line for line in one.said) == 1
    assert one.log.read_text().count("=== ") == 2


async def test_process_group_of_an_ended_server_gets_no_more_signals(fake, monkeypatch):
    """Its number may be another program's by then."""
    one = fake()
    signalled: list[int] = []
    await one.server.start()
    os.kill(one.record()["pid"], signal.SIGKILL)
    await one.server.ended()
    monkeypatch.setattr(os, "killpg", lambda group, number: signalled.append(group))
    await one.server.stop()
    assert signalled == []


async def test_a_server_that_cannot_start_says_why_at_once(fake, tmp_path):
    text = tmp_path / "words.txt"
    text.write_text(
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url X\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    one = fake(f"--fake-fails={text}", startup_timeout=600.0)
    with pytest.raises(ServerError) as caught:
        await one.server.start()
    message = str(caught.value)
    lines = message.splitlines()
    assert lines[0] == "vLLM 0 ended with code 2 before it was ready:"
    assert lines[1].strip().startswith("huggingface_hub.errors.GatedRepoError")
    assert str(one.log) in message
    assert "HF_TOKEN" in caught.value.hint
    assert len(lines) < 30


def loads(one) -> bool:
    """Whether it has told how far the server has loaded its weights."""
    return any("shards:  45%" in line for line in one.said)


async def test_server_that_never_answers_is_given_up_with_its_last_log(fake, monkeypatch):
    one = fake("--fake-slow=600", startup_timeout=600.0)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (600 if loads(one) else 0))
    monkeypatch.setattr(server, "time", clock)
    with pytest.raises(ServerError, match="was not ready within 600 s") as caught:
        await one.server.start()
    assert "non-default args" in str(caught.value)
    assert "--server-timeout" in caught.value.hint


async def test_while_a_server_starts_its_progress_is_told(fake):
    one = fake("--fake-slow=600")
    starting = asyncio.create_task(one.server.start())
    await asyncio.to_thread(wait_for, lambda: loads(one))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_out_of_memory_at_the_start_lowers_sequences_then_tokens(fake):
    one = fake("--fake-fits=64")
    _, facts = await started_and_stopped(one.server)
    told = [line.partition("retrying with ")[2] for line in one.said]
    assert [limits for limits in told if limits] == [
        "--max-num-seqs 128",
        "--max-num-seqs 128 --max-num-batched-tokens 1024",
        "--max-num-seqs 64 --max-num-batched-tokens 1024",
    ]
    assert facts.max_num_seqs == 64


async def test_out_of_memory_for_ever_ends_with_what_to_do(fake, monkeypatch):
    monkeypatch.setattr(server, "STEPS", 2)
    one = fake("--fake-fits=1")
    with pytest.raises(ServerError, match="CUDA out of memory") as caught:
        await one.server.start()
    assert "`gpu_memory_utilization`" in caught.value.hint
    assert len([line for line in one.said if "trying with" in line]) == 2


async def test_out_of_memory_while_it_runs_lowers_at_the_restart(fake):
    one = fake("--max-num-seqs=100")
    address, _ = await one.server.start()
    await fetch(f"{address.root}/oom")
    assert "OutOfMemoryError" in await one.server.ended()
    _, facts = await one.server.restart("its engine died")
    await one.server.stop()
    assert facts.max_num_seqs == 50
    words = one.record()["words"]
    assert [word for word in words if "max-num-seqs" in word] == ["--max-num-seqs"]


async def test_a_port_that_was_taken_meanwhile_is_replaced(fake, tmp_path):
    one = fake(f"--fake-port-taken-once={tmp_path / 'mark'}")
    await started_and_stopped(one.server)
    starts = [line for line in one.log.read_text().splitlines() if line.startswith("=== ")]
    assert len(starts) == 2


async def test_a_wanted_port_that_is_taken_is_said(fake):
    other = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    with pytest.raises(ServerError, match=f"127.0.0.1:{port}: the port is in use"):
        await fake(port=port).server.start()
    other.close()


async def test_stop_ends_a_start_that_is_under_way(fake):
    one = fake("--fake-slow=60")
    starting = asyncio.create_task(one.server.start())
    await asyncio.to_thread(wait_for, one.begun)
    await one.server.stop()
    with pytest.raises(ServerError, match="stopped"):
        await starting


async def test_a_program_that_is_not_there_is_said(fake, tmp_path):
    with pytest.raises(ServerError, match="not installed") as caught:
        await fake(command=(str(tmp_path / "no-such-vllm"),)).server.start()
    assert "`vllm_command`" in caught.value.hint


async def test_a_program_that_cannot_be_run_is_said(fake, tmp_path):
    broken = tmp_path / "bin" / "vllm"
    broken.parent.mkdir()
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(ServerError, match="cannot run"):
        await fake(command=(str(broken),)).server.start()


async def test_a_vllm_older_than_the_model_needs_is_not_started(fake):
    one = fake(profile=made_profile(min_vllm="0.40"))
    with pytest.raises(ServerError, match=r"needs vLLM 0\.40 or newer"):
        await one.server.start()
    assert not one.log.exists()


async def test_a_log_that_cannot_be_written_does_not_end_the_server(fake, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    one = fake("--fake-slow=0.3", log_folder=blocked / "below", pace=PACE)
    await started_and_stopped(one.server)
    assert any("cannot write its log" in line for line in one.said)
