"""Text of the dataset card that an export writes; `llm_ocr.results.dataset` reads cards."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from llm_ocr.results.dataset import DATASET_KEYS, configs
from llm_ocr.types import plural
from llm_ocr_outputs.exports.shards import GLOB

_TAGS = ("ocr", "llm-ocr")
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Facts for a card. `workspace` is the id that identifies the card later; `title` is the name of the dataset.

    Counts are rows of tables: a name, and the numbers of ok, degraded, and failed.
    """

    workspace: str
    title: str
    version: str  # of the library
    rows: int
    documents: int
    counts: tuple[tuple[str, int, int, int], ...]
    reasons: Mapping[str, int] = field(default_factory=dict)
    tokens_in: int = 0
    tokens_out: int = 0
    engine: str = ""
    model: str = ""
    revision: str = ""
    licence: str = ""
    notice: str = ""
    describe: str = ""  # describer of the figures
    settings: Mapping[str, Any] = field(default_factory=dict)
    left_out: int = 0  # documents with too many bad pages
    unbalanced: int = 0  # pages left out because they are not balanced


def card(facts: CardFacts, front: Mapping[str, Any], *, files: str | list[str] = GLOB, whole: bool = True) -> str:
    """Return the card.

    Args:
        facts: facts for the card.
        front: front matter of the existing card; its other keys are kept.
        files: pattern or names of the shards.
        whole: whether all files exist.
    """
    given = front.get("tags")
    tags = list(dict.fromkeys([*(given if isinstance(given, list) else []), *_TAGS]))
    ours = {
        "configs": configs(files),
        "size_categories": [_size_category(facts.rows)],
        "tags": tags,
    }
    kept = {name: value for name, value in front.items() if name not in (*ours, *DATASET_KEYS)}
    head = yaml.safe_dump({**kept, **ours}, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n" + "\n\n".join(_sections(facts, whole=whole)) + "\n"


def _sections(facts: CardFacts, *, whole: bool) -> list[str]:
    mark = f"<!-- llm-ocr export of {facts.workspace}; the next export replaces the text below this line -->"
    intro = (
        f"{facts.documents:,} {'document' if facts.documents == 1 else 'documents'}, read page by page with llm-ocr "
        f"{facts.version}. A row is a page: its image, its Markdown, its figures and their descriptions. "
    )
    if facts.unbalanced:
        intro += (
            f"{plural(facts.unbalanced, 'page')} failed, or had ink or text that is not accounted for. They have no "
            "rows, and the statistics include them."
        )
    else:
        intro += "The dataset includes failed pages, which `status` and `reason` identify."
    if facts.left_out:
        more = f"{facts.left_out:,} more {'document' if facts.left_out == 1 else 'documents'}"
        intro += (
            f" {more} had too many bad pages and have no rows; `dropped-documents.jsonl` lists these documents, "
            "and the statistics include their pages."
        )
    counts = [(name, ok + degraded + failed, ok, degraded, failed) for name, ok, degraded, failed in facts.counts]
    statistics = _table(("", "all", "ok", "degraded", "failed"), counts)
    sections = [mark, f"# {facts.title}", intro, "## Statistics", statistics]
    if not whole:
        sections[2:] = ["**An export is in progress: this dataset is not complete.**"]
        return sections
    if facts.reasons:
        sections.append(_table(("Why pages are degraded or failed", "Pages"), list(facts.reasons.items())))
    origin = {
        "Engine": facts.engine,
        "Model": f"{facts.model} at {facts.revision}" if facts.revision else facts.model,
        "Licence of the model": facts.licence,
        "Figures described by": facts.describe,
        "Tokens": f"{facts.tokens_in:,} in, {facts.tokens_out:,} out" if facts.tokens_in or facts.tokens_out else "",
    }
    sections += ["## How it was made", _table(("", ""), [(name, text) for name, text in origin.items() if text])]
    if facts.notice:
        sections.append(facts.notice)
    if facts.settings:
        text = json.dumps(dict(facts.settings), ensure_ascii=False, indent=2, sort_keys=True)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        sections += ["Settings of the run:", f"{fence}json\n{text}\n{fence}"]
    return sections


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: str | int) -> str:
    return f"{value:,}" if isinstance(value, int) else " ".join(value.replace("|", "\\|").split())


def _size_category(rows: int) -> str:
    """Return the Hub's name of the size: `n<1K`, `1K<n<10K` and so on."""
    place = max(0, len(str(rows)) - 3)
    if place == 0:
        return f"n<{_SIZES[0]}"
    return f"{_SIZES[place - 1]}<n<{_SIZES[place]}" if place < len(_SIZES) else f"n>{_SIZES[-1]}"
