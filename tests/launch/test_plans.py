"""Every platform's plan: exactly what is sent, made without asking anybody, and without a secret in it."""

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest
from make_plans import FOLDER, as_text, cases, snapshot

from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import LaunchSettings
from llm_ocr.errors import UsageError
from llm_ocr.launch import STAGES, JobSpec, launcher_for
from llm_ocr.launch.specs import launch_request
from llm_ocr.plugins import PLATFORMS

SCHEMA = '{"type": "object", "properties": {"number": {"type": "string"}}}'
CASES = {f"{platform}-{name}": (platform, spec) for platform, name, spec in cases()}


@pytest.mark.parametrize("name", CASES)
def test_what_is_sent_is_what_it_was(name):
    platform, spec = CASES[name]
    assert as_text(snapshot(platform, spec)) == (FOLDER / f"{name}.json").read_text()


def test_no_snapshot_is_left_over():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("platform", PLATFORMS.names())
def test_a_plan_is_pure(platform, monkeypatch):
    """The same twice, whatever the environment holds; hardware is known for each stage."""
    names = ("MY_KEY", "HF_TOKEN", "AWS_DEFAULT_REGION", "GOOGLE_CLOUD_PROJECT", "HOME", "PATH")
    launcher = launcher_for(platform)
    assert launcher.platform == platform
    for stage in STAGES:
        spec = JobSpec(
            stage,
            "s3://bucket/run",
            "20260101-000000-abcd",
            hardware=launcher.hardware(stage),
            environment={"LLM_OCR_WORKSPACE": "s3://bucket/run", "LLM_OCR_LAUNCH": "20260101-000000-abcd"},
            secrets={"MY_KEY": ""},
        )
        first = launcher.plan(spec)
        with monkeypatch.context() as elsewhere:
            for name in names:
                elsewhere.setenv(name, "/elsewhere")
            assert launcher.plan(spec) == first
        json.dumps([dict(request.body) for request in first.requests])
        assert launcher.gpus(launcher.hardware(stage)) != 0 or stage == "assemble"


OFFLINE = """
import contextlib, io, json, os, socket, sys
def refuse(*arguments, **named):
    raise AssertionError("asks the network")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
os.environ["MY_KEY"] = "geheimnis"
from llm_ocr.cli import main
said = []
for platform in sys.argv[1:]:
    for stage in ("extract", "pipeline"):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            code = main(["launch", platform, stage, "-w", "s3://bucket/run", "--dry-run", "--secret", "MY_KEY"])
        said.append([platform, stage, code, shown.getvalue()])
heavy = {"numpy", "pyarrow", "datasets", "PIL", "onnxruntime", "pypdfium2", "boto3", "torch", "vllm", "ray", "modal",
         "runpod", "huggingface_hub", "google.cloud.run_v2", "google.auth"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
print(json.dumps(said))
"""


def test_a_dry_run_needs_no_account_network_workspace_or_package(tmp_path):
    platforms = [name for name in PLATFORMS.names() if name != "slurm"]
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE, *platforms],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    assert "geheimnis" not in run.stdout + run.stderr
    said = json.loads(run.stdout)
    assert len(said) == 2 * len(platforms) > 8
    for platform, stage, code, text in said:
        shown = json.loads(text)
        assert code == 0 and "MY_KEY" in text, platform
        assert [one["stage"] for one in shown] == (["extract"] if stage == "extract" else list(STAGES)), platform
        assert all(one["requests"] for one in shown), platform


def test_jobs_that_read_a_dataset_install_the_package_for_it():
    settings = settings_from(
        LaunchSettings,
        "submit",
        {"platform": "hf-jobs", "stage": "pipeline", "workspace": "hf://buckets/me/ocr/run", "dataset": "me/scans"},
    )
    specs = launch_request(settings, launcher_for("hf-jobs"), "20260101-000000-abcd").specs
    assert specs["extract"].options["extra"] == ["datasets"]
    assert specs["assemble"].options["extra"] == []


@pytest.mark.parametrize(
    ("settings", "extras"),
    [
        ({"engine": "hybrid"}, ["embedded"]),
        ({"fallback": "embedded"}, ["embedded"]),
        ({"verify": "ocr"}, ["embedded"]),
        ({"rotate": "probe"}, ["embedded"]),
        ({"filter_language": "de"}, ["filters"]),
        ({"verify": "layer", "fallback": "text-layer"}, []),
    ],
)
def test_jobs_on_gpus_install_what_their_settings_need(settings, extras):
    place = {"platform": "kubernetes", "stage": "pipeline", "workspace": "gs://bucket/run"}
    asked = settings_from(LaunchSettings, "submit", place | settings)
    specs = launch_request(asked, launcher_for("kubernetes"), "20260101-000000-abcd").specs
    assert specs["extract"].options["extra"] == extras
    assert specs["assemble"].options["extra"] == []


@pytest.mark.parametrize(
    ("platform", "setting"),
    [("hf-jobs", "region"), ("slurm", "region"), ("kubernetes", "region"), ("kubernetes", "platform_endpoint")],
)
def test_regions_that_a_platform_ignores_are_refused(platform, setting):
    with pytest.raises(UsageError, match=f"{setting}` has no effect on {platform}"):
        with_env(platform, **{setting: "eu-west-1"})


def given_to_jobs(**asked: object) -> Mapping[str, object]:
    """The settings that the jobs of Extract read from the record of their launch."""
    place = {"platform": "hf-jobs", "stage": "extract", "workspace": "hf://buckets/me/ocr/run"}
    settings = settings_from(LaunchSettings, "submit", place | asked)
    return launch_request(settings, launcher_for("hf-jobs"), "20260101-000000-abcd").settings["extract"]


def test_given_defaults_replace_other_settings_of_a_workspace():
    # A workspace may have been begun with text_layer="never" and another model.
    given = {"text_layer": "auto", "model": "deepseek-ocr", "engine": "vllm"}
    assert given_to_jobs(**given) == given
    server = ("http://127.0.0.1:1",)
    assert given_to_jobs(engine="auto", server_url=server) == {"engine": "auto", "server_url": list(server)}


def test_keys_named_as_secrets_may_be_set_on_this_machine(monkeypatch):
    monkeypatch.setenv("LLM_OCR_SERVER_KEY", "geheim")
    with pytest.raises(UsageError, match="server-key is a secret") as caught:
        given_to_jobs(server_url="http://127.0.0.1:1")
    assert "--secret LLM_OCR_SERVER_KEY" in caught.value.hint
    assert "server_key" not in given_to_jobs(server_url="http://127.0.0.1:1", secret="LLM_OCR_SERVER_KEY")
    with pytest.raises(UsageError, match="server-key is a secret"):  # the job would get the variable's value
        given_to_jobs(server_url="http://127.0.0.1:1", secret="LLM_OCR_SERVER_KEY", server_key="other")


@pytest.mark.parametrize("setting", ["server_url", "vllm_arg"])
def test_passwords_in_lists_of_urls_do_not_travel(setting):
    with pytest.raises(UsageError, match="contains a name or password"):
        given_to_jobs(**{setting: ["http://127.0.0.1:1", "http://me:geheim@127.0.0.1:2"]})


def test_misspelled_models_and_parsers_are_refused_before_a_job():
    with pytest.raises(UsageError, match="no profile for model 'deepseek-orc'") as caught:
        given_to_jobs(model="deepseek-orc")
    assert "deepseek-ocr" in caught.value.hint
    with pytest.raises(UsageError, match="no parser is named"):
        given_to_jobs(parser="dotz")
    for possible in ({"model": "me/other"}, {"model": "served", "prompt": "Read.", "server_url": "http://127.0.0.1:1"}):
        assert given_to_jobs(**possible)["model"] == possible["model"]


def test_hugging_face_needs_no_image_and_one_is_for_gpu_stages():
    assert images() == {"extract": "vllm/vllm-openai:v0.33.0", "assemble": "python:3.12-slim"}
    assert images(image="mine/vllm:1") == {"extract": "mine/vllm:1", "assemble": "python:3.12-slim"}
    assert images(image="mine/all:1", wheel="image") == {"extract": "mine/all:1", "assemble": "mine/all:1"}


def images(**more: str) -> dict[str, str]:
    """The images of a pipeline's first and last stage."""
    place = {"platform": "hf-jobs", "stage": "pipeline", "workspace": "hf://buckets/me/ocr/run"}
    launcher = launcher_for("hf-jobs")
    specs = launch_request(
        settings_from(LaunchSettings, "submit", place | more), launcher, "20260101-000000-abcd"
    ).specs
    plans = {stage: launcher.plan(specs[stage]) for stage in ("extract", "assemble")}
    assert not any(plan.missing for plan in plans.values())
    return {stage: plan.requests[-1].body["image"] for stage, plan in plans.items()}


def with_env(platform: str, *env: str, **more: object) -> list[JobSpec]:
    """The jobs of a pipeline with `--env`."""
    workspace = "/shared/run" if platform == "slurm" else "s3://bucket/run"
    keywords = {"platform": platform, "stage": "pipeline", "workspace": workspace, "env": env, **more}
    settings = settings_from(LaunchSettings, "submit", keywords)
    return list(launch_request(settings, launcher_for(platform), "20260101-000000-abcd").specs.values())


def names_and_values(value: object) -> list[tuple[str, str]]:
    """Every variable in the requests of a plan, in the notation of each platform."""
    if isinstance(value, dict):
        named = [(str(value["name"]), str(value["value"]))] if {"name", "value"} <= value.keys() else []
        pairs = [(str(name), one) for name, one in value.items() if isinstance(one, str)]
        return named + pairs + [pair for one in value.values() for pair in names_and_values(one)]
    if isinstance(value, list):
        return [pair for one in value for pair in names_and_values(one)]
    lines = [line.removeprefix("export ") for line in str(value).splitlines() if line.startswith("export ")]
    return [tuple(line.split("=", 1)) for line in lines]  # type: ignore[misc]


@pytest.mark.parametrize("platform", PLATFORMS.names())
def test_env_reaches_every_stage_on_every_platform(platform):
    launcher = launcher_for(platform)
    for spec in with_env(platform, "VLLM_LOGGING_LEVEL=DEBUG", "PIP_INDEX_URL=http://127.0.0.1/a=b"):
        found = names_and_values([request.body for request in launcher.plan(spec).requests])
        assert {("VLLM_LOGGING_LEVEL", "DEBUG"), ("PIP_INDEX_URL", "http://127.0.0.1/a=b")} <= set(found)


def test_env_replaces_what_the_launcher_would_choose():
    hub = launcher_for("hf-jobs").plan(with_env("hf-jobs", "HF_ENDPOINT=http://127.0.0.1:1")[0])
    assert hub.requests[0].body["env"]["HF_ENDPOINT"] == "http://127.0.0.1:1"
    (spec, *_) = with_env("cloud-run", "VLLM_ENABLE_CUDA_COMPATIBILITY=0")
    found = names_and_values([request.body for request in launcher_for("cloud-run").plan(spec).requests])
    assert [pair for pair in found if pair[0] == "VLLM_ENABLE_CUDA_COMPATIBILITY"] == [
        ("VLLM_ENABLE_CUDA_COMPATIBILITY", "0")
    ]


def test_env_without_a_value_is_an_empty_variable():
    (spec, *_) = with_env("hf-jobs", "VLLM_PLUGINS=")
    assert spec.environment["VLLM_PLUGINS"] == ""
    assert "LLM_OCR_WORKSPACE_REGION" not in spec.environment


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("HF_TOKEN=hf_abc", "--secret HF_TOKEN"),
        ("my_api_key=abc", "--secret my_api_key"),
        ("AWS_SECRET=abc", "--secret AWS_SECRET"),
        ("DB_PASSWORD=abc", "--secret DB_PASSWORD"),
        ("HTTPS_PROXY=http://me:geheim@127.0.0.1:3128", "--secret HTTPS_PROXY"),
        ("LLM_OCR_WORKSPACE=s3://other/run", "Remove --env LLM_OCR_WORKSPACE"),
        ("LLM_OCR_LAUNCH=x", "Remove --env LLM_OCR_LAUNCH"),
        ("GIVEN=x", "Remove --env GIVEN"),
        ("NAME", "NAME=VALUE"),
        ("A B=c", "NAME=VALUE"),
    ],
)
def test_env_refuses_secrets_and_what_others_set(env, words):
    with pytest.raises(UsageError) as caught:
        with_env("hf-jobs", env, secret="GIVEN")
    said = f"{caught.value.args[0]} {caught.value.hint}"
    assert words in said
    assert "geheim" not in said
    assert "hf_abc" not in said


@pytest.mark.parametrize(
    ("stage", "settings", "model"),
    [
        ("extract", {}, ["deepseek-ai/DeepSeek-OCR", ""]),
        ("extract", {"model": "glm-ocr"}, ["zai-org/GLM-OCR", "e9134f400acad80346162536e043def285fa1022"]),
        ("extract", {"model": "glm-ocr", "revision": "v2"}, ["zai-org/GLM-OCR", "v2"]),
        ("extract", {"model": "glm-ocr", "weights": "me/tuned"}, ["me/tuned", ""]),
        ("extract", {"model": "me/other", "prompt": "Read."}, ["me/other", ""]),
        ("extract", {"model": "s3://bucket/model", "prompt": "Read."}, []),
        ("extract", {"model_cache": "/data"}, []),
        ("describe", {"describe_model": "qwen3-vl-8b"}, ["Qwen/Qwen3-VL-8B-Instruct", ""]),
        ("describe", {}, []),  # the workspace names the model
        ("fields", {"fields_schema": SCHEMA}, ["Qwen/Qwen3-VL-8B-Instruct", ""]),
        ("fields", {"fields_schema": SCHEMA, "model": "Qwen/Qwen3-8B"}, ["Qwen/Qwen3-8B", ""]),
        ("extract", {"engine": "embedded", "hardware": "cpu-upgrade"}, None),
    ],
)
def test_jobs_on_the_hub_get_the_model_that_their_server_loads(stage, settings, model):
    asked = {"platform": "hf-jobs", "stage": stage, "workspace": "hf://buckets/me/ocr/run", **settings}
    found = launch_request(settings_from(LaunchSettings, "submit", asked), launcher_for("hf-jobs"), "l1")
    assert found.specs[stage].options.get("hub_model") == model
