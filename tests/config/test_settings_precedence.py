"""Which of several places a value is taken from."""

import itertools

import pytest

from llm_ocr.config.models import RunSettings, StatusSettings

#: Places by rank, the strongest first; each gives image_size another value.
PLACES = {
    "flag --image-size": {"flags": {"image_size": "101"}},
    "environment LLM_OCR_IMAGE_SIZE": {"environ": {"LLM_OCR_IMAGE_SIZE": "102"}},
    ".env LLM_OCR_IMAGE_SIZE": {"dotenv": "LLM_OCR_IMAGE_SIZE=103\n"},
    "conf.toml": {"config": "image_size = 104\n"},
    "workspace": {"stored": {"image_size": 105}},
}
VALUES = dict(zip(PLACES, range(101, 106), strict=True))


@pytest.mark.parametrize("chosen", [c for n in range(1, 6) for c in itertools.combinations(PLACES, n)])
def test_the_strongest_place_that_has_a_value_wins(loaded, chosen):
    given = {key: value for place in chosen for key, value in PLACES[place].items()}
    result = loaded(**given)
    assert result.settings.image_size == VALUES[chosen[0]]
    assert result.origins["image_size"].endswith(chosen[0])


def test_without_any_place_the_default_counts(loaded):
    result = loaded()
    assert result.settings == RunSettings()
    assert set(result.origins.values()) == {"default"}


def test_our_variable_wins_over_the_predecessors_bare_name(loaded):
    result = loaded(environ={"MAX_SAMPLES": "5", "LLM_OCR_MAX_SAMPLES": "7"})
    assert (result.settings.max_samples, result.origins["max_samples"]) == (7, "environment LLM_OCR_MAX_SAMPLES")


def test_a_bare_name_in_the_environment_wins_over_the_configuration_file(loaded):
    assert loaded(environ={"MAX_SAMPLES": "5"}, config="max_samples = 9").settings.max_samples == 5


def test_an_empty_variable_counts_as_unset(loaded):
    result = loaded(
        environ={"LLM_OCR_MAX_SAMPLES": "", "MAX_SAMPLES": "", "LLM_OCR_IMAGE_SIZE": ""}, dotenv="LLM_OCR_PAGES=\n"
    )
    assert result.settings == RunSettings()


def test_the_configuration_file_may_be_named_by_a_variable(loaded, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("max-samples: 3\n", encoding="utf-8")
    result = loaded(environ={"LLM_OCR_CONFIG": str(path)})
    assert (result.settings.max_samples, result.warnings) == (3, ())


def test_yaml_and_toml_say_the_same(loaded):
    toml = loaded(config='only = ["a, b.pdf"]\npages = "3"\nquiet = true\n').settings
    yaml = loaded(config="only: ['a, b.pdf']\npages: 3\nquiet: true\nlog_file: null\n", suffix=".yaml").settings
    assert toml == yaml == RunSettings(only=("a, b.pdf",), pages="3", quiet=True)


def test_one_configuration_file_serves_all_commands(loaded):
    assert loaded(StatusSettings, config='workspace = "w"\nimage_size = 900\n').settings.workspace == "w"


def test_values_in_python_come_from_keywords_alone(monkeypatch):
    monkeypatch.setenv("LLM_OCR_MAX_SAMPLES", "3")
    monkeypatch.setenv("MAX_SAMPLES", "3")
    assert RunSettings().max_samples is None


def test_dotenv_holds_only_our_names_and_takes_text_as_it_stands(loaded):
    result = loaded(dotenv="PATH=/nowhere\nMAX_SAMPLES=4\nLLM_OCR_ONLY='${HOME} $x.pdf'\nPYTHONPATH=x\n")
    assert (result.settings.max_samples, result.settings.only) == (4, ("${HOME} $x.pdf",))
    assert result.warnings == ()
