"""Two clients to compare with: an ideal one, whose images are ready and whose window never empties, and a lockstep one.

    python benchmarks/control_clients.py ideal|lockstep FOLDER --url URL --slots N

FOLDER holds page images; both send them all, in the order of their names. The lockstep client sends a batch, waits
until its last answer is there, and sends the next: what `asyncio.gather` over batches gives.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from llm_ocr.engines import Completion, CompletionRequest
from llm_ocr.engines.client.connections import address_of
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.models.profile import Profile
from llm_ocr.models.registry import find_profile
from llm_ocr.types import EncodedImage


def request(file: Path, profile: Profile) -> CompletionRequest:
    """What llm-ocr asks of this page at its first try."""
    media_type = {".png": "image/png", ".jpeg": "image/jpeg"}[file.suffix]
    image = EncodedImage(file.read_bytes(), media_type, 0, 0)  # nobody asks how large it is
    settings = {**profile.settings, "temperature": profile.temperature, "max_tokens": 6000}
    return CompletionRequest(file.stem, image, profile.prompts[profile.mode], settings)


async def ideal(endpoint: Endpoint, requests: Sequence[CompletionRequest], slots: int) -> list[Completion]:
    """Twice as many requests as slots are under way, until there are no more."""
    window = asyncio.Semaphore(2 * slots)

    async def one(asked: CompletionRequest) -> Completion:
        async with window:
            return await endpoint.complete(asked)

    return list(await asyncio.gather(*map(one, requests)))


async def lockstep(endpoint: Endpoint, requests: Sequence[CompletionRequest], slots: int) -> list[Completion]:
    """Batches as large as the server has slots, one after the other."""
    answers: list[Completion] = []
    for start in range(0, len(requests), slots):
        answers += await asyncio.gather(*map(endpoint.complete, requests[start : start + slots]))
    return answers


async def run(name: str, requests: Sequence[CompletionRequest], model: str, url: str, slots: int) -> int:
    endpoint = Endpoint(address_of(url, model, ""), vllm=True)
    try:
        answers = await (ideal if name == "ideal" else lockstep)(endpoint, requests, slots)
    finally:
        await endpoint.close()
    return sum(answer.tokens_out for answer in answers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=("ideal", "lockstep"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--slots", type=int, required=True)
    given = parser.parse_args()
    profile = find_profile("deepseek-ocr")
    requests = [request(file, profile) for file in sorted(given.folder.iterdir())]
    tokens = asyncio.run(run(given.client, requests, profile.name, given.url, given.slots))
    print(json.dumps({"tokens": tokens}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
