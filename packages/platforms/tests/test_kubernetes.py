"""The launcher of Kubernetes, with Kubernetes' own client, against an API server whose pods really run."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cases_kubernetes import LAUNCH
from fake_kubernetes import running
from fake_kubernetes_pods import Node
from jobs_running import ended, submitted
from make_plans import cases

from llm_ocr.errors import LaunchError, MissingExtra, UsageError
from llm_ocr.launch import JobSpec, State
from llm_ocr_platforms.kubernetes import launcher as launcher_module
from llm_ocr_platforms.kubernetes.launcher import Kubernetes
from llm_ocr_platforms.kubernetes.manifest import SPOT

pytestmark = pytest.mark.needs("kubernetes.client")

SLEEP = "import time; print('begun', flush=True); time.sleep(600)"
DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "default-scheduler: preempting to accommodate a higher priority pod",
}
PLANS = {name: spec for platform, name, spec in cases() if platform == "kubernetes"}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    with running(grace=2) as one:
        monkeypatch.setenv("KUBECONFIG", str(one.kubeconfig(tmp_path / "config")))
        yield one


@pytest.fixture
def launcher():
    made = Kubernetes()
    made.poll_seconds = 0.05
    return made


@pytest.fixture
def spec(monkeypatch):
    """Makes a job that runs Python code in an image with the library."""

    def make(code="pass", **more):
        monkeypatch.setattr(JobSpec, "command", property(lambda self: ("python", "-c", code)))
        options = {"wheel": "image", **more.pop("options", {})}
        return JobSpec("extract", "s3://b/w", LAUNCH, **{"hardware": "cpu", "image": "i:1", "options": options, **more})

    return make


def until_begun(launcher, job, pods=1):
    lines = launcher.logs(job, follow=True)
    assert len(list(itertools.islice(lines, pods))) == pods
    return lines


def job_of(cluster):
    (job,) = cluster.jobs.values()
    return job


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_a_job_of_the_api(name):
    """The client's models come from the OpenAPI schema of Kubernetes, and forbid unknown fields and wrong types."""
    from kubernetes.client import models

    (request,) = Kubernetes().plan(PLANS[name]).requests
    models.V1Job.model_validate(request.body["body"], strict=True)


def test_every_pod_has_its_number_its_variables_and_its_secrets(cluster, launcher, spec):
    cluster.secrets["default", "llm-ocr"] = {"HF_TOKEN": "geheimnis"}
    names = ("JOB_COMPLETION_INDEX", "LLM_OCR_SHARD_COUNT", "A", "HF_TOKEN")
    code = f"import os; print(*(os.environ[name] for name in {names}))"
    job = submitted(launcher, spec(code, shards=3, environment={"A": "1"}, secrets={"HF_TOKEN": ""}))
    status = ended(launcher, job)
    assert (status.state, status.reason, status.job) == (State.SUCCEEDED, "", job)
    assert status.started <= status.ended
    assert status.seconds is not None
    assert list(launcher.logs(job)) == [f"[{index}] {index} 3 1 geheimnis" for index in range(3)]
    assert "geheimnis" not in repr(cluster.requests)


def test_checking_creates_nothing_and_lets_the_cluster_validate(cluster, launcher, spec):
    launcher.check(launcher.plan(spec()))
    assert cluster.jobs == {}
    (created,) = (one for one in cluster.requests if one[1].endswith("/jobs"))
    assert created[2] == {"dryRun": "All", "fieldValidation": "Strict"}


def test_exactly_the_plan_is_sent(cluster, launcher, spec):
    plan = launcher.plan(spec(shards=2))
    launcher.submit(plan)
    (created,) = (one for one in cluster.requests if one[1].endswith("/jobs"))
    assert created[1] == "/apis/batch/v1/namespaces/default/jobs"
    assert created[3] == plan.requests[0].body["body"]


def test_job_created_before_a_crash_is_found_and_not_recreated(cluster, launcher, spec):
    assert list(launcher.find(spec())) == []
    job = submitted(launcher, spec())
    assert list(Kubernetes().find(spec())) == [job]
    assert list(launcher.find(spec(submission=2))) == []
    assert list(Kubernetes().submit(launcher.plan(spec()))) == [job]
    assert len(cluster.jobs) == 1


def test_namespace_of_the_context_is_used_if_none_is_given(cluster, launcher, spec, tmp_path):
    cluster.namespaces |= {"ocr", "other"}
    cluster.kubeconfig(tmp_path / "config", namespace="ocr")
    assert submitted(launcher, spec()).id == f"ocr/{spec().name}"
    other = submitted(launcher, spec(submission=2, options={"namespace": "other", "kube_context": "tests"}))
    assert other.id.startswith("other/")
    assert Kubernetes().status([other])[0].job == other


def test_failed_pod_is_named_with_its_last_log_and_ends_no_other(cluster, launcher, spec):
    code = "import os, sys, time\nif os.environ['JOB_COMPLETION_INDEX'] == '0': time.sleep(.5); sys.exit()\n"
    status = ended(launcher, submitted(launcher, spec(f"{code}print('llm-ocr: no model'); sys.exit(3)", shards=2)))
    assert status.state is State.FAILED
    assert status.reason == "1 of 2 shards failed: shard 1: exit code 3: no model"
    assert [pod.phase for pod in job_of(cluster).pods] == ["Succeeded", "Failed"]


def test_a_pod_that_ends_by_its_time_limit_is_distinguished(cluster, launcher, spec):
    cluster.hurry = 0.01
    status = ended(launcher, submitted(launcher, spec(SLEEP, time_limit=60)))
    assert status.state is State.TIMED_OUT
    assert status.reason == "DeadlineExceeded: Pod was active on the node longer than the specified deadline"
    assert status.seconds is not None


def test_a_pod_that_is_preempted_is_distinguished(cluster, launcher, spec):
    job = submitted(launcher, spec(SLEEP))
    until_begun(launcher, job)
    job_of(cluster).pods[0].stop(disruption=DISRUPTED)
    status = ended(launcher, job)
    assert status.state is State.PREEMPTED
    assert status.reason.startswith("PreemptionByScheduler: default-scheduler: preempting")


def test_pod_of_a_drained_node_is_preempted_and_leaves_no_pod(cluster, launcher, spec):
    job = submitted(launcher, spec(SLEEP, shards=2))
    until_begun(launcher, job, 2)
    job_of(cluster).remove(0)
    job_of(cluster).remove(1)
    status = ended(launcher, job)
    assert status.state is State.PREEMPTED
    assert "2 of 2 shards failed: shard 0: its pod was removed" in status.reason
    assert status.seconds is None  # nobody has counted them


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("OOMKilled", "OOMKilled, exit code 137: begun"),
        ("Evicted", "Evicted: The node was low on resource: memory."),
    ],
)
def test_a_pod_that_used_too_much_memory_says_so(cluster, launcher, spec, how, reason):
    job = submitted(launcher, spec(SLEEP))
    until_begun(launcher, job)
    (pod,) = job_of(cluster).pods
    if how == "Evicted":
        pod.stop(reason=how, message="The node was low on resource: memory.", disruption=DISRUPTED)
    else:
        pod.killed_as = how
        pod.container.kill()
    status = ended(launcher, job)
    assert (status.state, status.reason) == (State.FAILED, reason)


def test_unpullable_image_ends_the_job_with_the_kubelet_message(cluster, launcher, spec):
    cluster.images = set()
    status = ended(launcher, submitted(launcher, spec(shards=2)))
    assert status.state is State.FAILED
    assert status.reason == 'ImagePullBackOff: Back-off pulling image "i:1": not found'
    assert job_of(cluster).pods == []  # none holds a GPU
    (again,) = Kubernetes().status([status.job])
    assert (again.state, again.reason) == (State.FAILED, status.reason)


def test_a_secret_that_disappears_ends_the_job_too(cluster, launcher, spec):
    cluster.denied.add(("secrets", "get"))  # so that checking cannot see it
    status = ended(launcher, submitted(launcher, spec(secrets={"HF_TOKEN": "mine"})))
    assert status.reason == "CreateContainerConfigError: secret 'mine' not found"


def test_pod_that_fits_no_node_waits_with_the_scheduler_message(cluster, launcher, spec):
    cluster.nodes = [
        Node("a", gpus=1, provider="gce://a", taints={"dedicated": "other"}),
        Node("b", provider="gce://b"),
    ]
    job = submitted(launcher, spec(hardware="gpu:1"))
    refusals = "1 node(s) had untolerated taint {dedicated: other}, 1 Insufficient nvidia.com/gpu"
    status = None
    while status is None or not status.reason:
        (status,) = launcher.status([job])
    assert (status.state, status.reason) == (State.QUEUED, f"Unschedulable: 0/2 nodes are available: {refusals}.")
    launcher.cancel(job)
    assert ended(launcher, job).state is State.CANCELLED


@pytest.mark.parametrize(("label", "value"), SPOT.items())
def test_spot_pods_run_on_the_spot_nodes_of_each_cloud_only(cluster, launcher, spec, label, value):
    spot = Node("spot", gpus=1, labels={label: value}, taints={label: value, "nvidia.com/gpu": "present"})
    cluster.nodes = [Node("usual", gpus=1), spot]
    assert ended(launcher, submitted(launcher, spec(hardware="gpu:1", options={"spot": True}))).state is State.SUCCEEDED
    assert job_of(cluster).pods[0].node is spot


def test_pods_run_on_the_nodes_that_the_user_selects(cluster, launcher, spec):
    wanted = Node("l4", gpus=1, labels={"gpu": "l4"}, taints={"team": "ocr"})
    cluster.nodes = [Node("a100", gpus=1), wanted]
    options = {"node_selector": ["gpu=l4"], "toleration": ["team=ocr"]}
    assert ended(launcher, submitted(launcher, spec(hardware="gpu:1", options=options))).state is State.SUCCEEDED
    assert job_of(cluster).pods[0].node is wanted


@pytest.mark.slow
def test_time_limit_does_not_count_while_shards_wait_for_a_gpu(cluster, launcher, spec):
    cluster.nodes, cluster.hurry = [Node(gpus=1)], 0.1  # 60 s are 6 s
    job = submitted(launcher, spec("import time; time.sleep(.8)", hardware="gpu:1", shards=8, time_limit=60))
    assert ended(launcher, job).state is State.SUCCEEDED


def test_reason_for_missing_pods_is_shown_while_the_job_waits(cluster, launcher, spec):
    cluster.forbids = "pods is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1"
    job = submitted(launcher, spec())
    (status,) = launcher.status([job])
    assert (status.state, status.reason) == (State.QUEUED, cluster.forbids)


def test_a_cancelled_job_ends_its_pods_and_stays_cancelled(cluster, launcher, spec):
    job = submitted(launcher, spec(SLEEP, shards=2))
    lines = until_begun(launcher, job, 2)
    launcher.cancel(job)
    assert list(lines) == []
    status = ended(launcher, job)
    assert (status.state, status.reason) == (State.CANCELLED, "cancelled")
    assert job_of(cluster).pods == []
    launcher.cancel(job)  # nothing happens to one that is over


def test_logs_can_be_followed_before_first_pod_and_cut_per_pod(cluster, launcher, spec):
    cluster.nodes = [Node(gpus=1)]
    code = (
        "import os, time\nfor n in range(5): print(os.environ['JOB_COMPLETION_INDEX'], n, flush=True); time.sleep(.02)"
    )
    job = submitted(launcher, spec(code, hardware="gpu:1", shards=2))
    lines = list(launcher.logs(job, follow=True))
    expected = [f"[{index}] {index} {number}" for index in range(2) for number in range(5)]
    assert sorted(lines) == expected
    assert list(launcher.logs(job)) == expected
    assert list(launcher.logs(job, tail=1)) == ["[0] 0 4", "[1] 1 4"]


def test_what_is_cleaned_up_and_what_is_left_is_said(cluster, launcher, spec):
    job = submitted(launcher, spec())
    other = submitted(launcher, spec(SLEEP, submission=2))
    ended(launcher, job)
    said = launcher.clean([job, other])
    assert said == [f"deleted: Job {job.id} and its pods", f"kept: Job {other.id}, still in progress", said[2]]
    assert [name for _, name in cluster.jobs] == [other.name]
    (status,) = launcher.status([job])
    assert (status.state, "no longer has this Job" in status.reason) == (State.FAILED, True)
    with pytest.raises(LaunchError, match="and its log no longer exist"):
        list(launcher.logs(job))


def test_foreign_job_is_not_ended_or_deleted_despite_records(cluster, launcher, spec):
    job = submitted(launcher, spec(SLEEP))
    job_of(cluster).body["metadata"]["labels"] = {"app": "theirs"}
    launcher.cancel(job)
    assert launcher.clean([job]) == ["kept: Secrets and workspace"]
    assert job_of(cluster).end is None


def test_job_of_another_cluster_is_not_mistaken_for_a_gone_one(cluster, launcher, spec, tmp_path):
    job = submitted(launcher, spec())
    with running() as other:
        other.kubeconfig(tmp_path / "config")
        with pytest.raises(LaunchError, match=f"{job.id} is on {cluster.url}") as raised:
            Kubernetes().status([job])
    assert "kubectl config use-context" in raised.value.hint


@pytest.mark.parametrize(
    ("arrange", "more", "words", "to_do"),
    [
        (lambda one: one.denied.add(("jobs", "create")), {}, "lacks permissions in default: create jobs", "Role"),
        (lambda one: one.denied.add(("pods/log", "get")), {}, "lacks permissions in default: get pods/log", "Role"),
        (lambda one: None, {"options": {"namespace": "absent"}}, 'namespaces "absent" not found', "--namespace"),
        (lambda one: None, {"secrets": {"K": ""}}, "default has no Secret llm-ocr", "kubectl create secret generic"),
        (
            lambda one: one.secrets.update({("default", "s"): {"k": "v"}}),
            {"secrets": {"K": "s/other"}},
            "the Secret s has no key other",
            "--from-literal=other=VALUE",
        ),
        (lambda one: None, {"hardware": "gpu:1"}, "needs a node with 1 nvidia.com/gpu", "device plugin"),
        (lambda one: one.nodes.append(Node("b", gpus=1)), {"hardware": "gpu:4"}, "have at most 1", "--hardware"),
    ],
)
def test_what_is_wrong_is_an_error_before_anything_is_created(cluster, launcher, spec, arrange, more, words, to_do):
    arrange(cluster)
    with pytest.raises(LaunchError) as raised:
        launcher.check(launcher.plan(spec(**more)))
    assert words in raised.value.args[0]
    assert to_do in raised.value.hint
    assert cluster.jobs == {}


def test_unlistable_nodes_and_growing_clouds_stop_no_launch(cluster, launcher, spec):
    cluster.nodes = [Node(provider="aws:///i-1")]
    launcher.check(launcher.plan(spec(hardware="gpu:1")))
    cluster.nodes = [Node()]
    cluster.denied.add(("nodes", "list"))
    launcher.check(launcher.plan(spec(hardware="gpu:1")))


def test_a_cluster_that_is_too_old_for_the_job_says_so(cluster, launcher, spec):
    cluster.unknown_fields = {"backoffLimitPerIndex"}
    with pytest.raises(
        LaunchError, match=r'strict decoding error: unknown field "spec.backoffLimitPerIndex"'
    ) as raised:
        launcher.check(launcher.plan(spec()))
    assert "1.29" in raised.value.hint


def test_without_a_login_it_is_said_how_to_sign_in(launcher, spec, monkeypatch, tmp_path):
    plan = launcher.plan(spec())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    with pytest.raises(LaunchError, match="cannot sign in") as raised:
        launcher.check(plan)
    assert "KUBECONFIG" in raised.value.hint


def test_a_token_that_is_refused_says_who_is_signed_in(cluster, launcher, spec, tmp_path):
    file = Path(tmp_path / "config")
    file.write_text(file.read_text().replace("token-of-tests", "stale"))
    with pytest.raises(LaunchError, match="Unauthorized") as raised:
        launcher.check(launcher.plan(spec()))
    assert "kubectl auth whoami" in raised.value.hint


def test_a_context_that_does_not_exist_is_named(cluster, launcher, spec):
    with pytest.raises(LaunchError, match="absent"):
        launcher.check(launcher.plan(spec(options={"kube_context": "absent"})))


def test_inside_a_cluster_the_account_of_the_pod_is_used(cluster, launcher, spec, tmp_path, monkeypatch):
    """Its files and variables are those of any pod; the API server of this cluster speaks plain HTTP."""
    from kubernetes.config import incluster_config

    for name, text in {"namespace": "ocr\n", "token": "token-of-tests", "ca.crt": "certificates"}.items():
        (tmp_path / name).write_text(text)
    cluster.namespaces.add("ocr")
    host, _, port = cluster.url.removeprefix("http://").partition(":")
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(launcher_module, "_ACCOUNT", tmp_path / "namespace")
    with pytest.raises(LaunchError, match=f"host='{host}', port={port}") as raised:  # it speaks no TLS
        launcher.find(spec(options={"kube_context": "of-a-laptop"}))
    assert f"/namespaces/ocr/jobs/{spec().name}" in raised.value.args[0]


def test_a_cluster_that_does_not_answer_may_be_asked_again(cluster, launcher, spec):
    job = submitted(launcher, spec())
    cluster.stop()
    with pytest.raises(LaunchError, match="does not respond") as raised:
        Kubernetes().status([job])
    assert raised.value.retryable


def test_a_workspace_on_the_hub_needs_its_token(launcher, spec):
    assert launcher.plan(replace(spec(), workspace="hf://buckets/me/ocr/run")).missing == {
        "<token>": "--secret HF_TOKEN"
    }
    with_token = replace(spec(secrets={"HF_TOKEN": ""}), workspace="hf://buckets/me/ocr/run")
    assert launcher.plan(with_token).missing == {}


def test_without_the_client_the_pip_command_is_said(launcher, spec, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingExtra) as raised:
        launcher.check(launcher.plan(spec()))
    assert raised.value.hint == 'Install it: pip install "kubernetes>=31"'


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hardware": "L4"}, "--hardware L4: must be cpu or gpu:N"),
        ({"secrets": {"HF_TOKEN": "Upper"}}, "--secret HF_TOKEN: 'Upper' is not a valid name of a Kubernetes Secret"),
        ({"options": {"node_selector": ["gpu"]}}, "--node-selector gpu: must be KEY=VALUE"),
        ({"options": {"toleration": ["a=b=c"]}}, "--toleration a=b=c: must be KEY or KEY=VALUE"),
        ({"shards": 100_001}, "--shards 100001"),
    ],
)
def test_what_can_never_work_is_wrong_usage(launcher, spec, more, words):
    with pytest.raises(UsageError) as raised:
        launcher.plan(spec(**more))
    assert words in str(raised.value)
