"""`retry-failed`: pages that failed are read again, and only what they touch is described and assembled again."""

from pathlib import Path

import bad_documents as bad
import pytest
from running import FRUGAL, FRUGALLY, cli, dataset_rows, published, said, status_of

import llm_ocr
from llm_ocr.types import Status

SECRET = "open sesame"
LOCKED_PAGES = 2


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """A folder with documents of which the second is encrypted, and a workspace in which it has failed."""
    folder = tmp_path_factory.mktemp("retry")
    (folder / "documents").mkdir()
    for name, password in (("a first", ""), ("b locked", SECRET), ("c last", "")):
        data = bad.text_pdf(*bad.good_pages(name, LOCKED_PAGES), password=password)
        (folder / "documents" / f"{name}.pdf").write_bytes(data)
    (folder / "secrets.txt").write_text(f"wrong\n{SECRET}\n")
    run = cli("run", "documents", "-w", "out", *FRUGAL, "--pages-per-unit", str(LOCKED_PAGES), cwd=folder)
    assert run.returncode == 3, said(run)
    assert "1 failed (encrypted: b locked.pdf)" in run.stdout
    return folder


def views(workspace: Path) -> dict[str, tuple[int, bytes]]:
    """Inode and content of every file of the dataset and of the documents."""
    files = [path for folder in ("dataset", "documents") for path in (workspace / folder).rglob("*") if path.is_file()]
    return {path.relative_to(workspace).as_posix(): (path.stat().st_ino, path.read_bytes()) for path in files}


@pytest.mark.slow
def test_encrypted_document_is_read_with_its_password(before):
    workspace = before / "out"
    old_views, old_markers = views(workspace), published(workspace)
    assert status_of(workspace)["pages"] == {"expected": 5, "ok": 4, "degraded": 0, "failed": 1}

    for command in (
        ["retry-failed", "--password-file", "secrets.txt"],
        ["extract", "--engine", "embedded", "--password-file", "secrets.txt"],
        ["describe", "--engine", "embedded"],
        ["assemble"],
    ):
        run = cli(*command, "-w", "out", cwd=before)
        assert run.returncode == 0, said(run)
        if command[0] == "extract":
            assert "extract: 2 pages\n" in run.stderr
            assert "extract: 2/2 pages, 2 ok in" in run.stderr

    status = status_of(workspace)
    assert status["pages"] == {"expected": 6, "ok": 6, "degraded": 0, "failed": 0}
    assert (status["generations"], status["reasons"], status["examples"]) == (2, {}, [])
    rows = list(llm_ocr.open(str(workspace)).pages(images=False))
    assert [(Path(row.source).stem, row.page_number) for row in rows] == [
        (name, number) for name in ("a first", "b locked", "c last") for number in (1, 2)
    ]
    assert all(row.status is Status.OK for row in rows)

    new_views = views(workspace)
    changed = {name for name in new_views if new_views[name] != old_views.get(name)}
    assert changed == {"documents/b locked.pdf.md", *changed_dataset_files(old_views, new_views)}
    assert len(changed) == 2
    text = new_views["documents/b locked.pdf.md"][1].decode()
    assert "b locked, sheet 2." in text
    assert "failed" not in text
    assert old_markers.items() <= published(workspace).items()
    assembled = dataset_rows(workspace, "sample_id")
    assert sorted(row["sample_id"] for row in assembled) == sorted(row.page_id for row in rows)
    assert SECRET not in everything_written(workspace)


def changed_dataset_files(old: dict[str, tuple[int, bytes]], new: dict[str, tuple[int, bytes]]) -> set[str]:
    return {name for name in new if name.startswith("dataset/") and new[name] != old.get(name)}


def everything_written(workspace: Path) -> str:
    """The texts of a workspace; page contents aside."""
    texts = [path.read_text() for path in workspace.rglob("*.json*")]
    return "\n".join([*texts, *(path.read_text() for path in workspace.rglob("*.done"))])


def test_a_retry_with_the_wrong_password_changes_nothing(tmp_path):
    (tmp_path / "locked.pdf").write_bytes(bad.text_pdf(["Locked."], password=SECRET))
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(["Good."]))
    run = cli("run", "locked.pdf", "good.pdf", "-w", "out", *FRUGAL, "--quiet", cwd=tmp_path)
    assert run.returncode == 3, said(run)
    (tmp_path / "secrets.txt").write_text("wrong\n")
    before = published(tmp_path / "out")
    retried = cli("retry-failed", "-w", "out", "--password-file", "secrets.txt", cwd=tmp_path)
    assert retried.returncode == 0, said(retried)
    assert "Nothing to retry" in retried.stderr
    assert published(tmp_path / "out") == before
    again = cli("run", "-w", "out", *FRUGAL, cwd=tmp_path)
    assert again.returncode == 3, said(again)


def test_a_retried_password_is_asked_for_again_and_never_stored(tmp_path):
    (tmp_path / "locked.pdf").write_bytes(bad.text_pdf(["Locked."], password=SECRET))
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(["Good."]))
    (tmp_path / "secrets.txt").write_text(f"{SECRET}\n")
    assert cli("run", "locked.pdf", "good.pdf", "-w", "out", *FRUGAL, cwd=tmp_path).returncode == 3
    retried = cli("retry-failed", "-w", "out", "--password-file", "secrets.txt", cwd=tmp_path)
    assert "Next: llm-ocr run -w out --password-file secrets.txt (passwords are not stored)" in retried.stdout
    before = published(tmp_path / "out")
    without = cli("run", "-w", "out", *FRUGAL, cwd=tmp_path)
    assert without.returncode == 2, said(without)
    assert "locked.pdf needs the password that retry-failed used" in without.stderr
    assert "Set the same --password-file as for retry-failed" in without.stderr
    assert published(tmp_path / "out") == before
    again = cli("run", "-w", "out", "--password-file", "secrets.txt", *FRUGAL, cwd=tmp_path)
    assert again.returncode == 0, said(again)
    assert status_of(tmp_path / "out")["pages"] == {"expected": 2, "ok": 2, "degraded": 0, "failed": 0}
    assert SECRET not in everything_written(tmp_path / "out")


@pytest.mark.parametrize("plans_first", [True, False])
def test_a_replaced_file_is_published_once(tmp_path, plans_first):
    source = tmp_path / "in" / "a.pdf"
    source.parent.mkdir()
    options = {"workspace": tmp_path / "w", **FRUGALLY}
    whole = bad.text_pdf(["The library has tall windows."], ["The river is wide."])
    source.write_bytes(whole[:200])
    assert llm_ocr.run(source.parent, **options).status.pages.failed == 1
    source.write_bytes(whole)
    if plans_first:
        llm_ocr.run(source.parent, **options)
    llm_ocr.retry_failed(workspace=tmp_path / "w")
    llm_ocr.run(**options)
    texts = [page.markdown.strip() for page in llm_ocr.run(source.parent, **options).pages()]
    assert [text for text in texts if text] == ["The library has tall windows.", "The river is wide."]


def test_a_replaced_file_is_read_under_its_manifest_id(tmp_path):
    source, manifest = tmp_path / "in" / "a.pdf", tmp_path / "list.jsonl"
    source.parent.mkdir()
    options = {"workspace": tmp_path / "w", **FRUGALLY}
    whole = bad.text_pdf(["The library has tall windows."])
    source.write_bytes(whole[:200])
    manifest.write_text('{"id": "invoice-1", "pdf_path": "in/a.pdf"}\n')
    llm_ocr.run(manifest, **options)
    source.write_bytes(whole)
    llm_ocr.run(source, **options)
    llm_ocr.retry_failed(workspace=tmp_path / "w")
    pages = llm_ocr.run(**options).pages()
    assert sorted(page.document_id == "invoice-1" for page in pages if page.markdown) == [False, True]


def test_pages_of_several_mended_files_are_assembled(tmp_path):
    (tmp_path / "in").mkdir()
    options = {"workspace": tmp_path / "w", **FRUGALLY}
    whole = bad.text_pdf(["The library has tall windows."], ["The river is wide."])
    for name in "abc":
        (tmp_path / "in" / f"{name}.pdf").write_bytes(whole + b"%" + name.encode() if name == "b" else whole[:200])
    llm_ocr.run(tmp_path / "in", pages_per_unit=2, **options)
    for name in "ac":
        (tmp_path / "in" / f"{name}.pdf").write_bytes(whole + b"%" + name.encode())
    llm_ocr.retry_failed(workspace=tmp_path / "w")
    assert llm_ocr.run(**options).status.pages.ok == 6
