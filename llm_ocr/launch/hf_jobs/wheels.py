"""The private repository with the library's wheels that jobs on Hugging Face install."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import JobSpec, Plan, Request
from llm_ocr.launch.hf_jobs.errors import asking
from llm_ocr.launch.hf_jobs.plan import REPOSITORY, Shipping, filled, shipping
from llm_ocr.launch.hf_jobs.wheel import library_wheel

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: Of jobs that may still have to fetch a wheel.
ALIVE = ["SCHEDULING", "RUNNING"]
_OURS = (".whl", ".gitattributes")


def wheel_file(spec: JobSpec) -> str | None:
    """The wheel that the user gave, unless it is a release or in the image."""
    given = spec.options.get("wheel")
    return given if given and shipping(given) is Shipping.HUB else None


def wheels_of(spec: JobSpec, namespace: str) -> str:
    """The repository that a job takes the library from; "" where there is none."""
    return f"{namespace}/{REPOSITORY}" if shipping(spec.options.get("wheel")) is Shipping.HUB else ""


def check_private(api: "HfApi", repository: str) -> None:
    """Raise `LaunchError` for a repository of that name that everybody can read."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        public = not api.repo_info(repository, repo_type="dataset").private
    except RepositoryNotFoundError:
        return
    if public:
        raise LaunchError(
            f"the dataset repository {repository} is public: wheels are put into a private one",
            hint=f"Make it private: {api.endpoint}/datasets/{repository}/settings",
        )


def uploaded(api: "HfApi", plan: Plan, known: Mapping[str, str]) -> dict[str, str]:
    """Send what comes before the jobs; what is known of the wheel then."""
    uploads: list[Request] = [one for one in plan.requests if one.call != "run_job"]
    if not uploads:
        return {}
    wheel = library_wheel(wheel_file(plan.spec))
    found = {"<wheel sha256>": wheel.sha256, "<wheel>": wheel.name}
    with tempfile.TemporaryDirectory(prefix="llm-ocr-wheel-") as folder:
        file = Path(folder, wheel.name)
        file.write_bytes(wheel.data)
        for request in uploads:
            body = filled(request.body, {**known, **found, "<wheel file>": str(file)})
            with asking(f"put the library's wheel into {body['repo_id']}"):
                commit = _sent(api, request.call, body)
    return {**found, "<wheel commit>": commit}


def _sent(api: "HfApi", call: str, body: Mapping[str, Any]) -> str:
    """The commit that holds the file; one that is there already, under its hash, is not sent again."""
    if call == "create_repo":
        api.create_repo(**body)
        return ""
    path, place = body["path_in_repo"], {name: body[name] for name in ("repo_id", "repo_type")}
    commit = str(api.repo_info(**place).sha)
    if api.file_exists(filename=path, revision=commit, **place):
        return commit
    return str(api.upload_file(**body).oid)


def clean_wheels(api: "HfApi", namespace: str, repository: str) -> str:
    """Remove the repository unless somebody may need it; what was done, as a line."""
    where = f"the private repository {repository} with the wheels of jobs"
    alive = [info for info in api.list_jobs(namespace=namespace, status=ALIVE) if "launch" in (info.labels or {})]
    if alive:
        return f"left: {where}, which {len(alive)} unfinished jobs may need"
    if not api.repo_exists(repository, repo_type="dataset"):
        return f"{where} is gone already"
    other = [path for path in api.list_repo_files(repository, repo_type="dataset") if not path.endswith(_OURS)]
    if other:
        return f"left: {where}, since it holds other files, too ({other[0]})"
    api.delete_repo(repository, repo_type="dataset", missing_ok=True)
    return f"removed {where}"
