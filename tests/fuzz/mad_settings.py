"""Values of settings that nobody meant, and sound ones of each kind. Seeded."""

import json
import random
from collections.abc import Mapping
from typing import Any

from llm_ocr.config.fields import Setting

TEXTS = (
    "", " ", "0", "-1", "1", "1.5", "1e3", "1e400", "nan", "inf", "-inf", "true", "True", "yes", "maybe",
    "null", "None", "[]", "{}",
    '["a"]', '["a",', "[1, 2]", '{"a": 1}', "a,b", "a\nb", "\n", "\t", "\ud800", "\udcff", "é", "١٢", "😀",
    "9" * 5000, "a" * 70_000,
    "-w", "--pages", "s3://", "s3://b/k", "file:///x", "~nobody/x", "../..", "/dev/null", "1-5,9", "5-1", "90s",
    "-5m", "1_000",
    "0x10", "١", "%s%n", "{x}", "$(id)", "${HOME}", "a=b", "image=skip,table", "=", "auto", "embedded", "AUTO",
    "1;2", "\x1b[31m",
    "\u202e", "#", "# a", "'", '"', "!!python/object/apply:os.system [id]", "&a [*a]", "2026-11-22", "12:30:45",
    "1__0", "+1", "0b1",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    *TEXTS, None, True, False, 0, -1, 1, 2**63, 10**400, 1.5, float("nan"), float("inf"), [], [1], ["a", None],
    {}, {"a": 1}, b"x",
    [[["a"]]], [""], ["\0"], "\0", "a\0b",
)  # fmt: skip
_BROKEN = (
    "", "a", "[", "a = ", "a: [", "\0", "\ud800", "- a", "1", "null", "a: &a [*a]",
    "a: !!python/object/apply:os.system [id]",
    "? [a]\n: b", "{[a]: b}", "a: b\na: c", "a = 1\na = 2", "[a]\nb = 1", "\ufeffpages = '1'",
    "%YAML 9.9\n---\na: b", "<<: *x", "a: " + "[" * 600,
    "a = " + "[" * 600, "pages = 2026-11-22", "pages: 2026-11-22", "pages = 12:00:00", "a: 1e99999",
    "a = 1e999", "pages = 0x" + "f" * 5000,
    "a" * 100_000, "1: 2", "null: 1", "true: 1", "[1]: 2", "---\na: 1\n---\nb: 2", "only: !!set {a, b}",
    "only: !!binary aGk=", "pages: !!timestamp 2026-99-99",
)  # fmt: skip


def sound(setting: Setting, chance: random.Random) -> str | None:
    """A text that is right for the setting; None where there is none to be made up (free text)."""
    if setting.choices:
        return chance.choice(setting.choices)
    if setting.kind is bool:
        return chance.choice(("true", "false"))
    if setting.kind in (int, float):
        low = setting.low if setting.low is not None else (setting.above if setting.above is not None else 0)
        high = setting.high if setting.high is not None else low + 1000
        value = chance.uniform(low, high)
        return str(round(value) or 1) if setting.kind is int else str(value or high)
    return None


def text_for(setting: Setting, chance: random.Random) -> str:
    right = sound(setting, chance) if chance.random() < 0.3 else None
    return right if right is not None else chance.choice(TEXTS)


def _some(settings: Mapping[str, Setting], chance: random.Random, counts: tuple[int, ...]) -> list[str]:
    return chance.sample(list(settings), min(len(settings), chance.choice(counts)))


def flags(settings: Mapping[str, Setting], chance: random.Random) -> dict[str, Any]:
    """As a call from Python gives them: of any type."""
    names = _some(settings, chance, (0, 1, 1, 3))
    return {name: chance.choice((text_for(settings[name], chance), chance.choice(_VALUES))) for name in names}


def variables(settings: Mapping[str, Setting], chance: random.Random) -> dict[str, str]:
    """An environment: names of ours, of the predecessor, and others. None holds NUL, which no environment can."""
    names = _some(settings, chance, (0, 1, 2, 5))
    found = {settings[name].variable: text_for(settings[name], chance) for name in names}
    others = (
        *("LLM_OCR_X", "LLM_OCR_", "MAX_SAMPLES", "BASE_SIZE", "INCLUDE_BACKGROUND", "PIPELINE_STAGE"),
        "LLM_OCR_PAGES",
    )
    for name in chance.sample(others, chance.choice((0, 0, 1, 2))):
        found[name] = chance.choice(TEXTS)
    return found


def dotenv(settings: Mapping[str, Setting], chance: random.Random) -> str | None:
    if chance.random() < 0.6:
        return None
    lines = [f"{name}={text}" for name, text in variables(settings, chance).items()]
    return "\n".join([*lines, chance.choice(("", "export", "=", "A='", 'B="\n', "\0", "X=${X}", "# a", "a b=c"))])


def config(settings: Mapping[str, Setting], chance: random.Random) -> tuple[str, str | None]:
    """The suffix and text of a configuration file."""
    suffix = chance.choice((".toml", ".yaml", ".yml", ".ini", ""))
    if chance.random() < 0.5:
        return suffix, None
    if chance.random() < 0.4:
        return suffix, chance.choice(_BROKEN)
    names = _some(settings, chance, (1, 2))
    mark = " = " if suffix == ".toml" else ": "
    values = (json.dumps(chance.choice(_VALUES), default=str) for _ in names)
    return suffix, "\n".join(f"{name}{mark}{value}" for name, value in zip(names, values, strict=True))
