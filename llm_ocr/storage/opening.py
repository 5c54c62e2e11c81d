"""Open the store of a workspace URL. Stores import their client libraries on first use."""

import difflib
import pkgutil
import re

from llm_ocr.config.groups import without_credentials
from llm_ocr.errors import UsageError
from llm_ocr.plugins import STORES, Opener
from llm_ocr.storage import BaseStore, ObjectStore, StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.storage.names import FORMS, OTHER_SCHEMES, check_url, local_folder, split_scheme

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
        return LocalStore(local_folder(url))
    if scheme not in _OPENERS:
        if scheme not in _USERS and (opener := STORES.find(scheme)) is not None:  # of an installed package
            register(scheme, opener)
        if scheme in _USERS:
            return _completed(_USERS[scheme](url, options))
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
        what = f"{url}: a web address is not writable"
        for pattern, meant in _PAGES:
            if found := re.match(pattern, rest.removeprefix("//")):
                return UsageError(what, hint=f"Did you mean {found.expand(meant)}?")
        server = f"For an S3-compatible server, give s3://BUCKET/PREFIX and {options.named('endpoint', 'URL')}."
        return UsageError(what, hint=f"Give {FORMS}. {server}")
    near = OTHER_SCHEMES.get(scheme) or next(
        iter(difflib.get_close_matches(scheme, ["file", *_OPENERS, *STORES.names()], n=1, cutoff=0.5)), ""
    )
    if not near:
        others = "".join(f" Installed packages add {name}://." for name in STORES.names())
        return UsageError(f"{url}: the scheme {scheme}:// is unknown", hint=f"Give {FORMS}.{others}")
    near_url = near + "://" + rest.lstrip("/") if near != "file" else "file:///" + rest.lstrip("/")
    return UsageError(f"{url}: the scheme {scheme}:// is unknown", hint=f"Did you mean {near_url}?")


def _built_in(opener: str) -> Opener:
    """Return the opener of this import path, whose module imports a client library only when it opens a store."""
    return lambda url, options: pkgutil.resolve_name(opener)(url, options)


_OPENERS = {
    "s3": _built_in("llm_ocr.storage.s3:open_s3"),
    "gs": _built_in("llm_ocr.storage.gcs:open_gcs"),
    "hf": _built_in("llm_ocr.storage.hf:open_hub"),
}
_USERS: dict[str, Opener] = {}
