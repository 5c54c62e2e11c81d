"""Find or download the recognizer of a language, and order the words of right-to-left scripts.

The recognizers are ONNX files of PP-OCRv5. Names, URL, and hashes are those of `default_models.yaml` in the rapidocr
3.10.0 wheel (onnxruntime, PP-OCRv5, rec).
"""

import hashlib
import http.client
import tempfile
import time
import unicodedata
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from llm_ocr.engines import LanguageModel
from llm_ocr.errors import LlmOcrError, UsageError

#: Folder of the recognizers on the server.
SOURCE = "https://www.modelscope.cn/models/RapidAI/RapidOCR/resolve/v3.10.0/onnx/PP-OCRv5/rec"
#: File names up to `_PP-OCRv5_rec_mobile.onnx` and SHA-256, by language.
LANGUAGES = {
    "arabic": ("arabic", "c1192e632d0baa9146ae5b756a0e635e3dc63c1733737ebfd1629e87144e9295"),
    "cyrillic": ("cyrillic", "90f761b4bfcce0c8c561c0cb5c887b0971d3ec01c32164bdf7374a35b0982711"),
    "devanagari": ("devanagari", "d6f0a906580e3fa6b324a318718f1f31f268b6ea8ef985f91c2012a37f52c91e"),
    "east-slavic": ("eslav", "08705d6721849b1347d26187f15a5e362c431963a2a62bfff4feac578c489aab"),
    "greek": ("el", "b4368bccd557123c702b7549fee6cd1e94b581337d1c9b65310f109131542b7f"),
    "korean": ("korean", "cd6e2ea50f6943ca7271eb8c56a877a5a90720b7047fe9c41a2e541a25773c9b"),
    "latin": ("latin", "b20bd37c168a570f583afbc8cd7925603890efbcdc000a59e22c269d160b5f5a"),
    "tamil": ("ta", "a42448808b7dea87597336f12438935f40353f1949e8360acd9e06b4da21bfe1"),
    "telugu": ("te", "a3690451b50028a09a3316a1274f7c05728151ea3f8fd392696397a7fefcbd92"),
    "thai": ("th", "de541dd83161c241ff426f7ecfd602a0ba77d686cf3ab9a6c255ea82fd08006e"),
}
#: Key of the alphabet in a model's metadata, as written in the file.
_ALPHABET = b"\x0a\x09character\x12"
#: Seconds without a byte until a download is abandoned, and between messages on its progress.
_SECONDS, _EVERY = 60.0, 5.0
#: Bytes of a read, and seconds after which the temporary file of a killed process is removed.
_CHUNK, _LEFT_BEHIND = 1 << 18, 3600.0


def language_model(
    language: str,
    cache: Path,
    source: str = SOURCE,
    *,
    say: Callable[[str], object] = lambda message: None,
    stopped: Callable[[], bool] = lambda: False,
) -> LanguageModel:
    """Return the recognizer of a language. It is downloaded if it is not in the cache.

    Args:
        language: Name of a language, or path of an .onnx file.
        cache: Folder of downloaded recognizers.
        source: URL of the folder on the server.
        say: Receives messages on the progress of a download.
        stopped: Whether to give up a download, asked after each 256 KiB.

    Raises:
        UsageError: The language is unknown, or the file is not a recognizer.
        LlmOcrError: The download failed.
    """
    if language not in LANGUAGES:
        return _of_user(language)
    name, digest = LANGUAGES[language]
    model = cache / f"{name}_PP-OCRv5_rec_mobile.onnx"
    if not model.exists() or _digest(model.read_bytes()) != digest:
        _download(_Download(f"{source}/{model.name}", model, digest, language), say, stopped)
    return LanguageModel(model, None, digest[:12])


def check_language(language: str) -> None:
    """Raise `UsageError` for an unknown language or a file that is not a recognizer. Download nothing."""
    if language not in LANGUAGES:
        _of_user(language)


def _of_user(language: str) -> LanguageModel:
    model = Path(language).expanduser()
    known = f"Known languages: {', '.join(LANGUAGES)}. For other languages, name the .onnx file of a PP-OCR recognizer."
    if model.suffix != ".onnx":
        raise UsageError(f"`ocr_language={language}`: unknown language", hint=known)
    try:
        content = model.read_bytes()
    except OSError as error:
        raise UsageError(f"`ocr_language={language}`: {error.strerror or error}", hint=known) from error
    dictionary = model.with_suffix(".txt")
    if _ALPHABET in content:
        return LanguageModel(model, None, _digest(content)[:12])
    if not dictionary.is_file():
        hint = f"Write its characters, one per line, to {dictionary.name} in the same folder."
        raise UsageError(f"`ocr_language={language}`: the recognizer does not contain its characters", hint=hint)
    return LanguageModel(model, dictionary, _digest(content + dictionary.read_bytes())[:12])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class _Download:
    url: str
    model: Path
    digest: str
    language: str


def _download(one: _Download, say: Callable[[str], object], stopped: Callable[[], bool]) -> None:
    """Write a file completely or not at all: other processes may read it."""
    what = f"the OCR model of `ocr_language={one.language}`"
    hint = f"Download {one.url} elsewhere, and name the file instead."
    try:
        one.model.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_behind(one.model)
        content = _content(one, say, stopped)
        if _digest(content) != one.digest:
            raise LlmOcrError(f"{what} is not the expected file: its SHA-256 differs", hint=hint)
        with tempfile.NamedTemporaryFile(dir=one.model.parent, prefix=_prefix(one.model), delete=False) as file:
            place = Path(file.name)
            try:
                file.write(content)
                file.flush()
                place.replace(one.model)
            finally:
                place.unlink(missing_ok=True)
    except (OSError, http.client.HTTPException) as error:
        raise LlmOcrError(f"{what} could not be downloaded: {_why(error)}", hint=hint) from error


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return f"no connection ({error.reason})"
    return str(error)


def _content(one: _Download, say: Callable[[str], object], stopped: Callable[[], bool]) -> bytes:
    with urllib.request.urlopen(one.url, timeout=_SECONDS) as answer:
        size = int(answer.headers.get("Content-Length") or 0)
        total = f"{size / 1e6:.1f} MB" if size else "unknown size"
        say(f"downloading the OCR model of {one.language} ({total}) to {one.model.parent}")
        parts: list[bytes] = []
        received, next_message = 0, time.monotonic() + _EVERY
        while part := answer.read(_CHUNK):
            parts.append(part)
            received += len(part)
            if stopped():
                raise OSError(f"stopped after {received / 1e6:.1f} MB")
            if time.monotonic() >= next_message:
                say(f"OCR model of {one.language}: {received / 1e6:.1f} of {total}")
                next_message += _EVERY
    if received < size:
        raise OSError(f"the connection ended after {received:,} of {size:,} bytes")
    return b"".join(parts)


def _prefix(model: Path) -> str:
    return f".{model.name}."


def _remove_left_behind(model: Path) -> None:
    """Remove temporary files of processes that were killed during a download."""
    for place in model.parent.glob(f"{_prefix(model)}*"):
        if time.time() - place.stat().st_mtime > _LEFT_BEHIND:
            place.unlink(missing_ok=True)


# Scripts of recognizers: first words of their characters' Unicode names.


#: A character whose meaning is not known: of a font that names it wrongly, or that the recognizer leaves out.
UNKNOWN = "\ufffd"
#: Letters of any language's text.
_SHARED = (
    *("FULLWIDTH", "HALFWIDTH", "FEMININE", "MASCULINE", "MICRO", "MATHEMATICAL", "MODIFIER", "SCRIPT"),
    *("DOUBLE-STRUCK", "PLANCK"),
)
#: Scripts that the PP-OCRv6 recognizer (rapidocr 3.10) reads. It has Greek letters, too, but 42 to 58 % of the letters
#: of Greek sentences are wrong or missing (benchmarks/truth_factory).
SCRIPTS = frozenset(("LATIN", "CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", *_SHARED))
#: Minimum number of letters of a script in an alphabet; fewer are symbols, such as the Greek letters of formulas.
_LETTERS = 25
#: Fewest adjacent letters of a script that a recognizer does not support, although it has some letters of it.
_FOREIGN = 4


def scripts_of(alphabet: Iterable[str]) -> frozenset[str]:
    """Return the scripts of a recognizer of another language."""
    letters = (c for characters in alphabet for c in characters if c.isalpha())
    counts = Counter(unicodedata.name(c, "?").split(" ", 1)[0] for c in letters)
    return frozenset((*(script for script, count in counts.items() if count >= _LETTERS), *_SHARED))


def has_foreign_words(text: str, scripts: Set[str]) -> bool:
    """Return whether a reading has a word of another script; a few letters of it, as in formulas, are symbols."""
    if text.isascii():
        return False
    words = "".join(
        "x" if c.isalpha() and unicodedata.name(c, "?").split(" ", 1)[0] not in scripts else " " for c in text
    )
    return _FOREIGN * "x" in words


# Order of right-to-left scripts: the recognizers return characters from left to right. rapidocr 3.10 reorders their
# text with python-bidi's `get_display`, which mirrors brackets.


_MIRRORED = dict(zip("()[]{}<>«»", ")(][}{><»«", strict=True))


def logical(words: Sequence[str]) -> list[tuple[int, str]]:
    """Return indices and texts of words in the order of reading; words of left-to-right lines stay as they are.

    Numbers and words of left-to-right scripts keep their direction.
    """
    directions = [_direction(word) for word in words]
    if not any(direction < 0 for direction in directions):
        return list(enumerate(words))
    leftward = sum(directions) < 0
    turned = [
        (index, _turned(word) if direction < 0 or (leftward and direction == 0) else word)
        for index, (word, direction) in enumerate(zip(words, directions, strict=True))
    ]
    parts = [list(part) for _, part in groupby(turned, key=lambda one: (directions[one[0]] > 0) == leftward)]
    if not leftward:
        return [one for part in parts for one in (part[::-1] if any(directions[i] < 0 for i, _ in part) else part)]
    return [one for part in parts[::-1] for one in (part if directions[part[0][0]] > 0 else part[::-1])]


def _direction(word: str) -> int:
    """Return the letters from left to right, less the letters from right to left."""
    kinds = [unicodedata.bidirectional(c) for c in word]
    return kinds.count("L") - kinds.count("R") - kinds.count("AL")


def _turned(word: str) -> str:
    """Return a right-to-left word in the order of reading: reversed, except numbers and Latin letters."""
    kinds = [unicodedata.bidirectional(c) for c in word]
    kept = [kind in ("L", "EN", "AN") for kind in kinds]
    for index, kind in enumerate(kinds):
        around = kept[max(0, index - 1) : index], kept[index + 1 : index + 2]
        if (kind in ("CS", "ES") and all(map(any, around))) or (kind == "ET" and any(map(any, around))):
            kept[index] = True  # 12.5, 50%
    parts = [[word[index] for index in part] for _, part in groupby(range(len(word)), key=kept.__getitem__)]
    found, at = [], len(word)
    for part in reversed(parts):
        at -= len(part)
        found += part if kept[at] else [_MIRRORED.get(c, c) for c in reversed(part)]
    return "".join(found)
