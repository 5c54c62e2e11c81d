"""Switch off each function of the CPU reader's layout in turn, and report what changes.

    python benchmarks/truth_factory/measure.py --pages 60 --scans 24 --folder /tmp/truth --only-generate
    python benchmarks/ablation.py /tmp/pages --truth /tmp/truth --labelled ../shared/data/pdfs --others FOLDERS... \
        --output benchmarks/results/ablation.tsv

A function is switched off by a constant of its type: False, None for an optional result or a procedure, an empty
collection, or its first argument. Pages are read once, OCR included, and stored in the folder /tmp/pages;
remove it after a change of OCR. Then only the stage of the switched function runs: the text of PDF pages, the
objects of scans, or the layout. `others` are pages without truth: one of each document, and some of them as scans.
`lost` are the points that the sums of `truth_score.py` and `accuracy.py` lose; negative means that pages improved.

The table says what to look at, not what to delete. Functions that change nothing alone may replace each other, and one
page of each document misses title pages and bibliographies: remove a set, and compare the Markdown of whole documents.
"""

import argparse
import asyncio
import importlib
import inspect
import io
import json
import multiprocessing
import pickle
import pkgutil
import random
import signal
import sys
import typing
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent / "truth_factory"))

import accuracy
import pypdfium2
import truth_score
from measure import answer
from page_lists import find_pdfs
from PIL import Image

import llm_ocr_cpu
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, EncodedImage, Page, PageContent, PageRecord, Status
from llm_ocr_cpu import page as reading
from llm_ocr_cpu import scan_objects
from llm_ocr_cpu.ocr import Recogniser
from llm_ocr_cpu.pdf_text import page_content

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
GROUPS = ("factory", "labelled", "examples", "others")
SECONDS = 10  # for a page with a function switched off
MOST = 100  # pages of a group for one function, drawn by a fixed seed
ENOUGH = 5  # changed documents without truth, from which a function matters, and the rest is not read
#: Part of the reader -> first stage that runs again.
STAGES = {
    **dict.fromkeys(("layout", "tables", "figures", "figure_clusters", "formulas", "regions"), "layout"),
    **dict.fromkeys(("pdf_text", "pdf_glyphs", "tex_fonts", "visibility"), "text"),
    "scan_objects": "objects",
}
Wanted = tuple[str, Path, int, dict[str, Any], bool]  # group, file, page, truth, whether its text layer is used


@dataclass
class Case:
    """One page: `content` and `formulas` are what is laid out, `seen` is a scan as PNG, upright and clean."""

    group: str
    file: Path
    page: Page
    content: PageContent | None = None
    formulas: tuple[Any, ...] = ()
    seen: bytes = b""
    truth: dict[str, Any] = field(default_factory=dict)


def chosen(arguments: argparse.Namespace) -> Iterator[Wanted]:
    """Yield the pages with truth, the examples, and the middle page of each other document."""
    if arguments.truth:
        halves = json.loads((arguments.truth / "truth.json").read_text(encoding="utf-8"))
        for page in (page for half in halves.values() for page in half):
            yield "factory", arguments.truth / page["file"], page["page"], page, True
    labels: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
    for name in ("figures", "tables", "order") if arguments.labelled else ():
        for page in json.loads((accuracy.TRUTH / f"{name}.json").read_text(encoding="utf-8"))["pages"]:
            labels[page["file"], page["page"]][name] = page
    for (name, number), truth in labels.items():
        yield "labelled", arguments.labelled / name, number, truth, True
    for file in sorted(EXAMPLES.iterdir()):
        if file.suffix in (".pdf", ".png", ".tiff"):
            yield from (("examples", file, number, {}, True) for number in range(1, 4 if file.suffix == ".pdf" else 2))
    files = find_pdfs(arguments.others)
    for place, file in enumerate(files):
        with suppress(pypdfium2.PdfiumError), pypdfium2.PdfDocument(file) as document:
            middle = len(document) // 2 + 1
            yield "others", file, middle, {}, True
            if place % max(1, len(files) // arguments.scans) == 0:
                yield "others", file, middle, {}, False


async def rendered(wanted: Sequence[Wanted]) -> list[Case]:
    found = []
    for layer in (True, False):
        async with Renderer(RenderOptions(text_layer=layer, passwords=(accuracy.PASSWORD,), workers=2)) as renderer:
            for group, file, number, truth, used in wanted:
                with suppress(PageFailure):  # a page that cannot be opened, or that the document does not have
                    if used is layer:
                        page = await renderer.page(str(file), "", number, page_id="1", document_id="1")
                        found.append(Case(group, file, replace(page, evidence=None), truth=truth))
    return found


def prepared(case: Case, loaded: Recogniser) -> Case:
    """Read a page as a worker does, and keep what the last stages get."""

    def laid_out(content: PageContent, formulas: Sequence[Any] = ()) -> tuple[Block, ...]:
        case.content, case.formulas = content, tuple(formulas)
        return ()

    def objects(seen: Any, lines: Any, _old: Any = scan_objects.scan_objects) -> Any:
        out = io.BytesIO()
        Image.fromarray(seen).save(out, "PNG", compress_level=1)
        case.seen = out.getvalue()
        return _old(seen, lines)

    with put([(scan_objects, "scan_objects")], objects), put([(reading, "laid_out")], laid_out), suppress(PageFailure):
        reading.read_page(case.page, lambda: loaded, text_layer=True)
    return case


@contextmanager
def put(places: Sequence[tuple[Any, str]], new: Any) -> Iterator[None]:
    """Put `new` in the given attributes of modules and classes."""
    olds = [vars(holder)[name] for holder, name in places]
    for (holder, name), old in zip(places, olds, strict=True):
        setattr(holder, name, property(new) if isinstance(old, property) else new)
    try:
        yield
    finally:
        for (holder, name), old in zip(places, olds, strict=True):
            setattr(holder, name, old)


def blocks_of(case: Case, stage: str) -> tuple[Block, ...] | None:
    """Run a page from `stage` on; None if the page has no such stage."""
    assert case.content is not None
    if stage == "layout":
        return reading.laid_out(case.content, case.formulas)
    if stage == "objects" and case.seen:
        pixels = reading.pixels_of(EncodedImage(case.seen, "image/png", 0, 0))
        found = scan_objects.scan_objects(pixels, case.content.lines)
        return reading.laid_out(replace(case.content, rasters=found.rasters, paths=found.paths), case.formulas)
    if stage == "text" and not case.seen and case.file.suffix == ".pdf":
        with pypdfium2.PdfDocument(case.file, password=accuracy.PASSWORD) as document:
            return reading.laid_out(page_content(document[case.page.number - 1]))
    return None


def scores(case: Case, blocks: Sequence[Block]) -> dict[str, float]:
    """Return what a page with truth has right, by measure."""
    record = PageRecord("", "", "", 1, 0, Status.OK, markdown=blocks_to_markdown(blocks), blocks=tuple(blocks))
    if case.group == "factory":
        kind = "scans" if case.seen else "digital"
        return {f"{kind} {name}": right for name, (right, _) in truth_score.score(case.truth, answer(record)).items()}
    key, found = (case.file.name, case.page.number), {}
    if "figures" in case.truth:
        summary = accuracy.score_figures([case.truth["figures"]], {key: record})["summary"]
        found = {"labelled figures": summary["passed"] - summary["false"]}
    if "tables" in case.truth:
        found["labelled cells"] = accuracy.score_tables([case.truth["tables"]], {key: record})["summary"]["passed"]
    if "order" in case.truth:
        summary = accuracy.score_text([case.truth["order"]], {key: record})["summary"]
        found |= {f"labelled {name}": sums["passed"] for name, sums in summary.items()}
    return found


@dataclass
class Switch:
    """A function of a module or class, and the constant that replaces its results."""

    holder: Any
    name: str
    stage: str
    constant: str
    function: Callable[..., Any]

    def off(self, *given: Any, **_: Any) -> Any:
        if self.constant == "unchanged":
            return given[int(inspect.isclass(self.holder))]
        return _CONSTANTS[self.constant]()

    def acts(self, result: Any) -> bool:
        """Return whether a result differs from the constant, as far as can be seen."""
        if self.constant == "False":
            return bool(result)
        if self.constant in ("None", "nothing", "unchanged"):
            return result is not None or self.function.__annotations__["return"] is None
        return len(result) > 0

    def places(self) -> list[tuple[Any, str]]:
        if inspect.isclass(self.holder):
            return [(self.holder, self.name)]
        loaded = [module for name, module in sys.modules.items() if name.startswith("llm_ocr_cpu")]
        return [(module, key) for module in loaded for key, value in vars(module).items() if value is self.function]


#: Constants by name; `unchanged` is the first argument. "None" and "nothing" also stand for procedures and generators.
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "False": bool,
    "None": lambda: None,
    "nothing": lambda: iter(()),
    "[]": list,
    "()": tuple,
    "frozenset()": frozenset,
    "{}": dict,
    "set()": set,
}


def constants(function: Callable[..., Any]) -> list[str]:
    given = list(function.__annotations__.values())
    origin, text = typing.get_origin(given[-1]) if given else None, str(given[-1]) if given else ""
    empty = {list: "[]", tuple: "()" if "..." in text else "", frozenset: "frozenset()", dict: "{}", set: "set()"}
    if text == "<class 'bool'>":
        return ["False"]
    if text.endswith("None"):
        return ["None"]
    if len(given) > 1 and given[0] == given[-1] and given[0] is not float:
        return ["unchanged"]
    return ["nothing"] if "Iterator" in text else list(filter(None, [empty.get(origin)]))


def switches(parts: Sequence[str]) -> Iterator[Switch]:
    names = [info.name for info in pkgutil.walk_packages(llm_ocr_cpu.__path__, "llm_ocr_cpu.")]
    modules = [name for name in names if name.split(".")[1] in (parts or STAGES)]
    for module in map(importlib.import_module, modules):
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        holders: list[ModuleType | type] = [module, *filter(inspect.isclass, own)]
        for holder in holders:
            for name, value in list(vars(holder).items()):
                function = value.fget if isinstance(value, property) else value
                if inspect.isfunction(function) and function.__module__ == module.__name__ and name[:2] != "__":
                    stage = STAGES[module.__name__.split(".")[1]]
                    yield from (Switch(holder, name, stage, each, function) for each in constants(function))


class TooSlow(Exception):
    """A page exceeded its time."""


def too_slow(*_: object) -> None:
    raise TooSlow


Before = dict[tuple[str, int], tuple[Block, ...]]


def weighed(switch: Switch, cases: Sequence[Case], before: Before, where: Sequence[int]) -> list[Any]:
    """Return a row of the report."""
    changed: Counter[str] = Counter()
    documents: dict[str, list[str]] = {group: [] for group in GROUPS}
    lost: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, too_slow)
    groups = {group: [index for index in where if cases[index].group == group] for group in reversed(GROUPS)}
    drawn = [index for each in groups.values() for index in random.Random(1).sample(each, min(MOST, len(each)))]
    with put(switch.places(), switch.off):
        for index in drawn:
            case, old = cases[index], before[switch.stage, index]
            if len(documents["others"]) >= ENOUGH:
                break
            signal.alarm(SECONDS)
            try:
                new = blocks_of(case, switch.stage) or ()
            except Exception:  # noqa: BLE001 - the function is needed
                new = ()
            finally:
                signal.alarm(0)
            if [(block.kind, block.box, block.text) for block in new] != [(b.kind, b.box, b.text) for b in old]:
                changed[case.group] += 1
                if case.file.name not in documents[case.group]:
                    documents[case.group].append(case.file.name)
                if case.truth:
                    now = scores(case, new)
                    lost.update({name: right - now.get(name, 0) for name, right in scores(case, old).items()})
    label = f"{switch.function.__module__.removeprefix('llm_ocr_cpu.')}.{switch.function.__qualname__}"
    lines = len(inspect.getsource(switch.function).splitlines())
    losses = ", ".join(f"{name} {value:.2f}" for name, value in sorted(lost.items()) if abs(value) > 0.004)
    names = [name for group in GROUPS[1:] for name in documents[group]][:8]
    counts = [*(changed[group] for group in GROUPS), len(documents["others"])]
    return [label, switch.constant, lines, len(where), *counts, losses, " ".join(names)]


def traced(found: Sequence[Switch], cases: Sequence[Case]) -> tuple[Before, dict[int, list[int]]]:
    """Return the blocks of each page by stage, and the pages on which each function differs from its constant."""
    before: Before = {}
    where: dict[int, list[int]] = {number: [] for number in range(len(found))}
    active: set[int] = set()
    for stage in sorted({switch.stage for switch in found}):
        members: dict[Any, list[int]] = defaultdict(list)
        for number, switch in enumerate(found):
            if switch.stage == stage:
                members[switch.function].append(number)
        with ExitStack() as stack:
            for function, numbers in members.items():

                def watched(*given: Any, _old: Any = function, _all: Sequence[int] = numbers, **named: Any) -> Any:
                    result = _old(*given, **named)
                    active.update(number for number in _all if found[number].acts(result))
                    return result

                stack.enter_context(put(found[numbers[0]].places(), watched))
            for index, case in enumerate(cases):
                active.clear()
                blocks = blocks_of(case, stage)
                if blocks is not None:
                    before[stage, index] = blocks
                    for number in active:
                        where[number].append(index)
    return before, where


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, help="folder for pages that were read")
    parser.add_argument("--truth", type=Path, help="folder of truth_factory/measure.py")
    parser.add_argument("--labelled", type=Path, help="folder of the PDFs that benchmarks/truth labels")
    parser.add_argument("--others", type=Path, nargs="*", default=[], help="PDF files and folders without truth")
    parser.add_argument("--scans", type=int, default=20, help="pages of the others that are also read as images")
    parser.add_argument("--parts", default="", help=f"some of {','.join(STAGES)}")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    stored = arguments.cache / "cases.pickle"
    if not stored.exists():
        cases = asyncio.run(rendered(list(chosen(arguments))))
        with ThreadPoolExecutor(1) as aside:  # onnxruntime changes the arithmetic of its thread
            loaded = aside.submit(Recogniser).result()
            cases = list(aside.map(lambda case: prepared(case, loaded), cases))
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_bytes(pickle.dumps([case for case in cases if case.content is not None]))
    cases = pickle.loads(stored.read_bytes())  # noqa: S301
    print(f"{len(cases)} pages: {dict(Counter(case.group for case in cases))}", file=sys.stderr)
    found = list(switches(list(filter(None, arguments.parts.split(",")))))
    before, where = traced(found, cases)
    heads = ["function", "constant", "lines", "acts on", *GROUPS, "other documents", "lost", "documents"]
    rows = ["\t".join(heads)]
    with multiprocessing.get_context("fork").Pool(arguments.processes, _share, (found, cases, before, where)) as pool:
        for row in pool.imap(_weigh, range(len(found))):
            rows.append("\t".join(map(str, row)))
            print(rows[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 0


_shared: list[Any] = []


def _share(*values: Any) -> None:
    _shared[:] = values


def _weigh(number: int) -> list[Any]:
    found, cases, before, where = _shared
    return weighed(found[number], cases, before, where[number])


if __name__ == "__main__":
    raise SystemExit(main())
