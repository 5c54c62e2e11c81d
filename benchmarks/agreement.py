"""How far our parsers agree with the post-processors of others: the same made-up answers go to both.

    python benchmarks/agreement.py --peer-venvs ~/.cache/peers --output benchmarks/results/agreement.json

Answers are made from seeds (`agreement_pages.py`, `agreement_formats.py`): sound ones, and ones that are truncated,
repeated and malformed. The other programs are run, each in an environment of its own; none needs weights. Compared are
text, labels, boxes and tables (`agreement_compare.py`). Each kind of difference is counted and explained
(`agreement_reasons.py`); what no explanation fits is listed with examples.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agreement_ours
from agreement_compare import NORMALISED, compared
from agreement_faults import FAULTS
from agreement_formats import FORMATS
from agreement_pages import KINDS, Maker
from agreement_programs import MISSING, PROGRAMS, Program, install
from agreement_reasons import reason_of
from peers_embedded import NotRun
from reporting import keep

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
    read = agreement_ours.reader(form)
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
        "programs": {program.package: program_report(program, arguments) for program in PROGRAMS},
        "not on the package index": MISSING,
    }
    keep(report, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
