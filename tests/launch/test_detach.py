"""`launch pipeline --detach`: a job on the platform submits the stages, and the machine that launched may go away."""

import json
import subprocess
import sys

import pytest
from hf_jobs_running import Platform
from running import cli, said
from sagemaker_account import opened, until

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import LaunchSettings
from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import PIPELINE, launching
from llm_ocr.launch.launching import begin
from llm_ocr.launch.records import read_launches
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.stored import verified_launch
from tests.fakes.hub import TOKEN

WORKSPACE = "hf://buckets/tester/ws/run"
SMALL = ("--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1", "--pages-per-unit", "1")
#: Runs `llm-ocr` with a platform that is asked often; the coordinator inherits that.
OFTEN = (
    "import sys; from llm_ocr.launch import launching; launching.EVERY = 0.5; "
    "from llm_ocr.cli import main; sys.exit(main(sys.argv[1:]))"
)


#: An image that holds the library: its jobs install nothing.
IMAGE = ("--image", "registry.example/llm-ocr:1", "--wheel", "image")


def words(platform: Platform, *sources, library: tuple[str, ...] = IMAGE) -> list[str]:
    where = ("-w", WORKSPACE, "--workspace-endpoint", platform.hub.url, "--platform-endpoint", platform.hub.url)
    command = ("launch", "hf-jobs", "pipeline", *map(str, sources), *where, *SMALL, "--hardware", "cpu-upgrade")
    return [*command, *library, "--detach"]


def settings(platform: Platform, *sources, **more) -> LaunchSettings:
    found = {
        **{"platform": "hf-jobs", "stage": "pipeline", "workspace": WORKSPACE, "hardware": "cpu-upgrade"},
        **{"workspace_endpoint": platform.hub.url, "platform_endpoint": platform.hub.url},
        **{"image": "registry.example/llm-ocr:1", "wheel": "image"},
        **{"engine": "embedded", "render_workers": 1, "ocr_workers": 1, "pages_per_unit": 1, "detach": True},
        "sources": tuple(map(str, sources)),
    }
    return settings_from(LaunchSettings, "submit", found | more)


def jobs_of(platform: Platform):
    return list(platform.hub.state.jobs.by_id.values())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dataset_is_made_after_the_launching_process_has_exited(bucket, digital, tmp_path, capsys):
    environment = {"HF_TOKEN": TOKEN, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    library = ("--wheel", bucket.wheel)
    command = [sys.executable, "-c", OFTEN, *words(bucket, digital / "one.pdf", digital / "two.pdf", library=library)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=240)
    assert run.returncode == 0, said(run)
    assert run.stdout.startswith("1 job submitted.")
    coordinator = jobs_of(bucket)[0]
    assert coordinator.labels["stage"] == PIPELINE
    lines: list[str] = []
    again = settings(bucket, digital / "one.pdf", digital / "two.pdf", detach=False, image=None, wheel=bucket.wheel)
    begin(again, lines.append).wait()
    assert any("3/3 pages," in line for line in lines), lines  # a later launch waits for the first
    assert coordinator.over.wait(300)
    assert coordinator.stage == "COMPLETED", coordinator.lines
    assert [job.labels["stage"] for job in jobs_of(bucket)] == [PIPELINE, "extract", "describe", "assemble"]
    assert [job.spec["flavor"] for job in jobs_of(bucket)] == ["cpu-basic", *["cpu-upgrade"] * 3]
    assert coordinator.lines[-1] == "3 ok, 0 degraded, 0 failed"
    assert any("3/3 pages" in line for line in coordinator.lines), coordinator.lines
    assert TOKEN not in json.dumps([job.spec["environment"] for job in jobs_of(bucket)])
    status = llm_ocr.open(WORKSPACE, endpoint=bucket.hub.url).status
    assert status.finished
    assert status.pages.ok == 3
    reached = ("-w", WORKSPACE, "--workspace-endpoint", bucket.hub.url)
    assert listed(capsys, *reached) == dict.fromkeys((PIPELINE, "extract", "describe", "assemble"), "succeeded")
    assert main(["status", "--json", *reached]) == 0
    spent = json.loads(capsys.readouterr().out)["spent"]["jobs"]
    assert [one["stage"] for one in spent] == [PIPELINE, "extract", "describe", "assemble"]
    assert all(one["cost"] > 0 for one in spent)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_a_killed_coordinator_the_same_command_goes_on(bucket, digital, capsys):
    assert main(words(bucket, digital / "one.pdf")) == 0
    (coordinator,) = jobs_of(bucket)
    until(lambda: any(job.labels["stage"] == "extract" for job in jobs_of(bucket)), bool)
    coordinator.container.kill()
    assert coordinator.over.wait(300)
    for job in jobs_of(bucket):
        assert job.over.wait(300)
    assert not llm_ocr.open(WORKSPACE, endpoint=bucket.hub.url).status.finished
    assert main(words(bucket, digital / "one.pdf")) == 0
    again = next(job for job in jobs_of(bucket) if job.labels["stage"] == PIPELINE and job is not coordinator)
    assert again.over.wait(300)
    assert again.stage == "COMPLETED", again.lines
    assert llm_ocr.open(WORKSPACE, endpoint=bucket.hub.url).status.pages.ok == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_canceled_coordinator_ends_with_its_stage(bucket, digital, capsys):
    assert main(words(bucket, digital / "one.pdf")) == 0
    until(lambda: any(job.labels["stage"] == "extract" for job in jobs_of(bucket)), bool)
    assert main(["jobs", "cancel", "-w", WORKSPACE, "--workspace-endpoint", bucket.hub.url]) == 0
    assert capsys.readouterr().out.count("Canceled ") == 2
    assert all(job.over.wait(300) for job in jobs_of(bucket))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_later_launch_starts_no_second_coordinator(bucket, digital):
    first = begin(settings(bucket, digital / "one.pdf"), lambda _: None)
    (job,) = first.detach()
    lines: list[str] = []
    second = begin(settings(bucket, digital / "one.pdf"), lines.append)
    assert second.id == first.id
    assert [one.id for one in second.detach()] == [job.id]
    assert "which is in progress" in lines[0]
    with pytest.raises(LaunchError, match="is in progress as launch"):
        begin(settings(bucket, digital / "one.pdf", stage="extract", detach=False), lines.append)
    assert main(["jobs", "cancel", "-w", WORKSPACE, "--workspace-endpoint", bucket.hub.url]) == 0
    assert [job.labels["stage"] for job in jobs_of(bucket)].count(PIPELINE) == 1


def listed(capsys, *place: str) -> dict[str, str]:
    """The state of each stage, as `llm-ocr jobs` tells it."""
    capsys.readouterr()
    assert main(["jobs", "--json", *place]) == 0
    return {one["stage"]: one["state"] for one in json.loads(capsys.readouterr().out)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_of_sagemaker_submits_the_stages(digital, monkeypatch, capsys):
    monkeypatch.setattr(launching, "EVERY", 0.5)
    with opened() as account:
        where = ("--role", account.role, "--image", account.image, "--wheel", "image")
        asked = ("-w", account.workspace, "--hardware", "ml.c5.xlarge", "--max-cost", "5", *where, *SMALL, "--detach")
        assert main(["launch", "sagemaker", "pipeline", str(digital / "one.pdf"), *asked]) == 0
        (coordinator,) = account.fake.jobs.values()
        until(lambda: coordinator.look() or coordinator.over, bool)
        assert set(listed(capsys, "-w", account.workspace).values()) == {"succeeded"}
        limits = [job.body["StoppingCondition"]["MaxRuntimeInSeconds"] for job in account.fake.jobs.values()]
        assert llm_ocr.open(account.workspace).status.finished
    # A tenth of the budget is for the coordinator, and Extract may have the rest.
    assert limits[:2] == [int(0.5 / 0.05 * 3600) - 120, (int(4.5 / 0.204 * 3600) - 120) // 60 * 60]


@pytest.mark.slow
def test_coordinator_does_not_trust_specs_that_others_changed(bucket, digital):
    begin(settings(bucket, digital / "one.pdf"), lambda _: None).detach()
    with Workspace.open(WORKSPACE, options=StoreOptions(None, bucket.hub.url)) as workspace:
        (launched,) = read_launches(workspace)
        key = f"launches/{launched.id}/launch.json"
        value = json.loads(workspace.store.get(key))
        value["specs"]["extract"]["image"] = "attacker/image"
        workspace.store.put(key, json.dumps(value).encode())
        workspace.flush()
    with pytest.raises(LaunchError, match="is in progress as launch"):
        begin(settings(bucket, digital / "one.pdf"), lambda _: None)
    (coordinator,) = jobs_of(bucket)
    assert coordinator.over.wait(300)
    assert "differs from the launched file" in coordinator.message or any(
        "differs from" in line for line in coordinator.lines
    )


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (("modal", "pipeline", "--detach"), "MODAL_TOKEN_ID and MODAL_TOKEN_SECRET", "--secret MODAL_TOKEN_ID"),
        (("slurm", "pipeline", "--detach", "--image", "x.sif"), "lacks sbatch", "--slurm-setup"),
        (("hf-jobs", "pipeline", "--detach", "--wait"), "--detach cannot be used with --wait", "Remove --wait"),
        (("hf-jobs", "extract", "--detach"), "--detach cannot be used with extract", "remove both"),
        (("hf-jobs", "pipeline"), "Add --wait", "--detach"),
    ],
)
def test_where_it_cannot_work_is_said_before_anything_is_made(more, message, hint, tmp_path):
    workspace = "w" if more[0] == "slurm" else "s3://no-such-bucket/w"
    run = cli("launch", *more, "a.pdf", "-w", workspace, cwd=tmp_path)
    assert run.returncode == 2, said(run)
    assert message in run.stderr
    assert hint in run.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("platform", "workspace", "machine", "extras"),
    [
        ("sagemaker", "s3://b/w", '"InstanceType": "ml.t3.medium"', '["s3"]'),
        ("cloud-run", "gs://b/w", '"limits": {"cpu": "2", "memory": "4Gi"}', '["gcs", "cloud-run"]'),
        ("hf-jobs", "s3://b/w", '"flavor": "cpu-basic"', '["s3"]'),
    ],
    ids=["sagemaker", "cloud-run", "hf-jobs"],
)
def test_dry_run_shows_the_coordinator_first(platform, workspace, machine, extras, tmp_path):
    run = cli("launch", platform, "pipeline", "-w", workspace, "--detach", "--dry-run", cwd=tmp_path)
    assert run.returncode == 0, said(run)
    first, *stages = json.loads(run.stdout)
    assert [one["stage"] for one in stages] == ["extract", "describe", "assemble"]
    request = json.dumps(first["requests"])
    assert "llm_ocr.launch.coordinator" in request
    assert machine in request
    assert json.dumps(f'"extras": {extras}')[1:-1] in request  # the client of the store, and that of the platform


def test_a_launch_without_a_hash_is_not_coordinated():
    with pytest.raises(UsageError, match="ID@SHA256"):
        verified_launch("w", StoreOptions(), "20260101-000000-abcd")
