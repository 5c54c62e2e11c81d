"""Pages, figures and images for the tests of results."""

import io
from collections.abc import Iterable

from hypothesis import strategies as st
from PIL import Image

from llm_ocr.results.dataset import DatasetRow, DatasetWriter
from llm_ocr.results.schema import Images
from llm_ocr.types import (
    Block,
    BlockKind,
    Box,
    EncodedImage,
    Figure,
    FigureRecord,
    Ledger,
    PageRecord,
    Reason,
    Span,
    Status,
    figure_id,
    page_id,
)

#: Any text that Python can hold, lone surrogates and control characters included.
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
#: Text that UTF-8 can hold.
TEXT = st.text(max_size=60)


def picture(width: int = 40, height: int = 30, media_type: str = "image/png", colour: str = "red") -> EncodedImage:
    out = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(out, media_type.removeprefix("image/").upper())
    return EncodedImage(out.getvalue(), media_type, width, height)


def record(number: int | None = 1, *, document: str = "0123456789abcdef", figures: int = 1, **changes) -> PageRecord:
    """A page that was read, with a heading, a paragraph and figures."""
    page = page_id(document, number)
    crops = tuple(
        Figure(figure_id(page, n), "chart", Box(0.25, 0.1, 0.5, 0.9), picture(colour="blue"), "A chart", "2019\n2020")
        for n in range(1, figures + 1)
    )
    blocks = (
        Block(BlockKind.HEADING, Box(0.1, 0.1, 0.9, 0.2), "Results", "heading", 1),
        *(Block(BlockKind.FIGURE, crop.box, figure_id=crop.id, label="chart") for crop in crops),
    )
    values = {
        "page_id": page,
        "document_id": document,
        "source": "/in/a.pdf",
        "page_number": number,
        "dataset_index": number or 0,
        "status": Status.OK,
        "engine": "embedded",
        "image": picture(400, 300),
        "markdown": "## Results\n\n" + "\n\n".join(f"![{crop.id}](figure:{crop.id})" for crop in crops),
        "blocks": blocks,
        "figures": crops,
        "attempts": ({"status": "ok", "tokens_in": 3},),
    }
    return PageRecord(**(values | changes))


def failed(number: int | None = None, *, document: str = "fedcba9876543210", reason: Reason = Reason.ENCRYPTED):
    return PageRecord(
        page_id(document, number), document, "/in/b.pdf", number, number or 0, Status.FAILED, reason, "no password fits"
    )


def described(figure: str, text: str, status: Status = Status.OK) -> FigureRecord:
    return FigureRecord(figure, figure.rpartition("-")[0], "0123456789abcdef", status, "describe", description=text)


def page_records(texts: st.SearchStrategy[str] = TEXT) -> st.SearchStrategy[PageRecord]:
    """Any page that the types allow, with bytes that need not be an image."""
    numbers = st.floats(allow_nan=False)
    boxes = st.builds(Box, numbers, numbers, numbers, numbers)
    media = st.sampled_from(["image/png", "image/jpeg", "image/webp"])
    sizes = st.integers(0, 2**31 - 1)
    images = st.builds(EncodedImage, st.binary(max_size=50), media, sizes, sizes)
    blocks = st.builds(
        Block,
        st.sampled_from(BlockKind),
        boxes,
        texts,
        texts,
        sizes,
        figure_id=texts,
        inside=texts,
        caption=texts,
        described=texts,
    )
    values = st.recursive(st.none() | st.booleans() | sizes | texts, lambda inner: st.lists(inner, max_size=2))
    counts = st.integers(0, 2**63 - 1)
    return st.builds(
        PageRecord,
        page_id=texts,
        document_id=texts,
        source=texts,
        page_number=st.none() | sizes,
        dataset_index=counts,
        status=st.sampled_from(Status),
        reason=st.none() | st.sampled_from(Reason),
        detail=texts,
        engine=texts,
        text_source=texts,
        rotation=st.sampled_from([0, 90, 180, 270]),
        blank=st.booleans(),
        image=st.none() | images,
        markdown=texts,
        blocks=st.lists(blocks, max_size=3).map(tuple),
        figures=st.lists(st.builds(Figure, texts, texts, boxes, images, texts, texts, texts), max_size=2).map(tuple),
        tokens_in=counts,
        tokens_out=counts,
        seconds=numbers,
        probe=st.none() | numbers,
        attempts=st.lists(st.dictionaries(texts, values, max_size=2), max_size=2).map(tuple),
        notes=st.dictionaries(texts, values, max_size=2),
        invisible_chars=st.integers(0, 2**31 - 1),
        ledger=st.none()
        | st.builds(
            Ledger,
            numbers,
            numbers,
            numbers,
            numbers,
            st.lists(boxes, max_size=2).map(tuple),
            st.lists(st.builds(Span, sizes, sizes, sizes), max_size=2).map(tuple),
            st.sampled_from(["ink", "layer"]),
        ),
    )


def dataset_to_parquet(rows: Iterable[DatasetRow], images: Images = Images.ALL) -> bytes:
    """A file of the dataset, in memory."""
    buffer = io.BytesIO()
    with DatasetWriter(buffer, images) as writer:
        for row in rows:
            writer.add(row)
    return buffer.getvalue()
