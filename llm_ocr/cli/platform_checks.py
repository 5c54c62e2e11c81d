"""What `llm-ocr doctor` says of platforms: their client packages, and whether a login was found. Never its value.

Nobody is asked: a machine of a cloud may have an account of its own that is not seen here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.cli.checks import Check, State, package_version
from llm_ocr.errors import install_command
from llm_ocr.settings import environment


@dataclass(frozen=True, slots=True)
class Account:
    """Where a platform's client looks for its login: any of these sets of variables, or any of these files."""

    name: str
    package: str
    extra: str  # "" where the library brings the package itself
    use: str
    variables: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]  # `~` is the home folder, `$NAME` a variable
    login: str  # what brings one


_GOOGLE = (
    "$GOOGLE_APPLICATION_CREDENTIALS",
    "$CLOUDSDK_CONFIG/application_default_credentials.json",
    "~/.config/gcloud/application_default_credentials.json",
)
_GOOGLE_LOGIN = "gcloud auth application-default login"
ACCOUNTS = (
    Account(
        "Hugging Face",
        "huggingface_hub",
        "",
        "datasets, HF Jobs",
        (("HF_TOKEN",), ("HUGGING_FACE_HUB_TOKEN",)),
        ("$HF_TOKEN_PATH", "$HF_HOME/token", "$XDG_CACHE_HOME/huggingface/token", "~/.cache/huggingface/token"),
        "hf auth login",
    ),
    Account(
        "AWS",
        "boto3",
        "s3",
        "S3, SageMaker",
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_PROFILE",), ("AWS_WEB_IDENTITY_TOKEN_FILE",)),
        ("$AWS_SHARED_CREDENTIALS_FILE", "$AWS_CONFIG_FILE", "~/.aws/credentials", "~/.aws/config"),
        "aws configure",
    ),
    Account(
        "Google Cloud storage",
        "google-cloud-storage",
        "gcs",
        "gs://",
        (),
        _GOOGLE,
        _GOOGLE_LOGIN,
    ),
    Account("Google Cloud Run", "google-cloud-run", "cloud-run", "Cloud Run", (), _GOOGLE, _GOOGLE_LOGIN),
    Account(
        "Kubernetes",
        "kubernetes",
        "kubernetes",
        "Kubernetes",
        (("KUBECONFIG",), ("KUBERNETES_SERVICE_HOST",)),
        ("~/.kube/config",),
        "kubectl config use-context NAME",
    ),
    Account(
        "Modal",
        "modal",
        "modal",
        "Modal",
        (("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),),
        ("$MODAL_CONFIG_PATH", "~/.modal.toml"),
        "modal setup",
    ),
    Account(
        "RunPod",
        "runpod",
        "runpod",
        "RunPod",
        (("RUNPOD_API_KEY",),),
        ("~/.runpod/config.toml",),
        "export RUNPOD_API_KEY=...",
    ),
)


def platform_checks() -> list[Check]:
    """One check for each client. None is needed by the embedded engine."""
    here = environment.environment()
    return [account_check(account, here) for account in ACCOUNTS]


def account_check(account: Account, here: Mapping[str, str]) -> Check:
    """A client's package and login, as the environment `here` has them."""
    version = package_version(account.package)
    found = login_found(account, here)
    login = f"login: {found}" if found else "no login found"
    if version is None:
        fix = install_command(account.extra or account.package)
        return Check(account.name, State.MISSING, f"optional: {account.use}; {login}", fix)
    if not found:
        return Check(account.name, State.LIMITED, f"{account.package} {version}: {account.use}; {login}", account.login)
    return Check(account.name, State.WORKS, f"{account.package} {version}: {account.use}; {login}")


def login_found(account: Account, here: Mapping[str, str]) -> str:
    """The variables or the file that hold a login, by name; "" for none."""
    for names in account.variables:
        if all(here.get(name) for name in names):
            return ", ".join(names)
    for file in account.files:
        place = _place(file, here)
        if place is not None and _readable(place):
            return file.partition("/")[0] if file.startswith("$") else file
    return ""


def _place(file: str, here: Mapping[str, str]) -> Path | None:
    """The path that a description of a file means; None where a variable of it is not set."""
    first, _, rest = file.partition("/")
    start = here.get("HOME", "") if first == "~" else here.get(first.removeprefix("$"), "")
    return Path(start, rest) if start else None


def _readable(place: Path) -> bool:
    try:
        return place.is_file() and place.stat().st_size > 0
    except OSError:
        return False
