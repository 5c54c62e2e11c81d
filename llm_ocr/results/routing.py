"""Probability that a model would read a page better than the CPU engine did.

`gain_probability` is a logistic function of `evidence`, which a stored row contains. It needs no request, no picture,
and no true text. The weights come from pages whose true text is known, half of them scans:

    python benchmarks/routing.py fit
"""

import math
from collections.abc import Mapping

from llm_ocr.results.quality import CONFIDENT
from llm_ocr.types import BlockKind, PageRecord, Reason, Status

#: Probability above which a page goes to the model, if the user sets no share.
THRESHOLD = 0.5

#: Weight of each evidence. None is negative: more evidence of a fault never lowers the probability.
WEIGHTS: Mapping[str, float] = {
    "degraded": 2.0,
    "unread": 2.0,
    "unsupported": 2.0,
    "low quality": 3.0,
    "ocr": 2.0,
    "unsure ocr": 3.0,
    "cropped formula": 4.0,
    "tables": 0.5,
    "tables of ocr": 2.0,
    "pictures of ocr": 2.0,
}
BIAS = -3.0

#: Reasons of rows that lack most of a page's text, because the CPU engine cannot read it.
_NOT_READ = frozenset({Reason.SCRIPT_NOT_SUPPORTED, Reason.EMPTY, Reason.OCR_NOT_INSTALLED})
#: Reasons of rows whose fault is in the picture of the page, which a model would get as well.
_IN_THE_PICTURE = frozenset({Reason.UNREADABLE, Reason.PLACEHOLDER, Reason.NOT_DRAWN})
#: Shares from which more of the same evidence does not count.
_MOST_SHARE, _MOST_DOUBT, _MOST_AREA = 0.1, 0.2, 0.3


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
    for block in row.blocks:
        if block.kind is BlockKind.TABLE:
            tables = min(1.0, tables + block.box.area / _MOST_AREA)
        elif block.kind is BlockKind.FIGURE and block.label == "formula":
            formula = True
        elif block.kind is BlockKind.FIGURE:
            pictures = min(1.0, pictures + block.box.area / _MOST_AREA)
    unread, unsupported = (row.ledger.unread_share, row.ledger.unsupported_share) if row.ledger else (0.0, 0.0)
    return {
        "degraded": float(row.status is Status.DEGRADED and row.reason not in _IN_THE_PICTURE),
        "unread": min(1.0, unread / _MOST_SHARE),
        "unsupported": min(1.0, unsupported / _MOST_SHARE),
        "low quality": 0.0 if row.quality is None else 1 - row.quality,
        "ocr": float(by_ocr),
        "unsure ocr": min(1.0, (1 - row.quality_parts.get(CONFIDENT, 1.0)) / _MOST_DOUBT),
        "cropped formula": float(formula),
        "tables": tables,
        "tables of ocr": tables * by_ocr,
        "pictures of ocr": pictures * by_ocr,
    }
