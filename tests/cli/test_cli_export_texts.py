"""llm-ocr export in the formats of texts: what is said, and the exit codes."""

import pytest


@pytest.mark.parametrize(
    ("form", "rows", "opened"),
    [
        ("jsonl", "2 pages in 1 file (", 'load_dataset("json", data_files="{}/successes/*.jsonl", split="train")'),
        ("json", "1 document in 1 file (", "Open it: the .json files in {}/documents"),
        ("markdown", "1 document in ", "Open it: the .md files in {}/documents"),
    ],
)
def test_rows_are_called_what_they_are(llm_ocr, workspace, tmp_path, form, rows, opened):
    done = llm_ocr("export", "-w", "out", "--output", "texts", "--format", form)
    assert done.returncode == 0, done.stderr
    where, how = done.stdout.splitlines()
    assert where.startswith(rows)
    assert where.endswith(f"newly written): {tmp_path}/texts")
    assert opened.format(tmp_path / "texts") in how
    assert f"{form}: 2/2 pages" in done.stderr


def test_another_format_at_the_same_place_is_exit_1(llm_ocr, workspace):
    assert llm_ocr("export", "-w", "out", "--output", "texts", "--format", "json", "--quiet").returncode == 0
    done = llm_ocr("export", "-w", "out", "--output", "texts", "--format", "jsonl", "--quiet")
    assert done.returncode == 1
    assert "the format json" in done.stderr
    assert "--output" in done.stderr
