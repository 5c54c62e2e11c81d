"""Settings of any kind from any place: they are taken, or refused with exit code 2 and words; never a traceback."""

import random
from pathlib import Path
from typing import Any

import mad_settings
from fuzz_counts import COUNTS

from llm_ocr.cli import main
from llm_ocr.config.fields import command_models, settings_of
from llm_ocr.config.loading import load, shown_values
from llm_ocr.errors import UsageError


def loaded_or_refused(number: int, folder: Path) -> str:
    chance = random.Random(f"settings {number}")
    model: Any = chance.choice(list(command_models().values()))
    settings = settings_of(model)
    suffix, text = mad_settings.config(settings, chance)
    dotenv, config = folder / ".env", folder / f"conf{suffix}"
    dotenv.write_text(mad_settings.dotenv(settings, chance) or "", encoding="utf-8", errors="surrogatepass")
    if text is not None:
        config.write_text(text, encoding="utf-8", errors="surrogatepass")
    places = {"config": config if text is not None else None, "dotenv": dotenv, "lenient": chance.random() < 0.8}
    flags = mad_settings.flags(settings, chance) if chance.random() < 0.6 else {}
    try:
        found = load(model, flags, environ=mad_settings.variables(settings, chance), **places)
    except UsageError as error:
        assert error.exit_code == 2
        assert str(error).strip(), number
        return "refused"
    assert shown_values(found.settings).keys() == settings.keys(), number
    return "taken"


def test_settings_of_any_kind_are_taken_or_refused_in_words(tmp_path):
    ends = [loaded_or_refused(number, tmp_path) for number in range(COUNTS["settings"])]
    assert min(ends.count("taken"), ends.count("refused")) > COUNTS["settings"] // 20


def test_a_sound_value_of_each_setting_is_taken(tmp_path):
    for model in command_models().values():
        chance = random.Random(model.__name__)
        required = {name: one.choices[0] for name, one in settings_of(model).items() if one.required and one.choices}
        given: dict[str, Any] = {}
        origins = {}
        for name, setting in settings_of(model).items():
            text = mad_settings.sound(setting, chance)
            if text is not None and not (setting.many or setting.secret or name in ("shard_index", *required)):
                given[setting.variable] = text
                origins[name] = f"environment {setting.variable}"
        found = load(model, required, config=None, environ=given, dotenv=tmp_path / ".env", lenient=True)
        assert {name: found.settings.origins[name] for name in origins} == origins


def test_random_command_lines_end_with_0_or_2_without_traceback(tmp_path, monkeypatch, capsys):
    """`--show-settings` keeps those that are right from starting a run."""
    monkeypatch.chdir(tmp_path)
    codes = []
    for number in range(COUNTS["command lines"]):
        chance = random.Random(f"command line {number}")
        model: Any = chance.choice(list(command_models().values()))
        settings = settings_of(model)
        command = (model.__doc__ or "").removeprefix("llm-ocr ").split()[0].strip(".:")
        more = chance.sample(mad_settings.TEXTS, chance.choice((0, 0, 1)))
        for name in chance.sample(list(settings), chance.choice((0, 1, 2))):
            more += [settings[name].flag, mad_settings.text_for(settings[name], chance)]
        if chance.random() < 0.3:
            chance.shuffle(more)
        words = [command, "--show-settings", *more]
        try:
            code = main([word.replace("\0", "") for word in words])
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        assert code in (0, 2), (number, words, said.err[-500:])
        assert "Traceback" not in said.err, number
        assert code == 0 or said.err.strip(), number
        codes.append(code)
    assert min(codes.count(0), codes.count(2)) > len(codes) // 10
