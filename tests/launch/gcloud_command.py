"""A stand-in for `gcloud` in README tests: notes what was asked, and does what later commands build on."""

import base64
import json
import os
import sys
import urllib.request
from pathlib import Path


def post(url: str, body: dict[str, object]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60):
        pass


def main(words: list[str]) -> None:
    with Path("gcloud.log").open("a") as log:
        log.write(" ".join(words) + "\n")
    options = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if words[:2] == ["secrets", "create"]:
        value = Path(options["data-file"]).read_bytes().strip()
        run = f"{os.environ['LLM_OCR_PLATFORM_ENDPOINT']}/v1/projects/my-project/secrets/{words[2]}:addVersion"
        post(run, {"payload": {"data": base64.b64encode(value).decode()}})
    if words[:3] == ["storage", "buckets", "create"]:
        post(f"{os.environ['STORAGE_EMULATOR_HOST']}/storage/v1/b", {"name": words[3].removeprefix("gs://")})


if __name__ == "__main__":
    main(sys.argv[1:])
