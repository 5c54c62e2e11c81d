"""An image built by Google: `python -m llm_ocr.launch.cloud_run.build gpu|cpu --image URI --source gs://BUCKET/PREFIX`.

The checkout's files go to the bucket as one archive; Cloud Run's API has it built and the image pushed. No Docker here.
"""

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError, LlmOcrError, UsageError
from llm_ocr.launch import Request
from llm_ocr.launch.cloud_run.address import check_endpoint
from llm_ocr.launch.cloud_run.archive import archive
from llm_ocr.launch.cloud_run.client import Google
from llm_ocr.settings.environment import environment
from llm_ocr.storage import StoreOptions, open_store

SUBMIT = "run.projects.locations.builds.submit"

_DOCKERFILES = {"gpu": "docker/gpu.Dockerfile", "cpu": "docker/cpu.Dockerfile"}
_IMAGE = re.compile(r"(?P<region>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[a-z0-9.:-]+)/[^/]+/(?P<name>[^:@]+):[\w.-]+")
#: Google's larger machine for builds, the only one that may be named.
_MACHINE = "E2_HIGHCPU_8"


@dataclass(frozen=True, slots=True)
class Build:
    """What is built. `arguments` are the Dockerfile's; `source` is where the archive goes, a gs:// prefix."""

    kind: str
    image: str
    source: str
    arguments: dict[str, str] = field(default_factory=dict)
    context: Path = Path()
    region: str = ""
    account: str = ""

    def packed(self) -> tuple[str, bytes]:
        """Name and bytes of the archive. Raises `UsageError`."""
        data = archive(self.context, _DOCKERFILES[self.kind], self.arguments)
        return f"llm-ocr-{self.kind}-{hashlib.sha256(data).hexdigest()[:16]}.tar.gz", data

    def request(self, name: str) -> Request:
        """Exactly what is sent once the archive is there. Raises `UsageError`."""
        found = _IMAGE.fullmatch(self.image)
        if found is None:
            raise UsageError(
                f"--image {self.image}: must be an image in Artifact Registry, with a tag",
                hint="For example us-central1-docker.pkg.dev/PROJECT/REPOSITORY/llm-ocr-gpu:1.",
            )
        bucket, _, prefix = self.source.removeprefix("gs://").rstrip("/").partition("/")
        if not self.source.startswith("gs://") or not bucket:
            raise UsageError(f"--source {self.source}: must be gs://BUCKET/PREFIX")
        body = {
            "parent": f"projects/{found['project']}/locations/{self.region or found['region']}",
            "storageSource": {"bucket": bucket, "object": f"{prefix}/{name}" if prefix else name},
            "imageUri": self.image,
            "dockerBuild": {},
            "machineType": _MACHINE,
            **({"serviceAccount": self.account} if self.account else {}),
        }
        return Request(SUBMIT, body)


def carry_out(build: Build, endpoint: str, say: Callable[[str], None], *, every: float = 10.0) -> None:
    """Upload, submit and wait. Raises `LaunchError` when the image was not built, and what storage raises."""
    check_endpoint(endpoint)
    name, data = build.packed()
    request = build.request(name)
    google = Google(endpoint)
    google.message("SubmitBuildRequest", request.body)  # every field is one that Google knows
    open_store(build.source, StoreOptions()).put(name, data)
    say(f"{build.source.rstrip('/')}/{name}: {len(data) / 1e6:.1f} MB uploaded")
    # Not by the client's own call: it cannot read the answer, whose metadata is Cloud Build's.
    body = {key: value for key, value in request.body.items() if key != "parent"}
    answer = google.rest("POST", "run", f"v2/{request.body['parent']}/builds:submit", "build the image", body)
    operation = answer["buildOperation"]
    say(f"building: {operation.get('metadata', {}).get('build', {}).get('logUrl', operation['name'])}")
    _wait(google, operation, every)
    say(f"built and pushed: {build.image}")


def _wait(google: Google, operation: dict[str, Any], every: float) -> None:
    while not operation.get("done"):
        time.sleep(every)
        operation = google.rest("GET", "cloudbuild", f"v1/{operation['name']}", "ask for the build")
    error = operation.get("error")
    build = operation.get("response") or operation.get("metadata", {}).get("build", {})
    if error or build.get("status") not in ("SUCCESS", None):
        words = (error or {}).get("message") or build.get("statusDetail") or build.get("status")
        log = build.get("logUrl") or operation.get("metadata", {}).get("build", {}).get("logUrl", "")
        raise LaunchError(f"Cloud Run: the image was not built: {words}", hint=f"Its log: {log}" if log else "")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m llm_ocr.launch.cloud_run.build", description=__doc__)
    parser.add_argument("kind", choices=_DOCKERFILES, help="gpu: Extract and Describe; cpu: Assemble")
    parser.add_argument(
        "--image", required=True, metavar="URI", help="REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME:TAG"
    )
    parser.add_argument("--source", required=True, metavar="gs://BUCKET/PREFIX", help="where the archive goes")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="may be repeated")
    parser.add_argument("--context", type=Path, default=Path(), metavar="FOLDER", help="the repository (default: here)")
    parser.add_argument("--region", default="", help="where it is built (default: the image's)")
    parser.add_argument("--service-account", default="", help="that builds: projects/PROJECT/serviceAccounts/EMAIL")
    endpoint = environment().get("LLM_OCR_PLATFORM_ENDPOINT", "")
    parser.add_argument("--platform-endpoint", default=endpoint, metavar="URL", help="another server for Google's APIs")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent; needs no account")
    given = parser.parse_args(argv)
    arguments = dict(one.partition("=")[::2] for one in given.build_arg)
    build = Build(given.kind, given.image, given.source, arguments, given.context, given.region, given.service_account)
    try:
        if given.dry_run:
            request = build.request(build.packed()[0])
            sys.stdout.write(json.dumps({"call": request.call, "body": dict(request.body)}, indent=1) + "\n")
        else:
            carry_out(build, given.platform_endpoint, _say)
    except LlmOcrError as error:
        _say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
