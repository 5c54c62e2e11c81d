"""Stages that really run as Jobs of Kubernetes: command line, cluster, workspace on a server."""

import json
import threading
import time

import pytest
from fake_kubernetes import running
from store_servers import gcs, s3

from llm_ocr.cli import main
from llm_ocr.launch import launching
from llm_ocr.launch.records import submissions
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.workspace import Workspace
from llm_ocr_simulator import running as simulator

pytestmark = pytest.mark.needs("kubernetes.client")

SMALL = ("--engine", "embedded", "--render-workers", "1", "--ocr-workers", "1", "--pages-per-unit", "1")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "EVERY", 0.5)
    with running() as one:
        monkeypatch.setenv("KUBECONFIG", str(one.kubeconfig(tmp_path / "config")))
        yield one


@pytest.fixture
def bucket(cluster):
    """Flags for a workspace on an S3 server, whose keys are in a Secret of the cluster."""
    with s3() as (url, reached):
        cluster.secrets["default", "aws"] = {
            "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
            "AWS_SECRET_ACCESS_KEY": "geheimnis",
        }
        endpoint = reached["workspace_endpoint"]
        secrets = ("--secret", "AWS_ACCESS_KEY_ID=aws", "--secret", "AWS_SECRET_ACCESS_KEY=aws")
        yield ("-w", url, "--workspace-endpoint", endpoint, "--workspace-region", "us-east-1"), secrets


@pytest.mark.slow
def test_a_pipeline_on_s3_ends_with_a_dataset(cluster, bucket, digital, capsys):
    workspace, secrets = bucket
    sources = (str(digital / "one.pdf"), str(digital / "two.pdf"))
    words = ("--hardware", "cpu", "--shards", "2", "--wait")
    code = main(["launch", "kubernetes", "pipeline", *sources, *SMALL, *words, *workspace, *secrets])
    wrote = capsys.readouterr()
    assert (code, wrote.out) == (0, "3 ok\n"), wrote.err
    jobs = [(job.container["name"], job.container["image"], len(job.pods)) for job in cluster.jobs.values()]
    image = "python:3.12-slim"
    assert jobs == [("extract", image, 2), ("describe", image, 2), ("assemble", image, 1)]
    assert "geheimnis" not in wrote.err + repr(cluster.requests)
    extract = [line for pod in next(iter(cluster.jobs.values())).pods for line in pod.lines()]
    assert any("Successfully installed llm-ocr" in line for line in extract), extract
    options = StoreOptions(endpoint=workspace[3], region="us-east-1")
    with Workspace.open(workspace[1], options=options) as there:
        ends = [one.end for one in submissions(there)]
    assert {job["image"].partition("@")[0] for end in ends for job in end["jobs"]} == {"docker.io/python"}
    assert main(["jobs", "--json", *workspace]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["stage"], one["state"]) for one in listed] == [
        ("extract", "succeeded"),
        ("describe", "succeeded"),
        ("assemble", "succeeded"),
    ]
    assert main(["jobs", "clean", *workspace]) == 0
    assert capsys.readouterr().out.count("deleted: Job") == 3
    assert cluster.jobs == {}


@pytest.mark.slow
def test_preempted_pod_is_replaced_and_nothing_is_done_twice(cluster, digital, capsys):
    """After the first unit the server hangs and the pod's node goes; a new Job does the rest."""
    with gcs() as (url, reached):
        endpoint = reached["workspace_endpoint"]
        cluster.environment = {"STORAGE_EMULATOR_HOST": endpoint}
        store = open_store(url, StoreOptions(endpoint=endpoint))
        published: list[str] = []

        def drain(server):
            while not published:
                published.extend(info.key for info in store.list("extract/") if info.key.endswith(".done"))
                time.sleep(0.05)
            server.set_faults({})
            next(iter(cluster.jobs.values())).remove(0)

        with simulator(fault={"hang-after": 1}) as server:
            threading.Thread(target=drain, args=(server,), daemon=True).start()
            reading = ("--server-url", server.url, "--max-inflight-requests", "1", "--pages-per-unit", "1")
            library = ("--image", "registry.example/llm-ocr:1", "--wheel", "image")
            words = ("--hardware", "cpu", "--wait", "-w", url, "--workspace-endpoint", endpoint)
            sources = (str(digital / "one.pdf"), str(digital / "two.pdf"))
            code = main(["launch", "kubernetes", "extract", *sources, *reading, *library, *words])
        wrote = capsys.readouterr()
        assert (code, wrote.out) == (0, "3 ok\n"), wrote.err
        assert "its pod was removed" in wrote.err
        assert "submitting again" in wrote.err
        assert len(cluster.jobs) == 2
        assert len([info for info in store.list("extract/") if info.key.endswith(".done")]) == 3


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["--namespace", "NAMESPACE"], 2, "NAMESPACE is a placeholder"),
        (["--wheel", "image"], 2, "the stock images do not contain llm-ocr"),
        (["--role", "ROLE"], 2, "--role has no effect on kubernetes"),
        ([], 1, "the job needs a node with 1 nvidia.com/gpu"),
    ],
)
def test_what_is_wrong_ends_a_launch_before_anything_is_uploaded(cluster, examples, capsys, given, code, words):
    with s3() as (url, reached):
        endpoint = reached["workspace_endpoint"]
        place = ("-w", url, "--workspace-endpoint", endpoint, "--workspace-region", "us-east-1")
        hardware = ("--hardware", "cpu", "--engine", "embedded") if given else ()
        assert main(["launch", "kubernetes", "pipeline", str(examples), *place, *hardware, *given, "--wait"]) == code
        assert words in capsys.readouterr().err
        assert list(open_store(url, StoreOptions(endpoint=endpoint, region="us-east-1")).list("uploads/")) == []
    assert cluster.jobs == {}
