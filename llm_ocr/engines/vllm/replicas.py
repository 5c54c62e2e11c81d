"""How many servers, and which GPUs each of them gets."""

from collections.abc import Awaitable, Callable, Sequence

from llm_ocr.engines.vllm.arguments import number_of
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.release import Release
from llm_ocr.engines.vllm.replica import Pace, VllmServer
from llm_ocr.engines.vllm.surroundings import surroundings
from llm_ocr.errors import UsageError
from llm_ocr.models.profile import Profile


def servers(
    profile: Profile,
    options: ServeOptions,
    gpus: Sequence[str],
    *,
    say: Callable[[str], None] = lambda _: None,
    pace: Pace = Pace(),  # noqa: B008 - frozen
    release: Release | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
) -> list[VllmServer]:
    """The servers for these GPUs, as CUDA_VISIBLE_DEVICES names them (`hardware.gpus`); none: one server.

    One for each GPU, or for each group of GPUs that tensor parallelism needs: GPUs that only copy the model need not
    talk to each other. One in all with data parallelism. Each awaits `before` before it starts for the first time.
    Raises `UsageError` when the GPUs do not suffice.
    """
    release = release or release_of(options)
    return [
        VllmServer(profile, options, index=index, devices=devices, say=say, release=release, pace=pace, before=before)
        for index, devices in enumerate(shares(profile, options, gpus))
    ]


def release_of(options: ServeOptions) -> Release:
    """Which vLLM the options start."""
    return Release(options.command, surroundings(options))


def shares(profile: Profile, options: ServeOptions, gpus: Sequence[str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each server; "" where it stays as it is."""
    needed, parallel = _needed(profile, options)
    if not gpus:
        return [""] * (options.replicas or 1)
    possible = len(gpus) // needed
    wanted = options.replicas or (1 if parallel else possible)
    if wanted > possible or not possible:
        raise UsageError(
            f"{wanted or 1} server{'s' if wanted > 1 else ''} of {needed} GPU{'s' if needed > 1 else ''} each"
            f" need more than the {len(gpus)} that are there",
            hint="Lower --replicas, --tensor-parallel-size or --data-parallel-size.",
        )
    if wanted == 1 and possible == 1 and len(gpus) == needed:
        return [""]
    return [",".join(gpus[start : start + needed]) for start in range(0, wanted * needed, needed)]


def split_over(profile: Profile, options: ServeOptions) -> int:
    """GPUs that one copy of the model is split over."""
    return _split(profile, options)[0]


def _needed(profile: Profile, options: ServeOptions) -> tuple[int, bool]:
    """GPUs of one server, and whether it is data parallel."""
    split, data = _split(profile, options)
    return split * data, data > 1


def _split(profile: Profile, options: ServeOptions) -> tuple[int, int]:
    """GPUs of one copy of the model, and copies in one server."""
    # As `serve_command` decides: --vllm-arg over options over the profile.
    tensor = number_of(options.args, "tensor-parallel-size") or options.tensor_parallel
    data = number_of(options.args, "data-parallel-size") or options.data_parallel
    words = [*profile.server_args, *options.args]
    pipeline = number_of(words, "pipeline-parallel-size") or 1
    tensor = tensor or number_of(profile.server_args, "tensor-parallel-size") or 1
    data = data or number_of(profile.server_args, "data-parallel-size") or 1
    return tensor * pipeline, data
