"""Make the example documents again: `python examples/make_examples.py [--output FOLDER]`.

Needs reportlab beside what the project installs. The same versions of the libraries give the same bytes on every run;
`made_with.json` records the versions and a SHA-256 of each file.
"""

import argparse
import hashlib
import importlib.metadata
import json
import platform
import zlib
from collections.abc import Callable
from pathlib import Path

from recipes import fax, invoice, paper, scanner

HERE = Path(__file__).resolve().parent
RECIPES: dict[str, Callable[[], bytes]] = {
    "paper.pdf": paper.make,
    "scan.pdf": scanner.make,
    "fax.tiff": fax.make,
    "invoice.png": invoice.make,
}
LIBRARIES = ("numpy", "pillow", "pypdfium2", "reportlab")


def versions() -> dict[str, str]:
    """What the bytes depend on: the libraries, zlib, and the kind of machine."""
    found = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return found | {"zlib": zlib.ZLIB_RUNTIME_VERSION, "machine": f"{platform.system()} {platform.machine()}"}


def make_all(folder: Path) -> dict[str, str]:
    """Write every example and `made_with.json` into a folder; returns the SHA-256 of each example."""
    folder.mkdir(parents=True, exist_ok=True)
    sums = {}
    for name, make in RECIPES.items():
        data = make()
        (folder / name).write_bytes(data)
        sums[name] = hashlib.sha256(data).hexdigest()
    record = {"versions": versions(), "sha256": sums}
    (folder / "made_with.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return sums


def main() -> None:
    """Parse the command line, make the files, say what was made."""
    parser = argparse.ArgumentParser(description="Make the example documents.")
    parser.add_argument("--output", type=Path, default=HERE, metavar="FOLDER", help="default: beside this script")
    folder = parser.parse_args().output
    for name, digest in make_all(folder).items():
        print(f"{name:12} {(folder / name).stat().st_size:8,} bytes  sha256 {digest[:16]}")


if __name__ == "__main__":
    main()
