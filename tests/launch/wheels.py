"""Wheels of packages that only tests have."""

import base64
import hashlib
import zipfile
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, needs: str = "", files: dict[str, str] | None = None, more: str = ""
) -> Path:
    """Write a wheel and return its path.

    Args:
        folder: Folder of the file.
        name: Name of the package.
        version: Version of the package.
        needs: A requirement.
        files: Files with their texts; by default a module with the version.
        more: Further lines of the metadata.
    """
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    metadata += more
    held = {
        **({f"{name}.py": f"version = {version!r}\n"} if files is None else files),
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in held.items():
            archive.writestr(place, text)
        rows = [f"{place},sha256={_digest(text)},{len(text)}\n" for place, text in held.items()]
        archive.writestr(f"{about}/RECORD", "".join(rows) + f"{about}/RECORD,,\n")
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
