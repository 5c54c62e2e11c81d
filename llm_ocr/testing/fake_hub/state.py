"""Everything that the server knows."""

from dataclasses import dataclass, field

from llm_ocr.testing.fake_hub.accounts import Account, Accounts, check_read, check_write
from llm_ocr.testing.fake_hub.answers import Refused, Request
from llm_ocr.testing.fake_hub.jobs import Jobs
from llm_ocr.testing.fake_hub.trees import CommitQuota, Repositories, Repository
from llm_ocr.testing.fake_hub.xet import LocalXet


@dataclass(slots=True)
class BucketFile:
    """A file of a bucket; times in ISO."""

    xet_hash: str
    data: bytes
    mtime: str
    uploaded: str


@dataclass(slots=True)
class Bucket:
    """Files by path."""

    id: str
    private: bool
    created: str
    files: dict[str, BucketFile] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]


@dataclass(slots=True)
class State:
    """Repositories, buckets, accounts, jobs; `repositories.lock` is held for every change."""

    repositories: Repositories = field(default_factory=Repositories)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    accounts: Accounts = field(default_factory=Accounts)
    quota: CommitQuota = field(default_factory=CommitQuota)
    xet: LocalXet = field(default_factory=LocalXet)
    jobs: Jobs = field(default_factory=Jobs)

    def readable(self, request: Request, kind: str, repository: str) -> tuple[Repository, Account | None]:
        """The repository and who asks. Raises `Refused` for what he may not see."""
        account = self.accounts.of(request)
        namespace = repository.partition("/")[0]
        if (kind, repository) not in self.repositories.by_id:
            check_read(account, namespace, private=account is None)
        found = self.repositories.get(kind, repository)
        check_read(account, namespace, private=found.private)
        if found.gated and (account is None or not account.owns(namespace)):
            raise Refused(403, "GatedRepo", f"Access to {kind} {repository} is restricted.")
        return found, account

    def writable(self, request: Request, kind: str, repository: str) -> Repository:
        """The repository. Raises `Refused` for who may not write to it."""
        found, account = self.readable(request, kind, repository)
        check_write(account, found.namespace)
        return found

    def bucket(self, request: Request, bucket: str, *, write: bool = False) -> Bucket:
        """Raises `Refused` as for repositories."""
        account = self.accounts.of(request)
        namespace = bucket.partition("/")[0]
        found = self.buckets.get(bucket)
        check_read(account, namespace, private=found.private if found else account is None)
        if found is None:
            raise Refused(404, "RepoNotFound", "Bucket not found")
        if write:
            check_write(account, namespace)
        return found
