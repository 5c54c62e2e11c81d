"""Open the store of a workspace URL. Stores import their client libraries on first use."""

import difflib
import re

from llm_ocr.config.groups import without_credentials
from llm_ocr.errors import UsageError
from llm_ocr.plugins import STORES, Opener
from llm_ocr.storage import BaseStore, ObjectStore, StoreOptions
from llm_ocr.storage.local import open_local
from llm_ocr.storage.names import FORMS, OTHER_SCHEMES, check_url, split_scheme

_SCHEME = re.compile(r"[a-z][a-z0-9]+")

#: Addresses in browsers and consoles, with the corresponding workspace URLs.
_PAGES = (
    (r"huggingface\.co/(buckets|datasets)/([^/]+/[^/]+)(?:/tree/.*)?/?$", r"hf://\1/\2"),
    (r"(?:storage\.googleapis\.com|storage\.cloud\.google\.com)/([^/]+.*)$", r"gs://\1"),
    (r"([^/]+)\.storage\.googleapis\.com(/.*)?$", r"gs://\1\2"),
    (r"([^/]+)\.s3[.-](?:[a-z0-9-]+\.)?amazonaws\.com(/.*)?$", r"s3://\1\2"),
    (r"s3[.-](?:[a-z0-9-]+\.)?amazonaws\.com/([^/]+.*)$", r"s3://\1"),
)


def open_url(url: str, options: StoreOptions) -> ObjectStore:
    """Return the store for a workspace URL; see `llm_ocr.storage.open_store`."""
    check_url(url)
    scheme, rest = split_scheme(url)
    if scheme in ("", "file"):
        return open_local(url)
    if scheme not in _OPENERS:
        if (of_users := _of_users(scheme)) is not None:
            return _completed(of_users(url, options))
        shown = without_credentials(rest)
        raise _unknown(f"{scheme}:{shown}", scheme, shown, options)
    if not rest.startswith("//"):
        raise UsageError(
            f"{url} is not a workspace URL: two slashes must follow the scheme", hint=f"Did you mean {scheme}:/{rest}?"
        )
    return _OPENERS[scheme](f"{scheme}:{rest}", options)


def register(scheme: str, opener: Opener) -> None:
    """Register a store; see `llm_ocr.storage.register_store`."""
    if scheme in ("", "file", *_OPENERS) or not _SCHEME.fullmatch(scheme):
        raise UsageError(f"{scheme!r} cannot be the scheme of a store", hint="Use lowercase letters and digits.")
    _USERS[scheme] = opener


def _of_users(scheme: str) -> Opener | None:
    """Return the opener registered in this process or by an installed package."""
    if scheme not in _USERS and (opener := STORES.find(scheme)) is not None:
        register(scheme, opener)
    return _USERS.get(scheme)


def _completed(store: ObjectStore) -> ObjectStore:
    """Add the missing members to a user's store that does not derive from `BaseStore`."""
    usual = BaseStore()
    usual_members = {"most_files": None, "gathers": hasattr(store, "flush"), "flush": usual.flush, "share": usual.share}
    for name, member in usual_members.items():
        if not hasattr(store, name):
            setattr(store, name, member)
    return store


def _unknown(url: str, scheme: str, rest: str, options: StoreOptions) -> UsageError:
    if scheme in ("http", "https"):
        return _web(url, rest, options)
    near = OTHER_SCHEMES.get(scheme) or next(
        iter(difflib.get_close_matches(scheme, ["file", *_OPENERS, *STORES.names()], n=1, cutoff=0.5)), ""
    )
    if not near:
        others = "".join(f" Installed packages add {name}://." for name in STORES.names())
        return UsageError(f"{url}: the scheme {scheme}:// is unknown", hint=f"Give {FORMS}.{others}")
    meant = near + "://" + rest.lstrip("/") if near != "file" else "file:///" + rest.lstrip("/")
    return UsageError(f"{url}: the scheme {scheme}:// is unknown", hint=f"Did you mean {meant}?")


def _web(url: str, rest: str, options: StoreOptions) -> UsageError:
    what = f"{url}: a web address is not writable"
    for pattern, meant in _PAGES:
        if found := re.match(pattern, rest.removeprefix("//")):
            return UsageError(what, hint=f"Did you mean {found.expand(meant)}?")
    return UsageError(
        what,
        hint=f"Give {FORMS}. For an S3-compatible server, give s3://BUCKET/PREFIX and "
        f"{options.named('endpoint', 'URL')}.",
    )


def _open_s3(url: str, options: StoreOptions) -> ObjectStore:
    from llm_ocr.storage.s3 import open_s3

    return open_s3(url, options)


def _open_gcs(url: str, options: StoreOptions) -> ObjectStore:
    from llm_ocr.storage.gcs import open_gcs

    return open_gcs(url, options)


def _open_hub(url: str, options: StoreOptions) -> ObjectStore:
    from llm_ocr.storage.hf import open_hub

    return open_hub(url, options)


_OPENERS: dict[str, Opener] = {"s3": _open_s3, "gs": _open_gcs, "hf": _open_hub}
_USERS: dict[str, Opener] = {}
