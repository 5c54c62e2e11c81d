"""A page of our own, read once: then the model is there when the first document comes."""

import tempfile
import time
from pathlib import Path
from typing import Any

from llm_ocr.api.session import Session
from llm_ocr.serverless.inputs import advised
from llm_ocr.types import DocumentPart, PageRecord

_WORDS = "Ready to read."
_SIZE, _MARGIN, _FONT = (420, 120), 40, 32  # pixels


async def warm_up(session: Session) -> dict[str, Any]:
    """Start the model and ask it one question. Raises `ServerError` when it cannot be started."""
    began = time.monotonic()
    rows: list[PageRecord] = []

    async def finished(position: int, record: PageRecord) -> None:
        rows.append(record)

    with tempfile.TemporaryDirectory(prefix="llm-ocr-request-") as folder:
        part = DocumentPart("warm-up", str(_page(Path(folder))), "warm-up", "", (1,), 1, 0)
        await session.read(part, finished)
    detail = {"detail": advised(rows[0].detail)} if rows[0].detail else {}
    return {"status": rows[0].status.value, **detail, "seconds": round(time.monotonic() - began, 3)}


def _page(folder: Path) -> Path:
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("RGB", _SIZE, "white")
    ImageDraw.Draw(page).text((_MARGIN, _MARGIN), _WORDS, fill="black", font=ImageFont.load_default(_FONT))
    file = folder / "page.png"
    page.save(file)
    return file
