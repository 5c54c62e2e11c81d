"""The share of the work that a platform gives a machine."""

import json

import pytest

from llm_ocr.errors import UsageError
from llm_ocr.scheduling.shards import Shard, detected_shard


def slurm(task, first, last, count, **more):
    named = {"ID": task, "MIN": first, "MAX": last, "COUNT": count, **more}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in named.items()}


def sky(rank, nodes):
    return {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": str(nodes)}


def detected(environment, *files):
    found = detected_shard(environment, files)
    return found and (found.index, found.count)


def test_nothing_is_detected_on_an_ordinary_machine(tmp_path):
    assert detected({"PATH": "/bin", "SLURM_JOB_ID": "7"}, tmp_path / "absent") is None


def test_a_cloud_run_task_has_the_share_of_its_variables():
    found = detected_shard({"CLOUD_RUN_TASK_INDEX": "3", "CLOUD_RUN_TASK_COUNT": "8"}, ())
    assert found == Shard(3, 8, "CLOUD_RUN_TASK_INDEX")


@pytest.mark.parametrize(
    ("environment", "index", "count"),
    [
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "7", "AWS_BATCH_JOB_ARRAY_SIZE": "8"}, 7, 8),
        ({"BATCH_TASK_INDEX": "0", "BATCH_TASK_COUNT": "4"}, 0, 4),
        ({"SKYPILOT_NODE_RANK": "2", "SKYPILOT_NUM_NODES": "3"}, 2, 3),
        # SkyPilot 0.14 gives every managed job a rank; the count of one that was launched alone is this text.
        ({**sky(1, 2), "SKYPILOT_JOB_RANK": "0", "SKYPILOT_NUM_JOBS": "None"}, 1, 2),
        ({**sky(1, 2), "SKYPILOT_JOB_RANK": "3", "SKYPILOT_NUM_JOBS": "4"}, 7, 8),
        ({**sky(0, 1), "SKYPILOT_JOB_RANK": "3", "SKYPILOT_NUM_JOBS": "4"}, 3, 4),
        # Google Batch numbers the only task of a job, too.
        ({**sky(1, 2), "BATCH_TASK_INDEX": "0", "BATCH_TASK_COUNT": "1"}, 1, 2),
    ],
)
def test_batch_service_machines_get_the_share_of_their_variables(environment, index, count):
    assert detected(environment) == (index, count)
    assert detected_shard(environment, (), count=count).index == index


def test_indexed_job_pod_needs_the_count_missing_in_kubernetes():
    pod = {"JOB_COMPLETION_INDEX": "3"}
    assert detected_shard(pod, (), count=8) == Shard(3, 8, "JOB_COMPLETION_INDEX")
    with pytest.raises(UsageError, match="JOB_COMPLETION_INDEX is 3, but the number of shares is unknown") as error:
        detected_shard(pod, ())
    assert "LLM_OCR_SHARD_COUNT" in str(error.value)
    with pytest.raises(UsageError, match="share 3 of 2"):
        detected_shard(pod, (), count=2)


def test_array_child_without_its_array_size_needs_the_count():
    child = {"AWS_BATCH_JOB_ARRAY_INDEX": "1"}
    assert detected_shard(child, (), count=2) == Shard(1, 2, "AWS_BATCH_JOB_ARRAY_INDEX")
    with pytest.raises(UsageError, match="AWS_BATCH_JOB_ARRAY_SIZE is not set"):
        detected_shard(child, ())


def test_a_given_count_that_the_platform_contradicts_is_refused():
    tasks = {"BATCH_TASK_INDEX": "1", "BATCH_TASK_COUNT": "4"}
    with pytest.raises(UsageError, match="share 1 of 4, but `shard_count=8`"):
        detected_shard(tasks, (), count=8)
    assert detected_shard({"BATCH_TASK_INDEX": "0", "BATCH_TASK_COUNT": "1"}, (), count=8) is None


def test_two_platforms_are_not_mixed():
    both = {"BATCH_TASK_INDEX": "1", "BATCH_TASK_COUNT": "4", **slurm(0, 0, 2, 3)}
    with pytest.raises(
        UsageError, match="BATCH_TASK_INDEX says share 1 of 4 and SLURM_ARRAY_TASK_ID says share 0 of 3"
    ):
        detected_shard(both, ())
    same = {"BATCH_TASK_INDEX": "1", "BATCH_TASK_COUNT": "3", **slurm(1, 0, 2, 3)}
    assert detected(same) == (1, 3)


def test_sagemaker_hosts_from_the_file_before_the_environment(tmp_path):
    file = tmp_path / "resourceconfig.json"
    file.write_text(json.dumps({"current_host": "algo-2", "hosts": ["algo-3", "algo-1", "algo-2"]}))
    environment = {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}
    assert detected_shard(environment, [tmp_path / "absent", file]) == Shard(1, 3, str(file))
    assert detected_shard(environment, ()) == Shard(0, 1, "SM_HOSTS")


def test_every_sagemaker_host_has_a_share_of_its_own():
    hosts = [f"algo-{number}" for number in range(1, 13)]
    shares = [detected({"SM_HOSTS": json.dumps(hosts), "SM_CURRENT_HOST": host}) for host in hosts]
    assert sorted(shares) == [(index, 12) for index in range(12)]


@pytest.mark.parametrize(
    ("ids", "more"),
    [
        (range(8), {}),
        (range(1, 9), {"STEP": 1}),
        (range(0, 11, 4), {"STEP": 4}),
        ([3, 7], {"STEP": 1}),
        ([5], {}),
    ],
)
def test_every_task_of_a_slurm_array_has_a_share_of_its_own(ids, more):
    ids = list(ids)
    shares = [detected(slurm(task, ids[0], ids[-1], len(ids), **more)) for task in ids]
    assert shares == [(index, len(ids)) for index in range(len(ids))]


def test_the_end_of_a_slurm_range_need_not_be_an_id():
    assert [detected(slurm(task, 0, 10, 3, STEP=4)) for task in (0, 4, 8)] == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"CLOUD_RUN_TASK_INDEX": "3"}, "CLOUD_RUN_TASK_COUNT is not set"),
        ({"CLOUD_RUN_TASK_INDEX": "3", "CLOUD_RUN_TASK_COUNT": "3"}, "share 3 of 3"),
        ({"CLOUD_RUN_TASK_INDEX": "x", "CLOUD_RUN_TASK_COUNT": "3"}, "CLOUD_RUN_TASK_INDEX is 'x'"),
        ({"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "b"}, "SM_HOSTS"),
        ({"SM_HOSTS": "[", "SM_CURRENT_HOST": "b"}, "SM_HOSTS cannot be read"),
        (slurm(5, 1, 6, 3), "not even"),
        (slurm(6, 1, 6, 0), "not even"),
    ],
)
def test_impossible_shares_are_refused_by_name(environment, named):
    with pytest.raises(UsageError, match=named) as error:
        detected_shard(environment, ())
    assert "`shard_index`" in str(error.value)


@pytest.mark.parametrize("content", ["[]", "{", '{"hosts": "algo-1", "current_host": "algo-1"}', "{}"])
def test_useless_sagemaker_file_is_refused_by_name(tmp_path, content):
    file = tmp_path / "resourceconfig.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"resourceconfig\.json"):
        detected_shard({}, [file])
