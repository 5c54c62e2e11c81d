"""Launching on any platform: what is submitted again and what is not, what is said, and that nothing is made twice."""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from reportlab.pdfgen import canvas
from scripted_platform import FRUGAL, Ending, Scripted

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import LaunchSettings
from llm_ocr.errors import Interrupted, JobFailed, LaunchError, LimitReached, StageMissing, UsageError, WorkspaceError
from llm_ocr.launch import State, bill, is_installed, launching, watching
from llm_ocr.launch.records import submissions
from llm_ocr.launch.watching import launched_jobs
from llm_ocr.workspace import Workspace
from llm_ocr_simulator import running

SCHEMA = '{"type": "object", "properties": {"line": {"type": "string"}}}'


@pytest.fixture
def platform(monkeypatch) -> Scripted:
    """The platform that is called `slurm` in these tests."""
    made = Scripted()
    for module in (launching, watching, bill):
        monkeypatch.setattr(module, "launcher_for", lambda name: made)
    return made


@pytest.fixture
def sources(tmp_path) -> Path:
    """Three units of a page each, which need no OCR."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        page = canvas.Canvas(str(folder / f"{number}.pdf"))
        for line in range(12):
            page.drawString(72, 700 - 20 * line, f"Line {line} of document {number}, which says nothing else.")
        page.save()
    return folder


def test_no_job_counts_as_ended_without_metadata(repository, monkeypatch):
    """A checkout on PYTHONPATH that is not installed has no platforms."""
    monkeypatch.setattr(sys, "path", [str(repository)])
    with pytest.raises(UsageError, match="the metadata of llm-ocr is missing") as caught:
        is_installed("slurm")
    assert "pip install -e ." in caught.value.hint


def launch(workspace: Path, stage: str, *sources: Path, said: list[str] | None = None, **settings):
    keywords = {"platform": "slurm", "stage": stage, "workspace": str(workspace), **settings}
    if sources:
        keywords |= {"sources": tuple(map(str, sources)), "pages_per_unit": 1}
    lines = [] if said is None else said
    return launching.begin(settings_from(LaunchSettings, "submit", keywords), lines.append)


def test_pipeline_runs_one_job_at_a_time_to_a_whole_result(platform, sources, tmp_path):
    launch(tmp_path / "w", "pipeline", sources).wait()
    assert [spec.stage for spec in platform.submitted] == ["extract", "describe", "assemble"]
    status = llm_ocr.open(tmp_path / "w").status
    assert status.finished
    assert status.pages.ok == 3
    with Workspace.open(str(tmp_path / "w")) as workspace:
        found = launched_jobs(workspace)
    assert [(one.stage, one.status.state) for one in found] == [
        ("extract", State.SUCCEEDED),
        ("describe", State.SUCCEEDED),
        ("assemble", State.SUCCEEDED),
    ]


def test_waiting_for_one_stage_submits_no_later_one(platform, sources, tmp_path):
    pipeline = launch(tmp_path / "w", "pipeline", sources)
    pipeline.wait("extract")
    assert [spec.stage for spec in platform.submitted] == ["extract"]
    assert len(list(llm_ocr.open(tmp_path / "w").pages())) == 3
    pipeline.wait("describe")
    pipeline.wait()
    pipeline.wait()
    assert [spec.stage for spec in platform.submitted] == ["extract", "describe", "assemble"]
    with pytest.raises(UsageError, match="no stage 'export'"):
        pipeline.wait("export")


def test_settings_travel_in_workspace_and_jobs_get_little_else(platform, sources, tmp_path):
    launch(tmp_path / "w", "extract", sources, pages="1").wait()
    (spec,) = platform.submitted
    held = (tmp_path / f"w/launches/{spec.launch}/launch.json").read_bytes()
    reference = f"{spec.launch}@{hashlib.sha256(held).hexdigest()}"
    assert spec.environment == {"LLM_OCR_WORKSPACE": str(tmp_path / "w"), "LLM_OCR_LAUNCH": reference}
    stored = json.loads((tmp_path / f"w/launches/{spec.launch}/launch.json").read_text())
    assert stored["settings"]["extract"] == {
        "sources": [str(sources)],
        "pages": "1",
        "pages_per_unit": 1,
    }


def test_stage_with_missing_units_is_resubmitted_if_some_came(platform, sources, tmp_path):
    platform.endings["extract"] = [
        Ending((0, 3), State.TIMED_OUT, "an hour is over"),
        Ending((1, 3), State.FAILED, "the machine broke"),
    ]
    said: list[str] = []
    launch(tmp_path / "w", "extract", sources, said=said).wait()
    assert [spec.submission for spec in platform.submitted] == [1, 2, 3]
    assert any("2 units of 3 missing (an hour is over" in line for line in said)
    assert llm_ocr.open(tmp_path / "w").status.pages.ok == 3


def test_no_more_shards_are_started_than_units_are_missing(platform, sources, tmp_path):
    llm_ocr.plan(str(sources), workspace=tmp_path / "w", pages_per_unit=1, engine="embedded")
    platform.endings["extract"] = [Ending((0, 3), State.FAILED, "taken away")]
    said: list[str] = []
    launch(tmp_path / "w", "extract", shards=8, said=said).wait()
    assert [spec.shards for spec in platform.submitted] == [3, 2]
    assert "extract: --shards 8, but 3 units to process: only 3 started" in said
    assert llm_ocr.open(tmp_path / "w").status.pages.ok == 3


def test_new_sources_get_all_shards(platform, sources, tmp_path):
    llm_ocr.plan(str(sources / "0.pdf"), workspace=tmp_path / "w", pages_per_unit=1, engine="embedded")
    launch(tmp_path / "w", "extract", sources, shards=3).wait()
    assert [spec.shards for spec in platform.submitted] == [3]


def test_shards_without_a_plan_are_said_to_be_a_guess(platform, sources, tmp_path):
    said: list[str] = []
    launch(tmp_path / "w", "pipeline", sources, shards=8, said=said).wait()
    assert [spec.shards for spec in platform.submitted] == [8, 3, 1]
    assert sum("llm-ocr plan -w" in line for line in said) == 1


def test_a_job_that_fails_before_its_first_unit_is_not_repeated(platform, sources, tmp_path):
    platform.endings["extract"] = [Ending(None, State.FAILED, "image not found")]
    with pytest.raises(JobFailed, match="image not found") as caught:
        launch(tmp_path / "w", "extract", sources).wait()
    assert len(platform.submitted) == 1
    assert "jobs logs" in caught.value.hint
    with pytest.raises(JobFailed):  # the next launch is a new one, and is tried once again
        platform.endings["extract"] = [Ending(None, State.FAILED, "image not found")]
        launch(tmp_path / "w", "extract", sources).wait()
    assert len(platform.submitted) == 2


@pytest.mark.parametrize("stage", ["extract", "describe", "assemble", "repair", "pipeline"])
def test_no_job_is_rented_for_a_workspace_without_a_plan(platform, tmp_path, stage):
    with pytest.raises(StageMissing, match="no plan in"):
        launch(tmp_path / "w", stage)
    assert not list((tmp_path / "w").glob("launches/*"))


def test_a_pipeline_stops_at_the_stage_that_failed(platform, sources, tmp_path):
    platform.endings["describe"] = [Ending(None, State.FAILED, "no quota")]
    with pytest.raises(JobFailed, match="no quota"):
        launch(tmp_path / "w", "pipeline", sources).wait()
    assert [spec.stage for spec in platform.submitted] == ["extract", "describe"]


def test_attempts_are_the_most_submissions_of_a_stage(platform, sources, tmp_path):
    platform.endings["extract"] = [Ending((0, 3), State.FAILED, "a"), Ending((1, 3), State.FAILED, "b")]
    with pytest.raises(JobFailed, match="1 unit of 3 missing after 2 submissions: b"):
        launch(tmp_path / "w", "extract", sources, attempts=2).wait()


def test_nothing_is_submitted_beyond_the_costs_allowed(platform, sources, tmp_path):
    platform.seconds = 1800.0  # a dollar
    platform.endings["extract"] = [Ending((0, 3), State.FAILED, "taken away"), Ending((1, 3), State.FAILED, "again")]
    price = {"price_per_hour": 2.0}
    with pytest.raises(LimitReached, match=r"of --max-cost \$2\.20, \$2\.00 is spent") as caught:
        launch(tmp_path / "w", "extract", sources, max_cost=2.2, **price).wait()
    assert caught.value.exit_code == 5
    # What is left pays for less each time; a machine is billed for two more minutes while it stops.
    assert [spec.time_limit for spec in platform.submitted] == [3840, 2040 - 2040 % 60]
    with pytest.raises(LimitReached):
        launch(tmp_path / "w", "extract", max_cost=2.2, **price).wait()
    assert len(platform.submitted) == 2
    launch(tmp_path / "w", "extract", max_cost=3.0, **price).wait()
    with pytest.raises(LimitReached, match="describe was not submitted"):
        launch(tmp_path / "w", "pipeline", max_cost=3.0, **price).wait()
    assert [spec.stage for spec in platform.submitted] == ["extract", "extract", "extract"]
    assert llm_ocr.open(tmp_path / "w").status.pages.ok == 3


def test_what_jobs_of_others_may_still_cost_is_not_spent_twice(platform, sources, tmp_path):
    llm_ocr.plan(str(sources), workspace=tmp_path / "w", pages_per_unit=1, engine="embedded")
    platform.endings["extract"] = [Ending(None, State.RUNNING)]
    said: list[str] = []
    launch(tmp_path / "w", "extract", max_cost=5.0, price_per_hour=2.0, said=said).submit()
    assert said[-2].startswith("extract: at most $")
    with pytest.raises(LimitReached, match=r"open jobs may spend"):
        launch(tmp_path / "w", "describe", max_cost=5.0, price_per_hour=2.0).submit()


def test_a_cancelled_job_is_not_submitted_again(platform, sources, tmp_path):
    platform.endings["extract"] = [Ending((0, 3), State.CANCELLED)]
    with pytest.raises(JobFailed, match="cancelled"):
        launch(tmp_path / "w", "extract", sources).wait()
    assert len(platform.submitted) == 1


def test_a_failed_job_whose_units_are_all_there_is_no_failure(platform, sources, tmp_path):
    platform.endings["extract"] = [Ending((0, 1), State.FAILED, "exit code 3")]
    said: list[str] = []
    launch(tmp_path / "w", "extract", sources, said=said).wait()
    assert len(platform.submitted) == 1
    assert any("all units are done, but a job failed: exit code 3" in line for line in said)


def test_a_job_that_ended_well_and_planned_nothing_is_a_failure(platform, sources, tmp_path):
    platform.endings["extract"] = [Ending(None)]
    with pytest.raises(JobFailed, match="its jobs succeeded without finishing all units"):
        launch(tmp_path / "w", "extract", sources).wait()


def test_launcher_death_before_the_record_creates_nothing_twice(platform, sources, tmp_path):
    platform.dies_after_submit = True
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path / "w", "extract", sources).wait()
    launch(tmp_path / "w", "extract").wait()
    assert len(platform.submitted) == 1  # found, and all its units are there


def test_who_looks_while_jobs_are_being_submitted_records_no_end(platform, sources, tmp_path, monkeypatch):
    submit = platform.submit

    def looked_at(plan):
        with Workspace.open(str(tmp_path / "w")) as workspace:
            launched_jobs(workspace)
        return submit(plan)

    monkeypatch.setattr(platform, "submit", looked_at)
    launch(tmp_path / "w", "extract", sources).wait()
    with Workspace.open(str(tmp_path / "w")) as workspace:
        (one,) = submissions(workspace)
    assert [job["state"] for job in one.end["jobs"]] == ["succeeded"]


def test_submission_that_never_arrived_is_over_after_a_while(platform, sources, tmp_path, monkeypatch):
    def dies(plan):
        raise KeyboardInterrupt

    monkeypatch.setattr(platform, "submit", dies)
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path / "w", "extract", sources).wait()
    with Workspace.open(str(tmp_path / "w")) as workspace:
        (one,) = submissions(workspace)
        assert not bill.has_ended(workspace, one)
        assert bill.has_ended(workspace, replace(one, decided=one.decided - 3600))
        assert [one.over for one in submissions(workspace)] == [True]


def test_one_who_comes_later_goes_on_with_what_runs(platform, sources, tmp_path):
    first = launch(tmp_path / "w", "extract", sources)
    (job,) = first.submit()
    finished = platform.ended[job.id]
    platform.ended[job.id] = finished.__class__(job, State.RUNNING)
    said: list[str] = []
    second = launch(tmp_path / "w", "extract", sources, said=said)
    assert second.id == first.id
    assert "which is in progress" in said[0]
    with pytest.raises(LaunchError, match="is in progress as launch") as caught:
        launch(tmp_path / "w", "extract", sources, text_layer="never")
    assert "jobs cancel" in caught.value.hint
    platform.ended[job.id] = finished
    second.wait()
    assert len(platform.submitted) == 1


def test_platform_that_does_not_answer_for_a_while_ends_nothing(platform, sources, tmp_path, monkeypatch):
    monkeypatch.setattr(watching.time, "sleep", lambda _: None)
    platform.unreachable = 3
    said: list[str] = []
    one = launch(tmp_path / "w", "extract", sources, said=said)
    one.wait()
    assert sum("does not answer; retrying" in line for line in said) == 3


@pytest.mark.parametrize(
    ("platform_name", "words"), [("hf-jobs", "1 job goes on and costs money: "), ("slurm", "1 job goes on: ")]
)
def test_ctrl_c_says_which_jobs_go_on(platform, sources, tmp_path, monkeypatch, platform_name, words):
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    platform.endings["extract"] = [Ending(None, State.RUNNING)]
    one = launch(tmp_path / "w", "extract", sources)
    platform.platform = platform_name
    monkeypatch.setattr(watching.time, "sleep", interrupted)
    with pytest.raises(Interrupted) as caught:
        one.wait()
    assert caught.value.args[0] == f"{words}llm-ocr jobs cancel -w {tmp_path / 'w'}"
    assert caught.value.exit_code == 4
    platform.unreachable = 1  # the network is away
    with pytest.raises(Interrupted, match="1 job go"):
        one.wait()


def test_ctrl_c_while_a_job_is_created_does_not_hide_it(platform, sources, tmp_path):
    """The platform has the job, but the workspace has no record of it yet."""
    platform.endings["extract"] = [Ending(None, State.RUNNING)]
    platform.dies_after_submit = True
    with pytest.raises(Interrupted, match="1 job goes on"):
        launch(tmp_path / "w", "extract", sources).wait()


def test_extract_is_not_rented_for_when_nothing_is_left(platform, sources, tmp_path):
    launch(tmp_path / "w", "extract", sources).wait()
    launch(tmp_path / "w", "pipeline").wait()
    assert [spec.stage for spec in platform.submitted] == ["extract", "describe", "assemble"]


def test_a_launch_of_which_many_pages_failed_is_no_success(platform, sources, tmp_path, capsys):
    (sources / "2.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    words = ["launch", "slurm", "extract", str(sources), "-w", str(tmp_path / "w"), "--pages-per-unit", "1", "--wait"]
    assert main(words) == 3
    assert capsys.readouterr().out.startswith("2 ok, 1 failed (")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hardware": "gpu", "engine": "embedded"}, "uses no GPU, but gpu has 1"),
        ({"hardware": "small"}, "small has no GPU for extract"),
        ({"hardware": "small", "engine": "hybrid"}, "small has no GPU for extract"),
        ({"password": ("geheim",)}, "--password is a secret"),
        ({"server_url": ("http://x",), "server_key": "geheim"}, "--server-key is a secret"),
        ({"password_file": "p.txt"}, "--password-file p.txt is on this machine"),
        ({"secret": ("A B",)}, "--secret A B"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_written(platform, sources, tmp_path, settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        launch(tmp_path / "w", "extract", sources, **settings)
    assert "geheim" not in str(caught.value)
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
def test_repair_is_planned_once_and_continued_by_later_jobs(platform, sources, tmp_path):
    llm_ocr.plan(str(sources), workspace=tmp_path / "w", pages_per_unit=1, engine="embedded")
    sources.rename(tmp_path / "away")
    run = llm_ocr.run(workspace=tmp_path / "w", engine="embedded", **FRUGAL)
    assert run.status.pages.failed == 3
    (tmp_path / "away").rename(sources)
    platform.endings["repair"] = [Ending((0, 2), State.FAILED, "the machine broke")]
    chosen = {"max_pages": 2, "headers": "keep"}
    said: list[str] = []
    launch(tmp_path / "w", "repair", said=said, **chosen).wait()
    assert [(spec.stage, spec.submission) for spec in platform.submitted] == [("repair", 1), ("repair", 2)]
    assert any("repair: 1 unit of 2 missing (the machine broke" in line for line in said)
    (repaired,) = run.status.repairs
    assert (repaired.pages, repaired.read) == (2, 2)
    assert repaired.repair.options == {"headers": "keep"}
    assert run.status.finished

    launch(tmp_path / "w", "repair", **chosen).wait()
    assert [repaired.read for repaired in run.status.repairs] == [2, 1]
    launch(tmp_path / "w", "repair", said=said, **chosen).wait()
    assert len(run.status.repairs) == 2
    assert "repair: no further page was chosen" in said


def test_repair_that_planned_nothing_and_failed_is_a_failure(platform, sources, tmp_path):
    llm_ocr.plan(str(sources), workspace=tmp_path / "w", engine="embedded")
    platform.endings["repair"] = [Ending(None, State.FAILED, "the machine broke")]
    with pytest.raises(JobFailed, match="the machine broke"):
        launch(tmp_path / "w", "repair", hardware="cpu").wait()


@pytest.mark.parametrize(
    ("stage", "settings", "message"),
    [
        ("repair", {"sources": ("a.pdf",)}, "repair reads pages of the workspace"),
        ("repair", {"pages_from": "bad.txt"}, "takes no list of pages"),
        ("extract", {"max_pages": 3, "unbalanced": True}, "`unbalanced`, `max_pages`: no effect on extract"),
        ("extract", {"fields_schema": "{}"}, "`fields_schema`: no effect on extract, only on fields"),
        ("fields", {"fields_schema": "{}", "sources": ("a.pdf",)}, "fields reads pages of the workspace"),
        ("fields", {}, "needs a schema"),
        ("fields", {"fields_schema": '{"$ref": "a.json"}'}, "refers to a.json"),
        ("fields", {"fields_schema": SCHEMA, "engine": "embedded"}, "unlike `engine=embedded`"),
        ("fields", {"fields_schema": SCHEMA, "model": "deepseek-ocr"}, "unlike `model=deepseek-ocr`"),
    ],
)
def test_settings_of_repairs_and_stages_are_not_mixed(platform, tmp_path, stage, settings, message):
    with pytest.raises(UsageError, match=message):
        launch(tmp_path / "w", stage, **settings)


def test_launched_repair_may_use_a_model_after_the_cpu_engine(platform, sources, tmp_path):
    llm_ocr.run(str(sources), workspace=tmp_path / "w", pages="1", engine="embedded", **FRUGAL)
    with pytest.raises(UsageError, match="embedded uses no GPU"):
        launch(tmp_path / "w", "repair", hardware="gpu")
    asked = launch(tmp_path / "w", "repair", hardware="gpu", model="dots.mocr", headers="drop").asked
    assert asked.settings["repair"] == {"engine": "vllm", "model": "dots.mocr", "headers": "drop"}


@pytest.mark.slow
def test_fields_are_launched_with_the_schema_in_the_record(platform, sources, tmp_path):
    llm_ocr.run(str(sources), workspace=tmp_path / "w", engine="embedded", pages_per_unit=1, **FRUGAL)
    (tmp_path / "schema.json").write_text(SCHEMA)
    platform.endings["fields"] = [Ending((0, 2), State.FAILED, "the machine broke")]
    said: list[str] = []
    with running(preset="h100", served_model_name="qwen3-vl-8b") as server:
        asked = {"fields_schema": str(tmp_path / "schema.json"), "server_url": (server.url,)}
        launch(tmp_path / "w", "fields", said=said, **asked).wait()
    assert [(spec.stage, spec.submission) for spec in platform.submitted] == [("fields", 1), ("fields", 2)]
    assert any("fields: 1 unit of 3 missing (the machine broke" in line for line in said)
    assert launch_settings(tmp_path / "w")["fields_schema"] == SCHEMA
    status = llm_ocr.open(tmp_path / "w").status
    assert (status.fields.expected, status.fields.ok + status.fields.degraded) == (3, 3)


def launch_settings(workspace: Path) -> dict[str, object]:
    """Return the settings of the jobs of the only launch."""
    (record,) = workspace.glob("launches/*/launch.json")
    return json.loads(record.read_text())["settings"]["fields"]


def test_gpus_mean_vllm(platform, sources, tmp_path):
    one = launch(tmp_path / "w", "extract", sources, hardware="gpu")
    assert one.asked.settings["extract"]["engine"] == "vllm"
    other = launch(tmp_path / "v", "extract", sources, hardware="gpu", server_url=("http://h:1",))
    assert "engine" not in other.asked.settings["extract"]


def rewritten(file: Path, change) -> None:
    """What somebody who may write into the bucket makes of a record."""
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


@pytest.mark.parametrize(
    "change",
    [
        lambda settings: settings.update(vllm_command="/bin/evil"),
        lambda settings: settings.update(sources=["/etc/passwd"]),
        lambda settings: settings.update(sources=["uploads/documents/../../x"]),
        lambda settings: settings.update(source_endpoint="https://attacker"),
        lambda settings: settings.update(source_region="attacker"),
    ],
)
def test_a_launch_that_another_has_changed_is_not_gone_on_with(platform, sources, tmp_path, change):
    platform.endings["extract"] = [Ending(None, State.RUNNING)]
    begun = launch(tmp_path / "w", "extract", sources)
    begun.submit()
    assert launch(tmp_path / "w", "extract", sources).id == begun.id
    file = tmp_path / "w" / "launches" / begun.id / "launch.json"
    rewritten(file, lambda value: change(value["settings"]["extract"]))
    with pytest.raises(LaunchError, match="is in progress as launch"):
        launch(tmp_path / "w", "extract", sources)


def test_jobs_refuse_a_launch_that_another_has_changed(platform, sources, tmp_path):
    begun = launch(tmp_path / "w", "extract", sources)
    file = tmp_path / "w" / "launches" / begun.id / "launch.json"
    rewritten(file, lambda value: value["settings"]["extract"].update(engine="vllm", vllm_command="/bin/evil"))
    with pytest.raises(WorkspaceError, match="differs from the launched file"):
        begun.submit()


def test_submission_follows_the_command_and_not_the_record(platform, sources, tmp_path):
    platform.dies_after_submit, platform.endings["extract"] = True, [Ending(None), Ending(None)]
    begun = launch(tmp_path / "w", "extract", sources)
    with pytest.raises(KeyboardInterrupt):
        begun.submit()
    platform.ended, asked = {}, platform.submitted.pop()  # it never reached the platform
    evil = {"image": "attacker/image", "environment": {"LD_PRELOAD": "x"}, "secrets": {"HF_TOKEN": ""}}
    rewritten(tmp_path / f"w/launches/{begun.id}/extract-1.spec.json", lambda value: value["spec"].update(evil))
    launch(tmp_path / "w", "extract", sources).submit()
    assert platform.submitted == [asked]


def test_restricted_settings_are_repeated_before_any_submission(platform, sources, tmp_path):
    stored = {"engine": "vllm", "weights": "attacker/model"}
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "run.json").write_text(json.dumps({"format": 1, "created_by": "x", "settings": stored}))
    with pytest.raises(UsageError, match="weights=attacker/model"):
        launch(tmp_path / "w", "extract", sources)
    assert platform.submitted == []


@pytest.mark.parametrize("name", ["weights", "model", "detector", "source_endpoint"])
def test_keys_in_urls_do_not_travel(platform, sources, tmp_path, name):
    with pytest.raises(UsageError, match="contains a name or password"):
        launch(tmp_path / "w", "extract", sources, **{name: "s3://AKIA:hun/ter2@bucket/model"})
    assert not (tmp_path / "w").exists()


def recorded(folder: Path, platform: str = "slurm", **job) -> Workspace:
    """A workspace in whose bucket somebody else has written the record of a job."""
    records = folder / "w" / "launches" / "20260101-000000-abcd"
    records.mkdir(parents=True)
    (folder / "w" / "run.json").write_text(json.dumps({"format": 1, "created_by": "x", "settings": {}}))
    spec = {"stage": "extract", "workspace": "x", "launch": records.name, **job.pop("spec", {})}
    (records / "extract-1.spec.json").write_text(json.dumps({"platform": platform, "spec": spec, "done": 0}))
    (records / "extract-1.jobs.json").write_text(json.dumps({"jobs": [{"id": "a", "name": "a", **job}]}))
    return Workspace.open(str(folder / "w"))


@pytest.mark.parametrize(
    "job",
    [
        {"id": "../../../precious"},
        {"id": "/home/me"},
        {"id": "--user=me"},
        {"name": "../x"},
        {"name": "/tmp/x"},
        {"spec": {"launch": "../../x"}},
        {"spec": {"stage": "assemble"}},
        {"spec": {"submission": 7}},
    ],
)
def test_a_record_names_no_folder_and_no_flag_of_this_machine(tmp_path, job):
    with recorded(tmp_path, **job) as workspace, pytest.raises(WorkspaceError, match="is damaged"):
        submissions(workspace)


@pytest.mark.parametrize("platform_name", ["hf-jobs", "cloud-run"])
def test_record_does_not_choose_where_platform_keys_are_sent(tmp_path, monkeypatch, platform_name):
    monkeypatch.delenv("LLM_OCR_PLATFORM_ENDPOINT", raising=False)
    with recorded(tmp_path, platform_name, place={"endpoint": "https://attacker/"}) as workspace:
        with pytest.raises(WorkspaceError, match="must not determine where keys are sent") as caught:
            submissions(workspace)
        assert "LLM_OCR_PLATFORM_ENDPOINT=https://attacker" in caught.value.hint
        monkeypatch.setenv("LLM_OCR_PLATFORM_ENDPOINT", "https://attacker")
        assert submissions(workspace)[0].jobs[0].place["endpoint"] == "https://attacker/"


def test_jobs_of_a_removed_platform_hold_up_nothing(platform, sources, tmp_path):
    with recorded(
        tmp_path, "no-longer", spec={"options": {"price_per_hour": 2.0}}, place={"endpoint": "e1"}
    ) as workspace:
        assert launched_jobs(workspace) == []
    launch(tmp_path / "w", "extract", sources, max_cost=5.0, price_per_hour=2.0).wait()
    assert llm_ocr.open(tmp_path / "w").status.pages.ok == 3
