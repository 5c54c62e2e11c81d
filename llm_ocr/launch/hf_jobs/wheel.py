"""The library's wheel, for jobs whose image does not have the library.

What runs in the jobs is what runs here: a checkout is built, an installation is packed again as it stands.
"""

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from llm_ocr.errors import LaunchError, MissingExtra, UsageError

_NAME = re.compile(r"llm_ocr-[A-Za-z0-9.+!_]+-py3-none-any\.whl")
#: What an installer adds to what was in the wheel.
_NOT_OURS = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")
_GIVE_ONE = "Give a wheel with --wheel FILE."


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel's file name and content."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """In hex."""
        return hashlib.sha256(self.data).hexdigest()


def library_wheel(given: str | None = None) -> Wheel:
    """The wheel `given` as a file, else one of the library as it is installed here; it takes seconds to build.

    Raises `UsageError` for a file that is no wheel of the library, `LaunchError` when it cannot be built,
    `MissingExtra` without the package `build`, which a checkout needs.
    """
    if given is not None:
        return _read(check_wheel(given))
    checkout = Path(__file__).parents[3]
    if (checkout / "pyproject.toml").is_file():
        return _built(checkout)
    try:
        return _packed(distribution("llm-ocr"))
    except PackageNotFoundError as error:
        raise LaunchError("llm-ocr is not installed here, so there is nothing to ship", hint=_GIVE_ONE) from error


def check_wheel(given: str) -> Path:
    """The file. Raises `UsageError` where there is none, or none of the library."""
    path = Path(given).expanduser()
    if not path.is_file():
        raise UsageError(f"--wheel {given}: there is no such file")
    if not _NAME.fullmatch(path.name) or not zipfile.is_zipfile(path):
        raise UsageError(f"--wheel {given} is no wheel of llm-ocr (llm_ocr-VERSION-py3-none-any.whl)")
    return path


def _read(path: Path) -> Wheel:
    return Wheel(path.name, path.read_bytes())


def _built(checkout: Path) -> Wheel:
    if find_spec("build") is None:
        raise MissingExtra("the package `build` is not installed", hint=f"pip install build. Or: {_GIVE_ONE}")
    with tempfile.TemporaryDirectory(prefix="llm-ocr-wheel-") as folder:
        words = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(checkout)]
        run = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        made = sorted(Path(folder).glob("*.whl"))
        if run.returncode or not made:
            last = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
            raise LaunchError(f"the library's wheel cannot be built: {''.join(last)}", hint=_GIVE_ONE)
        return _read(made[0])


def _packed(installed: Distribution) -> Wheel:
    """The files of an installation in their order, with one date: the same installation gives the same bytes."""
    folder = f"llm_ocr-{installed.version}.dist-info"
    packed, rows = io.BytesIO(), []
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(installed.files or (), key=str):
            name = file.as_posix()
            if name.startswith("..") or "__pycache__" in name or name in [f"{folder}/{one}" for one in _NOT_OURS]:
                continue
            data = Path(str(installed.locate_file(file))).read_bytes()
            _add(archive, name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append((name, f"sha256={digest}", str(len(data))))
        record = io.StringIO()
        csv.writer(record, lineterminator="\n").writerows([*rows, (f"{folder}/RECORD", "", "")])
        _add(archive, f"{folder}/RECORD", record.getvalue().encode())
    return Wheel(f"llm_ocr-{installed.version}-py3-none-any.whl", packed.getvalue())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)
