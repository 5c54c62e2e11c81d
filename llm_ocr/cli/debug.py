"""llm-ocr debug page: each decision of the embedded engine on one page, and an image of its blocks.

The page takes the way of a run: renderer and reader are confined worker processes. The reader's worker returns its
decisions with the answer.
"""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.cli.output import json_text, one_line, write, write_json, write_line
from llm_ocr.config.models import DebugSettings
from llm_ocr.errors import PageFailure, UsageError

if TYPE_CHECKING:
    from llm_ocr.engines.trace import Decision
    from llm_ocr.types import Attempt, Box, Page, Quality


#: Characters of a text that are shown, and the width of the names at the left.
_FIRST, _NAME = 60, 14


@dataclass(frozen=True, slots=True)
class _Traced:
    """One page, its reading, and the way to it. `times`: name of a pass and milliseconds, in order."""

    page: "Page"
    pages: int
    attempt: "Attempt"
    decisions: "Sequence[Decision]"
    quality: "Quality"
    times: Sequence[tuple[str, float]]


def run_debug(command: str, settings: DebugSettings) -> int:
    """Read one page, print the decisions, and write the image; returns 0.

    Raises:
        UsageError: There is no such file or page, or the image already exists.
        PageFailure: The document cannot be opened, or the page cannot be read.
    """
    from llm_ocr.results.images import boxes_image

    if not settings.file.exists():
        raise UsageError(f"{settings.file} does not exist", hint="Name a PDF or an image: llm-ocr debug page FILE")
    output = settings.output or Path(f"{settings.file.stem}-p{settings.page:04d}.png")
    media_type = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}.get(output.suffix.lower())
    if media_type is None:
        raise UsageError(f"--output {output}: must end in .png or .jpg")
    if output.exists() and not settings.overwrite:
        raise _there(output)
    try:
        traced = asyncio.run(_trace(settings))
    except PageFailure as failure:
        place = f"{settings.file.name}, page {settings.page}"
        raise PageFailure(failure.reason, f"{place}: {failure.why}", hint=failure.hint) from failure
    shown = traced.attempt.image or traced.page.image
    picture = boxes_image(shown, traced.attempt.blocks, media_type=media_type)
    try:
        with output.open("wb" if settings.overwrite else "xb") as file:
            file.write(picture.data)
    except FileExistsError as error:
        raise _there(output) from error
    except OSError as error:
        raise UsageError(f"--output {output} cannot be written: {error.strerror}") from error
    if settings.json_output:
        write_json(_as_json(traced, settings.file, output))
        return 0
    for line in () if settings.quiet else _as_text(traced, settings.file):
        write(one_line(line) + "\n")
    write_line(one_line(f"Blocks in reading order: {output}"))
    return 0


def _there(output: Path) -> UsageError:
    return UsageError(
        f"{output} already exists", hint="Replace it with --overwrite, or set another file: --output FILE.png"
    )


async def _trace(settings: DebugSettings) -> _Traced:
    from llm_ocr.documents.rendering import Renderer
    from llm_ocr.engines.trace import TIME, collected
    from llm_ocr.results.quality.scoring import FITTED, rated
    from llm_ocr.stages.readers import embedded_reader, ocr_language
    from llm_ocr.stages.rendering import passwords, render_options
    from llm_ocr.types import plural

    source = str(settings.file)
    times: list[tuple[str, float]] = []
    began = time.perf_counter()

    def stop(name: str) -> None:
        nonlocal began
        now = time.perf_counter()
        times.append((name, 1000 * (now - began)))
        began = now

    secrets = passwords(settings.password, settings.password_file)
    async with Renderer(render_options(settings, secrets)) as renderer:
        pages = await renderer.open(source)
        if settings.page > pages:
            raise UsageError(f"--page {settings.page}: {source} has {plural(pages, 'page')}")
        stop("opening (with process start)")
        page = await renderer.page(source, "", settings.page, page_id="page", document_id="document")
        stop("rendering")
    reader = embedded_reader(settings, language=await ocr_language(settings, partial(write_line, stream=sys.stderr)))
    try:
        with collected() as decisions:
            attempt = await reader.read(page)
    finally:
        await reader.close()
    passes: dict[str, float] = {}
    for decision in decisions:
        if decision.step == TIME:  # OCR may run twice on a page with a text layer
            name = str(decision.facts["name"])
            passes[name] = passes.get(name, 0.0) + float(str(decision.facts["milliseconds"]))
    stop("reader process start and transfer")
    name, reading = times.pop()
    times += [*passes.items(), (name, reading - sum(passes.values()))]
    attempt, quality, _ = rated(page, attempt, FITTED)
    stop("quality")
    chosen = [decision for decision in decisions if decision.step != TIME]
    return _Traced(page, pages, attempt, chosen, quality, [(name, round(spent, 1)) for name, spent in times])


def _as_text(traced: _Traced, file: Path) -> Iterator[str]:
    """Yield lines with names at the left and decisions at the right."""
    from llm_ocr.results.quality import on_scale, shown_score, what_is_wrong

    page, attempt, quality = traced.page, traced.attempt, traced.quality
    ending = ": ".join(filter(None, (attempt.status.value, attempt.reason and attempt.reason.value, attempt.detail)))
    yield f"{file.name}, page {page.number} of {traced.pages}: {ending}"
    paper = ""
    if page.content is not None:
        paper = f"{page.content.width:.0f} x {page.content.height:.0f} page units, "
    yield _row("page", f"{paper}image {page.image.width} x {page.image.height} pixels")
    for decision in traced.decisions:
        # Boxes and texts of the page are in no message.
        facts = [
            f"{name} {json_text(value, indent=None)}" if isinstance(value, list) else f'{name} "{_first_words(value)}"'
            for name, value in decision.facts.items()
            if value and (isinstance(value, list) or name in ("caption", "text", "before", "after"))
        ]
        yield _row(decision.step, "; ".join([decision.message, *facts]))
    for step in ("table", "figure", "furniture", "gutter", "join"):
        if not any(decision.step == step for decision in traced.decisions):
            yield _row(step, "none")
    for number, block in enumerate(attempt.blocks, 1):
        level = f" {block.level}" if block.level else ""
        label = f" ({block.label})" if block.label else ""
        text = block.text or block.caption or block.inside
        pieces = f", in {1 + len(block.continued)} pieces" if block.continued else ""
        kind = block.kind.value.replace("_", " ")
        box = json_text(_sides(block.box), indent=None)
        yield _row("block", f'{number} {kind}{level}{label} {box}{pieces} "{_first_words(text)}"')
    if not attempt.blocks:
        yield _row("block", "none: the page is blank")
    parts = ", ".join(
        f"{name} {value:.3f} (score {on_scale(name, value):.2f})" for name, value in quality.parts.items()
    )
    yield _row("quality", f"{shown_score(quality.score)}; {parts or 'no parts'}")
    yield _row("problems", what_is_wrong(quality.parts) or "none found")
    yield _row("time in ms", ", ".join(f"{name} {spent:,.1f}" for name, spent in traced.times))


def _row(name: str, text: str) -> str:
    return f"  {name:<{_NAME}}{text}"


def _sides(box: "Box") -> list[float]:
    return [round(side, 3) for side in (box.x0, box.y0, box.x1, box.y1)]


def _first_words(text: object) -> str:
    words = " ".join(str(text).split())
    return words if len(words) <= _FIRST else words[: _FIRST - 1].rstrip() + "…"


def _as_json(traced: _Traced, file: Path, output: Path) -> dict[str, object]:
    from llm_ocr.results.quality import on_scale, what_is_wrong

    page, attempt, quality = traced.page, traced.attempt, traced.quality
    return {
        "source": str(file),
        "page": page.number,
        "pages": traced.pages,
        "status": attempt.status.value,
        "reason": attempt.reason.value if attempt.reason else None,
        "detail": attempt.detail,
        "text_source": attempt.source,
        "rotation": attempt.rotation,
        "probe": attempt.probe,
        "confidence": attempt.confidence,
        "image": {"width": page.image.width, "height": page.image.height},
        "decisions": [
            {"step": decision.step, "message": decision.message, "facts": dict(decision.facts)}
            for decision in traced.decisions
        ],
        "blocks": [
            {
                "kind": block.kind.value,
                "level": block.level,
                "label": block.label,
                "boxes": [_sides(box) for box in (block.box, *block.continued)],
                "text": block.text,
                "caption": block.caption,
                "inside": block.inside,
            }
            for block in attempt.blocks
        ],
        "quality": {
            "score": quality.score,
            "parts": dict(quality.parts),
            "scores": {name: round(on_scale(name, value), 4) for name, value in quality.parts.items()},
            "wrong": what_is_wrong(quality.parts),
        },
        "milliseconds": dict(traced.times),
        "overlay": str(output),
    }
