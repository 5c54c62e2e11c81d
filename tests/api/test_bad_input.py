"""What cannot be read ends as a failed row with its reason, and everything beside it is done: one real run over all."""

import json
from pathlib import Path

import bad_documents as bad
import pytest
from running import FRUGAL, Finished, assert_nothing_half_published, cli, dataset_rows, said, status_of

import llm_ocr
from llm_ocr.types import PageRecord, Reason, Status

SECRET = "open sesame"

#: Documents that no page can be had of, and why.
UNOPENED = {
    "empty.pdf": Reason.UNREADABLE,
    "truncated.pdf": Reason.UNREADABLE,
    "garbage.pdf": Reason.UNREADABLE,
    "no pages.pdf": Reason.UNREADABLE,
    "empty.png": Reason.UNREADABLE,
    "locked.pdf": Reason.ENCRYPTED,
    "bomb.png": Reason.RENDER_LIMIT,
    "gone.pdf": Reason.NOT_FOUND,
    "notes.docx": Reason.UNKNOWN_TYPE,
}
#: Pages that cost their renderer: what it may use is set low.
LIMITS = ("--render-timeout", "6", "--render-memory", "512")
BOMBS = {"paths.pdf": Reason.RENDER_TIMEOUT, "image.pdf": Reason.RENDER_LIMIT}
LIARS = ("shifted.pdf", "controls.pdf", "wrong layer.pdf")


class Outcome:
    """The run, its rows by file name, and where it is."""

    def __init__(self, run: Finished, workspace: Path) -> None:
        self.run = run
        self.workspace = workspace
        self.rows: dict[str, list[PageRecord]] = {}
        for page in llm_ocr.open(str(workspace)).pages(images=False):
            self.rows.setdefault(Path(page.source).name, []).append(page)


@pytest.fixture(scope="module")
def outcome(golden) -> Outcome:
    folder = golden("bad input", bad_input)
    run = json.loads((folder / "run.json").read_text())
    return Outcome(Finished(**run), folder / "out")


def bad_input(folder: Path) -> None:
    """Make the documents in the folder, run over all of them, and keep how the run ended."""
    documents = folder / "documents"
    documents.mkdir()
    paper = bad.text_pdf(*bad.good_pages("Truncated", 2))
    files = {
        "good.pdf": bad.text_pdf(*bad.good_pages("Good", 2)),
        "empty.pdf": b"",
        "truncated.pdf": paper[: len(paper) // 2],
        "garbage.pdf": bad.garbage(),
        "no pages.pdf": bad.no_pages(),
        "empty.png": b"",
        "locked.pdf": bad.text_pdf(*bad.good_pages("Locked", 2), password=SECRET),
        "bomb.png": bad.image_file_bomb(),
        "paths.pdf": bad.path_bomb("Before the paths.", "After the paths."),
        "image.pdf": bad.image_bomb("Before the image.", "After the image."),
        "blank.pdf": bad.blank(),
        "shifted.pdf": bad.lying_pdf(bad.SENTENCES, bad.shifted),
        "controls.pdf": bad.lying_pdf(bad.SENTENCES, bad.control_code),
        "wrong layer.pdf": bad.wrong_layer_pdf(bad.SENTENCES, [line[::-1] for line in bad.SENTENCES]),
        "unknown.xyz": b"skipped and counted",
    }
    for name, data in files.items():
        (documents / name).write_bytes(data)
    (folder / "notes.docx").write_bytes(b"PK\3\4 named explicitly")
    (folder / "a.pdf").write_bytes(bad.text_pdf(*bad.good_pages("Manifest", 2)))
    entry = {"document_id": "mine", "pdf_path": "a.pdf", "pages": [2, 7]}
    (folder / "list.jsonl").write_text(json.dumps(entry) + "\n")
    arguments = ("gone.pdf", "documents", "notes.docx", "list.jsonl", "-w", folder / "out", *FRUGAL, *LIMITS)
    (folder / "run.json").write_text(json.dumps(vars(cli("run", *arguments, cwd=folder))))


def test_exit_code_follows_policy_and_last_line_names_reasons(outcome):
    assert outcome.run.returncode == 3, said(outcome.run)
    last = outcome.run.stdout.splitlines()[-1]
    assert "failed (" in last
    assert "encrypted: locked.pdf" in last
    assert "llm-ocr retry-failed -w" in last


@pytest.mark.parametrize("name", UNOPENED)
def test_what_cannot_be_opened_is_one_failed_row_with_its_reason(outcome, name):
    (row,) = outcome.rows[name]
    assert (row.status, row.reason, row.page_number) == (Status.FAILED, UNOPENED[name], None)
    assert row.detail
    assert len(row.attempts) == 1


@pytest.mark.parametrize("name", BOMBS)
def test_page_that_costs_too_much_fails_and_neighbors_succeed(outcome, name):
    before, bomb, after = outcome.rows[name]
    assert (bomb.status, bomb.reason, bomb.page_number) == (Status.FAILED, BOMBS[name], 2)
    assert (before.status, after.status) == (Status.OK, Status.OK)
    assert before.markdown.startswith("Before the")
    assert after.markdown.startswith("After the")


def test_a_blank_page_is_ok_empty_and_marked_blank(outcome):
    (page,) = outcome.rows["blank.pdf"]
    assert (page.status, page.markdown, page.blank, page.blocks) == (Status.OK, "", True, ())


@pytest.mark.parametrize("name", LIARS)
def test_wrong_text_layer_is_replaced_by_ocr_and_recorded(outcome, name):
    (page,) = outcome.rows[name]
    assert (page.status, page.text_source) == (Status.OK, "ocr")
    for sentence in bad.SENTENCES:
        assert squeezed(sentence) in squeezed(page.markdown)


def test_a_true_text_layer_stays(outcome):
    assert [page.text_source for page in outcome.rows["good.pdf"]] == ["text-layer", "text-layer"]
    assert all(bad.SENTENCES[3] in " ".join(page.markdown.split()) for page in outcome.rows["good.pdf"])


def squeezed(text: str) -> str:
    """Letters alone: what a reader of pixels makes of spaces and stops is tested elsewhere."""
    return "".join(character for character in text.lower() if character.isalpha())


def test_status_dataset_and_markdown_account_for_every_page(outcome):
    rows = [row for rows in outcome.rows.values() for row in rows]
    failed = [row for row in rows if row.status is Status.FAILED]
    pages = status_of(outcome.workspace)["pages"]
    assert pages == {"expected": len(rows), "ok": len(rows) - len(failed), "degraded": 0, "failed": len(failed)}
    table = dataset_rows(outcome.workspace, "sample_id", "status", "reason")
    assert {row["sample_id"]: (row["status"], row["reason"] or None) for row in table} == {
        row.page_id: (row.status.value, row.reason.value if row.reason else None) for row in rows
    }
    documents = outcome.workspace / "documents"
    assert (documents / "locked.pdf.md").read_text() == "<!-- document failed: encrypted -->\n"
    assert "<!-- page 2 failed: render timeout -->" in (documents / "paths.pdf.md").read_text()


def test_skipped_files_are_counted_and_nothing_is_half_published(outcome):
    assert status_of(outcome.workspace)["skipped"] == {".xyz": 1}
    assert ".xyz" in outcome.run.stderr
    assert_nothing_half_published(outcome.workspace)


def test_plan_names_documents_that_cannot_be_read(tmp_path):
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(*bad.good_pages("good", 1)))
    (tmp_path / "list.txt").write_text("\n".join(["good.pdf", *(f"gone{number}.pdf" for number in range(7))]))
    planned = cli("plan", "list.txt", "-w", "out", cwd=tmp_path)
    assert planned.returncode == 0, said(planned)
    assert "7 documents cannot be read, and will be `failed` (not found 7): " in planned.stderr
    assert "gone4.pdf (no such file), ...\n" in planned.stderr
    assert "cannot be read" not in cli("plan", "list.txt", "-w", "out", cwd=tmp_path).stderr


def test_finished_run_repeats_its_last_line(outcome):
    again = cli("extract", "-w", outcome.workspace, *FRUGAL, cwd=outcome.workspace.parent)
    assert again.returncode == 3, said(again)
    assert again.stdout.splitlines()[-1] == outcome.run.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["gone.pdf", "notes.docx"], "notes.docx"),
        (["empty folder"], "empty folder"),
        (["only others"], "only others"),
        (["only others/*.pdf"], "*.pdf"),
        (["good.pdf", "--only", "other.pdf"], "other.pdf"),
        ([], "source"),
    ],
)
def test_nothing_to_do_exits_with_2_and_names_accepted_input(tmp_path, arguments, named):
    for folder in ("empty folder", "only others"):
        (tmp_path / folder).mkdir()
    (tmp_path / "only others" / "a.txt.bak").write_text("x")
    (tmp_path / "notes.docx").write_bytes(b"PK\3\4")
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(["Good."]))
    run = cli("run", *arguments, "-w", "out", cwd=tmp_path)
    assert run.returncode == 2, said(run)
    assert named in run.stderr
    assert "PDF, PNG, JPEG" in run.stderr or not arguments
    assert not (tmp_path / "out").exists()


def test_missing_page_in_a_manifest_fails_that_page_only(outcome):
    assert [(page.page_id, page.status.value, page.reason) for page in outcome.rows["a.pdf"]] == [
        ("mine-p00002", "ok", None),
        ("mine-p00007", "failed", Reason.NO_SUCH_PAGE),
    ]
