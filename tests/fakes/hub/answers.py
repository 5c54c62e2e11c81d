"""Requests, answers, refusals, and accounts of the fake Hub."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from multidict import MultiMapping

# Input and output of a handler: a parsed request, an answer, a refusal in the Hub's words.


JSON = {"Content-Type": "application/json; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is raw (`%2F` in a name is not `/`), header names are lower case, `base` is the server's URL.

    `page`: rows per page of a listing.
    """

    method: str
    path: str
    query: MultiMapping[str]
    headers: Mapping[str, str]
    body: bytes
    base: str
    page: int

    def json(self) -> Any:
        """Return the body. Raises `Refused` (400) if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Refused(400, "", f"Invalid JSON: {error}") from error

    def rows(self) -> list[dict[str, Any]]:
        """Return the body as one JSON object per line."""
        try:
            return [json.loads(line) for line in self.body.splitlines() if line.strip()]
        except ValueError as error:
            raise Refused(400, "", f"Invalid JSON line: {error}") from error

    def values(self, name: str) -> list[str]:
        """Return all values of a field of a JSON body or a form."""
        if "json" in self.headers.get("content-type", ""):
            found = self.json().get(name, [])
            return [found] if isinstance(found, str) else list(found)
        return [value for key, value in parse_qsl(self.body.decode(), keep_blank_values=True) if key == name]


@dataclass(frozen=True, slots=True)
class Answer:
    """Response. `more` returns the parts after the body if available, b"" for no data yet, None at the end."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[], bytes | None] | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> "Answer":
        """Return an answer in JSON."""
        return cls(status, json.dumps(value).encode(), {**JSON, **(headers or {})})


class Refused(Exception):
    """Error response: `code` becomes `X-Error-Code`, which selects the client's exception."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        """Return the answer to send."""
        headers = {"X-Error-Message": self.message, **self.headers}
        if self.code:
            headers["X-Error-Code"] = self.code
        return Answer.of({"error": self.message}, self.status, headers)


def page(request: Request, rows: list[dict[str, Any]]) -> Answer:
    """Return one page of `rows`, with a `Link` to the next. `limit` and `cursor` are in the query."""
    start = int(request.query.get("cursor") or 0)
    end = start + min(int(request.query.get("limit") or request.page), request.page)
    headers = {}
    if end < len(rows):
        query = urlencode({**request.query, "cursor": end})
        headers["Link"] = f'<{request.base}{urlsplit(request.path).path}?{query}>; rel="next"'
    return Answer.of(rows[start:end], headers=headers)


def content(request: Request, data: bytes, headers: Mapping[str, str]) -> Answer:
    """Return the content or the requested range; for HEAD, only its length."""
    shown = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", **headers}
    if request.method == "HEAD":
        return Answer(200, b"", {**shown, "Content-Length": str(len(data))})
    wanted = request.headers.get("range")
    if not wanted:
        return Answer(200, data, shown)
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start = int(first) if first else max(0, len(data) - int(last))
    end = min(int(last), len(data) - 1) if first and last else len(data) - 1
    if start >= len(data):
        raise Refused(416, "", "Range not satisfiable", headers={"Content-Range": f"bytes */{len(data)}"})
    return Answer(206, data[start : end + 1], {**shown, "Content-Range": f"bytes {start}-{end}/{len(data)}"})


def iso(seconds: float | None = None) -> str:
    """Return a time (seconds since 1970; default now) in the Hub's form, the only one that its client reads."""
    at = datetime.fromtimestamp(time.time() if seconds is None else seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Accounts and their rights.


#: Token of the initial account of every server.
TOKEN = "hf_fake"


@dataclass(frozen=True, slots=True)
class Account:
    """User with one token. `role` is that of the token: read or write."""

    name: str
    role: str = "write"
    orgs: tuple[str, ...] = ()

    def owns(self, namespace: str) -> bool:
        """Return whether the user or one of the user's organizations owns the namespace."""
        return namespace == self.name or namespace in self.orgs


@dataclass(slots=True)
class Accounts:
    """All accounts by token."""

    by_token: dict[str, Account] = field(default_factory=lambda: {TOKEN: Account("tester", orgs=("team",))})

    def of(self, request: Request) -> Account | None:
        """Return the account; None without a token. Raises `Refused` (401) for an unknown token."""
        given = request.headers.get("authorization", "")
        if not given:
            return None
        account = self.by_token.get(given.removeprefix("Bearer "))
        if account is None:
            raise Refused(401, "", "Invalid credentials in Authorization header")
        return account

    def needed(self, request: Request) -> Account:
        """Return the account. Raises `Refused` (401) without a token."""
        account = self.of(request)
        if account is None:
            raise Refused(401, "", "Invalid username or password.")
        return account


def check_read(account: Account | None, namespace: str, *, private: bool) -> None:
    """Raise `Refused` as the Hub does: unreadable objects do not exist."""
    if private and (account is None or not account.owns(namespace)):
        raise Refused(404 if account else 401, "RepoNotFound", "Repository not found")


def check_write(account: Account | None, namespace: str) -> None:
    """Raise `Refused`: 401 without an account, 403 for a read-only token and for objects of other users."""
    if account is None:
        raise Refused(401, "", "Invalid username or password.")
    if account.role != "write":
        raise Refused(403, "", "Forbidden: you must use a write token to upload to a repository.")
    if not account.owns(namespace):
        raise Refused(403, "", f"You don't have the rights to write under the namespace {namespace}.")
