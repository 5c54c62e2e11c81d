"""A prefix in a bucket, as S3 and Google Cloud Storage name it."""

from dataclasses import dataclass
from typing import ClassVar

from llm_ocr.errors import StorageError
from llm_ocr.storage.names import LONGEST_KEY, check_key, folder_of, is_key


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """`prefix` has no `/` at its end and is empty for the whole bucket. `any_key`: see `StoreOptions`."""

    scheme: ClassVar[str]
    bucket: str
    prefix: str
    any_key: bool = False

    @property
    def url(self) -> str:
        """As it is shown to users."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def root(self) -> str:
        """What every key in the bucket begins with."""
        return f"{self.prefix}/" if self.prefix else ""

    def inside(self, key: str) -> str:
        """The key's name in the bucket. Raises `StorageError` for no key, or one too long together with the prefix."""
        if not self.any_key:
            check_key(key)
        name = self.root + key
        if len(name.encode()) > LONGEST_KEY:
            raise StorageError(
                f"{key!r} cannot be the name of an object: with {self.url}/ it is longer than {LONGEST_KEY} bytes",
                hint="Use a workspace with a shorter prefix.",
            )
        return name

    def has(self, key: str) -> bool:
        """Return whether an object of this name is one of the place's."""
        return self.any_key or is_key(key)

    def check_prefix(self, prefix: str) -> None:
        """Raise `StorageError` for a prefix that no key can have."""
        if not self.any_key:
            folder_of(prefix)
