"""Converts documents with one other program: run by the Python of that program's own environment.

    python peer_runner.py PEER JOB.json

The job names the input files and an empty folder for what comes out. Each peer is called as its documentation says for
Markdown (text where it has no Markdown), in one process, with its defaults. One JSON line at the end says how many
characters came out and which files failed.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def pdftotext() -> Callable[[str], str]:
    def convert(path: str) -> str:
        return subprocess.run(["pdftotext", path, "-"], check=True, capture_output=True).stdout.decode()

    return convert


def pypdf() -> Callable[[str], str]:
    from pypdf import PdfReader

    def convert(path: str) -> str:
        return "\n\n".join(page.extract_text() for page in PdfReader(path).pages)

    return convert


def pdfplumber() -> Callable[[str], str]:
    import pdfplumber as library

    def convert(path: str) -> str:
        parts: list[str] = []
        with library.open(path) as document:
            for page in document.pages:
                parts.append(page.extract_text())
                parts += ["\n".join(" | ".join(cell or "" for cell in row) for row in t) for t in page.extract_tables()]
                page.close()
        return "\n\n".join(parts)

    return convert


def markitdown() -> Callable[[str], str]:
    from markitdown import MarkItDown

    converter = MarkItDown()

    def convert(path: str) -> str:
        return str(converter.convert(path).markdown)

    return convert


def kreuzberg() -> Callable[[str], str]:
    """Tesseract, which is built in, reads pages that have no text layer; it takes Debian's language data."""
    from kreuzberg import ExtractionConfig, OcrConfig, extract_file_sync

    ocr = OcrConfig(backend="tesseract", language="eng")
    config = ExtractionConfig(use_cache=False, output_format="markdown", ocr=ocr)

    def convert(path: str) -> str:
        return str(extract_file_sync(path, config=config).content)

    return convert


def pdf_oxide() -> Callable[[str], str]:
    from pdf_oxide import PdfDocument

    def convert(path: str) -> str:
        return str(PdfDocument(path).to_markdown_all())

    return convert


def pdf_inspector() -> Callable[[str], str]:
    from pdf_inspector import process_pdf

    def convert(path: str) -> str:
        return str(process_pdf(path).markdown or "")

    return convert


def one_by_one(prepare: Callable[[], Callable[[str], str]], files: Sequence[str], folder: Path) -> list[str]:
    """The usual way: file after file in this process. Returns what failed."""
    convert = prepare()
    failed = []
    for index, path in enumerate(files):
        try:
            text = convert(path)
        except Exception as error:  # noqa: BLE001 - whatever another program raises is its result for this file
            failed.append(f"{Path(path).name}: {type(error).__name__}: {error}"[:200])
            continue
        (folder / f"{index:05d}.md").write_text(text, encoding="utf-8", errors="replace")
    return failed


def opendataloader(files: Sequence[str], folder: Path) -> list[str]:
    """One Java process for all files, as its documentation advises."""
    import opendataloader_pdf

    # It ends with an error when one file of many fails; what came out of the others stands.
    with contextlib.suppress(subprocess.CalledProcessError):
        opendataloader_pdf.convert(list(files), output_dir=str(folder), format="markdown", quiet=True)
    return [f"{Path(path).name}: nothing came out" for path in files if not (folder / f"{Path(path).stem}.md").exists()]


def tesseract(files: Sequence[str], folder: Path) -> list[str]:
    """One process for all images, so that the model is loaded once."""
    listing = folder / "images.list"
    listing.write_text("\n".join(files) + "\n")
    command = ["tesseract", str(listing), str(folder / "all"), "-l", "eng"]
    done = subprocess.run(command, check=False, capture_output=True)
    listing.unlink()
    (folder / "all.txt").rename(folder / "all.md")
    return [] if done.returncode == 0 else [done.stderr.decode(errors="replace")[-200:]]


ONE_BY_ONE = {
    "pdftotext": pdftotext,
    "pypdf": pypdf,
    "pdfplumber": pdfplumber,
    "markitdown": markitdown,
    "kreuzberg": kreuzberg,
    "pdf_oxide": pdf_oxide,
    "pdf-inspector": pdf_inspector,
}
AT_ONCE = {"opendataloader-pdf": opendataloader, "tesseract": tesseract}


def main() -> int:
    name, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    folder = Path(job["output"])
    if name in AT_ONCE:
        failed = AT_ONCE[name](job["files"], folder)
    else:
        failed = one_by_one(ONE_BY_ONE[name], job["files"], folder)
    characters = sum(len(path.read_text(encoding="utf-8", errors="replace")) for path in folder.glob("*.md"))
    print(json.dumps({"characters": characters, "failed": failed}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
