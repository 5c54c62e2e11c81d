"""Stores on the Hugging Face Hub: storage buckets and dataset repositories."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from llm_ocr.config.groups import without_credentials
from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.storage import ObjectStore, StoreOptions
from llm_ocr.storage.names import FORMS, checked_prefix, need_client

_SCHEME = "hf://"

#: Names on the Hub: letters, digits, `-`, `_` and `.`, at most 96 characters, no `-` or `.` at either end.
_NAME = re.compile(r"(?=.{1,96}$)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")

#: Revisions with a `/` that are accepted unescaped; all others need %2F.
_REFERENCE = re.compile(r"refs/(?:pr/\d+|convert/[^/]+)(?=/|$)")

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a workspace: `kind` is `bucket` or `dataset`, `id` namespace/name, `prefix` without outer `/`.

    `revision` is a branch or commit of a dataset repository; empty for main, and for buckets, which have no revisions.
    """

    kind: str
    id: str
    prefix: str = ""
    revision: str = ""

    @property
    def url(self) -> str:
        """URL as shown to users."""
        revision = f"@{self.revision}" if self.revision else ""
        prefix = f"/{self.prefix}" if self.prefix else ""
        return f"{_SCHEME}{self.kind}s/{self.id}{revision}{prefix}"

    @property
    def name(self) -> str:
        """Kind and id, for messages."""
        return f"{self.kind} {self.id}"

    @property
    def is_commit(self) -> bool:
        """Whether the revision is a commit, which cannot be changed."""
        return bool(_COMMIT.fullmatch(self.revision))

    def path(self, key: str) -> str:
        """Return an object's path in the bucket or repository."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def key(self, path: str) -> str:
        """Return the key of the object at a path of this place."""
        return path[len(self.prefix) + 1 :] if self.prefix else path


def parse(url: str) -> Place:
    """Return the place of an `hf://` URL.

    Raises:
        UsageError: the URL does not name a bucket or dataset.
    """
    kind, _, rest = (url := without_credentials(url)).removeprefix(_SCHEME).partition("/")
    namespace, _, below = rest.rstrip("/").partition("/")
    if kind in ("models", "spaces"):
        raise UsageError(f"{url}: a workspace needs a bucket or a dataset repository", hint=f"Give {FORMS}.")
    if kind not in ("buckets", "datasets"):
        whole = f"{kind}/{rest.rstrip('/')}" if kind and rest else "NAMESPACE/NAME"
        raise UsageError(
            f"{url} is ambiguous",
            hint=f"Did you mean {_SCHEME}buckets/{whole} (a storage bucket) or {_SCHEME}datasets/{whole} (a dataset "
            "repository)?",
        )
    if not namespace or not below.partition("/")[0]:
        raise UsageError(f"{url} names no {kind[:-1]}", hint=f"Give {_SCHEME}{kind}/NAMESPACE/NAME/PREFIX.")
    # NAME[@REVISION][/PREFIX]
    head, _, prefix = below.partition("/")
    name, at, _ = head.partition("@")
    revision = None
    if at:
        after = below[len(name) + 1 :]
        if found := _REFERENCE.match(after):
            revision, prefix = found[0], after[found.end() + 1 :]
        else:
            quoted, _, prefix = after.partition("/")
            revision = unquote(quoted)
    if revision is not None and kind == "buckets":
        raise UsageError(f"{url}: a bucket has no revisions", hint=f"Give {_SCHEME}buckets/{namespace}/{name}/PREFIX.")
    if revision == "":
        raise UsageError(f"{url} names no revision after its @", hint="Leave out the @ for the branch main.")
    for part in (namespace, name):
        if not _NAME.fullmatch(part) or ".." in part or "--" in part:
            raise UsageError(
                f"{url}: {part!r} cannot be a name on the Hub",
                hint=f"Give {_SCHEME}{kind}/NAMESPACE/NAME/PREFIX; names have letters, digits, '-', '_' and '.'.",
            )
    prefix = checked_prefix(url, prefix.strip("/"), "Give another prefix.")
    return Place(kind.removesuffix("s"), f"{namespace}/{name}", prefix, revision or "")


def open_hub(url: str, options: StoreOptions) -> ObjectStore:
    """Return the store for an `hf://` URL, without reading or writing.

    `options.token` has precedence over the token that huggingface_hub finds (HF_TOKEN, `hf auth login`).
    `options.endpoint` replaces the server in HF_ENDPOINT.

    Raises:
        UsageError: the URL is invalid.
        MissingExtra: huggingface_hub is missing or too old.
    """
    place = parse(url)
    need_client("huggingface_hub", "hf:// needs huggingface_hub", "huggingface_hub")
    import huggingface_hub

    if not hasattr(huggingface_hub, "batch_bucket_files"):  # buckets need a newer release than the minimum
        installed = huggingface_hub.__version__
        raise MissingExtra(f"hf:// needs a newer huggingface_hub than {installed}", install="huggingface_hub")
    if place.kind == "bucket":
        from llm_ocr.storage.hf.bucket import BucketStore

        return BucketStore(place, options)
    from llm_ocr.storage.hf.dataset import DatasetStore

    return DatasetStore(place, options)
