"""Who asks, and what he may do."""

from dataclasses import dataclass, field

from llm_ocr.testing.fake_hub.answers import Refused, Request

#: The token of the account that every server begins with.
TOKEN = "hf_fake"


@dataclass(frozen=True, slots=True)
class Account:
    """A user with one token. `role` is that of the token: read or write."""

    name: str
    role: str = "write"
    orgs: tuple[str, ...] = ()

    def owns(self, namespace: str) -> bool:
        """Whether repositories and buckets of the namespace are his, or of an organisation that he is in."""
        return namespace == self.name or namespace in self.orgs


@dataclass(slots=True)
class Accounts:
    """All accounts by token."""

    by_token: dict[str, Account] = field(default_factory=lambda: {TOKEN: Account("tester", orgs=("team",))})

    def of(self, request: Request) -> Account | None:
        """Who asks; None without a token. Raises `Refused` (401) for one that nobody has."""
        given = request.headers.get("authorization", "")
        if not given:
            return None
        account = self.by_token.get(given.removeprefix("Bearer "))
        if account is None:
            raise Refused(401, "", "Invalid credentials in Authorization header")
        return account

    def needed(self, request: Request) -> Account:
        """Who asks. Raises `Refused` (401) for nobody."""
        account = self.of(request)
        if account is None:
            raise Refused(401, "", "Invalid username or password.")
        return account


def check_read(account: Account | None, namespace: str, *, private: bool) -> None:
    """Raise `Refused` as the Hub does: what may not be seen does not exist."""
    if private and (account is None or not account.owns(namespace)):
        raise Refused(404 if account else 401, "RepoNotFound", "Repository not found")


def check_write(account: Account | None, namespace: str) -> None:
    """Raise `Refused`: 401 for nobody, 403 for a token that may only read and for what belongs to others."""
    if account is None:
        raise Refused(401, "", "Invalid username or password.")
    if account.role != "write":
        raise Refused(403, "", "Forbidden: you must use a write token to upload to a repository.")
    if not account.owns(namespace):
        raise Refused(403, "", f"You don't have the rights to write under the namespace {namespace}.")
