"""The size of texts in tokens of a model's tokenizer."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.errors import MissingExtra, StorageError, UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FILE = "tokenizer.json"
#: Texts whose count is kept: passages are put together of pieces that are measured more than once.
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class TokenCount:
    """`measure` counts the tokens of a text, without special ones around it; `identity` is that of the tokenizer."""

    measure: Callable[[str], int]
    identity: str


def token_count(name: str) -> TokenCount:
    """Counts by a `tokenizer.json`, the folder that holds it, or a model of the Hub (`NAMESPACE/NAME[@REVISION]`).

    Raises `MissingExtra`, `UsageError` for what is no tokenizer, `StorageError` for one that cannot be fetched.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra("--tokenizer: the library tokenizers is not installed", install="chunks") from error
    path = _local(name) or _fetched(name)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # what the Rust library raises has no type of its own
        raise UsageError(
            f"--tokenizer {name}: {path} is no tokenizer of the library tokenizers: {error}",
            hint=f"Give a {_FILE}, or a model of the Hub that has one.",
        ) from error
    tokenizer.no_truncation()  # files may hold both, for the model's own input
    tokenizer.no_padding()
    return TokenCount(_measure(tokenizer), hashlib.sha256(tokenizer.to_str().encode()).hexdigest())


def _measure(tokenizer: "Tokenizer") -> Callable[[str], int]:
    @lru_cache(_REMEMBERED)
    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    return count


def _local(name: str) -> Path | None:
    path = Path(name).expanduser()
    if path.is_dir():
        path /= _FILE
    if path.is_file():
        return path
    if path.suffix == ".json" or name.startswith((".", "/", "~")):
        raise UsageError(f"--tokenizer {name}: there is no file {path}", hint=f"Give a {_FILE} that is there.")
    return None


def _fetched(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    model, _, revision = name.partition("@")
    try:
        return Path(hf_hub_download(model, _FILE, revision=revision or None))
    except (HFValidationError, EntryNotFoundError, HfHubHTTPError, OSError) as error:
        if isinstance(error, HFValidationError):
            raise UsageError(
                f"--tokenizer {name} is neither a file nor the name of a model: {error}",
                hint=f"Give a {_FILE}, the folder of one, or a model of the Hub: NAMESPACE/NAME",
            ) from error
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise UsageError(
                f"--tokenizer {name}: the model has no {_FILE}",
                hint=f"Give a {_FILE} of its family, or another model's.",
            ) from error
        raise StorageError(
            f"--tokenizer {name}: its {_FILE} cannot be fetched: {error}",
            hint=f"Is the name right, and the Hub to be reached? A {_FILE} on this machine needs neither.",
        ) from error
