"""What each client says that it has read, counted in its own output."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import llm_ocr

#: A line that stands so often on one page is taken for a loop of the model: no answer of the simulator has that else.
LOOPED = 20
#: Where the text of a page comes from that the model could not read.
NOT_THE_MODEL = ("text-layer", "ocr")


@dataclass(frozen=True, slots=True)
class Found:
    """Pages unless said otherwise. `pages = text + failed + lost`.

    `text`: with text; of these `fallback` have it from elsewhere than the model, and say so, and `looped` repeat a line
    over and over; `failed`: without text, and recorded as failed; `lost`: without text, and nothing in the output says
    why; `documents_lost`: documents none of whose pages is in the output.
    """

    pages: int
    text: int
    fallback: int
    looped: int
    failed: int
    lost: int
    documents_lost: int

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def looped(text: str) -> bool:
    """Whether the text is a loop."""
    lines = Counter(line for line in text.splitlines() if line.strip())
    return any(count >= LOOPED for count in lines.values())


def of_ours(workspace: Path, documents: Mapping[str, int]) -> Found:
    """A workspace after Extract. `documents`: pages by path."""
    if not (workspace / "extract" / "key.json").exists():
        return _found(documents, Counter(), 0, 0, 0)
    read: Counter[str] = Counter()
    fallback = loops = failed = 0
    for row in llm_ocr.open(str(workspace)).pages(images=False):
        if row.status == "failed":
            failed += 1
        elif row.markdown.strip():
            read[row.source] += 1
            fallback += row.text_source in NOT_THE_MODEL
            loops += looped(row.markdown)
    return _found(documents, read, fallback, loops, failed)


def of_olmocr(workspace: Path, documents: Mapping[str, int]) -> Found:
    """Its results: a line of JSON a document, with the places of its pages in the text."""
    read: Counter[str] = Counter()
    fallback = loops = 0
    for file in sorted((workspace / "results").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            document = json.loads(line)
            spans = document["attributes"]["pdf_page_numbers"]
            texts = [document["text"][start:end] for start, end, _page in spans]
            read[document["metadata"]["Source-File"]] += sum(bool(text.strip()) for text in texts)
            fallback += document["metadata"]["total-fallback-pages"]
            loops += sum(map(looped, texts))
    return _found(documents, read, fallback, loops, 0)


def of_lockstep(output: Path, documents: Mapping[str, int]) -> Found:
    """Its dataset, and the failures in the manifest beside it."""
    import datasets

    read: Counter[str] = Counter()
    loops = failed = 0
    names = {Path(path).name: path for path in documents}
    if (output / "dataset").exists():
        rows = datasets.load_from_disk(str(output / "dataset")).select_columns(["sample_id", "document_markdown"])
        for row in rows:
            if row["document_markdown"].strip():
                read[names[row["sample_id"].rpartition("-")[0]]] += 1
                loops += looped(row["document_markdown"])
    if (output / "manifest.json").exists():
        failed = len(json.loads((output / "manifest.json").read_text())["failed"])
    return _found(documents, read, 0, loops, failed)


def _found(documents: Mapping[str, int], read: Counter[str], fallback: int, loops: int, failed: int) -> Found:
    pages, text = sum(documents.values()), read.total()
    none = sum(not read[path] for path in documents)
    return Found(pages, text, fallback, loops, failed, pages - text - failed, none)
