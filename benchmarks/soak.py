"""The whole pipeline for an hour, while servers, store and workers fail: nothing lost, nothing twice, memory flat.

    python benchmarks/soak.py [--seconds 3600] [--seed 0] [--output benchmarks/results/soak.json]

Three Extract workers, Describe and Assemble behind them (`--follow`), real commands over one S3 workspace, two
simulated model servers. First a calm round, then stormy ones: faults of both servers and of the store come and go, and
every minute or two a worker is killed, told to stop or put to sleep, and started again. Each round has a new workspace,
which is checked and removed at its end. See README.md.
"""

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import proctree
from fault_injection import Server, Store
from reporting import keep
from soak_store import BUCKET
from soak_workers import LEASE, Crew

import llm_ocr
from llm_ocr.errors import LlmOcrError
from llm_ocr.runs import Run
from llm_ocr.scheduling.leases import is_lease
from llm_ocr.storage import ObjectStore
from llm_ocr.types import PageRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr_simulator.answers import data_url, image_hash

REPOSITORY = Path(llm_ocr.__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests" / "faults" / "stores")]

from fault_checking import Attempts, attempts, copied, problems, unnamed_data  # noqa: E402

# Documents for the soak: templates, good ones and bad ones, and copies that are documents of their own.


_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Pages of the examples; a bad document is one expected page.
_REAL = {"paper.pdf": 3, "scan.pdf": 3, "invoice.png": 1, "fax.tiff": 2}
_WORDS = (
    "river", "gauge", "level", "paper", "table", "result", "method", "season", "water", "reading", "signal", "rain",
)  # fmt: skip
_LONG = 40  # pages: more than two units
_LONGEST_LETTER = 6


@dataclass(frozen=True, slots=True)
class Template:
    """A document whose copies show the same pages. `reason`: why it cannot be opened, "" for a good one."""

    name: str
    suffix: str
    pages: int
    data: bytes
    reason: str = ""


def templates(pages: int, seed: int) -> list[Template]:
    """Good ones of at least so many pages together, a long one among them, then bad ones."""
    made = [_real(name, count) for name, count in _REAL.items()]
    made.append(_letter("long", _LONG, seed))
    chance = random.Random(seed)
    for number in itertools.count():
        if sum(one.pages for one in made) >= pages:
            break
        made.append(_letter(f"letter{number:03d}", chance.randint(1, _LONGEST_LETTER), seed))
    return [*made, *_bad(chance)]


def _real(name: str, pages: int) -> Template:
    path = _EXAMPLES / name
    return Template(path.stem, path.suffix, pages, path.read_bytes())


def _letter(name: str, pages: int, seed: int, password: str = "") -> Template:
    """A PDF with a text layer."""
    from io import BytesIO

    from reportlab.pdfgen.canvas import Canvas

    buffer, chance = BytesIO(), random.Random(f"{seed} {name}")
    canvas = Canvas(buffer, pagesize=(420, 595), encrypt=password or None, invariant=1)
    for page in range(1, pages + 1):
        canvas.drawString(50, 550, f"Letter {name}, page {page}")
        for line in range(18):
            canvas.drawString(50, 520 - 22 * line, " ".join(chance.choices(_WORDS, k=9)))
        canvas.rect(60, 40, 300 * chance.random() + 20, 60)
        canvas.showPage()
    canvas.save()
    return Template(name, ".pdf", pages, buffer.getvalue())


def _bad(chance: random.Random) -> Iterator[Template]:
    yield Template("locked", ".pdf", 1, _letter("locked", 2, 0, "a secret").data, "encrypted")
    yield Template("damaged", ".pdf", 1, b"%PDF-1.4\n" + chance.randbytes(4000), "unreadable")
    yield Template("prose", ".pdf", 1, b"This is no PDF at all.\n" * 40, "unreadable")
    yield Template("noimage", ".png", 1, b"\x89PNG\r\n\x1a\n" + chance.randbytes(2000), "unreadable")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files of one round. `expected`: the template of each file's stem."""

    folder: Path
    pages: int
    documents: dict[str, Template]


def copies(made: list[Template], pages: int, folder: Path) -> Corpus:
    """All templates in turn until there are so many pages; each copy has content of its own, so none is an alias."""
    folder.mkdir(parents=True)
    documents: dict[str, Template] = {}
    total = 0
    for number, template in enumerate(itertools.cycle(made)):
        if total >= pages and number >= len(made):
            return Corpus(folder, total, documents)
        stem = f"{number:05d}-{template.name}"
        # After the end of the file, where neither readers of PDFs nor of images look.
        (folder / f"{stem}{template.suffix}").write_bytes(template.data + f"\n% copy {number}\n".encode())
        documents[stem] = template
        total += template.pages
    raise AssertionError("unreachable")


# What must be true of a round's workspace. Each breach is a line of words; counts are facts for the report.


#: What the faults of the mix may do to a page that the calm run read: all its tries were spoilt by the servers.
EXPLAINED = ("server error", "truncated", "malformed answer", "empty answer", "quarantined", "engine timeout")
#: Largest share of the pages whose answers may differ from a run without injected faults.
_MOST_SPOILT = 0.01
_SHOWN = 5  # lines of one kind


@dataclass(frozen=True, slots=True)
class Page:
    """One page as it was read."""

    status: str
    reason: str
    markdown: str
    image: str  # hash of the data URL, as the simulator names it


@dataclass(frozen=True, slots=True)
class Read:
    """A round's results by what they show. Ids of documents are taken out of the texts."""

    pages: Mapping[tuple[str, int], tuple[Page, ...]]  # by template and number, a page of each copy
    documents: Mapping[str, tuple[str, ...]]  # by template: the texts of all copies
    figures: int
    problems: list[str] = field(default_factory=list)

    def counts(self) -> Counter[str]:
        return Counter(page.status for many in self.pages.values() for page in many)


def read(store: ObjectStore, corpus: Corpus) -> Read:
    """All rows and documents of a finished workspace."""
    found: list[str] = []
    pages: dict[tuple[str, int], list[Page]] = {}
    crops: set[str] = set()
    seen, sound, figures = Counter[str](), dict[str, bool](), 0
    with Workspace.on(copied(store)) as workspace:
        run = Run(workspace)
        for row in run.pages():
            template = _template(corpus, row.source)
            number = row.page_number or 0
            seen[row.page_id] += 1
            figures += len(row.figures)
            crops.update(figure.id for figure in row.figures)
            pages.setdefault((template.name, number), []).append(_page(row))
            sound[row.source] = sound.get(row.source, True) and row.status is Status.OK
            found += _misread(row, template)
        documents: dict[str, list[str]] = {}
        texts = {one.path: one for one in run.documents()}
        if len(texts) != len(corpus.documents):
            found.append(f"{len(texts)} documents have a text, of {len(corpus.documents)}")
        stored = {Path(info.key).stem for info in workspace.store.list("documents/")}
        found += [f"the image of figure {one} is missing" for one in sorted(crops - stored)][:_SHOWN]
        for one in texts.values():
            if sound.get(one.source, False):
                text = one.markdown.replace(one.document_id, "ID").replace(Path(one.source).stem, "NAME")
                documents.setdefault(_template(corpus, one.source).name, []).append(text)
        found += _statuses(run, corpus, seen)
    return Read(
        {place: tuple(many) for place, many in pages.items()},
        {name: tuple(texts) for name, texts in documents.items()},
        figures,
        found,
    )


def _template(corpus: Corpus, source: str) -> Template:
    return corpus.documents[Path(source).stem]


def _page(row: PageRecord) -> Page:
    image = image_hash(data_url(row.image)) if row.image is not None else ""
    markdown = row.markdown.replace(row.document_id, "ID")
    return Page(row.status.value, row.reason.value if row.reason else "", markdown, image)


def _misread(row: PageRecord, template: Template) -> Iterator[str]:
    """Bad documents fail for their own reason, pages of good ones have a number that is theirs."""
    reason = row.reason.value if row.reason else ""
    name, state = Path(row.source).name, f"{row.status.value} ({reason}: {row.detail})"
    if template.reason and (row.status is not Status.FAILED or reason != template.reason):
        yield f"{name}: {state}, not failed ({template.reason})"
    if not template.reason and not (row.page_number and 1 <= row.page_number <= template.pages):
        yield f"{name}: page {row.page_number} of {template.pages}: {state}"


def _statuses(run: Run, corpus: Corpus, seen: Counter[str]) -> Iterator[str]:
    """Conservation, counted three times: from the templates, from the markers, from the rows."""
    counts = run.status.pages
    if not corpus.pages == counts.expected == counts.ok + counts.degraded + counts.failed == len(seen) == seen.total():
        yield f"{corpus.pages} pages are expected; status has {counts}, the rows {seen.total()}, {len(seen)} different"
    if any(many != 1 for many in seen.values()):
        yield f"rows twice: {[one for one, many in seen.items() if many != 1][:_SHOWN]}"


def compared(now: Read, calm: Read) -> tuple[list[str], dict[str, Any]]:
    """Breaches, and what the faults changed, against the calm run: where a page is ok in both its text is the same."""
    found: list[str] = []
    changed = Counter[str]()
    for (name, number), many in now.pages.items():
        before = calm.pages.get((name, number), ())
        if not before:
            found.append(f"{name} page {number} is not in the calm run")
            continue
        for page in many:
            if page == before[0]:
                continue
            if page.status == before[0].status == "ok":
                found.append(f"{name} page {number} has another text or image than in calm")
                continue
            changed[f"{before[0].status} to {page.status}: {page.reason or before[0].reason}"] += 1
            if page.status != "ok" and page.reason not in EXPLAINED:
                found.append(f"{name} page {number} is {page.status} ({page.reason}); in calm {before[0].status}")
    total = now.counts().total()
    if changed.total() > max(3, _MOST_SPOILT * total):
        found.append(f"{changed.total()} of {total} pages came out otherwise than in calm: {dict(changed)}")
    texts, same = _texts(now, calm)
    return [*_few(found), *texts], {"other_than_calm": dict(changed), "documents_as_in_calm": same}


def _texts(now: Read, calm: Read) -> tuple[list[str], int]:
    """Documents whose pages are all ok, and their figures described, read as in calm, captions and all."""
    found, same = [], 0
    for name, texts in now.documents.items():
        before = calm.documents.get(name)
        for text in texts if before else ():
            if before and text == before[0]:
                same += 1
            else:
                found.append(f"the Markdown of a copy of {name} is not as in calm: {_difference(before, text)}")
    return _few(found), same


def _difference(before: tuple[str, ...] | None, text: str) -> str:
    lines = zip((before or ("",))[0].splitlines(), text.splitlines(), strict=False)
    return next((f"{old[:120]!r}, now {new[:120]!r}" for old, new in lines if old != new), "its length")


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"and {more} more of this kind"]


def stood(store: ObjectStore, corpus: Corpus, figures: int, before: Attempts, killed: set[int]) -> list[str]:
    """Breaches in what is stored: markers, hashes, data set, documents, leases, leftovers. Cleans the workspace."""
    found = [*_leases(store, killed)]
    return found + _few(problems(store, pages=corpus.pages, figures=figures, before=before))


def _leases(store: ObjectStore, killed: set[int]) -> Iterator[str]:
    """Only who was killed may leave a lease behind."""
    for info in store.list():
        if is_lease(info.key):
            worker = str(json.loads(store.get(info.key))["worker"])
            pid = re.search(r"(\d+)$", worker)
            if pid is None or int(pid[1]) not in killed:
                yield f"the lease {info.key} is still there, of {worker}, who ended by itself"


def asked_again(asked: Counter[str], now: Read, calm: Read, calm_asked: Counter[str]) -> int:
    """How many requests for pages there were beyond those that the calm run would have made."""
    again = 0
    by_image = Counter[str]()
    calm_times = Counter[str]()
    for many in now.pages.values():
        by_image.update(page.image for page in many if page.image)
    for many in calm.pages.values():
        calm_times.update(page.image for page in many if page.image)
    for image, times in by_image.items():
        ideal = times * calm_asked[image] / max(calm_times[image], 1)
        again += max(0, round(asked[image] - ideal))
    return again


@dataclass(frozen=True, slots=True)
class Direct:
    """Store of the round, without the proxy that injects faults."""

    url: str
    endpoint: str

    def __enter__(self) -> ObjectStore:
        from llm_ocr.storage import StoreOptions
        from llm_ocr.storage.s3 import S3Store
        from llm_ocr.storage.s3.client import parse_url

        return S3Store(parse_url(self.url), StoreOptions(endpoint=self.endpoint))

    def __exit__(self, *_: object) -> None:
        pass


def unfinished(store: ObjectStore) -> list[str]:
    """The stages that are not done."""
    with Workspace.on(store) as workspace:
        return [name for name, stage in Run(workspace).status.stages.items() if not stage.finished]


def remove_all(store: ObjectStore) -> None:
    """Nothing of the workspace is kept: the server holds it in memory."""
    for info in list(store.list()):
        store.delete(info.key)


# One round of the soak: a workspace from its plan to its removal, with what is done to its workers meanwhile.


AWS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "s3cret-of-the-soak",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
UNIT = 16  # pages
EXTRACTORS = 3
_TICK, _SAMPLE, _TELL = 0.5, 5.0, 60.0  # seconds
_STUCK = 420.0  # seconds without a new marker after which the soak gives up
#: Most blows are for workers that have begun to work; some for those that just start.
_GROWN, _ALSO_YOUNG = 15.0, 0.15  # seconds; share
_MOST_PROBLEMS = 40  # with which a round is given up
#: What is done to a worker, and how likely each is.
_HARM = {"kill": 4, "kill machine": 3, "term": 3, "pause": 2}


@dataclass(slots=True)
class Soak:
    """What all rounds share."""

    arguments: argparse.Namespace
    folder: Path
    store: Store
    servers: list[Server]
    chance: random.Random
    began: float = field(default_factory=time.monotonic)
    storms: float = 0.0  # when the first began; 0: not yet
    kills: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    machine: dict[str, object] = field(default_factory=proctree.machine)

    def left(self) -> float:
        """Seconds of storms."""
        return (self.storms or time.monotonic()) + float(self.arguments.seconds) - time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", file=sys.stderr, flush=True)


class Round:
    """One workspace, from its plan to its removal."""

    def __init__(self, soak: Soak, number: int, corpus: Corpus, stormy: bool) -> None:
        self.soak, self.corpus, self.stormy = soak, corpus, stormy
        self.number = number
        self.url = f"s3://{BUCKET}/runs/round-{number}"
        self.folder = soak.folder / f"round-{number}"
        self.environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), **AWS}
        self.before: dict[tuple[str, str], str] = {}
        self.problems: list[str] = []
        self.done = self.told = 0
        self.moved = time.monotonic()

    # -- commands -------------------------------------------------------------------------------------------------

    def place(self, *, direct: bool = False) -> list[str]:
        return ["-w", self.url, "--workspace-endpoint", self.soak.store.direct if direct else self.soak.store.url]

    def workers(self) -> dict[str, list[str]]:
        urls = [word for server in self.soak.servers for word in ("--server-url", server.url)]
        engine = ["--engine", "server", *urls, "--request-timeout", "20"]
        every = [*self.place(), "--quiet", "--max-failed-rate", "0.5"]
        leases = ["--lease-seconds", str(LEASE)]
        images = ["--image-size", "640", "--image-format", "jpeg", "--render-workers", "1"]
        crew = {f"extract-{n}": ["extract", *every, *leases, *engine, *images] for n in range(EXTRACTORS)}
        crew["describe"] = ["describe", "--follow", *every, *leases, *engine]
        crew["assemble"] = ["assemble", "--follow", *every, *leases, "--dataset-images", "figures"]
        return crew

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command in calm, at the store itself."""
        return subprocess.run(
            [sys.executable, "-m", "llm_ocr", *words, *self.place(direct=True)],
            env={**self.environment, "TMPDIR": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    # -- the round ------------------------------------------------------------------------------------------------

    def run(self, calm: Read | None, calm_asked: Counter[str]) -> tuple[dict[str, Any], Read]:
        soak = self.soak
        self.folder.mkdir()
        for server in soak.servers:
            server.forget()
        planned = self.command("plan", str(self.corpus.folder), "--pages-per-unit", str(UNIT))
        if planned.returncode:
            raise SystemExit(f"plan ended with {planned.returncode}: {planned.stderr[-1000:]}")
        soak.say(f"round {self.number}{'' if self.stormy else ' (calm)'}: {self.corpus.pages} pages")
        began, cpu = time.monotonic(), os.times()
        with Crew(self.workers(), self.environment, self.folder) as crew:
            soak.storms = soak.storms or (began if self.stormy else 0.0)
            self.watch(crew)
            seconds = time.monotonic() - began
        soak.store.set({})
        soak.say(f"round {self.number}: done in {seconds:.0f} s, now checked")
        self.problems += crew.problems
        facts, result = self.checked(crew, calm, calm_asked)
        after = os.times()
        used = after.children_user + after.children_system - cpu.children_user - cpu.children_system
        told = {
            "round": self.number,
            "stormy": self.stormy,
            "pages": self.corpus.pages,
            "seconds": round(seconds, 1),
            "pages_per_second": round(self.corpus.pages / seconds, 2),
            "workers_cpu_s_per_page": round(used / self.corpus.pages, 3),
            "events": dict(sorted(crew.events.items())),
            **facts,
            "lives": crew.tracks,
            "problems": self.problems,
        }
        return told, result

    def watch(self, crew: Crew) -> None:
        """Until all workers have ended and everything is done."""
        soak, spared = self.soak, self.spared()
        next_sample = next_tell = next_move = 0.0
        every = kill_every(soak.arguments.seconds)
        next_kill = time.monotonic() + soak.chance.uniform(0.5, 1.0) * every
        while True:
            now, stormy = time.monotonic(), self.stormy and soak.left() > 0
            crew.tick(soak.chance)
            for server in soak.servers:
                server.tick(stormy)
            soak.store.tick(stormy)
            if now >= next_sample:
                crew.sample()
                next_sample = now + _SAMPLE
            if stormy and now >= next_kill:
                self.harm(crew, spared)
                next_kill = now + soak.chance.uniform(0.4, 1.6) * every
            if now >= next_move:
                self.look(now)
                next_move = now + 4 * _SAMPLE
            if now >= next_tell:
                self.tell(crew)
                next_tell = now + _TELL
            if crew.idle() and self.finished(crew):
                return
            if now > self.moved + _STUCK or len(crew.problems) > _MOST_PROBLEMS:
                waited = now - self.moved
                self.problems.append(f"given up; nothing was published for {waited:.0f} s: {self.state(crew)}")
                return
            time.sleep(_TICK)

    def spared(self) -> set[str]:
        """Workers that live through the round: their memory is seen over a long time."""
        return {f"extract-{self.number % EXTRACTORS}", ("describe", "assemble")[self.number % 2]}

    def harm(self, crew: Crew, spared: set[str]) -> None:
        chance = self.soak.chance
        age = 0.0 if chance.random() < _ALSO_YOUNG else _GROWN
        victims = [one for one in crew.alive(age) if one.name not in spared]
        if not victims:
            return
        crew.hurt(chance.choice(victims), chance.choices(list(_HARM), list(_HARM.values()))[0], chance)
        with self.entered() as store:
            found = attempts(store)
        for place, attempt in self.before.items():
            if found.get(place) != attempt:
                self.problems.append(f"published twice, or lost: {place} was of {attempt}, is of {found.get(place)}")
        self.before = found

    def look(self, now: float) -> None:
        """Whether markers have come."""
        with self.entered() as store:
            done = sum(info.key.endswith(".done") for info in store.list())
        if done != self.done:
            self.done, self.moved = done, now

    def finished(self, crew: Crew) -> bool:
        """Whether all stages are done; where one is not, a worker comes back: what a dead one held is free by now."""
        if self.soak.left() <= 0 or not self.stormy:
            crew.wake()
        with self.entered() as store:
            open_ = unfinished(store)
        back = [one for one in crew.workers if one.stage in open_ and one.name in ("extract-0", "describe", "assemble")]
        for worker in back:
            crew.events[f"came back {worker.stage}"] += 1
            worker.again_at = time.monotonic() + LEASE / 4
        return not back

    def tell(self, crew: Crew) -> None:
        for server in self.soak.servers:
            server.count()
        self.soak.say(self.state(crew))
        for line in crew.problems[self.told :]:
            self.soak.say(f"  {line}")
        self.told = len(crew.problems)

    def state(self, crew: Crew) -> str:
        faults = [*(server.storm or "calm" for server in self.soak.servers), self.soak.store.storm or "calm"]
        alive = ", ".join(worker.name for worker in crew.alive())
        return f"{self.done} markers; alive: {alive}; faults: {' / '.join(faults)}; {len(crew.problems)} problems"

    # -- its end --------------------------------------------------------------------------------------------------

    def entered(self) -> "Direct":
        return Direct(self.url, self.soak.store.direct)

    def checked(self, crew: Crew, calm: Read | None, calm_asked: Counter[str]) -> tuple[dict[str, Any], Read]:
        """Everything that must be true now, and the counts."""
        asked = sum((server.asked() for server in self.soak.servers), Counter[str]())
        for server in self.soak.servers:
            server.count()
        facts: dict[str, Any] = {"requests": asked.total()}
        self.statused()
        with self.entered() as store:
            result = read(store, self.corpus)
            self.problems += result.problems
            facts |= {"counts": dict(result.counts()), "figures": result.figures}
            if calm is not None:
                found, more = compared(result, calm)
                self.problems += found
                again = asked_again(asked, result, calm, calm_asked)
                facts |= {**more, "asked_again": again, "asked_again_share": round(again / self.corpus.pages, 4)}
            unnamed = unnamed_data(store)
            facts["written_and_not_published"] = len(unnamed)
            self.problems += stood(store, self.corpus, result.figures, self.before, crew.killed)
            remove_all(store)
        return facts, result

    def statused(self) -> None:
        """`status` reads the workspace and exits 0; what it prints is conserved."""
        done = self.command("status", "--json")
        if done.returncode:
            self.problems.append(f"status ended with {done.returncode}: {done.stderr[-500:]}")
            return
        pages = json.loads(done.stdout)["pages"]
        if pages["expected"] != pages["ok"] + pages["degraded"] + pages["failed"]:
            self.problems.append(f"status says {pages}")


def kill_every(seconds: float) -> float:
    """Seconds between two kills, in the mean."""
    return min(90.0, max(12.0, float(seconds) / 24))


# The command.


_ROUND = 900.0  # seconds that a stormy round should take at most
#: A storm's pages a second as a share of calm, until one was measured.
_FIRST_GUESS = 0.45
_TOO_MANY = 20  # problems of one round, after which there is no other


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of storms, after the calm round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calm-pages", type=int, help="pages of the calm round (default: by the time there is)")
    parser.add_argument("--scratch", type=Path, help="folder to work in (default: the system's temporary folder)")
    parser.add_argument("--output", type=Path, help="write everything as JSON")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupted)
    folder = Path(tempfile.mkdtemp(prefix="llm-ocr-soak-", dir=arguments.scratch)).resolve()
    try:
        report = run(arguments, folder)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _keep(arguments, report)
    print(json.dumps({name: value for name, value in report.items() if name != "rounds"}, indent=1))
    return int(bool(report["problems"]))


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds; the report."""
    same_code()
    with mock.patch.dict(os.environ, AWS):
        store = Store(arguments.seed, AWS)
        servers = [Server(folder, number, arguments.seed) for number in range(2)]
        try:
            for server in servers:
                server.start()
            soak = Soak(arguments, folder, store, servers, random.Random(f"kills {arguments.seed}"))
            return _report(soak, _rounds(soak))
        finally:
            for server in servers:
                server.close()
            store.close()


def same_code() -> None:
    """Raises SystemExit unless the workers run the code that this process does."""
    program = "import llm_ocr; print(llm_ocr.__file__)"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    print(f"workers run {said.stdout.strip()}", file=sys.stderr, flush=True)
    if Path(said.stdout.strip()).resolve().parents[1] != REPOSITORY:
        raise SystemExit(f"the workers would run {said.stdout.strip()}, not what is in {REPOSITORY}")


def _rounds(soak: Soak) -> list[dict[str, Any]]:
    """One calm round, then stormy ones until the time is over."""
    seconds = float(soak.arguments.seconds)
    pages = soak.arguments.calm_pages or int(min(400, max(72, seconds / 6)))
    made = templates(pages, soak.arguments.seed)
    done: list[dict[str, Any]] = []
    calm: Read | None = None
    calm_asked: Counter[str] = Counter()
    rate = 0.0
    while len(done) < 2 or soak.left() > 0.1 * seconds:
        number, stormy = len(done), bool(done)
        wanted = int(rate * min(_ROUND, max(soak.left(), 40.0))) if stormy else 0
        corpus = copies(made, wanted, soak.folder / f"documents-{number}")
        try:
            told, result = Round(soak, number, corpus, stormy).run(calm, calm_asked)
        except LlmOcrError as error:
            soak.problems.append(f"round {number}: the workspace cannot be read: {error}")
            break
        shutil.rmtree(corpus.folder)
        if not stormy:
            calm, calm_asked = result, sum((server.asked() for server in soak.servers), Counter[str]())
        rate = told["pages_per_second"] * (1.0 if stormy else _FIRST_GUESS)
        soak.problems += [f"round {number}: {line}" for line in told["problems"]]
        soak.kills.update(told["events"])
        done.append(told)
        soak.say(f"round {number}: {told['pages_per_second']} pages/s, {len(told['problems'])} problems")
        for line in told["problems"]:
            soak.say(f"  {line}")
        _keep(soak.arguments, _report(soak, done))  # what is known so far, should the rest not come
        if len(told["problems"]) > _TOO_MANY:
            break
    return done


def _keep(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    keep(report, arguments.output)


def _report(soak: Soak, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    arguments, counted = soak.arguments, soak.store.set({})
    stormy = [one for one in rounds if one["stormy"]]
    faults = sum((server.events for server in soak.servers), Counter[str]())
    return {
        "command": f"make soak SOAK_SECONDS={arguments.seconds:g} SEED={arguments.seed}",
        "machine": soak.machine,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - soak.began, 1),
        "rounds_stormy": len(stormy),
        "pages": sum(one["pages"] for one in stormy),
        "pages_per_second": {
            "calm": rounds[0]["pages_per_second"],
            "storm": round(sum(one["pages"] for one in stormy) / max(sum(one["seconds"] for one in stormy), 1), 2),
        },
        "asked_again_share": round(
            sum(one["asked_again"] for one in stormy) / max(sum(one["pages"] for one in stormy), 1), 4
        ),
        "workers": dict(sorted(soak.kills.items())),
        "model_server_faults": dict(sorted(faults.items())),
        "store_faults": dict(sorted(counted["hit"].items())),
        "store_storms": dict(soak.store.storms),
        "store_requests": counted["requests"],
        "store_peak_mib": counted["peak_bytes"] >> 20,
        "memory": _longest(rounds),
        "rounds": rounds,
        "problems": soak.problems,
    }


def _longest(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each kind of worker, the longest life, and the highest of all lives."""
    lives = [life for one in rounds for life in one["lives"] if life["samples"]]
    names = sorted({_kind(life) for life in lives})
    return {name: _kind_of_worker([life for life in lives if _kind(life) == name]) for name in names}


def _kind_of_worker(lives: list[dict[str, Any]]) -> dict[str, Any]:
    highest = ("pss_max_mib", "tree_max_mib", "descriptors_max", "connections_max", "threads_max")
    return {
        "lives": len(lives),
        **{name: max(life[name] for life in lives) for name in highest},
        "longest": max(lives, key=lambda life: float(life["seconds"])),
    }


def _kind(life: dict[str, Any]) -> str:
    return str(life["worker"]).partition("-")[0]


if __name__ == "__main__":
    raise SystemExit(main())
