"""Regions cut out of a page's image, within limits."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from llm_ocr.engines.layout.asking import Piece
from llm_ocr.engines.layout.sorting import Assigned
from llm_ocr.engines.model.tools import ImageTools
from llm_ocr.errors import PageFailure
from llm_ocr.types import Box, EncodedImage

#: Regions of a page that are asked for one by one; a page with more is read whole.
MOST_REGIONS = 200
#: The sum of the regions' areas, in pages: overlapping ones must not make a page many times as large.
MOST_AREA = 4.0
#: Bytes of a page's crops.
MOST_BYTES = 64 << 20
#: Bytes per pixel of a crop that may be blank: text takes more in every format.
_BLANK_BYTES, _BLANK_LEAST = 0.02, 2000


class RegionTools(ImageTools, Protocol):
    """Work on images, done in other processes. Raises `PageFailure` when it cannot be done."""

    async def crops(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """The parts of an image under relative boxes, in order."""


class TooMany(Exception):
    """A page with more regions than are asked for one by one; its text says how many."""


async def cut(
    page_id: str, image: EncodedImage, wanted: Sequence[Assigned], modes: Mapping[str, str], tools: RegionTools
) -> list[Piece | None]:
    """The regions as they are asked for; None for a blank one. Raises `TooMany`, and `PageFailure`."""
    area = sum(one.region.box.area for one in wanted)
    if len(wanted) > MOST_REGIONS or area > MOST_AREA:
        raise TooMany(f"{len(wanted)} regions were found, {area:.1f} times the page")
    if not wanted:
        return []
    images = await tools.crops(image, [one.region.box for one in wanted])
    size = sum(len(one.data) for one in images)
    if size > MOST_BYTES:
        raise TooMany(f"its {len(wanted)} regions take {size >> 20} MiB")
    blank = await asyncio.gather(*(_blank(one, tools) for one in images))
    return [
        None if empty else Piece(f"{page_id}-r{number:02}", crop, modes[one.task], one.region.box.area)
        for number, (one, crop, empty) in enumerate(zip(wanted, images, blank, strict=True), start=1)
    ]


async def _blank(image: EncodedImage, tools: RegionTools) -> bool:
    """Whether there is nothing on it; looked at only where it has few bytes for its pixels."""
    if len(image.data) > max(_BLANK_LEAST, _BLANK_BYTES * image.width * image.height):
        return False
    try:
        return await tools.blank(image)
    except PageFailure:
        return False  # the model will see
