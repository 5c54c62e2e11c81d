"""What to do about an answer of Google Cloud Storage that is an error."""

from dataclasses import dataclass

AGAIN = "What was published stays: run the same command again later."

#: The project that pays, to Google's libraries.
QUOTA_PROJECT = "GOOGLE_CLOUD_QUOTA_PROJECT"


@dataclass(frozen=True, slots=True)
class Advice:
    """What happened, what to do, and whether the same call may succeed later."""

    what: str
    hint: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What an error's text names. `credentials` says in words whose they are; `endpoint` is empty for Google's own."""

    url: str
    bucket: str
    endpoint: str = ""
    credentials: str = "the Google credentials"
    profile: str | None = None
    token: bool = False

    @property
    def server(self) -> str:
        return self.endpoint or "Google Cloud Storage"

    @property
    def sign_in(self) -> str:
        """How to come by credentials."""
        if self.token:
            return "Give a fresh access token: gcloud auth print-access-token prints one, good for an hour."
        if self.profile:
            return f"Give another credentials file than {self.profile} (--workspace-profile FILE for the workspace)."
        return (
            "Run `gcloud auth application-default login`, set GOOGLE_APPLICATION_CREDENTIALS to a credentials file, "
            "or give one with --workspace-profile FILE (--source-profile for documents)."
        )

    @property
    def network(self) -> str:
        """What to look at when nobody answers."""
        if self.endpoint:
            return f"Is a server running at {self.endpoint} (--workspace-endpoint, or STORAGE_EMULATOR_HOST)?"
        return f"Check the network and the proxy settings (HTTPS_PROXY). {AGAIN}"


def advice_for(status: int, reasons: frozenset[str], message: str, context: Context) -> Advice:
    """The advice for an answer's status, its reason words and its message."""
    if status == 401:
        return Advice(
            f"{context.credentials} are missing, expired or revoked (401 {message})".rstrip(), context.sign_in
        )
    if status == 404:
        return _missing(message, context)
    if status == 400 and "requester pays" in message.lower():
        return Advice(f"the one who asks pays for the bucket {context.bucket}", _to_bill())
    if status == 403:
        return _forbidden(reasons, message, context)
    if status == 429:
        return Advice(f"too many requests for too long ({message})", f"Use fewer workers. {AGAIN}", retryable=True)
    if status == 408 or status >= 500:
        return Advice(f"{context.server} failed ({status} {message})", AGAIN, retryable=True)
    return Advice(f"{context.server} answered {status} {message}".rstrip())


def _missing(message: str, context: Context) -> Advice:
    if "bucket" not in message:
        return Advice(f"{context.server} answered 404 {message}".rstrip())
    return Advice(
        f"there is no bucket {context.bucket}",
        f"Check its spelling, or make it: gcloud storage buckets create gs://{context.bucket} "
        "--location=LOCATION --project=PROJECT",
    )


def _to_bill() -> str:
    return f"Set {QUOTA_PROJECT} to a project of yours that is billed, and that this account may use."


def _forbidden(reasons: frozenset[str], message: str, context: Context) -> Advice:
    low, words = message.lower(), " ".join(reasons).lower()
    if "ratelimit" in words or "rate limit" in low:
        return Advice(f"too many requests for too long ({message})", f"Use fewer workers. {AGAIN}", retryable=True)
    if "retention" in low or "retention" in words or "object is under active" in low:
        hint = "A workspace needs to replace and remove objects: use a bucket without retention policy and holds."
        return Advice(f"the bucket keeps its objects as they are ({message})", hint)
    if "user_project_denied" in low or "userproject" in words or "serviceusage" in low:
        return Advice(f"the project that is to be billed is not one that may be used ({message})", _to_bill())
    if "billing" in low or "accountdisabled" in words:
        return Advice(
            f"billing is off for the project of the bucket {context.bucket} ({message})",
            "Turn billing on for that project, or use a bucket of another project.",
        )
    if "has not been used in project" in low or "accessnotconfigured" in words:
        hint = f"Turn the Cloud Storage API on in that project, or set {QUOTA_PROJECT} to another one."
        return Advice(f"the Cloud Storage API is off in the project ({message})", hint)
    return Advice(
        f"{context.credentials} may not do that ({message})",
        f"Give that account the role Storage Object Admin (roles/storage.objectAdmin) on the bucket {context.bucket}, "
        "or use other credentials (GOOGLE_APPLICATION_CREDENTIALS, --workspace-profile FILE). Is it a bucket of the "
        "project that you mean?",
    )
