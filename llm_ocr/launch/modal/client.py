"""The `modal` package, imported when it is first needed, and its errors as ours."""

import contextlib
from collections.abc import Iterator
from typing import Any

from llm_ocr.errors import LaunchError, MissingExtra

_LOGIN = "Log in: modal token new (or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET)."


def modal() -> Any:
    """The package. Raises `MissingExtra` with the pip line."""
    try:
        import modal
        import modal.exception
    except ImportError as error:
        raise MissingExtra("launching on Modal needs modal", install="modal") from error
    return modal


@contextlib.contextmanager
def asked(what: str, *, not_found: str = "", invalid: str = "") -> Iterator[Any]:
    """Errors of Modal become `LaunchError` with its words; `not_found` and `invalid` are hints for those two."""
    package = modal()
    exception = package.exception
    try:
        yield package
    except exception.AuthError as error:
        raise LaunchError(f"{what}: {error}", hint=_LOGIN) from error
    except exception.NotFoundError as error:
        raise LaunchError(f"{what}: {error}", hint=not_found) from error
    except exception.PermissionDeniedError as error:
        raise LaunchError(
            f"{what}: {error}", hint="Ask an owner of the Modal workspace, or use another token."
        ) from error
    except exception.ResourceExhaustedError as error:
        raise LaunchError(
            f"{what}: {error}", hint="A limit of the account is reached: give fewer --shards, or have it raised."
        ) from error
    except (exception.ConnectionError, exception.ServiceError) as error:
        raise LaunchError(
            f"{what}: {error}", hint="Modal cannot be reached: look at the network, then again."
        ) from error
    except exception.InvalidError as error:
        raise LaunchError(f"{what}: {error}", hint=invalid) from error
    except exception.Error as error:
        raise LaunchError(f"{what}: {error}") from error
