"""`--verify`: which evidence the text of a page is compared with. The answers are those of a model on a server."""

import asyncio
import json
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.models.registry import find_profile
from llm_ocr.types import PageRecord, Reason, Status
from llm_ocr_simulator import running

ROTA = """\
# Rota of the Readers

Each week has a reader and a deputy. The reader takes the level at seven in the morning and at seven in the evening,
works out the forecast, and chalks it on the board. The deputy steps in when the reader is ill or away, and keeps the
second key of the rain gauge. Anyone who cannot take a week should find a replacement before the first of the month.

| Week | Reader | Deputy | Telephone | Remarks |
| --- | --- | --- | --- | --- |
| 1 | Agnes Tolland | Piers Marlowe | 555 0114 | New paint, check the zero |
| 2 | Rosa Kettle | Agnes Tolland | 555 0127 | School holidays |
| 3 | Piers Marlowe | Jonas Field | 555 0133 |  |
| 4 | Jonas Field | Rosa Kettle | 555 0148 | Market on Saturday |
| 5 | Edith Sorrel | Teodor Vik | 555 0156 | Clocks go back on Sunday |

If the forecast exceeds 1.80 m, telephone the three farms before anything else, and then the school. The numbers are on
the inside of the cupboard door. A reading that was missed is left blank; please do not guess it afterwards.

## What to bring

- The notebook and two pencils.
- A torch, from November to February.
- The key of the rain gauge.
"""
DROPPED = "\n".join(line for line in ROTA.splitlines() if not line.startswith("works out the forecast"))
ONE_EACH = {"render_workers": 1, "ocr_workers": 1, "fallback": "none", "model": "olmocr-2"}
OLMOCR = find_profile("olmocr-2").model


def read(folder: Path, examples: Path, answer: str, **settings: object) -> PageRecord:
    """The third page of the scan as a model without boxes answers it."""
    file = folder / "said.json"
    file.write_text(json.dumps({"*": answer}))

    async def page(url: str) -> PageRecord:
        async with llm_ocr.Session(server_url=url, server_model=OLMOCR, **ONE_EACH, **settings) as session:
            return await session.read_page(examples / "scan.pdf", 3)

    with running(said=file, model=OLMOCR, speed=100, max_model_len=65_536) as server:
        return asyncio.run(page(server.url))


@pytest.mark.parametrize(
    ("answer", "reason", "detail"),
    [
        (ROTA, None, ""),
        (DROPPED, Reason.UNREAD, "text on the page that was not read"),
    ],
    ids=["good", "dropped line"],
)
def test_ocr_finds_what_a_model_does_to_a_scan(examples, tmp_path, answer, reason, detail):
    by_ink = read(tmp_path, examples, answer)
    assert (by_ink.status, by_ink.ledger.verified_by) == (Status.OK, "ink")
    row = read(tmp_path, examples, answer, verify="ocr")
    assert (row.ledger.verified_by, row.reason) == ("ocr", reason)
    assert detail in row.detail
