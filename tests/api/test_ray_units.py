"""Check workers of --ray and their number, without a cluster."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.config.models import DescribeSettings, ExtractSettings
from llm_ocr.errors import LlmOcrError
from llm_ocr.scheduling.shards import Shard, Split
from llm_ocr.stages import Silent, ray
from llm_ocr.stages.extract import extract_claim
from llm_ocr.stages.job import Job
from llm_ocr.stages.ray import Failure, Size, Work, Worker, reason_of, size_of
from llm_ocr.stages.rendering import Remote
from llm_ocr.stages.servers import Engines
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.publish import done_units

NODE = {"CPU": 8.0, "GPU": 4.0}
HEAD = {"CPU": 2.0}


@pytest.mark.parametrize(
    ("given", "engine", "nodes", "size"),
    [
        ({}, "vllm", [HEAD, NODE, NODE], Size(8, 1.0, 4)),
        ({"tensor_parallel_size": 2}, "vllm", [HEAD, NODE, NODE], Size(4, 2.0, 2)),
        ({"ray_gpus": 0.5, "ray_workers": 3}, "vllm", [NODE], Size(3, 0.5, 3)),
        ({}, "embedded", [HEAD, NODE], Size(2, 0.0, 1)),
        ({"ray_workers": 5}, "server", [HEAD, NODE], Size(5, 0.0, 3)),
        ({"ray_gpus": 1}, "server", [HEAD, NODE], Size(4, 1.0, 4)),
        ({"ray_workers": 2}, "vllm", [HEAD], Size(2, 1.0, 1)),
        ({"ray_gpus": 0}, "embedded", [{"GPU": 1.0}, HEAD], Size(1, 0.0, 1)),
    ],
)
def test_workers_equal_gpus_or_nodes_without_gpus(given, engine, nodes, size):
    settings = ExtractSettings(workspace="w", ray="auto", **given)
    assert size_of(settings, engine, nodes) == size


def test_a_cluster_without_gpus_is_not_waited_for():
    with pytest.raises(LlmOcrError, match="no node of the cluster has 1 GPU"):
        size_of(ExtractSettings(workspace="w", ray="auto"), "vllm", [HEAD])


def test_the_cause_of_a_lost_worker_is_one_line():
    died = (
        "The actor died unexpectedly before finishing this task.\n\tclass_name: Worker\n\tpid: 1\n"
        "The actor is dead because its node has died. Node Id: 12."
    )
    assert reason_of(died) == Failure("its node has died. Node Id: 12.")
    raised = "\x1b[36mray::Worker.turn()\x1b[39m (pid=1)\n  File x\nValueError: no"
    assert reason_of(raised) == Failure("ValueError: no")


@pytest.fixture(scope="module")
def work(tmp_path_factory, examples) -> Work:
    """What a worker needs for a planned workspace."""
    workspace = tmp_path_factory.mktemp("worker") / "w"
    llm_ocr.plan(examples / "invoice.png", workspace=workspace, engine="embedded")
    settings = ExtractSettings(workspace=str(workspace), engine="embedded", render_workers=1, ocr_workers=1)
    return Work("extract", "0" * 12, settings, "embedded", 1, str(Path.cwd()), "", library_version())


def failure_of(work: Work) -> Failure | None:
    """Run a worker to its end; return why it failed."""
    worker = Worker(work)
    while not (report := worker.turn()).ended:
        pass
    return report.failure


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"witness": "/not/on/this/machine.pdf"}, "/not/on/this/machine.pdf is not on"),
        ({"version": "0.0.0"}, "0.0.0 where the command was started"),
        ({"key": "1" * 12}, "other results than the driver"),
        ({"settings": ExtractSettings(workspace="/not/on/this/machine")}, "no workspace at"),
    ],
    ids=["document", "version", "key", "workspace"],
)
def test_worker_with_differing_results_stops_the_command(work, wrong, message):
    failure = failure_of(replace(work, **wrong))
    assert failure is not None
    assert message in failure.message
    assert failure.hint
    assert failure.everywhere


def test_without_leases_each_worker_reads_its_shard(work, tmp_path, examples):
    llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w", engine="embedded", pages="1-2", pages_per_unit=1)
    settings = work.settings.model_copy(update={"workspace": str(tmp_path / "w")})

    with Workspace.open(str(tmp_path / "w")) as opened:
        engines = Engines("embedded", settings, tmp_path, lambda line: None)
        key = asyncio.run(extract_claim(Job(opened, settings, Silent(), engines, Remote(settings)))).key
    for index in (0, 1):
        assert failure_of(replace(work, settings=settings, key=key, split=Split(Shard(index, 2)))) is None
        with Workspace.open(str(tmp_path / "w")) as opened:
            assert len(done_units(opened, "extract", key)) == index + 1
    assert llm_ocr.open(tmp_path / "w").status.stages["extract"].finished


def test_cores_are_shared_by_the_workers_of_a_machine(work, monkeypatch):
    monkeypatch.setattr(ray, "cores", lambda: 8)
    settings = ExtractSettings(workspace="w", ocr_workers=3)
    shared = ray.shared_cores(replace(work, settings=settings, per_node=4))
    assert (shared.render_workers, shared.ocr_workers) == (2, 3)
    figures = ray.shared_cores(replace(work, settings=DescribeSettings(workspace="w"), per_node=4))
    assert figures.ocr_workers == 2 and "render_workers" not in dict(figures)
