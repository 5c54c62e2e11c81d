"""--ray: Extract and Describe on the nodes of a Ray cluster, here nodes of one machine with GPUs by name only."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfgen import canvas
from running import cli, environment, program, said, when

import llm_ocr
from llm_ocr.config.environment import quiet_ray
from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError, WorkspaceError
from llm_ocr.scheduling.leases import LEASE
from llm_ocr.stages import ray
from llm_ocr.stages.ray import Worker
from llm_ocr.storage.local import LocalStore
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, newest_key
from llm_ocr.workspace.publish import markers
from llm_ocr_simulator import running

pytestmark = pytest.mark.slow

DOCUMENTS, PAGES_EACH, IN_A_UNIT = 6, 10, 5
PAGES, UNITS = DOCUMENTS * PAGES_EACH, DOCUMENTS * PAGES_EACH // IN_A_UNIT
SMALL = {"image_size": 256, "render_workers": 1, "pages_per_unit": IN_A_UNIT, "fallback": "none"}
#: Answers within a tenth of a second, one at a time for each worker: some units are done when something happens.
SERVER = {"speed": 20, "mean_tokens": 300}
SLOW = {**SMALL, "max_inflight_requests": 1}
#: Bytes of a node's memory for objects; Ray allows no less.
OBJECTS = 80 << 20
#: In the environment of all that Ray starts, servers included.
MARK = "RAY_LLM_OCR_TEST"


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """The head of a cluster on loopback; when it is gone, so is all that it has started."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    # Ray lets its workers yield to every other process of the machine, and some share it with other tests.
    with mock.patch.dict(os.environ, {MARK: mark, "RAY_worker_niceness": "0"}):
        quiet_ray(alone=True)
        made = pytest.importorskip("ray.cluster_utils").Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": OBJECTS, "include_dashboard": False},
        )
        try:
            yield made
        finally:
            made.shutdown()
        when(lambda: not marked(mark))


@pytest.fixture
def nodes(cluster) -> list[object]:
    """Two nodes with a GPU each: those of the test before, and a new one for each that died."""
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=OBJECTS)
    return list(cluster.worker_nodes)


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for number in range(DOCUMENTS):
        written(folder / f"{number}.pdf", PAGES_EACH, f"{number} - ")
    return folder


@pytest.fixture(scope="module")
def server():
    with running(**SERVER) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def local(documents, server, tmp_path_factory) -> Path:
    """The workspace of Extract and Describe without Ray."""
    workspace = tmp_path_factory.mktemp("local") / "w"
    llm_ocr.extract(documents, workspace=workspace, server_url=server.url, **SMALL)
    llm_ocr.describe(workspace=workspace, server_url=server.url)
    return workspace


def written(path: Path, pages: int, words: str, **options) -> Path:
    made = canvas.Canvas(str(path), pagesize=(300, 400), invariant=1, **options)
    for page in range(1, pages + 1):
        made.setFont("Helvetica", 48)
        made.drawString(30, 340, f"{words}{page}")
        made.setFont("Helvetica", 14)
        for line in range(16):
            made.drawString(30, 20 * line + 10, f"This is page {words}{page}, line {line}.")
        made.showPage()
    made.save()
    return path


def flags(**settings) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def started(*arguments: str | Path, mark: str = "") -> "subprocess.Popen[str]":
    """The console program, on a machine of the cluster."""
    env = environment(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", **({MARK: mark} if mark else {}))
    return subprocess.Popen(
        program(*map(str, arguments)), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: "subprocess.Popen[str]", seconds: float = 240) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def marked(mark: str) -> list[str]:
    """The command lines of processes that live, and have the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if not dead and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


def attempts(workspace: Path, stage: str = EXTRACT) -> dict[str, str]:
    """The attempt of each finished unit; none before there is a workspace."""
    if not (workspace / "run.json").exists():
        return {}
    with Workspace.open(str(workspace)) as opened:
        key = newest_key(opened, stage)
        return {unit: one.attempt for unit, one in markers(opened, stage, key).items()} if key else {}


def rows(workspace: Path) -> dict[str, dict]:
    """All that stands in the rows of all pages but times and servers' names."""
    found = [asdict(page) for page in llm_ocr.open(str(workspace)).pages(images=True)]
    assert len(found) == len({row["page_id"] for row in found})
    for row in found:
        del row["seconds"]
        row["attempts"] = [{k: v for k, v in one.items() if k not in TIMES} for one in row["attempts"]]
    return {row["page_id"]: row for row in found}


TIMES = ("seconds", "waited", "server")


def at_work(nodes: list[object], workspace: Path) -> tuple[object, list[int]] | None:
    """A node with workers that hold a unit, and their process IDs: a raylet is the parent of its workers."""
    workers: dict[int, list[int]] = {}
    for lease in workspace.glob(f"{EXTRACT}/*/*/*{LEASE}"):
        with contextlib.suppress(OSError, ValueError):  # it was released in between
            pid = json.loads(lease.read_bytes())["pid"]
            stat = Path(f"/proc/{pid}/stat").read_text()
            workers.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
    pids = {node.all_processes["raylet"][0].process.pid: node for node in nodes}
    return next(((node, workers[raylet]) for raylet, node in pids.items() if raylet in workers), None)


def same_as(local: Path, workspace: Path) -> None:
    """Each page stands there once, as without Ray; every unit was published once."""
    ours, theirs = rows(workspace), rows(local)
    assert len(ours) == PAGES
    assert [page for page in theirs if ours.get(page) != theirs[page]] == []
    status = llm_ocr.open(str(workspace)).status.pages
    assert (status.expected, status.ok, status.degraded, status.failed) == (PAGES, PAGES, 0, 0)
    assert len(attempts(workspace)) == UNITS


def test_the_pages_are_those_of_a_run_without_a_cluster(cluster, nodes, documents, server, local, tmp_path):
    arguments = ["extract", documents, "-w", tmp_path / "w", *flags(server_url=server.url, ray_gpus=1, **SMALL)]
    run = ended(started(*arguments, "--ray", cluster.address))
    assert run.returncode == 0, said(run)
    same_as(local, tmp_path / "w")
    assert run.stdout.splitlines()[-1] == f"{PAGES} ok"
    assert f"{PAGES}/{PAGES} pages" in run.stderr.splitlines()[-1]
    again = ended(started("extract", "-w", tmp_path / "w", "--server-url=http://127.0.0.1:9", "--ray", cluster.address))
    assert again.returncode == 0, said(again)  # nothing is left: nothing is asked


def test_a_node_that_dies_costs_no_page(cluster, nodes, documents, server, local, tmp_path):
    workspace = tmp_path / "w"
    arguments = ["extract", documents, "-w", workspace, *flags(server_url=server.url, ray_gpus=1, **SLOW)]
    process = started(*arguments, "--ray", cluster.address)
    when(lambda: len(attempts(workspace)) >= 2 or process.poll() is not None, 240)
    assert process.poll() is None
    os.kill(server.pid, signal.SIGSTOP)  # no unit ends until the node is gone, however slow this machine is
    try:
        busy, workers = when(lambda: at_work(nodes, workspace))
        before = attempts(workspace)
        assert len(before) < UNITS
        cluster.remove_node(busy, allow_graceful=False)
        when(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    finally:
        os.kill(server.pid, signal.SIGCONT)
    run = ended(process, 240)
    assert run.returncode == 0, said(run)
    assert f"{PAGES}/{PAGES} pages, {PAGES} ok in" in run.stderr  # rows that were read twice are counted once
    same_as(local, workspace)
    assert before.items() <= attempts(workspace).items()


def test_a_command_without_leases_excludes_the_cluster(cluster, nodes, documents, server, tmp_path):
    workspace = tmp_path / "w"
    settings = {"workspace": workspace, "server_url": server.url, **SMALL}
    key = llm_ocr.extract(documents / "0.pdf", **settings).status.stages[EXTRACT].key
    with (
        LocalStore(workspace).held(f"{EXTRACT}-{key}", shared=False),
        pytest.raises(WorkspaceError, match="another command"),
    ):
        llm_ocr.extract(documents, **settings, ray=cluster.address, ray_gpus=1)


def test_describe_gives_the_same_captions(cluster, nodes, documents, server, local, tmp_path):
    workspace = tmp_path / "w"
    llm_ocr.extract(documents, workspace=workspace, server_url=server.url, **SMALL)
    run = ended(started("describe", "-w", workspace, f"--server-url={server.url}", "--ray", cluster.address))
    assert run.returncode == 0, said(run)
    expected = llm_ocr.open(str(local)).status.figures
    assert llm_ocr.open(str(workspace)).status.figures == expected
    assert expected.ok > 0
    for one in (workspace, local):
        llm_ocr.assemble(workspace=one)
    texts = [{one.path: one.markdown for one in llm_ocr.open(str(where)).documents()} for where in (workspace, local)]
    assert texts[0] == texts[1]


def deadly() -> type[Worker]:
    """A worker that dies with the first unit of the plan, when all others are published.

    It is made in a function, so that Ray sends its code.
    """

    class Deadly(Worker):
        def _run(self):
            from llm_ocr.stages.sharing import Sharing

            publish = Sharing.publish

            def dying(share, unit, *rows):
                if unit == "0001-000000":
                    limit = time.monotonic() + 120
                    while len(markers(share._workspace, EXTRACT, share._key)) < UNITS - 1 and time.monotonic() < limit:
                        time.sleep(0.1)
                    os._exit(1)
                publish(share, unit, *rows)

            Sharing.publish = dying
            super()._run()

    return Deadly


class OnlyHere(Worker):
    """Of a module that the cluster's nodes do not have."""


def test_nodes_without_the_library_are_said(cluster, nodes, documents, server, tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "Worker", OnlyHere)
    with pytest.raises(LlmOcrError, match=r"cannot be loaded on the cluster's nodes: .*test_ray") as caught:
        llm_ocr.extract(documents, workspace=tmp_path / "w", server_url=server.url, ray=cluster.address, **SMALL)
    assert "the same version of llm-ocr" in caught.value.hint


def test_unit_that_kills_its_workers_is_named_at_the_end(cluster, nodes, documents, server, tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "Worker", deadly())
    monkeypatch.setattr(ray, "_PAUSE", 0.0)
    monkeypatch.setattr(ray, "FRUITLESS", 2)
    with pytest.raises(LlmOcrError, match=r"1 unit.* 0001-000000 \(0\.pdf\)") as caught:
        llm_ocr.extract(
            documents,
            workspace=tmp_path / "w",
            server_url=server.url,
            ray=cluster.address,
            ray_gpus=1,
            lease_seconds=5,
            **SMALL,
        )
    assert caught.value.exit_code == 1
    assert len(attempts(tmp_path / "w")) == UNITS - 1
    llm_ocr.extract(workspace=tmp_path / "w", server_url=server.url)
    assert llm_ocr.open(str(tmp_path / "w")).status.pages.ok == PAGES


SIMULATOR = shlex.join([sys.executable, "-m", "llm_ocr_simulator"])


def with_own_servers(cluster, documents: Path, workspace: Path, mark: str) -> "subprocess.Popen[str]":
    """A command whose workers have servers of their own, when some units are done."""
    serve = [f"--vllm-arg=--{name.replace('_', '-')}={value}" for name, value in {**SERVER, "speed": 4}.items()]
    own = [*flags(engine="vllm", vllm_command=SIMULATOR, ray=cluster.address, **SLOW), "--offline", *serve]
    process = started("extract", documents, "-w", workspace, *own, mark=mark)
    when(lambda: attempts(workspace) or process.poll() is not None, 240)
    return process


def workers_of() -> list[str]:
    """The processes of our workers on the cluster."""
    return [line for line in marked(os.environ[MARK]) if line.startswith("ray::Worker")]


def servers() -> list[str]:
    """The simulators that these have started, each with its launcher."""
    return [line for line in marked(os.environ[MARK]) if "launcher" in line and "simulator" in line]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_command_leaves_no_worker_and_no_server(cluster, nodes, documents, local, tmp_path, how):
    workspace = tmp_path / "w"
    process = with_own_servers(cluster, documents, workspace, "driver")
    when(lambda: len(workers_of()) == len(servers()) == 2 or attempts(workspace))
    process.send_signal(how)
    run = ended(process)
    assert run.returncode == (-how if how is signal.SIGKILL else 4), said(run)
    when(lambda: not workers_of() + servers())
    assert 0 < len(attempts(workspace)) < UNITS


def test_a_cluster_of_this_machine_alone(documents, server, local, tmp_path):
    mark = f"alone-{os.getpid()}"
    locked = tmp_path / "in"
    locked.mkdir()
    written(locked / "locked.pdf", 3, "secret ", encrypt=StandardEncryption("open sesame 4711"))
    (tmp_path / "passwords").write_text("open sesame 4711\n")
    before = set(Path("/tmp/ray").glob("session_2*"))
    given = [*flags(server_url=server.url, **SMALL), "--server-key=sk-4711-abc", "--ray=local", "--stdout"]
    run = ended(
        started("run", locked, "-w", tmp_path / "w", "--password-file", tmp_path / "passwords", *given, mark=mark)
    )
    assert run.returncode == 0, said(run)
    assert llm_ocr.open(str(tmp_path / "w")).status.finished
    text = "".join(one.markdown for one in llm_ocr.open(str(tmp_path / "w")).documents())
    assert re.sub(r"\]\([^)]*/documents/", "](", run.stdout) == text  # links lead from the working directory
    when(lambda: not marked(mark))
    logs = [path for folder in set(Path("/tmp/ray").glob("session_2*")) - before for path in folder.rglob("*")]
    texts = [path.read_bytes() for path in logs if path.is_file()]
    assert texts
    assert not [text for text in texts if b"open sesame 4711" in text or b"sk-4711-abc" in text]


def test_a_repair_is_read_by_the_nodes(cluster, nodes, documents, server, tmp_path):
    given = {"ray": cluster.address, "server_url": server.url, **SMALL}
    run = llm_ocr.run(documents, workspace=tmp_path / "w", **given)
    (tmp_path / "pages.txt").write_text("\n".join(page.page_id for page in run.pages(images=False)))
    settings = {**given, "image_size": 320}
    del settings["pages_per_unit"]
    llm_ocr.repair(workspace=tmp_path / "w", page_list=tmp_path / "pages.txt", max_pages=20, **settings)
    (repaired,) = run.status.repairs
    assert (repaired.pages, repaired.read) == (20, 20)
    assert repaired.repair.options["image_size"] == 320
    assert run.status.pages.expected == PAGES
    assert run.status.finished  # figures are described and documents assembled


def test_missing_server_ends_the_command_with_its_error(cluster, nodes, documents, tmp_path):
    settings = {"server_url": "http://127.0.0.1:9/v1", "server_timeout": 1, **SMALL}
    with pytest.raises(LlmOcrError, match=r"no worker is left on the cluster.*127\.0\.0\.1:9") as caught:
        llm_ocr.extract(documents, workspace=tmp_path / "w", ray=cluster.address, **settings)
    assert "`server_url`" in caught.value.hint


def test_servers_that_refuse_all_requests_are_an_error(cluster, nodes, documents, tmp_path):
    with running(fault={"400": 1.0}) as server, pytest.raises(LlmOcrError, match="answered none of"):
        llm_ocr.extract(documents, workspace=tmp_path / "w", ray=cluster.address, server_url=server.url, **SMALL)
    assert llm_ocr.open(tmp_path / "w").status.pages.failed == PAGES  # of each worker fewer than end it at once


@pytest.mark.parametrize("listener", ["none", "mute", "nonsense"])
def test_an_unreachable_cluster_is_named_without_a_long_wait(tmp_path, examples, listener):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = "nonsense" if listener == "nonsense" else f"127.0.0.1:{mute.getsockname()[1]}"
        if listener == "none":
            mute.close()
        run = cli("extract", examples / "invoice.png", "-w", "w", "--engine=embedded", "--ray", address, cwd=tmp_path)
    assert run.returncode == 1, said(run)
    for part in (address, "the cluster cannot be used", "ray start"):
        assert part in run.stderr


def test_without_ray_the_command_that_brings_it_is_named(tmp_path, examples, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r'pip install "ray>='):
        llm_ocr.extract(examples / "invoice.png", workspace=tmp_path / "w", engine="embedded", ray="local")


def test_shards_do_not_go_with_it(tmp_path, examples):
    with pytest.raises(UsageError, match="shard_count"):
        llm_ocr.extract(
            examples / "invoice.png", workspace=tmp_path / "w", engine="embedded", ray="local", shard_count=2
        )
