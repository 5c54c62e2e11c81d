"""Probability that a model would read a page better than the CPU engine did.

`gain_probability` is a logistic function of `evidence`, which a stored row contains. It needs no request, no picture,
and no true text. The weights are fitted to pages whose true text is known, and for which the answers of a model are
simulated (`docs/explanation/routing.md`):

    python benchmarks/routing.py fit
"""

import math
from collections.abc import Mapping

from llm_ocr.results.quality import CONFIDENT
from llm_ocr.types import BlockKind, Ledger, PageRecord, Reason, Status

#: Key in the attempts of a row for the probability, in a hybrid run.
GAIN = "gain_probability"
#: Increased when a change alters the probability of the same row; part of the key of hybrid runs.
VERSION = 2
#: Probability from which a page goes to the model by default. It is below 0.5, because a model corrects larger errors
#: than it adds. On the tuning half, the total gain is within 1 % of its largest for all numbers from 0.2 to 0.5.
THRESHOLD = 0.25

#: Weight of each evidence. None is negative: more evidence of a fault never lowers the probability.
WEIGHTS: Mapping[str, float] = {
    "degraded": 0.59,
    "contradicted": 1.94,
    "unread": 1.64,
    "unsupported": 0.23,
    "low quality": 1.95,
    "ocr": 0.89,
    "unsure ocr": 2.27,
    "cropped formula": 4.01,
    "tables": 1.15,
    "tables of ocr": 0.83,
    "pictures of ocr": 1.27,
}
BIAS = -3.13

#: Reasons of rows that lack most of a page's text, because the CPU engine cannot read it.
_NOT_READ = frozenset({Reason.SCRIPT_NOT_SUPPORTED, Reason.EMPTY, Reason.OCR_NOT_INSTALLED})
#: Reasons of rows whose fault is in the picture of the page, which a model would get as well.
_IN_THE_PICTURE = frozenset({Reason.UNREADABLE, Reason.PLACEHOLDER, Reason.NOT_DRAWN})
#: Shares from which more of the same evidence does not count.
_MOST_SHARE, _MOST_AREA = 0.1, 0.3
#: Confidence of OCR from which it is sure, and below which less confidence does not count: the medians of scans whose
#: mean confidence over the characters is 0.98 and 0.94, to which the weights were fitted.
_SURE, _UNSURE = 0.87, 0.74


def gain_probability(row: PageRecord) -> float:
    """Return the probability that a model's answer would be better than this row. Takes less than 0.2 ms.

    Args:
        row: A page that the CPU engine read. Its pictures are not used and may be missing.

    Returns:
        Probability 0..1: 1 for a page that was not read, 0 for a page without ink and without text.
    """
    if row.status is Status.FAILED or row.reason in _NOT_READ:
        return 1.0
    if row.status is Status.OK and row.blank and row.ledger is not None and row.ledger.ink == 0:
        return 0.0
    found = evidence(row)
    return 1 / (1 + math.exp(-BIAS - sum(WEIGHTS[name] * value for name, value in found.items())))


def evidence(row: PageRecord) -> dict[str, float]:
    """Return the evidence that a page was read badly, each 0..1.

    Args:
        row: A page that was read.

    Returns:
        By the names of `WEIGHTS`:
        degraded: The row is `degraded`, and not because of the picture of the page.
        contradicted: It is `degraded`, and its ledger was compared with more than the ink.
        unread, unsupported: The shares of its ledger.
        low quality: What its quality score lacks.
        ocr: Its text comes from OCR.
        unsure ocr: What the confidence of OCR lacks.
        cropped formula: A formula is a picture, because the CPU engine has no LaTeX for it.
        tables: The share of the page in tables.
        tables of ocr, pictures of ocr: The shares in tables and in pictures, if the text comes from OCR.
    """
    by_ocr = row.text_source == "ocr"
    formula, tables, pictures = False, 0.0, 0.0
    table, figure = BlockKind.TABLE, BlockKind.FIGURE
    for block in row.blocks:
        kind = block.kind
        if kind is table:
            tables = min(1.0, tables + block.box.area / _MOST_AREA)
        elif kind is figure and block.label == "formula":
            formula = True
        elif kind is figure:
            pictures = min(1.0, pictures + block.box.area / _MOST_AREA)
    degraded = row.status is Status.DEGRADED and row.reason not in _IN_THE_PICTURE
    ledger = row.ledger or Ledger(0.0)
    return {
        "degraded": float(degraded),
        "contradicted": float(degraded and ledger.verified_by != "ink"),
        "unread": min(1.0, ledger.unread_share / _MOST_SHARE),
        "unsupported": min(1.0, ledger.unsupported_share / _MOST_SHARE),
        "low quality": 0.0 if row.quality is None else 1 - row.quality,
        "ocr": float(by_ocr),
        "unsure ocr": min(1.0, max(0.0, _SURE - row.quality_parts.get(CONFIDENT, 1.0)) / (_SURE - _UNSURE)),
        "cropped formula": float(formula),
        "tables": tables,
        "tables of ocr": tables * by_ocr,
        "pictures of ocr": pictures * by_ocr,
    }
