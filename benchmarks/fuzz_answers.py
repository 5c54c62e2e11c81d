"""A million answers of any kind through our parsers: none may raise, and what they give must be sound.

    python benchmarks/fuzz_answers.py [--answers 1000000] [--seconds 3600] [--seed 0] [--output FILE.json]

Half of the answers are pieces of a format or of all in any order, half are pages as the models write them, cut,
repeated, malformed or woven into one another. Each goes to the parser of its format, or to a random one, and to one
more. The properties are those of `tests/models/any_answers.py`. Each answer follows from the seed and its number: a
fault is told with both, and `--only NUMBER` makes it again.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agreement_answers import FAULTS, FORMATS, Maker
from reporting import keep

from llm_ocr.models.parsers import PARSERS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
from any_answers import FRAMES, PIECES, faults_of, pieces_for

#: Formats of pages, and the parser that reads each.
_OWN = {
    "dots": "dots", "deepseek": "grounding", "unlimited": "unlimited", "chandra": "chandra", "surya": "surya",
    "surya-layout": "surya-layout", "olmocr": "front-matter", "glm": "glm", "mineru-layout": "mineru-layout",
    "otsl-paddle": "otsl", "doctags": "doctags",
}  # fmt: skip
_MOST_FAULTS = 20  # shown
_EVERY = 20_000  # answers between words about progress


@dataclass(slots=True)
class Spent:
    """What one parser cost."""

    answers: int = 0
    characters: int = 0
    seconds: float = 0.0
    slowest: float = 0.0  # seconds of one answer
    slowest_answer: int = -1

    def add(self, number: int, characters: int, seconds: float) -> None:
        self.answers += 1
        self.characters += characters
        self.seconds += seconds
        if seconds > self.slowest:
            self.slowest, self.slowest_answer = seconds, number

    def told(self) -> dict[str, Any]:
        return {
            "answers": self.answers,
            "characters": self.characters,
            "seconds": round(self.seconds, 3),
            "microseconds per 1000 characters": round(1e9 * self.seconds / max(self.characters, 1), 1),
            "slowest in ms": round(1000 * self.slowest, 1),
            "slowest answer": self.slowest_answer,
        }


@dataclass(slots=True)
class Run:
    seed: int
    spent: dict[str, Spent] = field(default_factory=lambda: {name: Spent() for name in PARSERS})
    faults: list[dict[str, Any]] = field(default_factory=list)

    def try_one(self, number: int) -> None:
        """One answer through two parsers."""
        chance = random.Random(f"{self.seed} {number}")
        text, name = answer(chance)
        for parser in (name, chance.choice(list(PARSERS))):
            frame = chance.choice(FRAMES)
            start = time.perf_counter()
            try:
                parsed = PARSERS[parser](text, frame)
                self.spent[parser].add(number, len(text), time.perf_counter() - start)
                wrong = faults_of(text, parsed)
            except Exception as error:  # noqa: BLE001 - this is what it looks for
                wrong = [f"{type(error).__name__}: {error}"]
            if wrong:
                self.faults.append({"answer": number, "parser": parser, "faults": wrong[:3], "text": text[:300]})


def answer(chance: random.Random) -> tuple[str, str]:
    """A text, and the parser that it is for."""
    if chance.random() < 0.5:
        parser = chance.choice(list(PARSERS))
        pieces = chance.choice((PIECES, pieces_for(parser)))
        return "".join(chance.choices(pieces, k=chance.randint(1, 60))) * chance.choice((1, 1, 1, 5, 40)), parser
    form = chance.choice(list(_OWN))
    text = FORMATS[form](Maker(chance).page())
    for _ in range(chance.randint(0, 3)):
        text = chance.choice(_SPOILERS)(text, chance)
    return text, _OWN[form]


def _woven(text: str, chance: random.Random) -> str:
    """Pieces of other formats in it."""
    for _ in range(chance.randint(1, 5)):
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice(PIECES) + text[at:]
    return text


def _shuffled(text: str, chance: random.Random) -> str:
    """Two of its parts changed over."""
    cuts = sorted(chance.randint(0, len(text)) for _ in range(3))
    return text[: cuts[0]] + text[cuts[1] : cuts[2]] + text[cuts[0] : cuts[1]] + text[cuts[2] :]


_SPOILERS: tuple[Callable[[str, random.Random], str], ...] = (*FAULTS.values(), _woven, _shuffled)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first answer, to go on")
    parser.add_argument("--only", type=int, help="the number of one answer, to be shown")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    run = Run(arguments.seed)
    if arguments.only is not None:
        print(repr(answer(random.Random(f"{run.seed} {arguments.only}"))))
        run.try_one(arguments.only)
        print(json.dumps(run.faults, indent=1))
        return bool(run.faults)
    start, done = time.monotonic(), 0
    while done < arguments.answers and time.monotonic() - start < arguments.seconds:
        run.try_one(arguments.first + done)
        done += 1
        if done % _EVERY == 0:
            print(f"{done} answers, {time.monotonic() - start:.0f} s, {len(run.faults)} faults", flush=True)
    report = {
        "seed": arguments.seed,
        "first": arguments.first,
        "answers": done,
        "seconds": round(time.monotonic() - start, 1),
        "faults": len(run.faults),
        "shown": run.faults[:_MOST_FAULTS],
        "parsers": {name: spent.told() for name, spent in run.spent.items()},
    }
    keep(report, arguments.output)
    print(f"{done} answers, {report['seconds']} s, {len(run.faults)} faults (seed {run.seed})")
    for fault in run.faults[:_MOST_FAULTS]:
        print(f"  {fault['parser']}, answer {fault['answer']}: {'; '.join(fault['faults'])}")
    return bool(run.faults)


if __name__ == "__main__":
    sys.exit(main())
