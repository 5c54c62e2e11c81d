"""Documents of small pages, all different, and what a run over them gives that nothing disturbs."""

import os
from pathlib import Path

import pytest
from faulty import DOCUMENTS, PAGES, PAGES_EACH, accounted, asked, extract, image_hashes, simulator, texts
from reportlab.pdfgen import canvas


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("LLM_OCR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def documents(golden) -> Path:
    """Documents of small pages, all different."""
    return golden("faults documents", make_documents)


def make_documents(folder: Path) -> None:
    """Write the documents into a folder."""
    for number in range(DOCUMENTS):
        made = canvas.Canvas(str(folder / f"{number}.pdf"), pagesize=(300, 400), invariant=1)
        for page in range(1, PAGES_EACH + 1):
            made.setFont("Helvetica", 48)
            made.drawString(30, 340, f"{number} - {page}")
            made.setFont("Helvetica", 14)
            for line in range(16):  # down the whole page, so that crops of it differ too
                made.drawString(30, 20 * line + 10, f"This is page {page} of document {number}, line {line}.")
            made.showPage()
        made.save()


@pytest.fixture(scope="session")
def undisturbed(documents, golden) -> Path:
    """The workspace of a run without faults."""

    def make(folder: Path) -> None:
        with simulator() as server:
            run = extract(documents, folder / "w", server_url=server.url)
            assert run.code == 0, run.said
            assert asked(server).total() == len(asked(server)) == PAGES
        accounted(folder / "w")

    return golden("faults undisturbed", make) / "w"


@pytest.fixture(scope="session")
def clean(undisturbed) -> dict[str, str]:
    """The Markdown of every page without faults; each holds the word that the simulator made of that page's image."""
    found = texts(undisturbed)
    assert all(f"page-{image[:12]}" in found[page] for page, image in image_hashes(undisturbed).items())
    return found


@pytest.fixture(scope="session")
def images(undisturbed) -> dict[str, str]:
    """How the simulator names the image of each page."""
    return image_hashes(undisturbed)
