"""Run the programs of a platform (Slurm's, Beaker's), and read from its output why a program ended."""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence

from llm_ocr.errors import LaunchError

#: Seconds until a program that does not answer is given up.
PATIENCE = 120.0


def run_program(
    words: Sequence[str],
    *,
    stdin: str = "",
    absent: str = "",
    hints: Mapping[str, str] | None = None,
    offers: Callable[[], str] | None = None,
) -> str:
    """What the program prints.

    Raises `LaunchError`: with the hint `absent` when it is not installed, else with its own words and the first of
    `hints` whose key stands in them (any case); for an empty one `offers` is asked.
    """
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except FileNotFoundError as error:
        raise LaunchError(f"{words[0]} is not installed on this machine", hint=absent) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{words[0]} has not answered for {PATIENCE:.0f} s") from error
    if not done.returncode:
        return done.stdout
    said = " ".join((done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").split())
    found = next((hint for word, hint in (hints or {}).items() if word in said.casefold()), None)
    raise LaunchError(f"{words[0]}: {said}", hint=_offered(offers) if found == "" else found or "")


def _offered(offers: Callable[[], str] | None) -> str:
    try:
        return offers() if offers else ""
    except LaunchError:
        return ""  # the first error is what the user needs


#: Lines that hold a command's last message: it writes its error last, with a hint below.
ENOUGH = 12
_OURS = "llm-ocr: "


def last_words(lines: Iterable[str]) -> str:
    """Return the last message of our command with its hint, as one line; of another program its last line; or ""."""
    kept = [line.strip() for line in lines if line.strip()][-ENOUGH:]
    start = max((place for place, line in enumerate(kept) if line.startswith(_OURS)), default=len(kept) - 1)
    return " ".join(kept[max(start, 0) :]).removeprefix(_OURS)
