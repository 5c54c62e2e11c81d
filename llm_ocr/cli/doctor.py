"""llm-ocr doctor: check this machine, name missing parts, and print the command that installs them.

Each check tries the real thing: imports, renders, links a file.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from llm_ocr.checks import Check, State, optional, package_version, tried
from llm_ocr.cli.output import aligned, write_json, write_line
from llm_ocr.config import environment
from llm_ocr.config.groups import EMBEDDED
from llm_ocr.config.models import DoctorSettings
from llm_ocr.errors import install_command
from llm_ocr.plugins import ENGINES

_POPPLER = "apt-get install poppler-utils (Debian, Ubuntu) or brew install poppler (macOS)"
_CJK_FONT = "apt-get install fonts-noto-cjk (Debian, Ubuntu)"
#: Free space and memory in bytes below which the user is warned.
LITTLE_DISK, LITTLE_MEMORY = 1 << 30, 2 << 30


def python() -> Check:
    """Check for Python 3.11 to 3.13, on Linux or macOS."""
    here = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform == "win32":
        return Check("Python", State.BROKEN, here, "Use WSL2; Windows itself is not supported.", needed=True)
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("Python", State.LIMITED, here, "Tested with Python 3.11 to 3.13.", needed=True)
    return Check("Python", State.WORKS, here, needed=True)


def cores() -> Check:
    """Report the cores that this process may use, a container's limit included."""
    count = environment.cores()
    quota, _, period = _cgroup("cpu.max").partition(" ")  # cgroup v2
    if quota.isdigit() and period.isdigit() and int(period) and int(quota) / int(period) < count:
        return Check("cores", State.LIMITED, f"{count}, limited to {int(quota) / int(period):g} by the container")
    return Check("cores", State.WORKS, str(count))


def memory() -> Check:
    """Report the memory of the machine, or the container's limit if lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = map(_cgroup, ("memory.max", "memory/memory.limit_in_bytes"))  # cgroup v2, then v1
    limit = next((int(text) for text in limits if text.isdigit()), 0)
    usable = min(total, limit or total)
    text = _gib(usable) + (f" (container limit; the machine has {_gib(total)})" if usable < total else "")
    if usable < LITTLE_MEMORY:
        return Check("memory", State.LIMITED, text, "Low memory: use --ocr-workers 1 --render-workers 1")
    return Check("memory", State.WORKS, text)


def disk() -> Check:
    """Report the free space in the current folder, which is the place of the default workspace."""
    free = shutil.disk_usage(".").free
    text = f"{_gib(free)} free in {Path.cwd()}"
    if free < LITTLE_DISK:
        return Check("disk", State.LIMITED, text, "Low disk space: choose a workspace on another disk with -w")
    return Check("disk", State.WORKS, text)


def hard_links() -> Check:
    """Check hard links: a workspace needs them to publish a result exactly once."""
    try:
        with tempfile.TemporaryDirectory(prefix=".llm-ocr-doctor-", dir=".") as folder:
            first = Path(folder) / "a"
            first.touch()
            os.link(first, Path(folder) / "b")
    except OSError as error:
        reason = error.strerror or str(error)
        return Check(
            "hard links", State.LIMITED, f"not in this folder: {reason}", "Choose a workspace on another disk with -w"
        )
    return Check("hard links", State.WORKS, "work in this folder")


def pdfium() -> Check:
    """Render a page of a new document."""

    def render() -> str:
        import pypdfium2

        document = pypdfium2.PdfDocument.new()
        document.new_page(100, 100).render(scale=1)
        document.close()
        return ""

    return tried("pypdfium2", ("pypdfium2",), "renders PDF pages", render, install_command("pypdfium2"))


def pillow() -> Check:
    """Write and read an image."""

    def load() -> str:
        from PIL import features

        lacking = [name for name in ("jpg", "zlib", "libtiff", "webp", "jpg_2000", "avif") if not features.check(name)]
        return f"without {', '.join(lacking)}" if lacking else ""

    return tried("Pillow", ("pillow",), "reads and writes images", load, "pip install --upgrade pillow")


def isolation(*, confined: bool = True) -> Check:
    """Report the restrictions that the kernel enforces on processes that open documents, tested in one process."""
    if not confined:
        text = "processes that open documents: memory and time limits only (confinement is off)"
        return Check("isolation", State.LIMITED, text, "Unset LLM_OCR_CONFINEMENT, or open trusted documents only")
    words = [sys.executable, "-P", "-m", "llm_ocr.sandbox.confinement", "pdftoppm", "pdfinfo"]
    environ = environment.worker_environment()
    try:
        answer = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
        found: dict[str, bool] = json.loads(answer)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Check("isolation", State.BROKEN, f"cannot be tested: {type(error).__name__}")
    active = ", ".join(name for name, there in found.items() if there)
    lacking = ", ".join(name for name, there in found.items() if not there)
    if not lacking:
        return Check("isolation", State.WORKS, f"processes that open documents: {active}")
    text = f"processes that open documents: {active or 'limits only'}; not supported by this system: {lacking}"
    return Check("isolation", State.LIMITED, text, "Open untrusted documents in a container, or as another user")


def dataset() -> Check:
    """Check pyarrow, which stores results."""

    def load() -> str:
        import pyarrow.parquet  # noqa: F401

        return ""

    return tried("dataset", ("pyarrow",), "stores results", load, install_command("pyarrow"))


def poppler() -> Check:
    """Check poppler, an optional second renderer."""
    found = shutil.which("pdftoppm")
    if found is None:
        return Check("poppler", State.MISSING, "optional: fallback for PDFs that pdfium cannot open", _POPPLER)
    return Check("poppler", State.WORKS, found)


#: A page with an ideograph (U+4E00) in a Japanese font that is not in the file.
_IDEOGRAPH = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 40 40]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj
4 0 obj<</Length 37>>stream
BT /F 20 Tf 10 10 Td <4E004E00> Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type0/BaseFont/HeiseiMin-W3/Encoding/UniJIS-UCS2-H/DescendantFonts[6 0 R]>>endobj
6 0 obj<</Type/Font/Subtype/CIDFontType0/BaseFont/HeiseiMin-W3/FontDescriptor 7 0 R
/CIDSystemInfo<</Registry(Adobe)/Ordering(Japan1)/Supplement 2>>>>endobj
7 0 obj<</Type/FontDescriptor/FontName/HeiseiMin-W3/Flags 4/FontBBox[0 -200 1000 900]/ItalicAngle 0/Ascent 800
/Descent -200/CapHeight 700/StemV 90>>endobj
trailer<</Root 1 0 R>>
%%EOF"""


def cjk_font() -> Check:
    """Draw an ideograph of a font that is not in the file: many Chinese, Japanese, and Korean PDFs have such text."""
    use = "draws Chinese, Japanese, and Korean text whose fonts are not in the PDF"
    try:
        import pypdfium2

        page = pypdfium2.PdfDocument(_IDEOGRAPH)[0]
        drawn = len(set(bytes(page.render(scale=1, grayscale=True).buffer))) > 1
    except (ImportError, OSError, RuntimeError) as error:
        return Check(
            "CJK font", State.MISSING, f"not tested, because pypdfium2 fails: {error}", install_command("pypdfium2")
        )
    if not drawn:
        return Check("CJK font", State.MISSING, f"optional: {use}. Without it, their text layer is used", _CJK_FONT)
    return Check("CJK font", State.WORKS, use)


def notebook() -> Check:
    """Check the optional display helpers."""
    return optional("IPython", "ipython", "shows results in notebooks", "pip install ipykernel")


def vllm() -> Check:
    """Check vLLM for started servers. --vllm-command uses other installations, and --server-url running servers."""
    version = package_version("vllm") or shutil.which("vllm")  # a program of another Python starts servers, too
    if version is None:
        fix = f"{install_command('vllm')}, on a machine with a GPU"
        return Check("vLLM", State.MISSING, "needed for --engine vllm", fix)
    return Check("vLLM", State.WORKS, version)


def detector() -> Check:
    """Check the detector for models that read regions (glm-ocr, paddleocr-vl), and for --layout-first."""
    lacking = [name for name in ("torch", "transformers") if package_version(name) is None]
    if lacking:
        text = f"optional: finds regions of pages (--layout-first); {', '.join(lacking)} not installed"
        return Check("layout detector", State.MISSING, text, install_command("detector"))
    text = f"torch {package_version('torch')}, transformers {package_version('transformers')}: finds regions of pages"
    return Check("layout detector", State.WORKS, text)


def gpu() -> Check:
    """Report the GPUs that nvidia-smi lists."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check("GPU", State.MISSING, "nvidia-smi not found; the embedded engine needs no GPU")
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Check("GPU", State.BROKEN, f"nvidia-smi fails: {type(error).__name__}")
    return Check("GPU", State.WORKS, "; ".join(answer.strip().splitlines()))


def _cgroup(name: str) -> str:
    try:
        return (Path("/sys/fs/cgroup") / name).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


# Checks of platforms in `llm-ocr doctor`: client packages, and whether a login exists. The value of a login is never
# printed, and no platform is contacted. A cloud machine may have its own account, which these checks do not see.


@dataclass(frozen=True, slots=True)
class Account:
    """Places where a platform's client looks for its login: any of these sets of variables, or any of these files."""

    name: str
    package: str
    extra: str  # "" if the library includes the package
    use: str
    variables: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]  # `~` is the home folder, `$NAME` a variable
    login: str  # command that creates a login


_GOOGLE = (
    "$GOOGLE_APPLICATION_CREDENTIALS",
    "$CLOUDSDK_CONFIG/application_default_credentials.json",
    "~/.config/gcloud/application_default_credentials.json",
)
_GOOGLE_LOGIN = "gcloud auth application-default login"
ACCOUNTS = (
    Account(
        "Hugging Face",
        "huggingface_hub",
        "",
        "datasets, HF Jobs",
        (("HF_TOKEN",), ("HUGGING_FACE_HUB_TOKEN",)),
        ("$HF_TOKEN_PATH", "$HF_HOME/token", "$XDG_CACHE_HOME/huggingface/token", "~/.cache/huggingface/token"),
        "hf auth login",
    ),
    Account(
        "AWS",
        "boto3",
        "s3",
        "S3, SageMaker",
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("AWS_PROFILE",), ("AWS_WEB_IDENTITY_TOKEN_FILE",)),
        ("$AWS_SHARED_CREDENTIALS_FILE", "$AWS_CONFIG_FILE", "~/.aws/credentials", "~/.aws/config"),
        "aws configure",
    ),
    Account("Google Cloud storage", "google-cloud-storage", "gcs", "gs://", (), _GOOGLE, _GOOGLE_LOGIN),
    Account("Google Cloud Run", "google-cloud-run", "cloud-run", "Cloud Run", (), _GOOGLE, _GOOGLE_LOGIN),
    Account(
        "Kubernetes",
        "kubernetes",
        "kubernetes",
        "Kubernetes",
        (("KUBECONFIG",), ("KUBERNETES_SERVICE_HOST",)),
        ("~/.kube/config",),
        "kubectl config use-context NAME",
    ),
    Account(
        "Modal",
        "modal",
        "modal",
        "Modal",
        (("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"),),
        ("$MODAL_CONFIG_PATH", "~/.modal.toml"),
        "modal setup",
    ),
)


def account_check(account: Account, here: Mapping[str, str]) -> Check:
    """Check a client's package and login in the environment `here`."""
    version = package_version(account.package)
    found = login_found(account, here)
    login = f"login: {found}" if found else "no login found"
    if version is None:
        fix = install_command(account.extra or account.package)
        return Check(account.name, State.MISSING, f"optional: {account.use}; {login}", fix)
    if not found:
        return Check(account.name, State.LIMITED, f"{account.package} {version}: {account.use}; {login}", account.login)
    return Check(account.name, State.WORKS, f"{account.package} {version}: {account.use}; {login}")


def login_found(account: Account, here: Mapping[str, str]) -> str:
    """Return the names of the variables or the file that hold a login; "" for none."""
    for names in account.variables:
        if all(here.get(name) for name in names):
            return ", ".join(names)
    for file in account.files:
        first, _, rest = file.partition("/")
        start = here.get("HOME", "") if first == "~" else here.get(first.removeprefix("$"), "")
        try:
            found = bool(start) and Path(start, rest).stat().st_size > 0 and Path(start, rest).is_file()
        except OSError:
            continue
        if found:
            return first if file.startswith("$") else file
    return ""


_MARKS = {State.WORKS: "ok", State.LIMITED: "note", State.MISSING: "missing", State.BROKEN: "broken"}


def run_doctor(command: str, settings: DoctorSettings) -> int:
    """Print the checks; return 0 if the embedded engine works, otherwise 1."""
    here = environment.environment()
    checks = [
        *(python(), cores(), memory(), disk(), hard_links(), pdfium(), pillow()),
        isolation(confined=settings.confinement != "off"),
        *ENGINES.get(EMBEDDED).checks(),
        *(dataset(), poppler(), cjk_font(), notebook(), vllm(), detector(), gpu()),
        *(account_check(account, here) for account in ACCOUNTS),
    ]
    works = engine_works(checks)
    if settings.json_output:
        write_json({"embedded_engine": works, "checks": [asdict(check) for check in checks]})
        return 0 if works else 1
    if not settings.quiet:
        write_line(table(checks))
    write_line(verdict(checks))
    return 0 if works else 1


def engine_works(checks: list[Check]) -> bool:
    """Return whether all parts that the embedded engine needs are present."""
    return all(check.state in (State.WORKS, State.LIMITED) for check in checks if check.needed)


def verdict(checks: list[Check]) -> str:
    """Return the last line."""
    if engine_works(checks):
        return "The embedded engine works on this machine. Try: llm-ocr demo"
    lacking = [check for check in checks if check.needed and check.state not in (State.WORKS, State.LIMITED)]
    fixes = list(dict.fromkeys(check.fix for check in lacking if check.fix))
    names = ", ".join(dict.fromkeys(check.name for check in lacking))
    return f"The embedded engine does not work on this machine: {names}." + (
        f" Fix: {'; '.join(fixes)}" if fixes else ""
    )


def table(checks: list[Check]) -> str:
    """Return one line per check, followed by its remedy."""
    mark = max(map(len, _MARKS.values()))
    rows = []
    for check in checks:
        rows.append((f"{_MARKS[check.state]:<{mark}}", check.name, check.detail))
        if check.fix and check.state is not State.WORKS:
            rows.append(("", "", f"-> {check.fix}"))
    return "\n".join(line.rstrip() for line in aligned(rows))
