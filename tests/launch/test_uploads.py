"""Documents of the machine that launches: put beside the workspace once, and again when they have changed."""

import os
import time

from llm_ocr.launch.uploads import uploaded
from llm_ocr.work.workspace import Workspace


def test_only_what_is_new_or_changed_is_uploaded_again_be_it_of_the_same_size(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.pdf", "b.pdf"):
        (folder / name).write_bytes(b"first")
    said: list[str] = []
    with Workspace.open(str(tmp_path / "w"), True) as workspace:
        (source,) = uploaded(workspace, [str(folder)], said.append)
        uploaded(workspace, [str(folder)], said.append)
        (folder / "b.pdf").write_bytes(b"other")
        os.utime(folder / "b.pdf", times=(time.time() + 60,) * 2)
        uploaded(workspace, [str(folder)], said.append)
        assert workspace.store.get("uploads/documents/in/b.pdf") == b"other"
    assert source == f"{workspace.url}/uploads/documents/in/"
    assert [line.partition(": ")[2].partition(" files")[0] for line in said] == ["2 of 2", "0 of 2", "1 of 2"]
