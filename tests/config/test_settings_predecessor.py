"""Every variable that the predecessor reads is known here, and does what the documentation says."""

import re

import pytest

from llm_ocr.config.fields import every_setting
from llm_ocr.config.legacy import TABLE, WITHOUT_EFFECT
from llm_ocr.config.models import AssembleSettings, DemoSettings, DescribeSettings, ExtractSettings, RunSettings
from llm_ocr.errors import UsageError

#: What the predecessor reads, and what its README names.
NAMES = (
    "PIPELINE_STAGE LOG_LEVEL FORCE_COLOR SKIP_SERVER_LAUNCH BASE_URL HEALTH_URL VLLM_STARTUP_TIMEOUT MODEL_ID "
    "SERVED_MODEL_NAME HOST PORT TENSOR_PARALLEL_SIZE MAX_MODEL_LEN GPU_MEMORY_UTILIZATION MM_PROCESSOR_CACHE_GB "
    "LOGITS_PROCESSORS EXTRA_VLLM_ARGS DATASET_NAME DATASET_CONFIG DATASET_SPLIT STREAM_DATASET DATALOADER_WORKERS "
    "DATALOADER_PREFETCH MAX_SAMPLES OUTPUT_DIR DOC_PROMPT DOC_MAX_TOKENS DOC_TEMPERATURE FIGURE_PROMPT "
    "FIGURE_MAX_TOKENS FIGURE_TEMPERATURE EXTRACT_BATCH_SIZE DESCRIBE_BATCH_SIZE EXTRACT_REQUEST_TIMEOUT "
    "DESCRIBE_REQUEST_TIMEOUT EXTRACT_MAX_CONCURRENCY DESCRIBE_MAX_CONCURRENCY EXTRACT_MAX_RETRIES "
    "DESCRIBE_MAX_RETRIES EXTRACT_RETRY_BACKOFF DESCRIBE_RETRY_BACKOFF HF_TOKEN HF_REPO_ID HF_REPO SOURCE_REPO_ID "
    "HF_BRANCH HF_COMMIT_MESSAGE HF_PATH_IN_REPO S3_OUTPUT_URI S3_INPUT_URI GCS_OUTPUT_URI GCS_INPUT_URI "
    "JOB_CODE_REPO JOB_CODE_REPO_TYPE JOB_CODE_REVISION JOB_CODE_LOCAL_DIR SM_MODEL_DIR MODEL_NAME NUM_SAMPLES "
)


def test_the_documentation_explains_every_name(repository):
    text = (repository / "docs" / "migrating.md").read_text(encoding="utf-8")
    effects = "read|no effect, one warning|ignored without a word"
    rows = re.findall(rf"^\| `([A-Z3_]+)` \| ({effects}) \| (\S*) \| ", text, re.M)
    assert sorted(name for name, *_ in rows) == sorted(NAMES.split())
    assert {name for name, effect, _ in rows if effect == "no effect, one warning"} == {*WITHOUT_EFFECT}
    settings = {name: setting for name, effect, setting in rows if effect == "read" and setting}
    assert settings == {bare.name: f"`LLM_OCR_{bare.setting.upper()}`" for bare in TABLE}


def test_names_that_are_read_lead_to_settings_that_exist():
    assert all(bare.setting in every_setting() for bare in TABLE)


@pytest.mark.parametrize(("text", "limit"), [("0", None), ("12", 12)])
def test_max_samples_keeps_its_meaning(loaded, text, limit):
    result = loaded(environ={"MAX_SAMPLES": text}, config="max_samples = 3")
    assert (result.settings.max_samples, result.settings.origins["max_samples"]) == (limit, "environment MAX_SAMPLES")


@pytest.mark.parametrize(("text", "level"), [("INFO", "info"), ("Warn", "warning"), ("CRITICAL", "error")])
def test_log_level_is_taken_in_any_case(loaded, text, level):
    assert loaded(environ={"LOG_LEVEL": text}).settings.log_level == level


def test_variables_without_effect_share_one_warning(loaded):
    result = loaded(environ={"EXTRACT_BATCH_SIZE": "8", "HF_PATH_IN_REPO": "x"}, dotenv="JOB_CODE_REVISION=r\n")
    assert result.warnings == (
        "ignored variables: EXTRACT_BATCH_SIZE, HF_PATH_IN_REPO, JOB_CODE_REVISION (see docs/migrating.md)",
    )


@pytest.mark.parametrize(
    ("environ", "workspace"),
    [
        ({"OUTPUT_DIR": "./outputs/extract"}, "./outputs/extract"),
        ({"S3_OUTPUT_URI": "s3://bucket/run"}, "s3://bucket/run"),
        ({"GCS_OUTPUT_URI": "gs://bucket/run"}, "gs://bucket/run"),
        ({"HF_REPO_ID": "me/results"}, "hf://datasets/me/results"),
        ({"HF_REPO": "me/results"}, "hf://datasets/me/results"),
        ({"HF_REPO_ID": "me/results", "HF_REPO": "me/results"}, "hf://datasets/me/results"),
        ({"HF_REPO_ID": "me/results", "HF_BRANCH": "feature/x"}, "hf://datasets/me/results@feature%2Fx"),
        ({"S3_OUTPUT_URI": "s3://bucket/run", "OUTPUT_DIR": "./outputs/extract"}, "s3://bucket/run"),
        ({"S3_OUTPUT_URI": "bucket/run"}, "s3://bucket/run"),
        ({"S3_OUTPUT_URI": "s3://bucket/run", "LLM_OCR_WORKSPACE": "here"}, "here"),
    ],
)
def test_where_it_wrote_to_is_the_workspace(loaded, environ, workspace):
    assert loaded(DescribeSettings, environ=environ).settings.workspace == workspace


def test_two_places_to_write_to_are_an_error_that_names_both(loaded):
    environ = {"HF_REPO_ID": "me/results", "S3_OUTPUT_URI": "s3://bucket/run"}
    with pytest.raises(UsageError, match=r"S3_OUTPUT_URI=s3://bucket/run and HF_REPO_ID=me/results") as caught:
        loaded(environ=environ)
    assert "LLM_OCR_WORKSPACE" in caught.value.hint
    loaded(flags={"workspace": "out"}, environ=environ)
    loaded(environ={"LLM_OCR_WORKSPACE": "out"}, dotenv="HF_REPO_ID=me/results\nS3_OUTPUT_URI=s3://bucket/run\n")


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("S3_INPUT_URI", "s3://bucket/run/dataset", "s3://bucket/run/dataset"),
        ("GCS_INPUT_URI", "gs://bucket/run/dataset", "gs://bucket/run/dataset"),
        ("SOURCE_REPO_ID", "me/pages", "hf://datasets/me/pages"),
    ],
)
def test_where_it_read_from_is_the_input(loaded, name, value, given):
    for model in (DescribeSettings, AssembleSettings):
        assert loaded(model, environ={name: value, "OUTPUT_DIR": "out"}).settings.input == given
    assert loaded(ExtractSettings, environ={name: value, "OUTPUT_DIR": "out"}).warnings == ()


def test_its_dataset_is_a_source_and_none_is_one_by_default(loaded):
    environ = {"DATASET_NAME": "ns/pages", "DATASET_CONFIG": "scans", "DATASET_SPLIT": "test", "STREAM_DATASET": "true"}
    result = loaded(environ=environ)
    settings = result.settings
    assert (settings.dataset, settings.dataset_config, settings.dataset_split) == ("ns/pages", "scans", "test")
    assert result.warnings == ("ignored variables: STREAM_DATASET (see docs/migrating.md)",)
    assert loaded().settings.dataset is None


def test_the_variables_of_its_server_keep_their_meaning(loaded):
    settings = loaded(
        environ={
            "SKIP_SERVER_LAUNCH": "true",
            "BASE_URL": "http://127.0.0.1:8000",
            "SERVED_MODEL_NAME": "deepseek-ocr",
            "MODEL_ID": "deepseek-ai/DeepSeek-OCR",
            "MM_PROCESSOR_CACHE_GB": "0",
            "EXTRA_VLLM_ARGS": "--max-num-seqs 64 --enforce-eager",
            "DOC_PROMPT": "<image>\n<|grounding|>Convert this document to Markdown.",
            "FIGURE_PROMPT": "<image>\nDescribe this image in detail",
            "DOC_MAX_TOKENS": "4096",
            "FIGURE_TEMPERATURE": "0.6",
        }
    ).settings
    assert (settings.engine, settings.server_url) == ("server", ("http://127.0.0.1:8000",))
    assert (settings.server_model, settings.model) == ("deepseek-ocr", "deepseek-ai/DeepSeek-OCR")
    assert settings.vllm_arg == ("--mm-processor-cache-gb=0", "--max-num-seqs", "64", "--enforce-eager")
    assert settings.prompt == "<|grounding|>Convert this document to Markdown."
    assert settings.describe_prompt == "Describe this image in detail"
    assert (settings.max_tokens, settings.describe_temperature) == (4096, 0.6)


#: A value that the variable cannot have; variables that take any text are left out.
BAD = {
    **dict.fromkeys(("LOG_LEVEL", "MAX_SAMPLES", "SKIP_SERVER_LAUNCH", "BASE_URL", "VLLM_STARTUP_TIMEOUT"), "maybe"),
    **dict.fromkeys(("TENSOR_PARALLEL_SIZE", "MAX_MODEL_LEN", "GPU_MEMORY_UTILIZATION", "EXTRA_VLLM_ARGS"), "maybe"),
    **dict.fromkeys(("MM_PROCESSOR_CACHE_GB", "DOC_MAX_TOKENS", "DOC_TEMPERATURE", "FIGURE_MAX_TOKENS"), "maybe"),
    **dict.fromkeys(("FIGURE_TEMPERATURE", "EXTRACT_REQUEST_TIMEOUT"), "maybe"),
    **dict.fromkeys(("HF_REPO_ID", "HF_REPO", "SOURCE_REPO_ID"), "maybe"),
    **dict.fromkeys(("S3_OUTPUT_URI", "GCS_OUTPUT_URI", "S3_INPUT_URI", "GCS_INPUT_URI"), " "),
}
ANY_TEXT = "DATASET_NAME DATASET_CONFIG DATASET_SPLIT OUTPUT_DIR SERVED_MODEL_NAME MODEL_ID LOGITS_PROCESSORS "
PROMPTS = "DOC_PROMPT FIGURE_PROMPT"


@pytest.mark.parametrize(("name", "setting"), [(bare.name, bare.setting) for bare in TABLE])
def test_a_bad_value_names_its_variable(loaded, name, setting):
    model = DescribeSettings if setting == "input" else RunSettings
    value = "\0" if name in (ANY_TEXT + PROMPTS).split() else BAD[name]
    with pytest.raises(UsageError, match=rf"^{name}={value}: must "):
        loaded(model, environ={name: value})


@pytest.mark.parametrize(
    ("text", "engine"),
    [*((text, "server") for text in ("1", "true", "YES", " on ", "y", "t")),
     *((text, "auto") for text in ("0", "false", "No", "off", "n", "f"))],
)  # fmt: skip
def test_skip_server_launch_takes_the_words_of_all_switches(loaded, text, engine):
    assert loaded(environ={"SKIP_SERVER_LAUNCH": text}).settings.engine == engine


def test_variables_that_are_unset_empty_or_common_get_no_warning(loaded):
    environ = {
        "HF_BRANCH": "",
        "HF_TOKEN": "x",
        "PORT": "8080",
        "HOST": "h",
        "FORCE_COLOR": "1",
        "PIPELINE_STAGE": "extract",
    }
    assert loaded(environ=environ).warnings == ()


def test_the_demo_stays_in_its_own_folder(loaded):
    result = loaded(DemoSettings, environ={"OUTPUT_DIR": "/precious", "S3_OUTPUT_URI": "s3://bucket/run"})
    assert result.settings.workspace == "llm-ocr-demo"
