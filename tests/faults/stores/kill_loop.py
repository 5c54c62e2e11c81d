"""kill -9 at random moments: three workers on one workspace, on each kind of store, real commands with real documents.

    python tests/faults/stores/kill_loop.py [--stores local,s3] [--kills 50] [--seed 0] [--output FILE] [--every-write]

A worker that was killed is started again. A workspace is done stage by stage, and another is begun until there were
enough kills. After each kill what was finished must stand as it was; in the end all must be done, each page once,
nothing published twice, the dataset must load, and `clean` must leave nothing behind. With `--every-write` a worker is
then killed before and after every single write besides, and on servers at every request that writes.
"""

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS.parent), str(TESTS / "api"), str(Path(__file__).parent)]

from fault_checking import Attempts, attempts, problems, unnamed_data
from fault_engine import make_documents
from fault_places import KINDS, Place, new_place
from fault_requests import REMOTE, killed_at_request, requests_of
from fault_running import boundaries, dies_at, pipeline
from kill_crew import WORKERS, Crew, command, environment, lease, make_pdfs

from llm_ocr.errors import ObjectNotFound
from llm_ocr.runs import Run
from llm_ocr.scheduling.leases import is_lease
from llm_ocr.storage import ObjectStore
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import STAGES
from llm_ocr.workspace.status import run_status
from tests.fakes.crash import When

#: A kill comes when up to so many units more are done, and up to so many seconds later; or when nothing is done for
#: some seconds, while the workers start or wait for leases.
_UNITS = 4
_LATER = 0.4
_QUIET = 6.0

#: In a repository a unit waits for its commit, of which there are 80 an hour: more would be an hour of waiting.
_FEWER = {"hub-dataset": 18}

#: Seconds after which a stage hangs.
_TIMEOUT = 900.0


@dataclass
class Result:
    """One store's line.

    Work done twice: `begun_again` counts the units that killed workers had in hand by their leases (None without
    leases), `written_twice` data that were written and not published.
    """

    store: str
    seed: int
    units: int
    kills: int = 0
    workspaces: int = 0
    seconds: float = 0.0
    begun_again: int | None = None
    written_twice: int = 0
    kills_by_stage: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    every_write: int = 0  # kills
    every_request: int = 0


def loop(kind: str, *, kills: int, units: int, seed: int, folder: Path, workers: int = WORKERS) -> Result:
    """Kill so many workers on a kind of store, in as many workspaces as it takes."""
    chance, began = random.Random(f"{kind} {seed}"), time.monotonic()
    result = Result(kind, seed, units)
    while result.kills < kills and not result.problems:
        place = new_place(kind, folder)
        result.workspaces += 1
        one_workspace(place, result, kills, folder, chance, workers)
    result.seconds = round(time.monotonic() - began, 1)
    return result


def one_workspace(place: Place, result: Result, kills: int, folder: Path, chance: random.Random, workers: int) -> None:
    """All stages, each with its part of the kills that are left."""
    documents = make_pdfs(folder / "documents", result.units)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    plan = command(place, "plan", str(documents), "--pages-per-unit", "1")
    subprocess.run(plan, env=environment(place, work), check=True, stdout=subprocess.DEVNULL)
    left = kills - result.kills
    with place.entered():
        store, before = place.store(), dict[tuple[str, str], str]()
        for number, stage in enumerate(STAGES):
            most = left - (left * (len(STAGES) - 1 - number)) // len(STAGES)
            with Crew(place, stage, work, workers) as crew:
                while left - (kills - result.kills) < most and not moment(crew, store, stage, chance):
                    if killed := crew.kill(chance):
                        result.kills += 1
                        if place.leases:
                            result.begun_again = (result.begun_again or 0) + in_hand(store, stage, killed)
                        result.kills_by_stage[stage] = result.kills_by_stage.get(stage, 0) + 1
                        before = stands(store, before, result.problems)
                if not crew.wait(_TIMEOUT):
                    result.problems.append(f"{stage} does not end")
                result.problems += crew.problems
            if not finished(store, stage):
                finish(place, stage, work, result.problems)
        result.written_twice += len(unnamed_data(store))
        result.problems += problems(store, pages=result.units, figures=0, before=before)
        result.problems += loads(store, result.units)


def moment(crew: Crew, store: ObjectStore, stage: str, chance: random.Random) -> bool:
    """Wait for the moment of the next kill; whether all workers have ended before."""

    def done() -> int:
        return sum(info.key.endswith(".done") for info in store.list(f"{stage}/"))

    wanted, end = done() + chance.randint(1, _UNITS), time.monotonic() + chance.uniform(0.5, _QUIET)
    while done() < wanted and time.monotonic() < end:
        if crew.wait(0.05):
            return True
    return crew.wait(chance.uniform(0.0, _LATER))


def in_hand(store: ObjectStore, stage: str, process: int) -> int:
    """Units whose lease is that process's."""
    count = 0
    for info in store.list(f"{stage}/"):
        with contextlib.suppress(ObjectNotFound):  # released in this moment
            count += is_lease(info.key) and json.loads(store.get(info.key))["worker"].endswith(f"-{process}")
    return count


def finished(store: ObjectStore, stage: str) -> bool:
    """Whether nothing of the stage is left to do."""
    with Workspace.on(store) as workspace:
        return run_status(workspace).stages[stage].finished


def finish(place: Place, stage: str, work: Path, found: list[str]) -> None:
    """The same command once more, by a worker alone: it takes what the dead have left."""
    ended = subprocess.run(
        command(place, stage, *lease(place, stage)),
        env=environment(place, work),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
    if ended.returncode:
        found.append(f"{stage} ended with {ended.returncode}: {ended.stderr.strip()[-300:]}")


def stands(store: ObjectStore, before: Attempts, found: list[str]) -> Attempts:
    """What is finished now; what was finished before must be among it."""
    now = attempts(store)
    found += [f"published twice: {place}" for place, attempt in before.items() if now.get(place) != attempt]
    return now


def loads(store: ObjectStore, units: int) -> Iterator[str]:
    """The dataset as its users open it."""
    with Workspace.on(store) as workspace:
        pages = Counter(Run(workspace).to_dataset()["sample_id"])
    if len(pages) != units or pages.total() != units:
        yield f"the dataset loads {pages.total()} pages, {len(pages)} different ones, of {units}"


def every_write(kind: str, folder: Path) -> tuple[int, list[str]]:
    """A worker killed before and after each write; how many kills, and what was wrong after them."""
    documents = make_documents(folder / "two pages", [2])
    writes = boundaries(new_place(kind, folder), documents)
    return each(kind, folder, documents, writes, dies_at)


def every_request(kind: str, folder: Path) -> tuple[int, list[str]]:
    """A worker killed by kill -9 at each request that writes, which is done or not."""
    documents = make_documents(folder / "two pages", [2])
    requests = requests_of(new_place(kind, folder), documents)
    return each(kind, folder, documents, requests, killed_at_request)


def each(
    kind: str, folder: Path, documents: Path, boundaries: list[str], die: Callable[[Place, Path, int, When], bool]
) -> tuple[int, list[str]]:
    """A death at each of these, then a new worker."""
    found, kills = list[str](), 0
    for at, what in enumerate(boundaries):
        for when in When:
            place = new_place(kind, folder)
            kills += die(place, documents, at, when)
            with place.entered():
                store = place.store()
                before = attempts(store)
                pipeline(place, documents)
                found += [f"killed {when} {what}: {line}" for line in problems(store, pages=2, before=before)]
    return kills, found


def main() -> int:
    """The exit code: 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--kills", type=int, default=50, help="on each store")
    parser.add_argument("--units", type=int, default=60, help="documents of one page, each a unit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--every-write", action="store_true", help="a kill before and after each write and request as well"
    )
    parser.add_argument("--output", type=Path, help="where the results are written, as JSON; other stores' stay there")
    arguments = parser.parse_args()
    results = []
    for kind in arguments.stores.split(","):
        print(f"{kind}: {arguments.kills} kills, seed {arguments.seed}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="llm-ocr-kills-"))
        try:
            units = min(arguments.units, _FEWER.get(kind, arguments.units))
            result = loop(kind, kills=arguments.kills, units=units, seed=arguments.seed, folder=folder)
            if arguments.every_write:
                result.every_write, more = every_write(kind, folder)
                result.problems += more
                if kind in REMOTE:
                    result.every_request, more = every_request(kind, folder)
                    result.problems += more
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(asdict(result)), flush=True)
        results.append(result)
        if arguments.output:
            keep(arguments.output, result)
    return int(any(result.problems for result in results))


def keep(file: Path, result: Result) -> None:
    """Put the store's line into the file."""
    known = json.loads(file.read_text()) if file.exists() else {"stores": []}
    others = [line for line in known["stores"] if line["store"] != result.store]
    ordered = sorted([*others, asdict(result)], key=lambda line: KINDS.index(line["store"]))
    file.write_text(json.dumps({"command": "make test-faults", "stores": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
