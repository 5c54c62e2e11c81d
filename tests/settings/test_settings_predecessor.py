"""Every variable that the predecessor reads is known here, and does what the documentation says."""

import pytest

from llm_ocr.settings.models import ExtractSettings, RunSettings
from llm_ocr.settings.predecessor import BY_NAME, TABLE, Effect, markdown_table

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


def test_the_table_holds_every_name_once():
    assert sorted(BY_NAME) == sorted(NAMES.split())
    assert len(TABLE) == len(BY_NAME)


def test_the_documentation_holds_the_table(repository):
    assert markdown_table() in (repository / "docs" / "migrating.md").read_text(encoding="utf-8")


def test_names_that_are_read_lead_to_settings_that_exist():
    for bare in TABLE:
        assert not bare.setting or bare.setting in RunSettings.model_fields
        assert bare.effect is Effect.READ or not bare.setting


@pytest.mark.parametrize(("text", "limit"), [("0", None), ("12", 12)])
def test_max_samples_keeps_its_meaning(loaded, text, limit):
    result = loaded(environ={"MAX_SAMPLES": text}, config="max_samples = 3")
    assert (result.settings.max_samples, result.origins["max_samples"]) == (limit, "environment MAX_SAMPLES")


@pytest.mark.parametrize(("text", "level"), [("INFO", "info"), ("Warn", "warning"), ("CRITICAL", "error")])
def test_log_level_is_taken_in_any_case(loaded, text, level):
    assert loaded(environ={"LOG_LEVEL": text}).settings.log_level == level


def test_output_dir_is_the_workspace(loaded):
    assert (
        loaded(ExtractSettings, environ={"OUTPUT_DIR": "./outputs/extract"}).settings.workspace == "./outputs/extract"
    )


def test_variables_without_effect_get_one_warning_together(loaded):
    result = loaded(environ={"EXTRACT_BATCH_SIZE": "8", "DATALOADER_WORKERS": "2", "HF_PATH_IN_REPO": "x"})
    assert result.warnings == (
        "without effect here: EXTRACT_BATCH_SIZE, DATALOADER_WORKERS, HF_PATH_IN_REPO (see docs/migrating.md)",
    )


def test_variables_of_later_parts_get_one_warning_that_says_what_they_belong_to(loaded):
    result = loaded(environ={"MODEL_ID": "m", "BASE_URL": "u"}, dotenv="S3_OUTPUT_URI=s3://b\n")
    assert result.warnings == (
        "not in this version, ignored: "
        "BASE_URL, MODEL_ID (with the vLLM engine); S3_OUTPUT_URI (with the remote stores)",
    )


def test_variables_that_are_unset_empty_or_common_get_no_warning(loaded):
    environ = {
        "MODEL_ID": "",
        "HF_TOKEN": "x",
        "PORT": "8080",
        "HOST": "h",
        "FORCE_COLOR": "1",
        "PIPELINE_STAGE": "extract",
    }
    assert loaded(environ=environ).warnings == ()
