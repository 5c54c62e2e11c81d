"""How far our parsers agree with the post-processors of others: the same made-up answers go to both.

    python benchmarks/agreement.py --peer-venvs ~/.cache/peers --output benchmarks/results/agreement.json

Answers are made from seeds (`agreement_answers.py`): sound ones, and ones that are truncated,
repeated and malformed. The other programs are run, each in an environment of its own; none needs weights. Compared are
text, labels, boxes and tables. Each kind of difference is counted and explained;
what no explanation fits is listed with examples.
"""

import argparse
import copy
import json
import random
import re
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agreement_answers import FAULTS, FORMATS, KINDS, Maker
from agreement_peer import parted
from peers_embedded import NotRun
from reporting import keep

from llm_ocr.engines.regions.answers import merged
from llm_ocr.engines.regions.detection import DEFAULT_TASKS, FORMULA, SKIP, Region
from llm_ocr.models.parsers import parser_named
from llm_ocr.models.parsers.coordinates import WHOLE_PAGE
from llm_ocr.models.parsers.markers import mineru_regions, region_turn
from llm_ocr.models.parsers.otsl import otsl_to_html
from llm_ocr.models.profile import Frame
from llm_ocr.types import Block, BlockKind, Box

# Agreement of two readings of an answer: text, labels, boxes, tables, notes.


Reading = dict[str, Any]

#: By format: what is compared.
ASPECTS = {
    **dict.fromkeys(
        ("chandra", "surya", "dots", "deepseek", "unlimited", "doctags", "glm-regions"),
        ("text", "labels", "boxes", "tables"),
    ),
    "surya-layout": ("labels", "boxes"),
    "mineru-layout": ("labels", "boxes", "notes"),
    "olmocr": ("text", "boxes", "tables", "notes"),
    "glm": ("text", "tables"),
    "otsl-mineru": ("tables",),
    "otsl-paddle": ("tables",),
}
NORMALISED = (
    "text: white space in a row is one space; Markdown's escapes, marks of emphasis, headings, list items, code and "
    "centring and delimiters of formulas are taken off",
    "tables: grids of texts, a cell that covers several places in each of them",
    "boxes: corners in 0..1, equal within 0.0015",
    "labels: the model's own where both keep them, else kinds; blocks of one piece of an answer count once",
)
_TOLERANCE = 0.0015
_DELIMITERS = re.compile(r"(?<!\\)\${1,2}|\\[\[\]()]")
_ESCAPED = re.compile(r"\\([_*#<>$~`|+-])")
_MARKS = re.compile(r"\*{1,3}|```\w*|`|</?center>|~~", re.IGNORECASE)
_LINE_MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+|[-*+][ \t]+|\d{1,3}\.[ \t]+)", re.MULTILINE)
_LINK = re.compile(r"!\[([^\]]*)\]\(page_(\d+)_(\d+)_(\d+)_(\d+)\.png\)")
_KINDS = {
    "section_header": "heading",
    "page_header": "header",
    "page_footer": "footer",
    "paragraph": "text",
    "document_index": "table",
}


def compared(form: str, ours: Reading, theirs: Reading) -> dict[str, bool]:
    """By aspect, whether the two agree; all False where the other program raised."""
    if "error" in theirs:
        return dict.fromkeys(ASPECTS[form], False)
    return {aspect: _AGREE[aspect](form, ours, theirs) for aspect in ASPECTS[form]}


def text_of(reading: Reading) -> str:
    """All words of a reading, plain."""
    said = "\n\n".join(piece["text"] for piece in reading.get("pieces", ()))
    return plain(_LINK.sub(r"\1", said))


def plain(text: str) -> str:
    """Words without what only shows how they look."""
    text = _LINE_MARKS.sub("", _DELIMITERS.sub(" ", text))
    return " ".join(_MARKS.sub("", _ESCAPED.sub(r"\1", text)).split())


def labels_of(reading: Reading) -> list[str]:
    return [_KINDS.get(piece["label"], piece["label"]) for piece in reading.get("pieces", ())]


def boxes_of(reading: Reading) -> list[list[float] | None]:
    """Boxes in order; those that olmOCR's Markdown names, which its own client leaves in the text."""
    found = []
    for piece in reading.get("pieces", ()):
        links = [tuple(map(int, link[1:])) for link in _LINK.findall(piece["text"])]
        found += [[x / 1000, y / 1000, (x + w) / 1000, (y + h) / 1000] for x, y, w, h in links]
        if not links:
            found.append(piece["box"])
    return found


def tables_of(reading: Reading) -> list[Any]:
    return [
        [[plain(cell) for cell in row] for row in grid]
        for piece in reading.get("pieces", ())
        for grid in piece["grids"]
    ]


def notes_of(reading: Reading) -> Any:
    return reading.get("notes")


def _boxes(form: str, ours: Reading, theirs: Reading) -> bool:
    mine, other = boxes_of(ours), boxes_of(theirs)
    if form == "olmocr":
        mine, other = [box for box in mine if box], [box for box in other if box]
    return len(mine) == len(other) and all(map(_same_box, mine, other))


def _same_box(mine: Sequence[float] | None, other: Sequence[float] | None) -> bool:
    if mine is None or other is None:
        return mine is other
    return all(abs(a - b) <= _TOLERANCE for a, b in zip(mine, other, strict=True))


def _notes(form: str, ours: Reading, theirs: Reading) -> bool:
    mine, other = notes_of(ours), notes_of(theirs)
    if form == "olmocr" and mine:
        # We count clockwise, its client against the clock.
        mine = {**mine, "rotation_correction": -(mine["rotation_correction"] or 0) % 360}
    return mine == other


_AGREE = {
    "text": lambda form, ours, theirs: text_of(ours) == text_of(theirs),
    "labels": lambda form, ours, theirs: labels_of(ours) == labels_of(theirs),
    "boxes": _boxes,
    "tables": lambda form, ours, theirs: tables_of(ours) == tables_of(theirs),
    "notes": _notes,
}


# Readings of our parsers, in the form of the readings of `agreement_peer.py`.


Reading = dict[str, Any]

#: By format: the parser's name, and the size of the image. dots.ocr sees 1036 pixels of 1036.
_PARSERS = {
    "dots": ("dots", Frame(1036, 1036)),
    "deepseek": ("grounding", Frame()),
    "unlimited": ("unlimited", Frame()),
    "chandra": ("chandra", Frame()),
    "surya": ("surya", Frame()),
    "surya-layout": ("surya-layout", Frame()),
    "olmocr": ("front-matter", Frame(1000, 1000)),
    "glm": ("glm", Frame()),
    "doctags": ("doctags", Frame()),
}
#: GLM-OCR's client has four labels in the end.
_FOUR = {"figure": "image", "table": "table", "formula": "formula"}
#: Where the other program keeps the model's labels they are compared, elsewhere our kinds.
_RAW_LABELS = frozenset({"chandra", "surya", "surya-layout"})


def reader(form: str) -> Callable[[str], Reading]:
    """Our reader of a format."""
    if form == "mineru-layout":
        return _mineru
    if form == "glm-regions":
        return _regions
    if form.startswith("otsl"):
        return lambda answer: {"pieces": [_piece("table", None, otsl_to_html(answer))]}
    name, frame = _PARSERS[form]
    parse = parser_named(name)

    def read(answer: str) -> Reading:
        parsed = parse(answer, frame)
        found: Reading = {"pieces": _pieces(parsed.blocks, form), "lost": list(parsed.lost)}
        if parsed.notes is not None:
            found["notes"] = asdict(parsed.notes)
        return found

    return read


def _mineru(answer: str) -> Reading:
    regions, lost = mineru_regions(answer)
    # The package gives the angle by which its own image library turns, against the clock.
    notes = [{"angle": -region_turn(one) % 360, "continues": bool(one.more)} for one in regions]
    pieces = [_piece((one.label or "").lower(), _corners(one.boxes[0]), "") for one in regions]
    return {"pieces": pieces, "lost": lost, "notes": {"regions": notes}}


def _regions(answer: str) -> Reading:
    read, lost = [], []
    for one in json.loads(answer):
        task = DEFAULT_TASKS[one["label"]]
        region = Region(one["label"], Box(*(side / 1000 for side in one["bbox_2d"])), task=task)
        parsed = parser_named("formula" if task == FORMULA else "glm")(one["content"], Frame())
        lost += parsed.lost
        read.append((region, () if task == SKIP else parsed.blocks))
    found = _pieces(merged(read), "glm-regions")
    for piece in found:
        piece["label"] = _FOUR.get(piece["label"], "text")
    return {"pieces": found, "lost": lost}


def _pieces(blocks: Sequence[Block], form: str) -> list[Reading]:
    """One for each piece of the answer: what was parted into several blocks of one label and place is one again."""
    found: list[Reading] = []
    last: tuple[str, object] | None = None
    for block in blocks:
        box = None if block.box == WHOLE_PAGE else _corners(block.box)
        label = block.label if form in _RAW_LABELS else block.kind.value
        made = _piece(label, box, block.described if block.kind is BlockKind.FIGURE else block.text)
        same = (block.label, block.box)
        if found and same == last and block.kind is not BlockKind.FIGURE:
            found[-1]["text"] += "\n\n" + made["text"]
            found[-1]["grids"] += made["grids"]
        else:
            found.append(made)
        last = same
    return found


def _corners(box: Box) -> list[float]:
    return [box.x0, box.y0, box.x1, box.y1]


def _piece(label: str, box: list[float] | None, text: str) -> Reading:
    words, grids = parted(text)
    return {"label": label, "box": box, "text": words, "grids": grids}


# The other programs: packages, versions, and their installation.


@dataclass(frozen=True, slots=True)
class Program:
    """`needs` is what its post-processing imports: the package itself is installed without its dependencies."""

    package: str
    version: str
    licence: str
    reads: dict[str, str]  # format -> which of its functions
    needs: tuple[str, ...] = ()


PROGRAMS = (
    Program(
        "glmocr", "0.1.5", "Apache-2.0",
        {"glm": "ResultFormatter.format_ocr_result", "glm-regions": "ResultFormatter.process"},
        ("numpy", "pillow", "portalocker", "pydantic", "python-dotenv", "PyYAML", "requests", "tqdm"),
    ),
    Program("olmocr", "0.4.27", "Apache-2.0", {"olmocr": "FrontMatterParser"}, ("PyYAML",)),
    Program(
        "chandra-ocr", "0.2.0", "Apache-2.0 (code)", {"chandra": "parse_layout, parse_markdown"},
        ("beautifulsoup4", "markdownify==1.1.0", "pillow", "pydantic-settings", "python-dotenv", "six"),
    ),
    Program(
        "surya-ocr", "0.22.1", "Apache-2.0 (code)",
        {"surya": "parse_full_page_html", "surya-layout": "parse_layout"}, ("beautifulsoup4",),
    ),
    Program(
        "mineru-vl-utils", "2.0.7", "Apache-2.0",
        {"mineru-layout": "parse_layout_output", "otsl-mineru": "convert_otsl_to_html"},
        ("aiofiles", "httpx", "httpx-retries", "loguru", "pillow", "pydantic", "tqdm"),
    ),
    Program(
        "paddlex", "3.7.2", "Apache-2.0", {"otsl-paddle": "convert_otsl_to_html"}, ("numpy", "pillow", "pydantic"),
    ),
    Program(
        "docling-slim", "2.143.0", "MIT",
        {
            "dots": "parse_dots_json", "deepseek": "parse_deepseekocr_markdown",
            "unlimited": "parse_unlimited_ocr_markdown", "doctags": "docling-core's load_from_doctags",
        },
        ("docling-core==2.104.0", "lxml", "marko"),
    ),
)  # fmt: skip

#: What was to be compared and is not there.
MISSING = {
    "dots.ocr's own OutputCleaner": "no package of that name on the package index (dots-ocr, dots_ocr); docling's "
    "reader of its answers stands in",
    "DeepSeek-OCR's own scripts": "part of the model's repository, not a package; docling's reader stands in",
    "LightOnOCR's own tools": "no package of that name on the package index (lightonocr)",
    "Nanonets, HunyuanOCR, Nemotron Parse, Qwen-VL": "no package with a post-processor for their pages was found",
}


def install(program: Program, folder: Path) -> str:
    """The Python of the program's environment below `folder`, made if it is not there. Raises NotRun."""
    home = folder / f"{program.package}-{program.version}"
    python, done = home / "bin" / "python", home / "installed"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", f"{program.package}=={program.version}"])
        _run([*pip, *program.needs])
        done.touch()
    return str(python)


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        # The package index of one machine is nothing that a result should name.
        said = re.sub(r"\S+://\S+", "(address)", " ".join(ended.stderr.splitlines()[-2:]))
        raise NotRun(f"cannot be installed: {said[:300]}")


# Explanations of differences.


#: What is left of marks that were cut or damaged, which is no text of a page.
_REMAINS = re.compile(
    r"<\|(?:ref|det)\|>\w*|<\|?/?(?:ref|det)\b|\b(?:ref|det)\|>|</?\|?\w*\|?>?|[a-z]{0,4}cel>"
    r"|\[\[?[\d.,\s]*\]?\]?(?:<\|/det\|>)?|\(page_[\d_]*(?:\.p?n?g?\)?)?|_[\d_]+\.png\)"
    r"|\b(?:alt|display)=\S*|\|/?(?:ref|det)\|?>?"
)
_WORD = re.compile(r"[^\W_]+")
_DEEPSEEK = ("deepseek", "unlimited")


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that is known: `take_out` changes their reading (and ours) to what it would be without it."""

    why: str
    forms: tuple[str, ...]
    take_out: Callable[[str, Reading, Reading], None]


def _labelled(label: str, beginning: str) -> Callable[[str, Reading, Reading], None]:
    def change(answer: str, ours: Reading, theirs: Reading) -> None:
        for piece in theirs["pieces"]:
            if piece["label"] == "text" and piece["text"].lstrip().startswith(beginning):
                piece["label"] = label

    return change


def _captions_last(answer: str, ours: Reading, theirs: Reading) -> None:
    pieces = theirs["pieces"]
    for at in range(len(pieces) - 1):
        caption, owner = pieces[at], pieces[at + 1]
        above = caption["box"] and owner["box"] and caption["box"][1] > owner["box"][1]
        if caption["label"] == "caption" and owner["label"] in ("figure", "table") and above:
            pieces[at], pieces[at + 1] = owner, caption


def _less_than(answer: str, ours: Reading, theirs: Reading) -> None:
    if re.search(r"<\w+cel>[^<>]*< ", answer):
        for piece in (*ours["pieces"], *theirs["pieces"]):
            piece["grids"] = []


KNOWN = (
    Known(
        "docling's map of these labels lacks `equation`: text for it, a formula for us", _DEEPSEEK,
        _labelled("formula", "\\["),
    ),
    Known("a list under the label `text` is a list for us, text for docling", _DEEPSEEK, _labelled("list_item", "- ")),
    Known("code under the label `text` is code for us, text for docling", _DEEPSEEK, _labelled("code", "```")),
    Known("docling puts a caption before its figure; we keep the model's order", _DEEPSEEK, _captions_last),
    Known(
        "docling-core takes `<` within a cell for a tag and loses what stands behind it, cells too", ("doctags",),
        _less_than,
    ),
)  # fmt: skip


def reason_of(form: str, fault: str, answer: str, ours: Reading, theirs: Reading) -> str:
    """Why two readings of an answer differ; "" where no rule fits."""
    if "error" in theirs:
        return f"the other program raises {theirs['error'].split(':')[0]} and reads nothing; we keep what is sound"
    found = _known(form, answer, ours, theirs)
    if found:
        return "; ".join(found)
    return _of_broken(ours, theirs) if fault != "sound" else ""


def _known(form: str, answer: str, ours: Reading, theirs: Reading) -> tuple[str, ...]:
    """The fewest known differences that explain all of it."""
    fitting = [known for known in KNOWN if form in known.forms]
    for chosen in ([known] for known in fitting):
        if _agree_without(chosen, form, answer, ours, theirs):
            return tuple(known.why for known in chosen)
    if not _agree_without(fitting, form, answer, ours, theirs):
        return ()
    needed = list(fitting)
    for known in fitting:
        fewer = [one for one in needed if one is not known]
        if _agree_without(fewer, form, answer, ours, theirs):
            needed = fewer
    return tuple(known.why for known in needed)


def _agree_without(known: Iterable[Known], form: str, answer: str, ours: Reading, theirs: Reading) -> bool:
    mine, other = copy.deepcopy(ours), copy.deepcopy(theirs)
    for one in known:
        one.take_out(answer, mine, other)
    return all(compared(form, mine, other).values())


def _of_broken(ours: Reading, theirs: Reading) -> str:
    mine, other = Counter(_words(ours)), Counter(_words(theirs))
    if not mine and not other:
        mine, other = _places(ours), _places(theirs)
    if mine == other:
        return "the same words and cells, parted, labelled or placed differently around the damage"
    if not other:
        return "the other program reads nothing; we keep what is sound"
    if not other - mine:
        return "we keep all that the other program keeps, and more"
    if any("repeat" in lost for lost in ours.get("lost", ())):
        return "we leave out what a loop repeats, and say so in `lost`; the other program keeps it"
    if set(other) <= set(mine):
        return "a damaged mark joins or repeats cells for the other program; we keep each word once"
    joined = "".join(_words(ours))
    if all(word in joined for word in other - mine):
        return "the other program joins the words at both sides of a damaged mark; we keep them apart"
    return ""


def _words(reading: Reading) -> list[str]:
    """Words of the text and of cells in order, without remains of tags."""
    cells = [plain(cell) for piece in reading["pieces"] for grid in piece["grids"] for row in grid for cell in row]
    return [word for text in (text_of(reading), *cells) for word in _WORD.findall(_REMAINS.sub(" ", text))]


def _places(reading: Reading) -> Counter[str]:
    return Counter(f"{piece['label']} {[round(side, 2) for side in piece['box'] or ()]}" for piece in reading["pieces"])


# The command.


_PEER = Path(__file__).with_name("agreement_peer.py")
_TESTS = Path(__file__).parents[1] / "tests" / "models"
_EXAMPLES = 3
_LONGEST = 400  # characters of an example
#: Profiles whose answer of the tests is one of these formats.
_FIXED = {
    "dots": "dots.ocr", "deepseek": "deepseek-ocr", "unlimited": "unlimited-ocr", "chandra": "chandra-2",
    "surya": "surya-ocr-2.5", "olmocr": "olmocr-2", "glm": "glm-ocr", "doctags": "granite-docling",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """An answer and what was done to it."""

    fault: str
    answer: str


def cases(form: str, seed: int, sound: int, broken: int) -> list[Case]:
    """The answers of a format; the first is that of the tests, where they have one."""
    found = [Case("sound", _fixed(form))] if form in _FIXED else []
    for fault, spoil in FAULTS.items():
        for number in range(sound if fault == "sound" else broken):
            chance = random.Random(f"{seed} {form} {fault} {number}")
            kinds = {"table": 1} if form.startswith("otsl") else KINDS
            answer = FORMATS[form](Maker(chance, kinds).page())
            damaged = _last_region(answer, spoil, chance) if form == "glm-regions" else spoil(answer, chance)
            found.append(Case(fault, damaged))
    return found


def _last_region(answer: str, spoil: Callable[[str, random.Random], str], chance: random.Random) -> str:
    """Regions are ours, only what was read of them is the model's: damaged is the last one that was read."""
    regions = json.loads(answer)
    for region in reversed(regions):
        if region["content"]:
            region["content"] = spoil(region["content"], chance)
            break
    return json.dumps(regions, ensure_ascii=False)


def _fixed(form: str) -> str:
    sys.path.insert(0, str(_TESTS))
    from family_answers import answer_of

    from llm_ocr.models.registry import find_profile

    return str(answer_of(find_profile(_FIXED[form])))


def their_readings(python: str, form: str, answers: list[str]) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [python, str(_PEER), form], input=json.dumps(answers), capture_output=True, text=True, check=False, timeout=900
    )
    if ended.returncode:
        raise NotRun(f"ended with code {ended.returncode}: {' '.join(ended.stderr.splitlines()[-2:])[:300]}")
    return list(json.loads(ended.stdout))


def report_of(form: str, python: str, given: list[Case]) -> dict[str, Any]:
    """Shares of agreement, and the kinds of differences."""
    read = reader(form)
    theirs = their_readings(python, form, [case.answer for case in given])
    agreed: Counter[tuple[str, str]] = Counter()
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case, other in zip(given, theirs, strict=True):
        mine = read(case.answer)
        verdict = compared(form, mine, other)
        agreed.update((case.fault, aspect) for aspect, same in verdict.items() if same)
        if all(verdict.values()):
            agreed.update([(case.fault, "all"), (case.fault, "all or explained")])
            continue
        example = {"differs": [aspect for aspect, same in verdict.items() if not same], "answer": case.answer}
        reason = reason_of(form, case.fault, case.answer, mine, other)
        agreed[case.fault, "all or explained"] += bool(reason)
        kinds.setdefault((case.fault, reason), []).append({**example, "ours": mine, "theirs": other})
    counts = Counter(case.fault for case in given)
    shares = {
        fault: {
            "answers": counts[fault],
            **{
                aspect: round(agreed[fault, aspect] / counts[fault], 4)
                for aspect in ("all", "all or explained", *verdict)
            },
        }
        for fault in FAULTS
    }
    differences = [
        {"answers": len(found), "of": fault, "why": reason or "NOT EXPLAINED", **({} if reason else _examples(found))}
        for (fault, reason), found in sorted(kinds.items(), key=lambda item: (item[0][0] != "sound", -len(item[1])))
    ]
    return {"agreement": shares, "differences": differences}


def _examples(found: list[dict[str, Any]]) -> dict[str, Any]:
    short = sorted(found, key=lambda one: len(one["answer"]))[:_EXAMPLES]
    return {"examples": [{name: str(value)[:_LONGEST] for name, value in one.items()} for one in short]}


def program_report(program: Program, arguments: argparse.Namespace) -> dict[str, Any]:
    said: dict[str, Any] = {"version": program.version, "licence": program.licence}
    try:
        python = install(program, arguments.peer_venvs)
        for form, function in program.reads.items():
            if arguments.only and form not in arguments.only:
                continue
            given = cases(form, arguments.seed, arguments.sound, arguments.broken)
            said[form] = {"function": function, **report_of(form, python, given)}
            print(form, {fault: shares["all"] for fault, shares in said[form]["agreement"].items()}, flush=True)
    except NotRun as problem:
        said["not run"] = str(problem)
        print(program.package, "not run:", problem, flush=True)
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-venvs", type=Path, required=True, help="where environments are made and kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sound", type=int, default=200, help="sound answers of each format")
    parser.add_argument("--broken", type=int, default=60, help="answers of each format and kind of damage")
    parser.add_argument("--only", nargs="*", help="formats")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    report = {
        "seed": arguments.seed,
        "normalised": NORMALISED,
        "programs": {
            program.package: program_report(program, arguments)
            for program in PROGRAMS
            if not arguments.only or set(arguments.only) & set(program.reads)
        },
        "not on the package index": MISSING,
    }
    keep(report, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
