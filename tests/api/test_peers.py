"""What the comparison with other clients counts: pages read, lost and failed, each in that client's own output."""

import json
import sys
from pathlib import Path

import pytest
from export_workspaces import PAGES, make

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"
if not PEERS.is_dir():
    pytest.skip("the benchmarks are no part of an installed package", allow_module_level=True)
sys.path.append(str(PEERS))

import peer_outputs  # noqa: E402
from peer_outputs import Found  # noqa: E402


def test_pages_of_a_workspace_are_counted(tmp_path):
    make(str(tmp_path), 2, fails=frozenset({"1.pdf"}))
    found = peer_outputs.of_ours(tmp_path, {"/in/0.pdf": PAGES, "/in/1.pdf": PAGES, "/in/never-read.pdf": 2})
    assert found == Found(pages=2 * PAGES + 2, text=PAGES, fallback=0, looped=0, failed=PAGES, lost=2, documents_lost=2)


def test_pages_of_olmocr_are_counted_by_their_places_in_the_text(tmp_path):
    text = "first page\nloop\n" + "again and again\n" * 30
    document = {
        "text": text,
        "attributes": {"pdf_page_numbers": [[0, 11, 1], [11, len(text), 2], [len(text), len(text), 3]]},
        "metadata": {"Source-File": "a.pdf", "total-fallback-pages": 1},
    }
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "output_1.jsonl").write_text(json.dumps(document) + "\n")
    found = peer_outputs.of_olmocr(tmp_path, {"a.pdf": 3, "thrown-away.pdf": 4})
    assert found == Found(pages=7, text=2, fallback=1, looped=1, failed=0, lost=5, documents_lost=1)


def test_lockstep_pages_are_counted_with_recorded_failures(tmp_path):
    import datasets

    rows = [{"sample_id": f"a.pdf-{number}", "document_markdown": text} for number, text in ((1, "text"), (2, " "))]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "dataset"))
    (tmp_path / "manifest.json").write_text(json.dumps({"failed": [{"page": "b.pdf-1", "error": "500"}]}))
    found = peer_outputs.of_lockstep(tmp_path, {"x/a.pdf": 2, "x/b.pdf": 1})
    assert found == Found(pages=3, text=1, fallback=0, looped=0, failed=1, lost=1, documents_lost=1)


def test_clients_that_wrote_nothing_have_lost_everything(tmp_path):
    nothing = Found(pages=2, text=0, fallback=0, looped=0, failed=0, lost=2, documents_lost=1)
    for count in (peer_outputs.of_ours, peer_outputs.of_olmocr, peer_outputs.of_lockstep):
        assert count(tmp_path / "none", {"a.pdf": 2}) == nothing
