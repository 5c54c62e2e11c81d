"""Brings vLLM to a GPU machine without network, in parts that a transfer of 64 MiB takes: 143 MB in three parts.

    python3.12 benchmarks/gpu/pack.py FOLDER [--parts 3] [--add FOLDER2]   here: install wheels.txt, compress, cut
    python3 benchmarks/gpu/pack.py --join STORE ROOT                       there: check, unpack, make an environment

Run the first command with the machine's version of Python: it installs the wheels of that version. What is large and
not needed for DeepSeek-OCR on one Hopper GPU is left out (`_LEFT_OUT`). `--add` puts a folder of your own beside the
environment: the model's folder, PDFs, py-spy. Carry each part over and copy its files into STORE, a folder that stays.
ROOT/v is then an environment over the machine's own packages, with `vllm` in ROOT/v/bin. Every file is checked against
its SHA-256. Needs nothing but Python and pip.
"""

import argparse
import hashlib
import importlib.util
import io
import json
import lzma
import subprocess
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

_LIST = Path(__file__).with_name("wheels.txt")
_SITE = "v/lib/python{}.{}/site-packages".format(*sys.version_info[:2])
#: Files that are compressed apart, in parallel on the other side.
_LARGE = (
    "vllm/_C_stable_libtorch.abi3.so",
    "vllm/_moe_C_stable_libtorch.abi3.so",
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so",
    "xgrammar/libxgrammar_bindings.so",
)
#: FlashAttention 2, kernels of other GPUs and of 8-bit models, the server in Rust, static libraries, and data.
_LEFT_OUT = (
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",
    "vllm/vllm-rs",
    "vllm/third_party/deep_gemm",
    "vllm/third_party/fmha_sm100",
    "xgrammar/lib",
    "mistral_common/data",
    "pycountry/locales",
)
_VLLM = (
    "#!{}\nimport sys\nfrom vllm.entrypoints.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
)


def pack(folder: Path, parts: int, added: Path | None) -> None:
    """Install the wheels, and write the parts."""
    site, packed = folder / "site", folder / "packed"
    packed.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]
    subprocess.run([*words, "--target", str(site), "--requirement", str(_LIST)], check=True)
    archives = [("site.tar.xz", _SITE, site)] + ([("added.tar.xz", ".", added)] if added else [])
    for name, _, source in archives:
        with tarfile.open(packed / name, "w:xz") as archive:
            archive.add(source, ".", filter=_wanted if source == site else None)
    for name in _LARGE:
        (packed / f"{Path(name).name}.xz").write_bytes(lzma.compress((site / name).read_bytes()))
    files = [(name, target) for name, target, _ in archives]
    files += [(f"{Path(name).name}.xz", f"{_SITE}/{name}") for name in _LARGE]
    most = -(-sum((packed / name).stat().st_size for name, _ in files) // parts)
    number, free, listed = 0, most, []
    for name, target in files:
        data, piece = (packed / name).read_bytes(), 0
        digest = hashlib.sha256(data).hexdigest()
        while data:
            number, free = (number, free) if free else (number + 1, most)
            part = folder / f"part-{number}"
            part.mkdir(exist_ok=True)
            (part / f"{name}.{piece:02d}").write_bytes(data[:free])
            data, free, piece = data[free:], free - min(free, len(data)), piece + 1
        listed.append((name, piece, digest, target))
    (folder / f"part-{number}" / "files.json").write_text(json.dumps(listed))
    print(f"{number + 1} parts of {most / 2**20:.0f} MiB in {folder}")


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = member.name.removeprefix("./")
    return None if name in _LARGE or name.startswith(_LEFT_OUT) else member


def unpack(item: tuple[str, int, str, str], store: Path, root: Path) -> None:
    """Join the pieces of one file, and put it into its place. Raises SystemExit for what is missing or damaged."""
    name, pieces, digest, target = item
    try:
        data = b"".join((store / f"{name}.{piece:02d}").read_bytes() for piece in range(pieces))
    except FileNotFoundError as error:
        raise SystemExit(f"a part is missing: {error.filename}") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise SystemExit(f"{name} is damaged: carry its parts over again")
    if name.endswith(".tar.xz"):
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
            archive.extractall(root / target, filter="data")
        return
    (root / target).parent.mkdir(parents=True, exist_ok=True)
    (root / target).write_bytes(lzma.decompress(data))
    (root / target).chmod(0o755)


def join(store: Path, root: Path) -> None:
    """Make the environment in ROOT/v from what all parts brought to STORE."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "v")], check=True)
    with ProcessPoolExecutor() as pool:
        for one in [pool.submit(unpack, item, store, root) for item in json.loads((store / "files.json").read_text())]:
            one.result()
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        raise SystemExit(f"{sys.executable} has no torch: run this with the Python that has it")
    base = Path(torch.origin).parents[1]
    (root / _SITE / "machine.pth").write_text(f"import site; site.addsitedir({str(base)!r})\n")
    program = root / "v" / "bin" / "vllm"
    program.write_text(_VLLM.format(root.absolute() / "v" / "bin" / "python"))
    program.chmod(0o755)
    # Without this each process compiles what it imports: 20 s of the first start.
    subprocess.run([str(root / "v/bin/python"), "-m", "compileall", "-q", "-j", "0", str(root / _SITE)], check=False)
    print(program)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", action="store_true")
    parser.add_argument("--parts", type=int, default=3, metavar="N", help="parts to write (default 3)")
    parser.add_argument("--add", type=Path, metavar="FOLDER", help="files to bring along")
    parser.add_argument("folder", type=Path, metavar="FOLDER|STORE")
    parser.add_argument("root", type=Path, nargs="?", metavar="ROOT")
    given = parser.parse_args()
    if given.join != (given.root is not None):
        parser.error("--join STORE ROOT, or FOLDER alone")
    if given.join:
        join(given.folder, given.root.absolute())
    else:
        pack(given.folder, given.parts, given.add)
    return 0


if __name__ == "__main__":
    sys.exit(main())
