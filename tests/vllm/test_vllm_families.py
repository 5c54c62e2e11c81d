"""dots.ocr, GLM-OCR and PaddleOCR-VL by a real vLLM: their profiles' servers start, and take their profiles' requests.

The classes, processors and chat templates are real, the weights random and tiny; answers are forced, so that nothing is
said here of what the models read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from forced import read
from tiny_server import TinyServer

from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import VllmServer
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import find_profile
from llm_ocr.types import BlockKind, Status

_ARGUMENTS = ("--enforce-eager", "--seed=0", "--max-num-seqs=4", "--load-format=dummy")
_TABLE = "<table><tr><td>Gauge</td><td>2.1</td></tr></table>"


@dataclass(frozen=True)
class Family:
    """A profile, the folder of its tiny model, and for each mode an answer with the kinds of its blocks."""

    profile: Profile
    folder: str
    answers: dict[str, tuple[str, list[BlockKind]]]


FAMILIES = {
    "dots.ocr": Family(
        find_profile("dots.ocr"),
        "dots-ocr",
        {
            "layout": (
                '[{"bbox": [84, 84, 1106, 140], "category": "Title", "text": "# Harbour Log"}, '
                '{"bbox": [84, 168, 1106, 700], "category": "Picture"}, '
                f'{{"bbox": [84, 728, 1106, 900], "category": "Table", "text": "{_TABLE}"}}]',
                [BlockKind.TITLE, BlockKind.FIGURE, BlockKind.TABLE],
            ),
            "layout-only": ('[{"bbox": [84, 168, 1106, 700], "category": "Picture"}]', [BlockKind.FIGURE]),
            "text": ("The tide rose by two metres.", [BlockKind.TEXT]),
        },
    ),
    "glm-ocr": Family(
        find_profile("glm-ocr"),
        "glm-ocr",
        {"markdown": (f"# Harbour Log\n\n{_TABLE}\n", [BlockKind.TITLE, BlockKind.TABLE])},
    ),
    # With code from the hub vLLM wants the hub's processor, which is not here; without, transformers' own.
    "paddleocr-vl": Family(
        replace(find_profile("paddleocr-vl-1.6"), trust_remote_code=False),
        "paddleocr-vl",
        {
            "markdown": ("The tide rose by two metres.", [BlockKind.TEXT]),
            "table": ("<fcel>Gauge<fcel>2.1<nl>", [BlockKind.TABLE]),
        },
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def served(request, vllm, tiny_models, run, tmp_path_factory) -> Iterator[tuple[Family, TinyServer]]:
    family = FAMILIES[request.param]
    options = ServeOptions(
        command=(str(vllm),),
        args=_ARGUMENTS,
        model=str(tiny_models / family.folder),
        startup_timeout=220.0,
        log_folder=tmp_path_factory.mktemp(family.folder),
    )
    server = TinyServer(VllmServer(family.profile, options))
    try:
        run(server.ensure())
        yield family, server
    finally:
        run(server.close())


def test_profile_server_reads_pages_by_the_profile_requests(served, run):
    family, server = served

    async def complete():
        async with server.endpoint() as endpoint:
            return [await read(endpoint, family.profile, mode, said) for mode, (said, _) in family.answers.items()]

    for (attempt, answer), (said, kinds) in zip(run(complete()), family.answers.values(), strict=True):
        assert answer.text == said
        assert answer.tokens_in > 100  # the image was seen
        assert attempt.status is Status.OK
        assert [block.kind for block in attempt.blocks] == kinds
        assert all(block.text for block in attempt.blocks if block.kind is not BlockKind.FIGURE)
