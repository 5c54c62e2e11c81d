"""The command line: ours, the profile's, the user's, and which of them wins."""

import shlex

import pytest
from supervised import made_profile

from llm_ocr.engines.vllm.command import Limits, ServeOptions, number_of, serve_command, shown, value_of
from llm_ocr.errors import UsageError

NEW = (0, 32, 0)


def command(*args: str, profile=None, version=NEW, limits=None, **options) -> list[str]:
    return serve_command(
        profile or made_profile(), ServeOptions(args=args, **options), 8123, version=version, limits=limits or Limits()
    )


def test_the_command_serves_the_model_on_loopback_under_its_name():
    words = command()
    assert words[:3] == ["vllm", "serve", "maker/tiny"]
    assert value_of(words, "host") == "127.0.0.1"
    assert value_of(words, "port") == "8123"
    assert value_of(words, "served-model-name") == "maker/tiny"
    assert value_of(words, "max-model-len") == "8192"
    assert "--api-key" not in words and "--trust-remote-code" not in words


def test_any_prefix_may_stand_before_the_word_serve():
    words = command(command=("docker", "run", "--rm", "--entrypoint", "vllm", "vllm/vllm-openai"))
    assert words[:8] == ["docker", "run", "--rm", "--entrypoint", "vllm", "vllm/vllm-openai", "serve", "maker/tiny"]


def test_options_become_arguments():
    words = command(revision="abc", tensor_parallel=2, data_parallel=4, max_model_len=4096, gpu_memory_utilization=0.85)
    assert value_of(words, "revision") == "abc"
    assert value_of(words, "tensor-parallel-size") == "2"
    assert value_of(words, "data-parallel-size") == "4"
    assert value_of(words, "gpu-memory-utilization") == "0.85"
    assert words.count("--max-model-len") == 1 and value_of(words, "max-model-len") == "4096"


def test_remote_model_code_is_trusted_only_if_profile_needs_it():
    assert "--trust-remote-code" in command(profile=made_profile(trust_remote_code=True))


def test_a_profiles_revision_is_not_asked_of_another_model():
    profile = made_profile(revision="abc")
    assert value_of(command(profile=profile), "revision") == "abc"
    assert value_of(command(profile=profile, model="/my/own"), "revision") is None


@pytest.mark.parametrize(
    ("theirs", "gone"),
    [
        (["--no-enable-prefix-caching"], "--enable-prefix-caching"),
        (["--limit-mm-per-prompt.image=2"], "--limit-mm-per-prompt"),
        (['--limit_mm_per_prompt={"image": 2}'], "--limit-mm-per-prompt"),
        (["--max-model-len=100"], "--max-model-len"),
        (["--max-model-len", "100"], "--max-model-len"),
        (["--mm-processor-cache-gb=4"], "--mm-processor-cache-gb"),
        (["-tp", "2"], "--tensor-parallel-size"),
    ],
)
def test_user_argument_is_last_and_replaces_ours_with_its_value(theirs, gone):
    server_args = (
        "--enable-prefix-caching", "--limit-mm-per-prompt", '{"image": 1}', "--mm-processor-cache-gb", "0",
        "--tensor-parallel-size=1", "--max-model-len", "1000",
    )  # fmt: skip
    words = command(*theirs, profile=made_profile(server_args=server_args))
    assert words[-len(theirs) :] == theirs
    assert gone not in words[: -len(theirs)]
    assert {"--enable-prefix-caching", "--mm-processor-cache-gb", '{"image": 1}'} - set(words) <= {gone, '{"image": 1}'}


def test_arguments_of_the_user_go_through_untouched():
    theirs = ["--chat-template", "a b.jinja", '--compilation-config={"mode": 3}', "--max-model-len", "-1", "--a"]
    assert command(*theirs)[-len(theirs) :] == theirs


def test_a_profile_replaces_a_default():
    words = command(profile=made_profile(server_args=("--stream-interval", "1")))
    assert words.count("--stream-interval") == 1 and value_of(words, "stream-interval") == "1"


@pytest.mark.parametrize(("version", "there"), [((0, 11, 2), False), ((), False), ((0, 12, 0), True), (NEW, True)])
def test_only_versions_that_have_it_are_given_a_stream_interval(version, there):
    assert (value_of(command(version=version), "stream-interval") == "50") is there


def test_what_was_lowered_replaces_even_the_users():
    words = command("--max-num-seqs=256", limits=Limits(max_num_seqs=128, max_num_batched_tokens=1024))
    assert number_of(words, "max-num-seqs") == 128 and "--max-num-seqs=256" not in words
    assert number_of(words, "max-num-batched-tokens") == 1024


@pytest.mark.parametrize(
    "word",
    ["--port=1", "--host", "--api-key=secret", "--hf-token=secret", "--served_model_name=x", "--uds=/a", "64", "--a b"],
)
def test_arguments_that_detach_server_or_show_secret_are_refused(word):
    with pytest.raises(UsageError) as caught:
        command(word)
    assert "secret" not in str(caught.value)


def test_the_shown_command_can_be_pasted():
    words = command('--limit-mm-per-prompt={"image": 1}')
    assert shlex.split(shown(words)) == words


@pytest.mark.parametrize(("text", "number"), [("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("7", 7), ("auto", None)])
def test_counts_are_read_as_vllm_reads_them(text, number):
    assert number_of(["--max-num-batched-tokens", text], "max-num-batched-tokens") == number
