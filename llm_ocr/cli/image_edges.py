"""What some packages of an image ask of others, and the mismatches that are known to do no harm.

Not `pip check`: that fails on any mismatch of any package, the known ones among them.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.cli.checks import Check, State
from llm_ocr.cli.image_site import Site
from llm_ocr.errors import UsageError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: Those that decide whether a server starts: package -> the packages that it needs in the right version.
EDGES: tuple[tuple[str, str], ...] = (
    ("vllm", "tokenizers"),
    ("vllm", "transformers"),
    ("transformers", "huggingface_hub"),
    ("transformers", "tokenizers"),
    ("transformers", "tqdm"),
)
_FIELDS = ("package", "needs", "specifier", "reason")


@dataclass(frozen=True, slots=True)
class Allowed:
    """One specifier that `package` asks of `needs`, and why it need not hold."""

    package: str
    needs: str
    specifier: str
    reason: str


def allowed_edges(file: Path | None) -> tuple[Allowed, ...]:
    """The entries of an allowlist; None: our own. Raises `UsageError` for one that cannot be read or lacks a reason."""
    try:
        if file is None:
            text = (resources.files("llm_ocr.cli") / "image_edges.toml").read_text(encoding="utf-8")
        else:
            text = file.read_text(encoding="utf-8")
        entries = tomllib.loads(text).get("allowed", [])
        found = tuple(Allowed(*(entry[name].strip() for name in _FIELDS)) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"--allowed-edges {file} cannot be used: {type(error).__name__}: {error}",
            hint=f"It holds [[allowed]] tables with {', '.join(_FIELDS)}, all of them text.",
        ) from error
    for one in found:
        if not one.reason:
            raise UsageError(f"--allowed-edges {file}: {one.package} -> {one.needs} has no reason", hint="Say why.")
    return found


def check_edges(site: Site, allowed: Sequence[Allowed]) -> list[Check]:
    """One check for each edge."""
    return [_edge(site, package, needs, allowed) for package, needs in EDGES]


def _edge(site: Site, package: str, needs: str, allowed: Sequence[Allowed]) -> Check:
    name = f"{package} -> {needs}"
    asked = [one for one in _requirements(site, package) if _same(one.name, needs)]
    version = site.version(needs)
    if not version:
        fix = f"Build on an image that has it (VLLM_BASE_IMAGE), or pip install {needs}"
        return Check(name, State.MISSING, f"{needs} is not installed", fix, needed=True)
    if not asked:
        return Check(name, State.WORKS, f"{package} asks for no version; {version} is here", needed=True)
    unmet = [str(one) for asks in asked for one in asks.specifier if not one.contains(version, prereleases=True)]
    reasons = {word: _reason(package, needs, word, allowed) for word in unmet}
    if not unmet:
        words = ", ".join(str(asks.specifier) or "any" for asks in asked)
        return Check(name, State.WORKS, f"{version} fits {words}", needed=True)
    refused = [word for word, reason in reasons.items() if not reason]
    if refused:
        fix = f"Another vLLM image, or an entry with a reason in --allowed-edges for {needs}{','.join(refused)}"
        return Check(name, State.BROKEN, f"{package} asks for {','.join(refused)}, {version} is here", fix, needed=True)
    known = "; ".join(f"{word}: {reason}" for word, reason in reasons.items())
    return Check(name, State.LIMITED, f"{version} is let through against {known}", needed=True)


def _requirements(site: Site, package: str) -> "list[Requirement]":
    """What a package needs here, extras left out."""
    from packaging.requirements import Requirement

    found = site.distribution(package)
    parsed = [Requirement(text) for text in (found.requires if found else None) or ()]
    return [one for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]


def _reason(package: str, needs: str, specifier: str, allowed: Sequence[Allowed]) -> str:
    for one in allowed:
        if _same(one.package, package) and _same(one.needs, needs) and one.specifier == specifier:
            return one.reason
    return ""


def _same(left: str, right: str) -> bool:
    from packaging.utils import canonicalize_name

    return canonicalize_name(left) == canonicalize_name(right)
