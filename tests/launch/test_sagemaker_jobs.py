"""Jobs from their submission to their end, on the fake of SageMaker: what they did, and what is told of them."""

import itertools
import json
from dataclasses import replace

import pytest
from sagemaker_account import opened, until

import llm_ocr
from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, Request, State
from llm_ocr.launch.sagemaker import SageMaker
from llm_ocr_simulator import running as simulator

#: One process of each kind, and no minutes of waiting for another worker's sign of life.
FRUGAL = {"LLM_OCR_RENDER_WORKERS": "1", "LLM_OCR_OCR_WORKERS": "1", "LLM_OCR_LEASE_SECONDS": "5"}
EMBEDDED = {"LLM_OCR_ENGINE": "embedded", **FRUGAL}
#: Describe that waits for an Extract that never comes: a job that runs until somebody ends it.
WAITING = {"LLM_OCR_FOLLOW": "true", **EMBEDDED}
SPOT = {"spot": True, "training_output": "s3://bucket/sagemaker"}


@pytest.fixture
def account():
    with opened() as found:
        yield found


@pytest.fixture(scope="module")
def failed():
    """An account and its job that has failed, for tests that need no other."""
    with opened() as account:
        job = account.submit(account.spec(environment={"LLM_OCR_ENGINE": "nonsense"}, options=SPOT))
        yield account, job, account.ended(job)


def planned(account, *sources):
    llm_ocr.plan(sources, workspace=account.workspace, pages_per_unit=1, engine="embedded")


def running(status):
    return status.state is State.RUNNING


def log_of(account, job, **more):
    return list(account.launcher.logs(job, **more))


@pytest.mark.slow
def test_job_does_its_units_on_all_machines_and_reports_it(account, digital):
    planned(account, digital / "one.pdf", digital / "two.pdf")
    account.client("secretsmanager").create_secret(Name=f"jobs/{account.number}", SecretString="geheimnis")
    secrets = {"MY_KEY": f"jobs/{account.number}"}
    spec = account.spec(shards=2, environment=EMBEDDED, secrets=secrets)
    account.launcher.check(account.launcher.plan(spec))
    assert account.launcher.find(spec) == []
    job = account.submit(spec)
    assert account.launcher.find(spec) == [job]
    assert job.id.endswith(f"training-job/{spec.name}")
    assert (job.name, job.place["machines"]) == (spec.name, 2)
    lines = log_of(account, job, follow=True)
    assert {line.split()[0] for line in lines} == {"algo-1:", "algo-2:"}
    assert any(line.endswith(": 3 ok") for line in lines), "\n".join(lines)
    ended = account.status(job)
    assert ended.state is State.SUCCEEDED, "\n".join(lines)
    assert ended.seconds == pytest.approx(2 * (ended.ended - ended.started), abs=2)  # billed in whole seconds
    assert len(account.markers("extract")) == 3
    told = json.dumps(account.client("sagemaker").describe_training_job(TrainingJobName=job.name), default=str)
    assert "geheimnis" not in told + "".join(lines)
    # another process, days later, knows the job by what stands in the workspace
    other = Job(**json.loads(json.dumps({"id": job.id, "name": job.name, "place": dict(job.place)})))
    assert SageMaker().status([other])[0].state is State.SUCCEEDED
    assert list(SageMaker().logs(other, tail=2)) == lines[-2:]


@pytest.mark.slow
def test_a_job_that_fails_tells_why_in_its_own_words(failed):
    _, _, ended = failed
    assert ended.state is State.FAILED
    assert "exit code: 2" in ended.reason
    assert "LLM_OCR_ENGINE" in ended.reason
    assert len(ended.reason) < 2048


@pytest.mark.slow
def test_container_that_cannot_write_its_message_gives_reason(account):
    """Without root, /opt/ml/output cannot be written: the reason comes from the log."""
    spec = account.spec(environment={"LLM_OCR_ENGINE": "nonsense", "LLM_OCR_ERROR_FILE": "/proc/output/failure"})
    plan = account.launcher.plan(spec)
    body = {**plan.requests[0].body}
    body["Environment"] = {**body["Environment"], "LLM_OCR_ERROR_FILE": "/proc/output/failure"}
    (job,) = account.launcher.submit(replace(plan, requests=(Request(plan.requests[0].call, body),)))
    ended = account.ended(job)
    assert ended.state is State.FAILED
    assert "LLM_OCR_ENGINE" in ended.reason


@pytest.mark.slow
def test_a_job_waits_for_a_machine_runs_and_is_cancelled(account, digital):
    planned(account, digital / "one.pdf")
    account.fake.hold = True
    job = account.submit(account.spec("describe", environment=WAITING))
    assert account.status(job).state is State.QUEUED
    assert log_of(account, job) == []
    account.fake.release()
    assert account.until(job, running).seconds >= 0
    until(lambda: log_of(account, job), bool)
    account.launcher.cancel(job)
    ended = account.ended(job)
    assert ended.state is State.CANCELLED
    assert ended.reason == "Stopped"
    stops = account.fake.counts["StopTrainingJob"]
    account.launcher.cancel(job)  # nothing happens
    assert account.fake.counts["StopTrainingJob"] == stops == 1


def test_a_job_that_ends_while_it_is_cancelled_is_no_error(failed, monkeypatch):
    account, job, over = failed
    seen = itertools.chain([account.fake.jobs[job.name]], itertools.repeat(None))
    real = SageMaker._status

    def late(self, one):
        status = real(self, one)
        return status if next(seen) is None else type(status)(one, State.RUNNING)

    monkeypatch.setattr(SageMaker, "_status", late)
    account.launcher.cancel(job)
    assert account.fake.counts["StopTrainingJob"] == 1
    assert over.state is State.FAILED


@pytest.mark.slow
def test_its_time_limit_ends_a_job_and_says_so(account, digital):
    planned(account, digital / "one.pdf")
    account.fake.time_limit = 1.0
    spec = account.spec("describe", environment=WAITING, options=SPOT)
    ended = account.ended(account.submit(spec))
    assert ended.state is State.TIMED_OUT
    assert "MaxRuntime" in ended.reason


@pytest.mark.slow
def test_a_machine_that_fails_is_no_failure_of_ours(account, digital):
    planned(account, digital / "one.pdf")
    account.fake.dead_machines = 1
    first = account.ended(account.submit(account.spec("describe", environment=WAITING)))
    assert (first.state, first.started) == (State.FAILED, None)
    assert "InternalServerError" in first.reason
    job = account.submit(account.spec("describe", submission=2, environment=WAITING))
    account.until(job, running)
    account.fake.jobs[job.name].fail_machine()
    assert "InternalServerError" in account.ended(job).reason


@pytest.mark.slow
def test_interrupted_spot_job_resumes_with_what_is_missing(account, digital):
    """After the first unit the server hangs, and the machine goes."""
    with simulator(fault={"hang-after": 1}) as server:
        llm_ocr.plan([digital / "one.pdf", digital / "two.pdf"], workspace=account.workspace, pages_per_unit=1)
        reading = {"LLM_OCR_SERVER_URL": server.url, "LLM_OCR_MAX_INFLIGHT_REQUESTS": "1", **FRUGAL}
        job = account.submit(account.spec(environment=reading, options=SPOT))
        until(lambda: account.markers("extract"), bool)
        account.fake.jobs[job.name].interrupt()
        assert account.status(job).state is State.QUEUED
        before = set(account.markers("extract"))
        assert len(before) == 1
        server.set_faults({})
        account.fake.jobs[job.name].resume()
        ended = account.ended(job)
    assert ended.state is State.SUCCEEDED, "\n".join([str(ended), *log_of(account, job)])
    assert before < set(account.markers("extract"))
    assert len(account.markers("extract")) == 3
    described = account.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    assert ended.seconds == described["BillableTimeInSeconds"]
    assert described["CheckpointConfig"]["S3Uri"] == f"s3://bucket/sagemaker/{job.name}/checkpoints"


@pytest.mark.slow
def test_spot_job_that_gets_no_new_machine_was_preempted(account, digital):
    planned(account, digital / "one.pdf")
    job = account.submit(account.spec("describe", environment=WAITING, options=SPOT))
    account.until(job, running)
    account.fake.jobs[job.name].interrupt()
    account.fake.jobs[job.name].wait_ended()
    ended = account.status(job)
    assert (ended.state, ended.reason) == (State.PREEMPTED, "MaxWaitTimeExceeded")


def test_a_lost_answer_creates_nothing_twice(account):
    """The SDK sends the request again, and hears that the name is taken: by itself."""
    account.fake.refuse("CreateTrainingJob", "InternalFailure", "try again", status=500, after=True)
    spec = account.spec(environment={"LLM_OCR_ENGINE": "nonsense"})
    job = account.submit(spec)
    assert account.fake.counts["CreateTrainingJob"] == 2
    assert [job] == account.launcher.find(spec)
    assert list(account.fake.jobs) == [spec.name]


def test_cleanup_removes_sagemaker_output_and_lists_what_is_kept(failed):
    account, job, _ = failed
    store = account.client("s3")
    for number in range(3):
        store.put_object(Bucket="bucket", Key=f"sagemaker/{job.name}/output/{number}", Body=b"x")
    store.put_object(Bucket="bucket", Key=f"sagemaker/{job.name}-other/x", Body=b"x")
    said = account.launcher.clean([job])
    assert said[0] == f"deleted: 3 objects in s3://bucket/sagemaker/{job.name}/"
    assert all(line.startswith("kept: ") for line in said[1:])
    assert "/aws/sagemaker/TrainingJobs" in said[1]
    left = store.list_objects_v2(Bucket="bucket", Prefix="sagemaker/")["Contents"]
    assert [one["Key"] for one in left] == [f"sagemaker/{job.name}-other/x"]
    store.delete_object(Bucket="bucket", Key=left[0]["Key"])


def test_a_job_that_is_not_there_has_failed(account):
    place = {"kind": "training", "machines": 1, "region": "us-east-1"}
    (found,) = account.launcher.status([Job("arn", "nothing", place=place)])
    assert (found.state, "has no job nothing" in found.reason) == (State.FAILED, True)
    with pytest.raises(LaunchError, match="not a training job of SageMaker"):
        account.launcher.cancel(Job("arn", "x", place={}))


def test_processing_jobs_of_older_versions_are_over(account):
    job = Job("arn", "llm-ocr-old", place={"kind": "processing", "machines": 1, "region": "us-east-1"})
    (found,) = account.launcher.status([job])
    assert (found.state, found.reason.startswith("processing job of an older version")) == (State.FAILED, True)
    account.launcher.cancel(job)
    assert all(line.startswith("kept: ") for line in account.launcher.clean([job]))


def test_a_long_log_comes_in_pages_each_line_once(failed):
    account, job, _ = failed
    (host,) = account.fake.jobs[job.name].hosts
    template = host.lines[-1]
    for number in range(350):
        host.lines.append(type(template)(f"x{number:055d}", template.time + 1 + number, f"line {number}"))
    lines = log_of(account, job, follow=True)
    assert lines[-350:] == [f"line {number}" for number in range(350)]
    assert len(lines) == len(host.lines)
    assert log_of(account, job, tail=3) == ["line 347", "line 348", "line 349"]
    assert log_of(account, job, tail=0) == []
    assert account.fake.counts["FilterLogEvents"] > 8


@pytest.mark.slow
def test_who_may_not_read_the_log_is_told_what_to_allow(account):
    job = account.submit(account.spec(environment={"LLM_OCR_ENGINE": "nonsense"}))
    account.fake.refuse("FilterLogEvents", "AccessDeniedException", "not authorized")
    with pytest.raises(LaunchError) as error:
        log_of(account, job)
    assert "logs:FilterLogEvents" in error.value.hint
