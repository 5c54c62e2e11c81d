"""`export --format dataset --drop-over-error-rate`: rows of documents with too many bad pages stay out."""

import json
import shutil
from pathlib import Path

from export_workspaces import files_of, loaded, make, raw, retry, shards

import llm_ocr

#: Two files of 3 documents each; the bad one is in the second.
SHARD = {"shard_size": 3}


def export(workspace, output, **more):
    return llm_ocr.export(workspace=workspace, output=output, **SHARD, **more)


def sources(folder: Path) -> set[str]:
    return {row["source"] for row in raw(loaded(folder))}


def test_the_rows_of_bad_documents_are_left_out_and_listed(standing, tmp_path):
    done = export(standing, tmp_path / "o", drop_over_error_rate=True)
    assert (done.rows, done.dropped) == (15, 1)
    rows = raw(loaded(tmp_path / "o"))
    assert rows == [row for row in raw(llm_ocr.open(standing).to_dataset()) if row["source"] != "/in/4.pdf"]
    (told,) = (json.loads(line) for line in (tmp_path / "o/dropped-documents.jsonl").open())
    assert (told["source"], told["pages"], told["failed"], told["error_rate"]) == ("/in/4.pdf", 3, 3, 1.0)
    assert told["reasons"] == ["engine timeout"]


def test_the_card_tells_of_them(standing, tmp_path):
    export(standing, tmp_path / "o", drop_over_error_rate=True)
    card = (tmp_path / "o/README.md").read_text()
    assert "5 documents, read page by page" in card
    assert "1 more document had too many bad pages" in card


def test_only_shards_that_lose_rows_get_other_names(standing, tmp_path):
    export(standing, tmp_path / "o")
    before = shards(tmp_path / "o")
    done = export(standing, tmp_path / "o", drop_over_error_rate=True)
    after = shards(tmp_path / "o")
    assert done.written == 1
    assert len(before.keys() & after.keys()) == 1
    assert before.items() & after.items()


def test_a_second_export_writes_nothing_and_one_of_all_documents_is_as_ever(standing, tmp_path):
    export(standing, tmp_path / "all")
    export(standing, tmp_path / "o", drop_over_error_rate=True)
    before = files_of(tmp_path / "o")
    assert export(standing, tmp_path / "o", drop_over_error_rate=True).written == 0
    assert files_of(tmp_path / "o") == before
    export(standing, tmp_path / "o")
    assert {name: data for name, data in files_of(tmp_path / "o").items() if name != "README.md"} == {
        name: data for name, data in files_of(tmp_path / "all").items() if name != "README.md"
    }


def test_a_rate_that_is_not_passed_leaves_nothing_out(standing, tmp_path):
    done = export(standing, tmp_path / "o", drop_over_error_rate=True, max_page_error_rate=1.0)
    assert (done.rows, done.dropped) == (18, 0)
    assert not (tmp_path / "o/dropped-documents.jsonl").exists()


def test_a_document_that_was_read_later_comes_in(standing, tmp_path):
    workspace = shutil.copytree(standing, tmp_path / "w")
    export(workspace, tmp_path / "o", drop_over_error_rate=True)
    retry(str(workspace))
    done = export(workspace, tmp_path / "o", drop_over_error_rate=True)
    assert (done.rows, done.dropped, done.written) == (18, 0, 1)
    assert "/in/4.pdf" in sources(tmp_path / "o")
    assert not (tmp_path / "o/dropped-documents.jsonl").exists()


def test_when_all_documents_are_bad_no_shard_is_left(tmp_path):
    workspace = make(str(tmp_path / "w"), 2, fails=frozenset({"0.pdf", "1.pdf"}))
    done = export(workspace, tmp_path / "o", drop_over_error_rate=True)
    assert (done.rows, done.files, done.dropped) == (0, 0, 2)
    assert len((tmp_path / "o/dropped-documents.jsonl").read_text().splitlines()) == 2
