"""Brings vLLM to a GPU machine without network, in pieces that a transfer of 64 MiB takes.

    python benchmarks/gpu/pack.py FOLDER              here: download wheels.txt, cut into FOLDER/part-00, part-01 ...
    python benchmarks/gpu/pack.py --join STORE SITE   there: join what all parts brought to STORE, install into SITE

Carry each part over and copy its files into STORE, a folder that stays. `export PYTHONPATH=SITE` then, and vLLM is
SITE/bin/vllm. Needs nothing but Python and pip. Every piece and every joined wheel is checked against its SHA-256.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

#: Bytes of a part: transfers of 64 MiB also hold the working tree.
PART = 56 * 2**20
#: Of the machine that is packed for; pip takes each manylinux tag for itself only.
PYTHON = "3.12"
PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(5, 41)), "manylinux2014_x86_64", "manylinux1_x86_64")
_LIST = Path(__file__).with_name("wheels.txt")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a wheel; `file` is its name in a part."""

    wheel: str
    number: int
    size: int
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.wheel}.{self.number:03d}"


def download(folder: Path) -> list[Path]:
    """The wheels of wheels.txt."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", PYTHON, "--implementation", "cp", "--dest", str(folder), "--requirement", str(_LIST)]
    subprocess.run([*words, *(word for tag in PLATFORMS for word in ("--platform", tag))], check=True)
    return sorted(folder.glob("*.whl"))


def stretches(sizes: list[int], part: int) -> Iterator[tuple[int, int, int, int]]:
    """How files of these sizes go into parts: number of the part, of the file, first byte, bytes."""
    number, free = 0, part
    for file, size in enumerate(sizes):
        start = 0
        while start < size:
            if free == 0:
                number, free = number + 1, part
            taken = min(free, size - start)
            yield number, file, start, taken
            start, free = start + taken, free - taken


def pack(folder: Path, part: int = PART) -> int:
    """Download and cut; returns how many parts there are."""
    wheels = download(folder / "wheels")
    parts: dict[int, list[Piece]] = {}
    counts = dict.fromkeys(wheels, 0)
    for number, file, start, size in stretches([wheel.stat().st_size for wheel in wheels], part):
        wheel = wheels[file]
        with wheel.open("rb") as source:
            source.seek(start)
            data = source.read(size)
        piece = Piece(wheel.name, counts[wheel], size, hashlib.sha256(data).hexdigest())
        counts[wheel] += 1
        target = folder / f"part-{number:02d}"
        target.mkdir(exist_ok=True)
        (target / piece.file).write_bytes(data)
        parts.setdefault(number, []).append(piece)
    listed = {wheel.name: _sha256(wheel) for wheel in wheels}
    for number, pieces in parts.items():
        head = {"part": number, "parts": len(parts), "wheels": listed, "pieces": [asdict(piece) for piece in pieces]}
        (folder / f"part-{number:02d}" / f"part-{number:02d}.json").write_text(json.dumps(head))
    return len(parts)


def join(store: Path) -> list[Path]:
    """The whole wheels, from the pieces of all parts. Raises SystemExit for what is missing or damaged."""
    heads = [json.loads(file.read_text()) for file in sorted(store.glob("part-*.json"))]
    expected = heads[0]["parts"] if heads else 1
    if missing := sorted(set(range(expected)) - {head["part"] for head in heads}):
        raise SystemExit(f"{store}: parts {missing} of {expected} are missing")
    pieces = sorted((Piece(**piece) for head in heads for piece in head["pieces"]), key=lambda piece: piece.file)
    joined = store / "joined"
    joined.mkdir(exist_ok=True)
    for piece in pieces:
        data = (store / piece.file).read_bytes()
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            raise SystemExit(f"{store / piece.file} is damaged: carry its part over again")
        with (joined / piece.wheel).open("ab" if piece.number else "wb") as out:
            out.write(data)
    wheels: dict[str, str] = heads[0]["wheels"]
    for name, sha256 in wheels.items():
        if _sha256(joined / name) != sha256:
            raise SystemExit(f"{joined / name} does not come out as it was")
    return [joined / name for name in wheels]


def install(wheels: list[Path], site: Path) -> None:
    """Into a folder of their own, over what the machine has."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    words += ["--no-cache-dir", "--upgrade", "--target", str(site)]
    subprocess.run([*words, *map(str, wheels)], check=True)


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--join", action="store_true")
    parser.add_argument("folder", type=Path, metavar="FOLDER|STORE")
    parser.add_argument("site", type=Path, nargs="?", metavar="SITE")
    given = parser.parse_args()
    if given.join != (given.site is not None):
        parser.error("--join STORE SITE, or FOLDER alone")
    if given.join:
        wheels = join(given.folder)
        install(wheels, given.site)
        print(f"{len(wheels)} wheels in {given.site}")
    else:
        print(f"{pack(given.folder)} parts in {given.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
