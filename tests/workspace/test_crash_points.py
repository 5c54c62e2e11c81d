"""Killed after every write: run again, it completes; nothing is lost, twice, or done again.

A process that is killed before a write leaves what one leaves that is killed after the write before.
"""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from leasing import claimed

from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages.clean import clean
from llm_ocr.types import Counts, page_id
from llm_ocr.workspace.generations import Repair, generations, read_units, totals_of
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.publish import done_units, markers, read_data
from llm_ocr.workspace.status import run_status
from tests.fakes.crash import KILLED, Crash, CrashingLocalStore, CrashingStore, CrashPoint, When, boundaries

LAYERS = {
    "calls": lambda root, point: CrashingStore(CrashingLocalStore(root, CrashPoint()), point),
    "steps": CrashingLocalStore,
}


class Pipeline:
    """Plan, extract all units (two pages fail), retry, extract the retry; `done` tells which units were worked on.

    The small pipeline retries by a repair with settings of its own.
    """

    def __init__(self, made, small=False):
        self.made = made
        long = made.document("long", 2 if small else 9)
        others = [] if small else [made.document("a", 3), made.document("b", 2)]
        self.documents = [*others[:1], long, made.unopened("locked"), *others[1:]]
        self.repair = Repair("0123456789ab", {"engine": "other"}, {"engine": "other"}) if small else None
        self.fails = [page_id(long.id, number) for number in (2, 9)]
        self.done = []

    def __call__(self, store):
        workspace = self.made.workspace(store)
        self.made.plan(workspace, self.documents)
        self.extract(workspace)
        self.made.retry(workspace, repair=self.repair)
        self.extract(workspace)
        workspace.close()

    def extract(self, workspace):
        for unit in claimed(workspace, EXTRACT, self.made.key(workspace), PlannedUnits(workspace)):
            self.made.extract(workspace, unit, [] if unit.replaces else self.fails)
            self.done.append(unit.id)


def check_complete(made, workspace, small=False):
    status = run_status(workspace)
    expected = 3 if small else 15
    assert status.pages == Counts(expected, expected - 1, 0, 1)
    assert status.stages["extract"].finished
    units = list(read_units(workspace))
    rows = Counter(
        page_id(part.document_id, number)
        for unit in units
        if not unit.replaces
        for part in unit.parts
        for number in part.pages or (None,)
    )
    assert set(rows.values()) == {1} and rows.total() == expected
    published = markers(workspace, EXTRACT, made.key(workspace))
    assert set(published) == {unit.id for unit in units}
    for marker in published.values():
        read_data(workspace, marker)
    assert totals_of(generations(workspace)).generations == 2


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_killed_at_any_write_the_same_command_completes(made, tmp_path, layer):
    wrap, small = LAYERS[layer], layer == "steps"
    writes = boundaries(lambda point: wrap(tmp_path / "undisturbed", point), Pipeline(made, small))
    assert len(writes) >= 20
    for at in range(len(writes)):
        made.root = tmp_path / f"{at}"
        first, second = Pipeline(made, small), Pipeline(made, small)
        with pytest.raises(Crash):
            first(wrap(made.root, CrashPoint(at, When.AFTER)))
        finished = finished_units(made)
        second(made.store())
        with made.workspace() as workspace:
            assert finished.isdisjoint(second.done), f"done again after a crash after {writes[at]}"
            assert set(first.done) <= finished
            clean(workspace, now=time.time() + 2 * 86400)
            assert list(workspace.store.unfinished()) == []
            assert_nothing_unnamed(made, workspace)
            check_complete(made, workspace, small)


def finished_units(made):
    if not (made.root / "run.json").exists():
        return set()
    with made.workspace() as workspace:
        return done_units(workspace, EXTRACT, made.key(workspace))


def assert_nothing_unnamed(made, workspace):
    data = {info.key for info in workspace.store.list(f"{EXTRACT}/") if info.key.endswith(".parquet")}
    assert data == {marker.object for marker in markers(workspace, EXTRACT, made.key(workspace)).values()}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_command_killed_repeatedly_completes(made, layer):
    """Every run dies a little later than the one before, on the same workspace."""
    deaths = 0
    for at in range(0, 60, 3):
        try:
            Pipeline(made)(LAYERS[layer](made.root, CrashPoint(at)))
        except Crash:
            deaths += 1
            continue
        break
    assert deaths >= 3
    Pipeline(made)(made.store())
    with made.workspace() as workspace:
        check_complete(made, workspace)


@pytest.mark.slow
def test_a_run_survives_killed_processes(made):
    """The same with processes that end as by kill -9, at some of the points."""
    code = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from made_runs import Made
from test_crash_points import Pipeline
from tests.fakes.crash import CrashingLocalStore, CrashPoint, When, die_by_exit
point = CrashPoint(int(sys.argv[2]), When.AFTER, die_by_exit)
root = Path(sys.argv[1])
Pipeline(Made(root))(CrashingLocalStore(root, point))
"""
    here = str(Path(__file__).parent)
    commands = [[sys.executable, "-c", code, str(made.root), str(at), here] for at in (2, 9, 23, 40, 61)]
    ends = [subprocess.run(command, check=False).returncode for command in commands]
    assert ends[:3] == [KILLED] * 3 and set(ends) <= {KILLED, 0}
    Pipeline(made)(made.store())
    with made.workspace() as workspace:
        check_complete(made, workspace)
