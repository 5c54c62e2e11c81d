"""The gates of `llm-ocr doctor --image PROFILE`: whether the packages of an image can serve a model.

They read files and import nothing heavy, so that they hold where images are built: without a GPU, in seconds.
"""

import ast
from collections.abc import Iterator

from llm_ocr import __version__
from llm_ocr.cli.checks import Check, State
from llm_ocr.cli.image_edges import Allowed, check_edges
from llm_ocr.cli.image_site import Site
from llm_ocr.engines.vllm.arguments import value_of
from llm_ocr.models.architectures import architecture_of
from llm_ocr.models.profile import Profile

_REGISTRY = "model_executor/models/registry.py"
_TYPES = ("models/auto/auto_mappings.py", "models/auto/configuration_auto.py")  # where transformers keeps them
_BASE = "Build on a newer vLLM image (VLLM_BASE_IMAGE)"
_OTHER = "Build on another vLLM image (VLLM_BASE_IMAGE)"


def image_checks(profile: Profile, allowed: tuple[Allowed, ...], site: Site) -> list[Check]:
    """All gates, in the order of the report; those marked `needed` must pass."""
    floors = [
        Check("llm-ocr", State.WORKS, __version__),
        _floor(site, "vllm", profile.min_vllm, profile),
        _floor(site, "transformers", profile.min_transformers, profile),
    ]
    if any(check.state is State.MISSING for check in floors):
        return floors  # nothing more can be said
    return [
        *floors,
        *_classes(site, profile),
        _model_type(site, profile),
        *_processors(site, profile),
        *check_edges(site, allowed),
    ]


def _floor(site: Site, package: str, least: str, profile: Profile) -> Check:
    """A package is installed, in a version that the profile can use."""
    from packaging.version import Version

    version = site.version(package)
    if not version:
        return Check(package, State.MISSING, "not installed", _OTHER, needed=True)
    # A nightly build of the next release counts as that release.
    if least and Version(Version(version).base_version) < Version(least):
        detail = f"{version}, and {profile.name} needs {least} or newer"
        return Check(package, State.BROKEN, detail, _BASE, needed=True)
    return Check(package, State.WORKS, f"{version}{f', {least} or newer is needed' if least else ''}", needed=True)


def _classes(site: Site, profile: Profile) -> Iterator[Check]:
    """vLLM's registry has the model's classes, and the modules that it names are there."""
    name = "architecture"
    known = architecture_of(profile)
    if known is None:
        detail = f"not known for {profile.name}: not checked"
        yield Check(name, State.LIMITED, detail, "See `architectures` in the model's config.json", needed=True)
        return
    registry = site.table("vllm", _REGISTRY)
    for one in known.classes:
        place = _module(registry.get(one))
        if place is None:
            yield Check(name, State.BROKEN, f"{one} is not in vLLM's registry", _BASE, needed=True)
        elif not any(site.file("vllm", path) for path in (f"{place}.py", f"{place}/__init__.py")):
            yield Check(name, State.BROKEN, f"{one}: vLLM's registry names {place}.py, which is not there", needed=True)
        else:
            yield Check(name, State.WORKS, f"{one} is in vLLM's registry", needed=True)


def _model_type(site: Site, profile: Profile) -> Check:
    """transformers, or vLLM in its place, knows the model's type."""
    name = "model type"
    known = architecture_of(profile)
    if profile.trust_remote_code:
        return Check(name, State.WORKS, "comes with the model's own code (--trust-remote-code)", needed=True)
    if known is None or not known.model_type:
        return Check(name, State.LIMITED, f"not known for {profile.name}: not checked", needed=True)
    if any(known.model_type in site.table("transformers", path, "CONFIG_MAPPING_NAMES") for path in _TYPES):
        return Check(name, State.WORKS, f"transformers knows {known.model_type}", needed=True)
    if known.model_type in site.table("vllm", "transformers_utils/config.py", "_CONFIG_REGISTRY"):
        return Check(name, State.WORKS, f"vLLM itself knows {known.model_type}", needed=True)
    detail = f"neither transformers nor vLLM knows {known.model_type}"
    return Check(name, State.BROKEN, detail, _BASE, needed=True)


def _processors(site: Site, profile: Profile) -> Iterator[Check]:
    """The logits processor of the profile's server is in vLLM; those of other packages are not looked for."""
    module, _, name = (value_of(profile.server_args, "logits-processors") or "").partition(":")
    if not module.startswith("vllm."):
        return
    place = site.file("vllm", module.removeprefix("vllm.").replace(".", "/") + ".py")
    body = ast.parse(place.read_text(encoding="utf-8")).body if place else []
    there = any(name in _names(node) for node in body)
    detail = f"{name} is in vLLM" if there else f"vLLM has no {module}:{name}"
    yield Check("logits processor", State.WORKS if there else State.BROKEN, detail, "" if there else _BASE, needed=True)


def _names(node: ast.stmt) -> list[str]:
    """What a statement of a module brings into it: a class, or what it imports."""
    if isinstance(node, ast.ImportFrom):
        return [one.asname or one.name for one in node.names]
    return [node.name] if isinstance(node, ast.ClassDef) else []


def _module(value: ast.expr | None) -> str | None:
    """The path below vLLM's package of the module in `("module", "Class")`; None for anything else."""
    if not isinstance(value, ast.Tuple) or not value.elts or not isinstance(value.elts[0], ast.Constant):
        return None
    module = str(value.elts[0].value)
    return (module.removeprefix("vllm.") if "." in module else f"model_executor.models.{module}").replace(".", "/")
