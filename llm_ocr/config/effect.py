"""Detection of settings that have no effect with the chosen engine."""

from collections.abc import Collection

from llm_ocr.config.fields import Setting, settings_of
from llm_ocr.config.groups import EMBEDDED, SERVER, VLLM, EngineSettings
from llm_ocr.errors import UsageError

#: Names of the engines in messages.
ABOUT = {EMBEDDED: "the CPU engine", VLLM: "vLLM on this machine", SERVER: "running servers"}


def check_effect(settings: EngineSettings, engine: str, why: str = "") -> tuple[str, ...]:
    """Refuse flags and keywords that have no effect with the engine.

    Variables and files can serve several commands, and a launch or workspace holds settings for any engine. Settings
    from these sources are reported, not refused.

    Args:
        settings: Settings of a command.
        engine: Name of the engine.
        why: Reason for the engine, as `which ... chose`, if no setting chose the engine.

    Returns:
        Variables and keys of files that have no effect, as the user wrote them, without secrets.

    Raises:
        UsageError: A flag or keyword has no effect. The error names the engine and the remedy.
    """
    idle = [one for one in settings_of(type(settings)).values() if engine not in one.engines]
    named = {one: where for one in idle if (where := _origin(settings, one.name)[1]) and _is_named(settings, one)}
    if named:
        listed = ", ".join(named.values())
        raise UsageError(
            f"{listed} {'has' if len(named) == 1 else 'have'} no effect with {ABOUT[engine]}, "
            f"{_chosen(settings, engine) or why}",
            hint=_way_out(engine, {name for one in named for name in one.engines}, listed),
        )
    places = {one: _origin(settings, one.name) for one in idle if not one.secret}
    return tuple(where for kind, where in places.values() if kind in ("environment", ".env", "file"))


def _is_named(settings: EngineSettings, setting: Setting) -> bool:
    return _origin(settings, setting.name)[0] == "flag"


def _origin(settings: EngineSettings, name: str) -> tuple[str, str]:
    """Return the kind and place of a setting: `flag`, `--model`."""
    kind, _, where = settings.origins.get(name, "").partition(" ")
    return kind, where


def _chosen(settings: EngineSettings, engine: str) -> str:
    """Return the setting that chose the engine, or an empty text."""
    kind, where = _origin(settings, "engine")
    if settings.engine == "auto":
        return ""
    if kind == "flag":
        return f"which {where} {engine} chose"
    if kind == "workspace":
        return f"with which this workspace was begun {where}".rstrip()
    return f"which {where} chose" if where else ""


def _way_out(engine: str, concerned: Collection[str], listed: str) -> str:
    if engine == EMBEDDED:
        return f"Add --server-url URL or --engine vllm, or leave out {listed}."
    return f"Leave out {listed}, or use --engine {' or '.join(sorted(concerned))}."
