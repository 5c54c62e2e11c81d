"""Fit and measure the router, which decides which pages go from the CPU engine to a model.

    python benchmarks/routing.py fit
    python benchmarks/routing.py measure --real ../shared/data/pdfs --output routing.json

The pages are those of `truth_factory`: digital, as its scans, and as the bad scans of `alarms.py`. The CPU engine reads
them once; `--folder` keeps the documents and the rows. The model is a simulated one, which returns the truth with a
share (`--wrong`) of its words replaced. The error of an answer is 1 minus the mean of the measures of `CONTENT` that
the page has. The model is better on a page if its error is lower by more than `MARGIN`.

`fit` prints the weights for `llm_ocr/results/routing.py`, from the half "tuning". `measure` uses the other half. It
sends growing shares of the pages, those of the highest probability first, and compares with random pages.
"""

import argparse
import json
import pickle
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent / "truth_factory"))

import alarms
import measure as factory
import numpy as np
import pypdfium2
import truth_score
from reporting import keep, tell

import llm_ocr
from llm_ocr.results.routing import THRESHOLD, WEIGHTS, evidence, gain_probability
from llm_ocr.types import PageRecord

#: Measures that say whether the content of a page is right, whatever its form.
CONTENT = ("similarity", "cells", "formulas near")
#: By how much the model's error must be lower to be worth a request.
MARGIN = 0.01
SHARES = (0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1)
#: First documents: pages that no rule of the CPU engine was tuned on.
SEED = 7
#: Weight that evidence keeps which the pages hardly have, how strongly it is kept, and the steps of the fit.
_USUAL, _PENALTY, _STEPS = 1.0, 0.5, 20_000
_KINDS, _SPOILED = ("digital", "scans", "bad scans"), "-spoiled"
#: Damages of the bad scans.
_BAD = ("few pixels", "out of focus", "faint", "half out of focus")


@dataclass(frozen=True)
class Read:
    """A page that the CPU engine read, with the errors 0..1 of its answer and of the model's."""

    row: PageRecord
    cpu: float
    model: float
    kind: str

    @property
    def gain(self) -> float:
        return self.cpu - self.model


def main() -> None:
    """Read the pages, and fit or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("fit", "measure"))
    folder = "the documents and the rows; made if missing"
    parser.add_argument("--folder", type=Path, default=Path("routing-pages"), help=folder)
    parser.add_argument("--digital", type=int, default=150, help="digital pages of a half")
    parser.add_argument("--scans", type=int, default=100, help="scans of a half, of pages of the same documents")
    parser.add_argument("--bad", type=int, default=40, help="bad scans of a half, also in scripts that OCR cannot read")
    parser.add_argument("--wrong", type=float, default=0.02, help="share of the model's words that are wrong")
    parser.add_argument("--real", type=Path, help="measure: a folder of PDFs whose shares are listed")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    half = "tuning" if arguments.action == "fit" else "held-out"
    truth, rows = read(arguments.folder / half, half, arguments.digital, arguments.scans, arguments.bad)
    pages = [compared(page, rows[page["file"], page["page"]], arguments.wrong) for page in truth]
    tell(f"{len(pages)} pages of the half {half}")
    if arguments.action == "fit":
        weights, bias = fit(pages)
        print(json.dumps({"BIAS": bias, "WEIGHTS": weights}, indent=1))
        return
    report = {"command": " ".join(sys.argv), **measured(pages)}
    if arguments.real:
        report["real documents"] = sent_of(arguments.real, arguments.folder / "real")
    keep(report, arguments.output)
    print(table(report))


def read(
    folder: Path, half: str, digital: int, scans: int, bad: int
) -> tuple[list[dict[str, Any]], dict[tuple[str, int], PageRecord]]:
    """Return the truth of the pages of a half, and their rows by file and page. Those in the folder are used again."""
    rows = folder / "rows.pickle"
    if not rows.exists():
        documents = folder / "documents"
        truth = factory.make(documents, half, SEED, digital, scans)
        truth += [spoiled(truth[place * digital // bad], documents, place) for place in range(bad)]
        records = factory.read(documents, truth, folder / "workspace")
        rows.write_bytes(pickle.dumps((truth, records)))
    truth, records = pickle.loads(rows.read_bytes())  # noqa: S301 - written by this program
    return truth, records


def compared(page: Mapping[str, Any], row: PageRecord, wrong: float) -> Read:
    """Return a page with the errors of its row and of the simulated model."""
    kind = "bad scans" if page["id"].endswith(_SPOILED) else "scans" if page["scanned"] else "digital"
    return Read(row, error(page, factory.answer(row)), error(page, modelled(page, wrong)), kind)


def spoiled(page: Mapping[str, Any], folder: Path, place: int) -> dict[str, Any]:
    """Write a bad scan of a page: of few pixels, out of focus, or faint. Return its truth."""
    kind, name = _BAD[place % len(_BAD)], page["id"] + _SPOILED
    with pypdfium2.PdfDocument(folder / page["file"]) as pdf:
        image = pdf[page["page"] - 1].render(scale=150 / 72, grayscale=True).to_pil()
    alarms.spoiled(image, kind, random.Random(page["id"])).save(folder / f"{name}.png")
    changed = {"id": name, "file": f"{name}.png", "page": 1, "tags": [*page["tags"], kind], "scanned": True}
    return {**page, **changed}


def modelled(page: Mapping[str, Any], wrong: float) -> truth_score.Answer:
    """Return the answer of the simulated model: the truth, with a share of its words replaced by others of the page."""
    rng = random.Random(page["id"])
    perfect = truth_score.perfect(page)
    words = re.findall(r"\w+", re.sub(r"<[^>]+>", " ", perfect.markdown)) or ["word"]

    def replaced(match: re.Match[str]) -> str:
        return rng.choice(words) if match[1] and rng.random() < wrong else match[0]

    markdown = re.sub(r"<[^>]+>|\\[a-zA-Z]+|(\w+)", replaced, perfect.markdown)
    return truth_score.Answer(markdown, perfect.figures, perfect.tables)


def error(page: Mapping[str, Any], answer: truth_score.Answer) -> float:
    """Return the error 0..1 of an answer."""
    scores = truth_score.score(page, answer)
    return 1 - statistics.fmean(scores[name][0] / scores[name][1] for name in CONTENT if name in scores)


def fit(pages: Sequence[Read]) -> tuple[dict[str, float], float]:
    """Return the weights and the bias of the logistic function, by gradient descent with weights of at least 0."""
    chosen = [page for page in pages if 0 < gain_probability(page.row) < 1]  # the others have no weights
    features = np.array([[evidence(page.row)[name] for name in WEIGHTS] for page in chosen])
    better = np.array([page.gain > MARGIN for page in chosen], float)
    weights, bias = np.full(len(WEIGHTS), _USUAL), 0.0
    for _ in range(_STEPS):
        wrong = 1 / (1 + np.exp(-bias - features @ weights)) - better
        weights = np.maximum(0, weights - (features.T @ wrong + _PENALTY * (weights - _USUAL)) / (2 * len(chosen)))
        bias -= float(wrong.mean()) / 2
    return {name: round(float(weight), 2) for name, weight in zip(WEIGHTS, weights, strict=True)}, round(bias, 2)


def measured(pages: Sequence[Read]) -> dict[str, Any]:
    """Return the mean error by share of the pages that are sent, and what is sent at the router's threshold."""
    probability = {page.row.page_id: gain_probability(page.row) for page in pages}
    routed = sorted(pages, key=lambda page: -probability[page.row.page_id])
    ideal = sorted(pages, key=lambda page: -page.gain)
    cpu, model = (statistics.fmean(getattr(page, name) for page in pages) for name in ("cpu", "model"))
    above = sum(one >= THRESHOLD for one in probability.values())

    def at(count: int) -> dict[str, float]:
        sent = {
            "share": round(count / len(pages), 3),
            "router": cpu - sum(page.gain for page in routed[:count]) / len(pages),
            "random": cpu - (cpu - model) * count / len(pages),  # the mean of all choices
            "ideal": cpu - sum(page.gain for page in ideal[:count]) / len(pages),
        }
        sent["gain of all"] = (cpu - sent["router"]) / (cpu - model)
        return {name: round(value, 4) for name, value in sent.items()}

    kinds = {kind: [page for page in pages if page.kind == kind] for kind in _KINDS}
    return {
        "pages": {name: len(of) for name, of in kinds.items()},
        "error": {
            name: {key: round(statistics.fmean(getattr(page, key) for page in of), 4) for key in ("cpu", "model")}
            for name, of in kinds.items()
        },
        "model better": {name: sum(page.gain > MARGIN for page in of) for name, of in kinds.items()},
        "sent at the threshold": {
            name: sum(probability[page.row.page_id] >= THRESHOLD for page in of) for name, of in kinds.items()
        },
        "of these, model better": sum(page.gain > MARGIN for page in routed[:above]),
        "at the threshold": at(above),
        "by share": [at(round(share * len(pages))) for share in SHARES],
    }


def sent_of(documents: Path, workspace: Path) -> dict[str, Any]:
    """Return how many pages of real documents the threshold sends, by the source of their text."""
    run = llm_ocr.extract([str(documents)], workspace=workspace, engine="embedded", max_failed_rate=1.0)
    rows = [row for row in run.pages(images=False) if row.page_number]
    report: dict[str, Any] = {}
    for source in ("text-layer", "ocr", ""):
        own = [row for row in rows if row.text_source == source]
        sent = [row for row in own if gain_probability(row) >= THRESHOLD]
        places = [f"{Path(row.source).name}, page {row.page_number}: {gain_probability(row):.2f}" for row in sent]
        report[source or "failed"] = {"pages": len(own), "sent": len(sent), "pages sent": sorted(places)}
    return report


def table(report: Mapping[str, Any]) -> str:
    """Return the errors in percent by share as a Markdown table."""
    lines = ["| Pages sent | Router | Random pages | Best choice | Gain of all |", "|---|---|---|---|---|"]
    marked = [("", row) for row in report["by share"]] + [(f" (from {THRESHOLD:g} on)", report["at the threshold"])]
    for words, row in sorted(marked, key=lambda one: float(one[1]["share"])):
        errors = " | ".join(f"{100 * row[name]:.2f} %" for name in ("router", "random", "ideal"))
        lines.append(f"| {100 * row['share']:.0f} %{words} | {errors} | {100 * row['gain of all']:.0f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
