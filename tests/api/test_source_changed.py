"""What is read is what was planned: a file that changed or went away in between is a failed page, not another text."""

import shutil

import llm_ocr
from llm_ocr.types import Reason


def test_a_file_that_changed_or_vanished_after_planning_fails_by_name(tmp_path, examples):
    for name in ("same.pdf", "changed.pdf", "gone.pdf"):
        shutil.copy(examples / "paper.pdf", tmp_path / name)
        with (tmp_path / name).open("ab") as file:
            file.write(f"\n% {name}\n".encode())
    sources = [tmp_path / name for name in ("same.pdf", "changed.pdf", "gone.pdf")]
    llm_ocr.plan(sources, workspace=tmp_path / "w", pages="1", engine="embedded")
    shutil.copy(examples / "scan.pdf", tmp_path / "changed.pdf")
    (tmp_path / "gone.pdf").unlink()
    run = llm_ocr.extract(workspace=tmp_path / "w")
    reasons = {page.source.rsplit("/", 1)[-1]: page.reason for page in run.pages(images=False)}
    assert reasons == {"same.pdf": None, "changed.pdf": Reason.SOURCE_CHANGED, "gone.pdf": Reason.NOT_FOUND}
