"""Prove that a change of structure changes no result.

    python benchmarks/equivalence.py record FOLDER     store the results of the code that this Python imports
    python benchmarks/equivalence.py compare FOLDER    repeat the runs and name the differences; exit code 1 if any

A recording holds copies of its documents, so another checkout can compare itself with it. The script uses commands and
files only, no module of the package: it drives both versions. Masked: times, package versions, random ids, folders.
"""

import argparse
import gzip
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = tuple(REPOSITORY / "examples" / name for name in ("fax.tiff", "invoice.png", "paper.pdf", "scan.pdf"))
DOCUMENTS = (REPOSITORY.parent / "shared" / "data" / "pdfs", *EXAMPLES)
PAGES = "1-4"
PASSWORD = "1234"
FORMATS = ("dataset", "markdown", "json", "jsonl", "dolma", "chunks", "olmocr-bench")
#: The simulator's module, now and up to version 0.1.
SIMULATORS = ("llm_ocr_simulator", "llm_ocr.simulator")
COMMAND_SECONDS = 3600
#: For Extract. pdfium's character boxes depend on what its process rendered before. Several renderers share the pages
#: by chance, so boxes differ by 0.004 of a page's width (page 4 of failing_anchor_pg4.pdf, pypdfium2 5.15.2).
ONE_RENDERER = ("--render-workers", "1")
#: Exit codes of a stage that finished: clean, and with more failed pages than allowed.
FINISHED = (0, 3)
DESCRIPTION = "recording.json"

# ---------------------------------------------------------------- masks

#: Values that differ between two runs of the same code. The quotes may be escaped: some columns hold JSON.
_TIMES = "seconds|waited|probe|added|created|created_by|updated|latency|pages_per_second"
MASKS = (
    (re.compile(rf'(\\*"(?:{_TIMES})\\*":\s*)(?:\\*"[^"\\]*\\*"|-?[\d.]+(?:e[+-]?\d+)?)', re.IGNORECASE), r"\1TIME"),
    (re.compile(r'("(?:llm-ocr-version|version)":\s*)"\d+\.\d+\.\d+[^"]*"'), r'\1"VERSION"'),
    (re.compile(r"llm-ocr \d+\.\d+\.\d+(?:\S*\w)?"), "llm-ocr VERSION"),
    (re.compile(r"127\.0\.0\.1:\d+"), "SIMULATOR"),
)
#: Hashes and sizes of files that hold masked values, in markers and in the lists of an export.
FILE_MASKS = (
    (re.compile(r'("sha256":\s*)"[0-9a-f]{64}"'), r'\1"HASH"'),
    (re.compile(r'("(?:size|[^"]+\.(?:gz|json|jsonl|md|jpg|png|parquet))":\s*)\d+'), r"\1SIZE"),
)
#: An export names each file after the random ids of its units.
EXPORT_HASH = re.compile(r"(?<=\d{5}-)[0-9a-f]{16}(?=\.)")
#: Parts of `status --json` that measure one run.
STATUS_LEFT_OUT = ("workers", "spent", "advice")
#: Folders of a workspace that measure one run.
WORKSPACE_LEFT_OUT = ("metrics", ".tmp-locks")


class Results:
    """Write results as comparable text files below one folder."""

    def __init__(self, folder: Path, places: dict[str, str], ids: dict[str, str]) -> None:
        """Mask `places` (path to name) and random `ids` (id to name) in names and contents."""
        self.folder = folder
        self._places = sorted(places.items(), key=lambda place: -len(place[0]))
        self._ids = ids
        self._id = re.compile("|".join(map(re.escape, ids)) or "(?!)")

    def tree(self, folder: Path, name: str, left_out: Sequence[str] = ()) -> None:
        """Store all files below `folder` except those in the folders `left_out`."""
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder)
            if path.is_file() and relative.parts[0] not in left_out:
                self.file(path, f"{name}/{relative.as_posix()}")

    def file(self, path: Path, name: str) -> None:
        """Store one file: text as text, Parquet as rows, other bytes as their hash."""
        masks: tuple[tuple[re.Pattern[str], str], ...] = MASKS
        if path.suffix == ".done" or "/_llm-ocr/" in name or "/assemble/views/" in name:
            masks += FILE_MASKS
        self.text(_readable(path), self._without_ids(EXPORT_HASH.sub("HASH", name)), masks)

    def text(self, text: str, name: str, masks: tuple[tuple[re.Pattern[str], str], ...] = MASKS) -> None:
        """Store one text."""
        for place, word in self._places:
            text = text.replace(place, word)
        for pattern, replacement in masks:
            text = pattern.sub(replacement, text)
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(EXPORT_HASH.sub("HASH", self._without_ids(text)), newline="")

    def _without_ids(self, text: str) -> str:
        return self._id.sub(lambda found: self._ids[found[0]], text)


def _readable(path: Path) -> str:
    if path.suffix == ".parquet":
        return "".join(line + "\n" for line in _rows(path))
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _hash_of(data) + "\n"


def _rows(path: Path) -> Iterator[str]:
    """Return the schema and then one line of JSON a row; binary values are hashes."""
    table = pyarrow.parquet.read_table(path)
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    yield json.dumps({"columns": {one.name: str(one.type) for one in table.schema}, "metadata": metadata})
    for batch in table.to_batches(max_chunksize=16):
        for row in batch.to_pylist():
            yield json.dumps(row, ensure_ascii=False, default=_hash_of)


def _hash_of(data: object) -> str:
    if isinstance(data, bytes):
        return f"sha256 {hashlib.sha256(data).hexdigest()} of {len(data)} bytes"
    raise TypeError(f"no text for a {type(data).__name__}")


def random_ids(workspace: Path) -> dict[str, str]:
    """Return the random ids of a workspace with their masks: attempts of units, and of plans."""
    found: dict[str, str] = {}
    for marker in workspace.rglob("*.done"):
        attempt = json.loads(marker.read_bytes()).get("attempt")
        if attempt:
            found[attempt] = f"PLAN-{marker.stem}" if marker.parent.name == "plan" else "ATTEMPT"
    return found


# ---------------------------------------------------------------- runs


@dataclass
class Run:
    """One workspace, and the commands that fill and read it."""

    name: str
    documents: Path
    pages: str
    work: Path
    results: Path
    codes: list[str] = field(default_factory=list)
    requests: dict[str, list[str]] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.work / self.name

    def stage(self, command: str, *words: str) -> None:
        """Run a command in the workspace and keep its exit code."""
        self._command(command, "-w", str(self.workspace), "--quiet", *words)

    def plan(self, *words: str) -> None:
        """Plan the documents."""
        pages = ("--pages", self.pages) if self.pages else ()
        self.stage("plan", str(self.documents), *pages, *words)

    def store(self) -> None:
        """Store the exit codes, the requests, the workspace, and everything that commands read from it."""
        self.read("read")
        results = self._comparable()
        results.tree(self.workspace, "workspace", WORKSPACE_LEFT_OUT)
        results.text("".join(code + "\n" for code in self.codes), "exit-codes.txt")
        for name, requests in self.requests.items():
            results.text("".join(line + "\n" for line in requests), f"requests/{name}.jsonl")

    def read(self, name: str) -> None:
        """Store the status and all exports of the workspace."""
        self.status = json.loads(self._command("status", "-w", str(self.workspace), "--json"))
        results = self._comparable()
        kept = {key: value for key, value in self.status.items() if key not in STATUS_LEFT_OUT}
        results.text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", f"{name}/status.json")
        for form in FORMATS:
            output = self.work / f"{self.name}-{name}" / form
            self._command("export", "-w", str(self.workspace), "--format", form, "--output", str(output), "--quiet")
            results.tree(output, f"{name}/{form}")

    def _comparable(self) -> Results:
        places = {str(self.documents): "DOCUMENTS", str(self.workspace): "WORKSPACE", str(self.work): "WORK"}
        return Results(self.results / self.name, places, random_ids(self.workspace))

    def _command(self, command: str, *words: str) -> str:
        """Run `llm-ocr COMMAND` in an environment without settings; return its standard output."""
        program = str(Path(sys.executable).with_name("llm-ocr"))
        begun = time.monotonic()
        ended = subprocess.run(
            [program, command, *words],
            cwd=self.work,
            env=_environment(self.work),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        shown = " ".join([command, *(word for word in words if word in FORMATS)])
        self.codes.append(f"{shown}: {ended.returncode}")
        print(f"{self.name}: {shown}: exit code {ended.returncode}, {time.monotonic() - begun:.1f} s", flush=True)
        if ended.returncode not in FINISHED:
            raise Failed(f"{self.name}: llm-ocr {shown} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        return ended.stdout


class Failed(Exception):
    """A command did not finish."""


def _environment(work: Path) -> dict[str, str]:
    """Return the caller's variables without settings, with an empty home folder."""
    home = work / "home"
    home.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": str(home), "HF_HUB_OFFLINE": "1"}


@contextmanager
def simulator(run: Run, name: str, *words: str) -> Iterator[str]:
    """Start a simulated server and yield its URL; at the end, keep its requests, sorted, under `name`."""
    module = next(one for one in SIMULATORS if _exists(one))
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--until-stdin-closes", "--speed", "200", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(run.work),
        cwd=run.work,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise Failed(f"the simulator ended with exit code {process.wait()}")
        url = str(json.loads(line)["url"])
        yield url
        with urllib.request.urlopen(url.removesuffix("/v1") + "/simulator/log", timeout=60) as answer:
            run.requests[name] = sorted(_request(one) for one in json.load(answer)["requests"])
    finally:
        process.stdin.close()
        process.stdout.close()
        process.terminate()
        process.wait()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _request(one: dict[str, Any]) -> str:
    """Return what the client decides of a request. Whether a loop ends at its limit or is aborted depends on timing."""
    names = ["image", "asked", "prompt_tokens", "temperature", "fault"]
    if one["finish"] not in ("abort", "length"):
        names += ["status", "finish", "output_tokens"]
    return json.dumps({name: one[name] for name in names})


def embedded(run: Run) -> None:
    """Read text layers and run OCR on the CPU. The encrypted document fails."""
    run.plan("--engine", "embedded")
    run.stage("extract", *ONE_RENDERER, "--engine", "embedded")
    run.stage("describe", "--engine", "embedded")
    run.stage("assemble")


def deepseek(run: Run) -> None:
    """Ask the default model, which sometimes loops, is silent, or forgets the form; then retry with the password."""
    password = run.work / "password.txt"
    password.write_text(PASSWORD)
    run.plan("--engine", "server")
    with simulator(run, "all", "--loop-rate", "0.05", "--empty-rate", "0.05", "--malformed-rate", "0.05") as url:
        run.stage("extract", *ONE_RENDERER, "--server-url", url)
        run.stage("describe", "--server-url", url)
        run.stage("assemble")
        run.stage("retry-failed", "--password-file", str(password))
        run.stage("extract", *ONE_RENDERER, "--server-url", url, "--password-file", str(password))
        run.stage("describe", "--server-url", url)
        run.stage("assemble")


def dots(run: Run) -> None:
    """Ask a model that answers with layouts in JSON: three shards, each with an answer of its own."""
    run.plan("--engine", "server", "--model", "dots.mocr", "--pages-per-unit", "4")
    for index, answer in enumerate(LAYOUTS):
        said = run.work / f"said-{index}.json"
        said.write_text(json.dumps({"*": answer}))
        shard = ("--shard-index", str(index), "--shard-count", str(len(LAYOUTS)))
        with simulator(
            run, f"extract-{index}", "--said", str(said), "--model", "dots.mocr", "--max-model-len", "24576"
        ) as url:
            run.stage("extract", *ONE_RENDERER, "--server-url", url, "--model", "dots.mocr", *shard)
    with simulator(run, "describe", "--model", "qwen3-vl-2b") as url:
        run.stage("describe", "--server-url", url, "--model", "qwen3-vl-2b")
    run.stage("assemble")


def paddle(run: Run) -> None:
    """Ask a model for each region that the CPU reader's layout finds, and classify the figures."""
    layout = ("--layout-first", "always", "--detector", "embedded")
    run.plan("--engine", "server", "--model", "paddleocr-vl-1.6", *layout)
    with simulator(run, "extract", "--model", "paddleocr-vl-1.6") as url:
        run.stage("extract", *ONE_RENDERER, "--server-url", url, "--model", "paddleocr-vl-1.6", *layout)
    with simulator(run, "describe", "--model", "qwen3-vl-2b") as url:
        run.stage("describe", "--server-url", url, "--model", "qwen3-vl-2b", "--describe-mode", "classify")
    run.stage("assemble")


def _layout(*pieces: tuple[str, tuple[int, int, int, int], str | None]) -> list[dict[str, Any]]:
    return [
        {"bbox": list(box), "category": category, **({} if text is None else {"text": text})}
        for category, box, text in pieces
    ]


_REPORT = _layout(
    ("Page-header", (90, 30, 900, 60), "Annual report"),
    ("Title", (90, 80, 900, 140), "# Water levels & *tides* of 1 < 2 stations"),
    ("Section-header", (90, 150, 900, 180), "## 1 Método – überall"),
    (
        "Text",
        (90, 190, 480, 320),
        "The survey shows **two** stations,\nwhich the next line con-\ntinues, at 5 % and $x^2$.",
    ),
    ("Text", (500, 190, 900, 320), "Second column: 水位は毎年測定される。 See <b>below</b> and [1]."),
    ("List-item", (90, 330, 480, 360), "- first item"),
    ("List-item", (110, 360, 480, 390), "  - an item within it"),
    ("List-item", (90, 390, 480, 420), "2. a numbered item"),
    ("Formula", (500, 330, 900, 420), r"\frac{a}{b} = \sum_{i=1}^{n} x_i \quad (1)"),
    (
        "Table",
        (90, 440, 900, 640),
        '<table><thead><tr><th colspan="2">Place</th><th>Level</th></tr></thead><tbody>'
        '<tr><td rowspan="2">North</td><td>A &amp; B</td><td>1|2</td></tr><tr><td>C</td><td></td></tr></tbody></table>',
    ),
    ("Caption", (90, 645, 900, 670), "Table 1: Levels by place."),
    ("Picture", (90, 690, 480, 900), None),
    ("Caption", (90, 905, 480, 930), "Figure 1: A station at low tide."),
    ("Picture", (500, 690, 900, 900), None),
    ("Footnote", (90, 1000, 900, 1030), "1 Measured at noon."),
    ("Page-footer", (90, 1100, 900, 1120), "Page 7"),
)
_CONTINUED = _layout(
    ("Text", (60, 40, 700, 160), "which began on the page before and goes on here. A paragraph follows"),
    ("Picture", (60, 180, 360, 420), None),
    ("Picture", (380, 180, 700, 420), None),
    ("Caption", (60, 430, 700, 460), "Fig. 2. Two views, <script>alert(1)</script> left and right."),
    ("Table", (60, 480, 700, 600), "| a | b |\n|---|---|\n| 1 | 2 |"),
    ("Section-header", (60, 610, 700, 640), "A heading without a mark"),
    ("Formula", (60, 650, 700, 690), "$$E = mc^2$$"),
    ("Picture", (60, 700, 64, 702), None),
    ("Unknown-kind", (60, 720, 700, 760), "A text of a kind without a name."),
    ("Text", (60, 780, 700, 900), "The last paragraph ends in the middle of a"),
)
_WHOLE = json.dumps(_REPORT, ensure_ascii=False)
#: Answers of dots.mocr: a sound layout, a layout that runs on over pages, and a damaged one that is cut.
LAYOUTS = (
    _WHOLE,
    json.dumps({"layout": _CONTINUED}, indent=1),
    "Here is the layout:\n```json\n"
    + _WHOLE[: len(_WHOLE) * 3 // 5].replace('"category": "List-item"', "'category': List-item"),
)
RUNS: dict[str, Callable[[Run], None]] = {
    "embedded": embedded,
    "deepseek-ocr": deepseek,
    "dots.mocr": dots,
    "paddleocr-vl-1.6": paddle,
}

# ---------------------------------------------------------------- differences


class Difference(NamedTuple):
    """One place where two results differ."""

    place: str
    recorded: str
    now: str


def differing_files(recorded: Path, now: Path) -> Iterator[tuple[str, list[Difference]]]:
    """Return the files that differ with their first differences: Markdown first, which reads best."""
    names = {
        path.relative_to(root).as_posix() for root in (recorded, now) for path in root.rglob("*") if path.is_file()
    }
    for name in sorted(names, key=lambda name: (not name.endswith(".md"), name)):
        before, after = recorded / name, now / name
        if not before.exists():
            yield name, [Difference("the file", "is missing", "exists")]
        elif not after.exists():
            yield name, [Difference("the file", "exists", "is missing")]
        elif before.read_bytes() != after.read_bytes():
            yield name, differing_lines(name, before.read_bytes().decode(), after.read_bytes().decode())


def differing_lines(name: str, before: str, after: str, most: int = 3) -> list[Difference]:
    """Return the first differences of two texts: a path for JSON, a line for other text."""
    if name.endswith(".json") and (found := _in_json("", before, after)):
        return found[:most]
    old, new = before.split("\n"), after.split("\n")
    for number, (one, other) in enumerate(zip(old, new, strict=False), 1):
        if one != other:
            return (_in_json(f"line {number} ", one, other) or [Difference(f"line {number}", *_around(one, other))])[
                :most
            ]
    return [Difference("its end", f"{len(old)} lines", f"{len(new)} lines")]


def _in_json(prefix: str, before: str, after: str) -> list[Difference]:
    """Return the paths that differ; nothing for texts that are not JSON or differ in their spelling only."""
    try:
        # A masked time is a bare word, except in strings that hold JSON.
        old, new = (json.loads(re.sub(r'(?<!\\"):(\s*)(TIME|SIZE)\b', r':\1"\2"', text)) for text in (before, after))
    except ValueError:
        return []
    return [
        Difference(f"{prefix}${path}", *_around(_spelled(one), _spelled(other)))
        for path, one, other in _in_values(old, new, "")
    ]


def _in_values(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from _in_values(old.get(key, MISSING), new.get(key, MISSING), f"{path}.{key}")
        if list(old) != list(new) and old.keys() == new.keys():
            yield f"{path} (order of keys)", list(old), list(new)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path}.length", len(old), len(new)
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _in_values(one, other, f"{path}[{index}]")
    elif old is MISSING or new is MISSING or type(old) is not type(new) or old != new:
        yield path, old, new


MISSING = object()


def _spelled(value: Any) -> str:
    if value is MISSING:
        return "(missing)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _around(before: str, after: str, width: int = 120) -> tuple[str, str]:
    """Return both texts around the first character that differs, on one line."""
    pairs = enumerate(zip(before, after, strict=False))
    same = next((index for index, (one, other) in pairs if one != other), min(len(before), len(after)))
    start = max(0, same - width // 3)
    return repr(before[start : start + width]), repr(after[start : start + width])


# ---------------------------------------------------------------- commands


def record(options: argparse.Namespace) -> int:
    """Copy the documents, run everything, and store the results and the workspaces."""
    folder: Path = options.folder
    if folder.exists() and any(folder.iterdir()) and not (folder / DESCRIPTION).exists():
        raise SystemExit(f"{folder} is not empty and holds no recording. Name a new folder.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / DESCRIPTION).write_text("{}")
    copied = copy_documents(options.documents or DOCUMENTS, folder / "documents")
    pages = "" if options.all else options.pages
    begun, recorded_code = time.monotonic(), code()
    runs = options.runs or list(RUNS)
    with tempfile.TemporaryDirectory(prefix="equivalence-") as work:
        for name in runs:
            run = Run(name, folder / "documents", pages, Path(work), folder / "results")
            try:
                RUNS[name](run)
                run.store()
            except Failed as failed:
                raise SystemExit(f"{failed}\nNothing was recorded: the code must work.") from failed
            shutil.copytree(run.workspace, folder / "workspaces" / name)
            print(f"{name}: {_counted(run.status)}", flush=True)
    description = {"code": recorded_code, "documents": copied, "pages": pages, "runs": runs}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")
    files = sum(path.is_file() for path in (folder / "results").rglob("*"))
    print(
        f"recorded {files:,} files of {len(runs)} runs at {recorded_code} in {time.monotonic() - begun:.0f} s: {folder}"
    )
    return 0


def compare(options: argparse.Namespace) -> int:
    """Repeat the runs of a recording, read its workspaces, and name the differences."""
    folder: Path = options.folder
    description = json.loads((folder / DESCRIPTION).read_bytes()) if (folder / DESCRIPTION).exists() else {}
    if not description:
        raise SystemExit(
            f"{folder} holds no complete recording. Make one: python benchmarks/equivalence.py record {folder}"
        )
    begun = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="equivalence-"))
    different = 0
    for name in options.runs or description["runs"]:
        different += compare_run(name, folder, description["pages"], work, options.show)
    files = sum(path.is_file() for path in (work / "results").rglob("*"))
    print(f"compared {files:,} files in {time.monotonic() - begun:.0f} s: {description['code']} with {code()}")
    if different:
        print(f"{different:,} files differ. Recorded: {folder / 'results'}; now: {work / 'results'} (remove it later)")
        return 1
    shutil.rmtree(work)
    print("no difference")
    return 0


def compare_run(name: str, folder: Path, pages: str, work: Path, show: int) -> int:
    """Repeat one run, print its first `show` differences, and return the number of files that differ."""
    run = Run(name, folder / "documents", pages, work, work / "results")
    try:
        RUNS[name](run)
        run.store()
    except Failed as failed:
        print(failed, flush=True)
    # Exports name sources relative to the folder of the command, so this folder has the same depth.
    again = Run(name, folder / "documents", pages, work.with_name(f"{work.name}-recorded"), work / "recorded")
    shutil.copytree(folder / "workspaces" / name, again.workspace)
    try:
        again.read("read")
    except Failed as failed:
        print(f"with the recorded workspace: {failed}", flush=True)
    finally:
        shutil.rmtree(again.work)
    found = [
        *(
            (f"{name}/{one}", places)
            for one, places in differing_files(folder / "results" / name, work / "results" / name)
        ),
        *(
            (f"{name} (recorded workspace)/read/{one}", places)
            for one, places in differing_files(folder / "results" / name / "read", again.results / name / "read")
        ),
    ]
    for file, places in found[:show]:
        for place, recorded, now in places:
            print(f"DIFFERENT {file}, {place}\n    recorded: {recorded}\n    now:      {now}")
    if len(found) > show:
        print(f"... and {len(found) - show:,} more files of {name}")
    print(f"{name}: {_counted(run.status)}; {len(found):,} files differ", flush=True)
    return len(found)


def copy_documents(sources: Sequence[Path], target: Path) -> dict[str, str]:
    """Copy files and the files of folders; return their names with their SHA-256."""
    copied: dict[str, str] = {}
    for source in sources:
        paths = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
        if not paths or not paths[0].exists():
            raise SystemExit(f"{source} has no documents. Name others: --documents FILE-OR-FOLDER ...")
        for path in paths:
            name = path.relative_to(source if source.is_dir() else source.parent).as_posix()
            if name in copied:
                raise SystemExit(f"two documents have the name {name}")
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
            copied[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return copied


def code() -> str:
    """Return the commit of the package that is imported, with the number of its changed files."""
    package = importlib.util.find_spec("llm_ocr")
    assert package is not None
    assert package.origin is not None
    git = ["git", "-C", str(Path(package.origin).parent)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "."], capture_output=True, text=True
    ).stdout.splitlines()
    return f"commit {commit or 'unknown'}" + (f" with {len(changed)} changed files" if changed else "")


def _counted(status: dict[str, Any]) -> str:
    if not status:
        return "no status"
    return (
        f"{status['documents']} documents, {status['pages']['expected']} pages, {status['figures']['expected']} figures"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    default = Path(tempfile.gettempdir()) / "llm-ocr-equivalence"
    for command in (record, compare):
        added = commands.add_parser(command.__name__, help=(command.__doc__ or "").splitlines()[0])
        added.set_defaults(command=command)
        added.add_argument("folder", type=Path, nargs="?", default=default, help=f"the recording (default: {default})")
        added.add_argument("--runs", nargs="+", choices=RUNS, help="only these runs (default: all)")
        if command is compare:
            added.add_argument("--show", type=int, default=10, help="differing files shown of each run (default: 10)")
            continue
        added.add_argument("--documents", type=Path, nargs="+", help="files and folders (default: ../shared/data/pdfs)")
        added.add_argument("--pages", default=PAGES, help=f"pages of each document (default: {PAGES})")
        added.add_argument("--all", action="store_true", help="all pages")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if options.folder.is_relative_to(REPOSITORY):
        parser.error(f"{options.folder} lies in the repository; a recording is too big for it")
    return int(options.command(options))


if __name__ == "__main__":
    sys.exit(main())
