"""Results in notebooks: pages as Markdown with figures, samples of a dataset, pages with boxes.

Rows come from `datasets.load_dataset` or are dictionaries with the same keys. Outside of a notebook, each function
returns its Markdown and displays nothing. The content of a page is untrusted: see `results/sanitizing.py`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.results.images import boxes_image, data_url, encoded_image
from llm_ocr.results.markdown import IMAGE, escape, map_prose, target_id
from llm_ocr.results.sanitizing import safe_markdown
from llm_ocr.types import Block, BlockKind, Box, PageRecord

_FIGURE_SIDE = 1000  # pixels
_PAGE_SIDE = 1600
_THUMBNAIL_SIDE = 500
_MOST_FIGURES = 8_000_000  # maximum characters of data URLs in one page's Markdown
_PREVIEW = 500  # maximum characters of a sample's Markdown
_DESCRIPTION = 200
_FIGURES_A_SAMPLE = 2


def display_markdown(page: str | Mapping[str, Any] | PageRecord) -> str | None:
    """Show Markdown, or the Markdown of a row with its figures.

    Args:
        page: Markdown, a row of the dataset, or a page record.

    Returns:
        The Markdown outside of a notebook, otherwise None.
    """
    return _show(safe_markdown(page) if isinstance(page, str) else render_sample_markdown(page))


def render_sample_markdown(row: Mapping[str, Any] | PageRecord) -> str:
    """Return the page's Markdown, the final one if present, safe to display.

    Figures are data URLs (about 8 MB in total).
    """
    pictures: dict[str, object]
    if isinstance(row, PageRecord):
        markdown, pictures = row.markdown, {figure.id: figure.image for figure in row.figures}
    else:
        markdown = row.get("document_final_markdown") or row.get("document_markdown") or ""
        pictures = {entry["figure_id"]: picture for entry, picture in _figures(row)}
    characters_left = _MOST_FIGURES
    urls: dict[str, str | None] = {}

    def to_data(image: re.Match[str]) -> str:
        nonlocal characters_left
        figure = target_id(image["target"])
        if figure is None or figure not in pictures:
            return image[0]
        if figure not in urls:
            urls[figure] = data_url(pictures[figure], _FIGURE_SIDE)
        url = urls[figure]
        if url is None or len(url) > characters_left:
            return image[0]
        characters_left -= len(url)
        return f"![{image['alt']}]({url})"

    return safe_markdown(map_prose(markdown, lambda text: IMAGE.sub(to_data, text)))


def display_samples(dataset: Iterable[Mapping[str, Any]], n: int = 2, *, num_samples: int | None = None) -> str | None:
    """Show the first `n` rows in short: thumbnails, the beginning of the text, two figures with their descriptions.

    Args:
        dataset: Rows with the dataset's columns. Of a dictionary of splits, the first is used.
        n: Number of rows.
        num_samples: The predecessor's name of `n`, with precedence if both are given.

    Returns:
        The Markdown outside of a notebook, otherwise None.
    """
    n = n if num_samples is None else num_samples
    if isinstance(dataset, Mapping):
        dataset = next(iter(dataset.values()), ())
    rows = len(dataset) if isinstance(dataset, Sized) else None
    samples = list(islice(dataset, max(0, n)))
    parts = [f"**{rows if rows is not None else 'Streamed'} rows**"]
    if samples:
        parts.append("Columns: " + ", ".join(escape(name) for name in samples[0]))
    parts += [part for number, row in enumerate(samples, 1) for part in _sample(number, row)]
    return _show("\n\n".join(parts))


def display_page(page: Mapping[str, Any] | PageRecord) -> str | None:
    """Show the page's image with its blocks.

    Args:
        page: A row of the dataset, or a page record with its image.

    Returns:
        The Markdown outside of a notebook, otherwise None.

    Raises:
        UsageError: The row has no page image.
    """
    picture: object = None
    if isinstance(page, PageRecord):
        picture = boxes_image(page.image, page.blocks) if page.image and page.image.data else None
    elif page.get("document_with_boxes_image"):
        picture = page["document_with_boxes_image"]
    elif image := encoded_image(page.get("source_image")):
        blocks = [Block(BlockKind(block["kind"]), Box(**block["box"])) for block in page.get("blocks") or ()]
        picture = boxes_image(image, blocks)
    url = data_url(picture, _PAGE_SIDE)
    if url is None:
        raise UsageError(
            "this page has no image",
            hint="Failed pages have no image. Assemble keeps the images of other pages with `dataset_images=all`.",
        )
    return _show(f"![page]({url})")


def display_failures(pages: Iterable[PageRecord], n: int = 20) -> str | None:
    """Show the first `n` failed pages with their reasons.

    Args:
        pages: Failed pages, such as `Run.failures()`.
        n: Number of pages.

    Returns:
        The Markdown outside of a notebook, otherwise None.
    """
    failed = iter(pages)
    lines = []
    for page in islice(failed, max(0, n)):
        number = "all" if page.page_number is None else page.page_number
        reason = f"{page.reason or ''}: {page.detail}" if page.detail else str(page.reason or "")
        lines.append(f"| {escape(page.source)} | {number} | {escape(reason)} | {len(page.attempts)} |")
    more = sum(1 for _ in failed)
    if not lines and not more:
        return _show("No page failed.")
    rows = ["| document | page | reason | tries |", "|---|---|---|---|", *lines]
    return _show("\n".join(rows) + (f"\n\n{more:,} more" if more else ""))


def _show(markdown: str) -> str | None:
    try:
        from IPython import get_ipython
        from IPython.display import Markdown, display
    except ImportError:
        return markdown
    if get_ipython() is None:
        return markdown
    display(Markdown(markdown))
    return None


def _figures(row: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], object]]:
    """Yield the metadata and image of each figure; rows without figure images have none."""
    metadata = row.get("extracted_figures_metadata") or ()
    pictures = row.get("extracted_figures") or ()
    for text, picture in zip(metadata, pictures, strict=False):
        yield json.loads(text), picture


def _sample(number: int, row: Mapping[str, Any]) -> Iterator[str]:
    status = " ".join(str(row[name]) for name in ("status", "reason") if row.get(name))
    yield f"**Sample {number}: {escape(str(row.get('sample_id', '')))}** {escape(status)}"
    pages = (data_url(row.get(name), _THUMBNAIL_SIDE) for name in ("source_image", "document_with_boxes_image"))
    yield " ".join(f"![page]({url})" for url in pages if url)
    text = row.get("document_final_markdown") or row.get("document_markdown") or ""
    yield escape(text[:_PREVIEW]) + (" …" if len(text) > _PREVIEW else "")
    for entry, picture in islice(_figures(row), _FIGURES_A_SAMPLE):
        description = entry.get("description") or "not described"
        url = data_url(picture, _THUMBNAIL_SIDE)
        yield f"![figure]({url})" if url else ""
        yield escape(description[:_DESCRIPTION])
