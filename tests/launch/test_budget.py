"""`--max-cost` is a limit: requests carry time limits that the rest of the budget pays for."""

import json

import pytest

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import LaunchSettings
from llm_ocr.costs import price_per_hour
from llm_ocr.errors import LimitReached, UsageError
from llm_ocr.launch import Job, JobSpec, JobStatus, State, launcher_for
from llm_ocr.launch.bill import Budget, bill, bounded, budget_of
from llm_ocr.launch.records import Submission
from tests.fakes.cloud_run import running as cloud_run_running
from tests.fakes.gcs import running as gcs_running

EMBEDDED = ("--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1")
#: A machine is billed while it stops, which counts.
STOPPING = 120


def paid(dollars: float, per_hour: float, shards: int = 1) -> int:
    """Whole minutes that the dollars pay for, in seconds."""
    return (int(dollars / per_hour * 3600 / shards) - STOPPING) // 60 * 60


def test_hugging_face_receives_the_time_that_the_budget_pays_for(platform, digital):
    platform.api.create_bucket("tester/ws", private=True)
    words = ("--hardware", "cpu-upgrade", "--platform-endpoint", platform.hub.url, "--wheel", platform.wheel)
    place = ("-w", "hf://buckets/tester/ws/run", "--workspace-endpoint", platform.hub.url, "--max-cost", "0.01")
    assert main(["launch", "hf-jobs", "extract", str(digital / "one.pdf"), *place, *words, *EMBEDDED]) == 0
    (job,) = platform.hub.state.jobs.by_id.values()
    assert job.spec["timeoutSeconds"] == paid(0.01, 0.03)


def test_cloud_run_receives_the_time_that_the_budget_pays_for(digital):
    pytest.importorskip("google.cloud.run_v2")
    pytest.importorskip("google.cloud.storage")
    image = "us-central1-docker.pkg.dev/my-project/llm-ocr/cpu:1"
    with gcs_running("bucket") as gcs, cloud_run_running(environment={"STORAGE_EMULATOR_HOST": gcs.url}) as run:
        run.account.images = {image}
        words = ("--hardware", "cpu", "--image", image, "--project", "my-project", "--region", "us-central1")
        place = ("-w", "gs://bucket/run", "--workspace-endpoint", gcs.url, "--platform-endpoint", run.url)
        sources = (str(digital / "one.pdf"), *EMBEDDED, "--max-cost", "0.1")
        assert main(["launch", "cloud-run", "extract", *sources, *place, *words]) == 0
        sent = [json.loads(json.dumps(one, default=str)) for one in run.requests]
    limit = paid(0.1, price_per_hour("cloud-run", "cpu").per_hour)
    assert f'"timeout": "{limit}s"' in json.dumps(sent), sent


@pytest.mark.parametrize(
    "words",
    [
        ("slurm",),
        ("sagemaker", "--spot"),
        ("cloud-run", "--hardware", "nvidia-rtx-pro-6000"),
        ("modal", "--region", "eu"),
    ],
)
def test_limit_without_a_price_is_wrong_usage_before_any_write(words, tmp_path, capsys):
    workspace = str(tmp_path / "w") if words[0] == "slurm" else "s3://no-such-bucket/w"
    platform, *more = words
    code = main(["launch", platform, "extract", "a.pdf", "-w", workspace, "--max-cost", "5", *more])
    said = capsys.readouterr().err
    assert code == 2, said
    assert "is unknown" in said
    assert "--price-per-hour 1.80" in said
    assert not any(tmp_path.iterdir())


def of(stage: str, number: int, **more) -> Submission:
    """A submission on two L40S for an hour."""
    spec = JobSpec(stage, "s3://b/w", "l", number, 2, "l40sx1", time_limit=3600 - STOPPING, **more)
    return Submission("hf-jobs", spec, jobs=(Job("a", "a"),))


class Platform:
    """A platform that ends jobs after a day."""

    platform = "hf-jobs"

    def time_limit(self, spec: JobSpec) -> int:
        return 86_400


def test_budget_left_is_limit_less_cost_of_ended_and_open_jobs():
    ended = of("extract", 1)
    budget = budget_of(10, [Submission("hf-jobs", ended.spec, ended.jobs, {"cost": 2.5}), of("extract", 2)])
    assert (budget.spent, budget.committed) == (2.5, pytest.approx(3.60))
    assert budget.left == pytest.approx(3.90)


def test_unknown_cost_counts_as_the_most_and_unsent_job_as_zero():
    one = of("extract", 1)
    lost = Submission("hf-jobs", one.spec, one.jobs, {"cost": None})
    never = Submission("hf-jobs", one.spec, None, {"cost": None})
    assert budget_of(10, [lost, never]).spent == pytest.approx(3.60)


def test_too_little_for_ten_minutes_is_said_with_its_figures():
    spec = JobSpec("extract", "s3://b/w", "l", shards=2, hardware="l40sx1", options={"price_per_hour": 1.8})
    assert bounded(Platform(), spec, budget_of(5, [])).time_limit == paid(5, 1.8, 2)
    assert bounded(Platform(), spec, budget_of(500, [])).time_limit == 86_400
    with pytest.raises(LimitReached) as caught:
        bounded(Platform(), spec, budget_of(4, [of("extract", 1)]))
    assert caught.value.exit_code == 5
    assert "of --max-cost $4.00, $0.00 is spent, and open jobs may spend $3.60" in str(caught.value)
    assert "pays for 4 minutes on 2 x l40sx1 at $1.80 per hour" in str(caught.value)


def test_a_limit_of_the_users_that_is_shorter_stays():
    spec = JobSpec("extract", "s3://b/w", "l", hardware="l40sx1", time_limit=300, options={"price_per_hour": 1.8})
    assert bounded(Platform(), spec, budget_of(5, [])).time_limit == 300
    assert bounded(Platform(), spec, budget_of(0.25, [])).time_limit == 300


def ended(seconds: float | None = None, *, shard: int | None = None) -> JobStatus:
    return JobStatus(Job("a", "a", shard), State.SUCCEEDED, "", 1000.0, 1000.0 + 1800.0, seconds)


def test_a_bill_counts_every_machine_once():
    spec = JobSpec("extract", "s3://b/w", "l", shards=4, hardware="x", options={"price_per_hour": 2.0})
    one_job = bill("cloud-run", spec, [ended()])
    assert (one_job["machines"], one_job["seconds"], one_job["cost"]) == (4, 7200.0, 4.0)
    summed = bill("sagemaker", spec, [ended(7200.0)])  # SageMaker's seconds are of all its machines
    assert summed["cost"] == 4.0
    assert bill("modal", spec, [ended(1800.0, shard=one) for one in range(4)])["cost"] == 4.0
    assert bill("modal", spec, [ended(1800.0), JobStatus(Job("b", "b"), State.FAILED)])["cost"] is None


def test_assemble_of_a_pipeline_costs_what_its_own_machine_costs():
    from llm_ocr.launch import launcher_for
    from llm_ocr.launch.launching import launch_request

    asked = {"platform": "sagemaker", "stage": "pipeline", "workspace": "s3://b/w", "price_per_hour": 1.5}
    settings = settings_from(LaunchSettings, "submit", asked)
    specs = launch_request(settings, launcher_for("sagemaker"), "00000000-000000-0000").specs
    prices = [bill("sagemaker", one, [])["price_per_hour"] for one in specs.values()]
    assert prices == [1.5, 1.5, 0.204]


def test_a_cost_limit_is_not_for_jobs_to_read():
    from llm_ocr.launch.specs import job_settings

    asked = {"platform": "slurm", "stage": "extract", "workspace": "w", "price_per_hour": 1.5, "max_cost": 3.0}
    assert job_settings("extract", settings_from(LaunchSettings, "submit", asked)) == {}


def test_a_price_must_be_more_than_nothing():
    with pytest.raises(UsageError, match="price_per_hour"):
        llm_ocr.submit("slurm", "extract", workspace="w", price_per_hour=0)


def test_a_dry_run_shows_the_limit_that_the_budget_pays_for(capsys):
    role = "arn:aws:iam::123456789012:role/llm-ocr-job"
    words = ["sagemaker", "extract", "-w", "s3://b/w", "--role", role, "--max-cost", "5", "--dry-run"]
    assert main(["launch", *words]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    seconds = shown["requests"][0]["body"]["StoppingCondition"]["MaxRuntimeInSeconds"]
    assert 4.5 < seconds / 3600 * 2.8 < 5  # ml.g6e.2xlarge costs 2.80 dollars an hour


def test_a_dry_run_needs_the_price_that_the_launch_needs(capsys):
    words = ["launch", "sagemaker", "extract", "-w", "s3://b/w", "--spot", "--max-cost", "5", "--dry-run"]
    assert main(words) == 2
    assert "--max-cost cannot limit extract: the price of spot machines" in capsys.readouterr().err
    assert main([*words, "--price-per-hour", "1.2"]) == 0


def test_missing_price_prevents_an_unlimited_submission():
    launcher = launcher_for("sagemaker")
    spec = JobSpec("extract", "s3://b/w", "l", hardware="ml.of-no-price")
    with pytest.raises(LimitReached, match="requires a price for"):
        bounded(launcher, spec, Budget(5.0, 0.0, 0.0))
    assert bounded(launcher, spec, Budget(5.0, 0.0, 0.0), live=False) == spec
