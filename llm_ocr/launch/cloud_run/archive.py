"""A source archive from which Google builds an image: the files that a Dockerfile copies, and the Dockerfile itself.

Google's build takes no build arguments: they become the defaults of the Dockerfile in the archive.
"""

import gzip
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from llm_ocr.errors import UsageError

#: What the Dockerfiles copy.
_COPIED = ("pyproject.toml", "README.md", "LICENSE", "examples", "llm_ocr", "docker/install.py")

_VALUE = re.compile(r"[\w./:@ +-]+")


def archive(root: Path, dockerfile: str, arguments: Mapping[str, str]) -> bytes:
    """The archive (gzip), the same bytes for the same files. Raises `UsageError`."""
    if not (root / dockerfile).is_file():
        raise UsageError(
            f"{root / dockerfile} is not there",
            hint="Run this at the root of the repository, or give --context FOLDER.",
        )
    text = with_arguments((root / dockerfile).read_text(encoding="utf-8"), arguments)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        _add(tar, "Dockerfile", text.encode())
        for name, path in _files(root):
            _add(tar, name, path.read_bytes())
    return gzip.compress(packed.getvalue(), mtime=0)


def with_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """The Dockerfile with other defaults. Raises `UsageError` for arguments that it does not take."""
    for name, value in arguments.items():
        if not _VALUE.fullmatch(value):
            raise UsageError(f"--build-arg {name}: {value!r} holds characters that an image's name does not have")
        dockerfile, found = re.subn(
            rf"^ARG {re.escape(name)}(=.*)?$", f'ARG {name}="{value}"', dockerfile, count=1, flags=re.MULTILINE
        )
        if not found:
            raise UsageError(f"--build-arg {name}: the Dockerfile has no such argument")
    if open_ones := re.findall(r"^ARG (\w+)$", dockerfile.partition("\nFROM ")[0], re.MULTILINE):
        raise UsageError(f"the Dockerfile needs --build-arg {open_ones[0]}=VALUE", hint="docker/README.md says which.")
    return dockerfile


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for one in _COPIED:
        start = root / one
        if not start.exists():
            raise UsageError(f"{start} is not there", hint="Run this at the root of the repository.")
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".env"):
                yield path.relative_to(root).as_posix(), path


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    tar.addfile(info, io.BytesIO(data))
