"""How remote documents are read."""

from dataclasses import dataclass, field
from pathlib import Path

from llm_ocr.storage import StoreOptions


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Limits and credentials. Sizes in bytes, times in seconds.

    `store` is that of the sources, which may be another account than that of the workspace.
    """

    store: StoreOptions = field(default_factory=StoreOptions)
    cache_bytes: int = 4 << 30  # local files of documents, all together
    cache_folder: Path | None = None  # where they stand; None: the system's folder for temporary files
    most_bytes: int = 512 << 20  # of one document over HTTP
    seconds: float = 600.0  # for one document over HTTP, redirects and tries included
    stall_seconds: float = 60.0  # without a byte
    redirects: int = 5
    allow_private_addresses: bool = False
    tries: int = 4  # of what may be better the next time
    pause: float = 1.0  # before the second try; doubles from then on
    fetches: int = 8  # at a time
    remember_seconds: float = 60.0  # a failure is not tried again for so long
