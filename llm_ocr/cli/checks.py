"""The checks of `llm-ocr doctor`. Each looks at the real thing: imports, renders, links a file."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from llm_ocr.errors import install_command
from llm_ocr.settings import environment

_POPPLER = "apt-get install poppler-utils (Debian, Ubuntu) or brew install poppler (macOS)"
#: Free space and memory below which the user is told, in bytes.
LITTLE_DISK, LITTLE_MEMORY = 1 << 30, 2 << 30


class State(StrEnum):
    """How a check ended."""

    WORKS = "works"
    LIMITED = "limited"  # works, with something to know
    MISSING = "missing"
    BROKEN = "broken"  # installed, fails


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report. `needed`: the embedded engine does not work without it."""

    name: str
    state: State
    detail: str
    fix: str = ""
    needed: bool = False


def all_checks(*, confined: bool = True) -> list[Check]:
    """All checks, in the order of the report; not `confined`: workers are told to keep what the kernel could take."""
    checks: tuple[Callable[[], Check], ...] = (
        python,
        cores,
        memory,
        disk,
        hard_links,
        pdfium,
        pillow,
        partial(isolation, confined=confined),
        ocr,
        dataset,
        poppler,
        notebook,
        vllm,
        detector,
        gpu,
    )
    return [check() for check in checks]


def python() -> Check:
    """3.11 to 3.13, on Linux or macOS."""
    here = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform == "win32":
        return Check("Python", State.BROKEN, here, "Use WSL2: Windows itself is not supported.", needed=True)
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("Python", State.LIMITED, here, "Tested with Python 3.11 to 3.13.", needed=True)
    return Check("Python", State.WORKS, here, needed=True)


def cores() -> Check:
    """Cores that this process may use, a container's share included."""
    count = environment.cores()
    share = _cpu_share()
    if share is not None and share < count:
        return Check("cores", State.LIMITED, f"{count}, limited to {share:g} by the container")
    return Check("cores", State.WORKS, str(count))


def memory() -> Check:
    """Memory of the machine, or the container's limit where that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _memory_limit()
    usable = min(total, limit or total)
    text = _gib(usable) + (f" (container limit; the machine has {_gib(total)})" if usable < total else "")
    if usable < LITTLE_MEMORY:
        return Check("memory", State.LIMITED, text, "Little: use --ocr-workers 1 --render-workers 1")
    return Check("memory", State.WORKS, text)


def disk() -> Check:
    """Free space where the command was started: the default workspace goes there."""
    free = shutil.disk_usage(".").free
    text = f"{_gib(free)} free in {Path.cwd()}"
    if free < LITTLE_DISK:
        return Check("disk", State.LIMITED, text, "Little: give a workspace elsewhere with -w")
    return Check("disk", State.WORKS, text)


def hard_links() -> Check:
    """A workspace needs them: that is how a result is published once."""
    try:
        with tempfile.TemporaryDirectory(prefix=".llm-ocr-doctor-", dir=".") as folder:
            first = Path(folder) / "a"
            first.touch()
            os.link(first, Path(folder) / "b")
    except OSError as error:
        reason = error.strerror or str(error)
        return Check("hard links", State.LIMITED, f"not here: {reason}", "Give a workspace on another disk with -w")
    return Check("hard links", State.WORKS, "work in this folder")


def pdfium() -> Check:
    """Renders a page of a new document."""

    def render() -> str:
        import pypdfium2

        document = pypdfium2.PdfDocument.new()
        document.new_page(100, 100).render(scale=1)
        document.close()
        return ""

    return _tried("pypdfium2", ("pypdfium2",), "renders PDF pages", render, install_command("pypdfium2"))


def pillow() -> Check:
    """Reads and writes images."""

    def load() -> str:
        from PIL import features

        lacking = [name for name in ("jpg", "zlib", "libtiff", "webp") if not features.check(name)]
        return f"without {', '.join(lacking)}" if lacking else ""

    return _tried("Pillow", ("pillow",), "reads and writes images", load, "pip install --upgrade pillow")


def isolation(*, confined: bool = True) -> Check:
    """What the kernel enforces on the processes that open documents: tried in one."""
    if not confined:
        text = "processes that open documents: limits only; the rest is switched off (confinement is off)"
        return Check("isolation", State.LIMITED, text, "Unset LLM_OCR_CONFINEMENT, or open trusted documents only")
    words = [sys.executable, "-P", "-m", "llm_ocr.processes.confinement", "pdftoppm", "pdfinfo"]
    environ = environment.worker_environment()
    try:
        answer = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
        found: dict[str, bool] = json.loads(answer)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Check("isolation", State.BROKEN, f"cannot be tried: {type(error).__name__}")
    active = ", ".join(name for name, there in found.items() if there)
    lacking = ", ".join(name for name, there in found.items() if not there)
    if not lacking:
        return Check("isolation", State.WORKS, f"processes that open documents: {active}")
    text = f"processes that open documents: {active or 'limits only'}; not offered by this system: {lacking}"
    return Check("isolation", State.LIMITED, text, "Open documents of strangers in a container, or as another user")


def ocr() -> Check:
    """RapidOCR and onnxruntime: scans need them, PDFs with a true text layer do not."""

    def load() -> str:
        import onnxruntime  # noqa: F401
        import rapidocr  # noqa: F401

        return ""

    return _tried("OCR", ("rapidocr", "onnxruntime"), "reads scans", load, install_command("embedded"))


def dataset() -> Check:
    """Check pyarrow, which stores results."""

    def load() -> str:
        import pyarrow.parquet  # noqa: F401

        return ""

    return _tried("dataset", ("pyarrow",), "stores results", load, install_command("pyarrow"))


def poppler() -> Check:
    """Optional: a second renderer."""
    found = shutil.which("pdftoppm")
    if found is None:
        return Check("poppler", State.MISSING, "optional: a second chance for PDFs that pdfium cannot open", _POPPLER)
    return Check("poppler", State.WORKS, found)


def notebook() -> Check:
    """Optional: display helpers."""
    return _optional("IPython", "ipython", "shows results in notebooks", "pip install ipykernel")


def vllm() -> Check:
    """For a server of our own. Other installations are reached with --vllm-command, servers with --server-url."""
    version = package_version("vllm")
    if version is None:
        fix = f"{install_command('vllm')}, on a machine with a GPU"
        return Check("vLLM", State.MISSING, "needed for --engine vllm", fix)
    return Check("vLLM", State.WORKS, version)


def detector() -> Check:
    """For models that are asked by regions (glm-ocr, paddleocr-vl), and --layout-first."""
    lacking = [name for name in ("torch", "transformers") if package_version(name) is None]
    if lacking:
        text = f"optional: finds regions of pages (--layout-first); {', '.join(lacking)} not installed"
        return Check("layout detector", State.MISSING, text, install_command("detector"))
    text = f"torch {package_version('torch')}, transformers {package_version('transformers')}: finds regions of pages"
    return Check("layout detector", State.WORKS, text)


def gpu() -> Check:
    """What nvidia-smi says."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check("GPU", State.MISSING, "no nvidia-smi; the embedded engine needs none")
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Check("GPU", State.BROKEN, f"nvidia-smi fails: {type(error).__name__}")
    return Check("GPU", State.WORKS, "; ".join(answer.strip().splitlines()))


def _tried(name: str, packages: tuple[str, ...], use: str, attempt: Callable[[], str], fix: str) -> Check:
    """A needed part: its packages are installed and the attempt succeeds; the attempt may return a remark."""
    versions = {package: package_version(package) for package in packages}
    lacking = [package for package, version in versions.items() if version is None]
    if lacking:
        return Check(name, State.MISSING, f"{', '.join(lacking)} not installed: {use}", fix, needed=True)
    try:
        remark = attempt()
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Check(name, State.BROKEN, f"installed, does not work: {reason}", fix, needed=True)
    text = ", ".join(f"{package} {version}" for package, version in versions.items())
    if remark:
        return Check(name, State.LIMITED, f"{text}, {remark}", fix, needed=True)
    return Check(name, State.WORKS, f"{text}: {use}", needed=True)


def _optional(name: str, package: str, use: str, fix: str) -> Check:
    version = package_version(package)
    if version is None:
        return Check(name, State.MISSING, f"optional: {use}", fix)
    return Check(name, State.WORKS, f"{version}: {use}")


def package_version(package: str) -> str | None:
    """The version of an installed package, None when it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_limit() -> int | None:
    """The container's memory limit in bytes (cgroup v2, then v1)."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _cgroup(name)
        if text.isdigit():
            return int(text)
    return None


def _cpu_share() -> float | None:
    """Cores that the container may use at once (cgroup v2)."""
    quota, _, period = _cgroup("cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _cgroup(name: str) -> str:
    try:
        return (Path("/sys/fs/cgroup") / name).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
