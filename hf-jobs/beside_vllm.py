"""Check that the library installs next to vLLM's packages and changes none of them.

    python hf-jobs/beside_vllm.py PACKAGES_FOLDER [--uv PROGRAM]

PACKAGES_FOLDER holds one file per release of vLLM, `VERSION.txt`, with the packages of its image as `NAME==VERSION`
lines. Each file becomes the constraints of a resolution of `pyproject.toml` with the extras that jobs install,
restricted to the versions that the index had on that release's day. Prints a Markdown table. Exit codes: 1 if a release
conflicts, 3 if nothing could be resolved, as without a network.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

#: When each release came to the package index (its upload time there), and the Python of its image.
RELEASED = {
    "0.29.0": "2026-09-09",
    "0.30.0": "2026-09-22",
    "0.31.0": "2026-10-05",
    "0.32.0": "2026-10-18",
    "0.33.0": "2026-11-02",
}
PYTHON = "3.12"
#: What a job on a workspace of any store may install next to vLLM.
EXTRAS = ("s3", "gcs", "filters")
_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


@dataclass(frozen=True)
class Resolution:
    """What a resolution found: the packages to add, or why there is none."""

    added: tuple[str, ...] = ()
    conflict: str = ""


def pins(text: str) -> dict[str, str]:
    """Return versions by normalized name from `NAME==VERSION` lines."""
    found = (_PIN.match(line.strip()) for line in text.splitlines())
    return {re.sub(r"[-_.]+", "-", pin[1]).lower(): pin[2] for pin in found if pin}


def resolve(uv: str, project: Path, image: Path) -> Resolution:
    """Resolve the project next to the packages of an image, as of the day of its release."""
    held = pins(image.read_text())
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in held.items()))
        words = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-config"]
        words += ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"]
        words += ["--exclude-newer", f"{RELEASED[image.stem]}T23:59:59Z", "--constraint", str(constraints)]
        words += [word for extra in EXTRAS for word in ("--extra", extra)]
        run = subprocess.run([*words, str(project)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode and "No solution found" not in run.stderr:
        print(run.stderr.strip(), file=sys.stderr)
        sys.exit(3)
    if run.returncode:
        return Resolution(conflict=run.stderr.strip())
    added = {name: version for name, version in pins(run.stdout).items() if held.get(name) != version}
    if changed := sorted(added.keys() & held.keys()):
        return Resolution(conflict=f"changes {', '.join(changed)}")
    return Resolution(tuple(f"{name} {version}" for name, version in sorted(added.items())))


def main() -> int:
    """Resolve next to each release and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", type=Path, help="folder with one VERSION.txt per release of vLLM")
    parser.add_argument("--uv", default="uv", help="the program uv")
    given = parser.parse_args()
    project = Path(__file__).parents[1] / "pyproject.toml"
    images = [given.packages / f"{version}.txt" for version in RELEASED]
    if missing := [str(image) for image in images if not image.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    print("| vLLM | released | its huggingface_hub | the library | packages added |\n|---|---|---|---|---|")
    failed = []
    with ThreadPoolExecutor() as pool:  # each waits for the index
        resolutions = list(pool.map(partial(resolve, given.uv, project), images))
    for image, found in zip(images, resolutions, strict=True):
        hub = pins(image.read_text())["huggingface-hub"]
        verdict = "conflicts" if found.conflict else "installs"
        print(f"| {image.stem} | {RELEASED[image.stem]} | {hub} | {verdict} | {len(found.added)} |", flush=True)
        if found.conflict:
            failed.append(f"{image.stem}: {found.conflict}")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
