"""`export --format chunks`: passages of real documents, their sizes, and that the usual readers take them."""

import json
import re
import sys
from pathlib import Path

import pytest
from export_workspaces import files_of, make

import llm_ocr
from llm_ocr.errors import MissingExtra, UsageError
from llm_ocr.types import FURNITURE

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def workspace(paper_workspace) -> Path:
    return paper_workspace


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    """A tokenizer with the settings of a model's input, which must not limit what is counted."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(["the level of the river"], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    made.enable_truncation(16)
    made.enable_padding(length=16)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


def export(workspace, output, **more):
    return llm_ocr.export(workspace=workspace, output=output, format="chunks", **more)


def passages(output: Path) -> list[dict]:
    return [json.loads(line) for path in sorted((output / "chunks").iterdir()) for line in path.open()]


def test_passages_have_all_fields_and_their_headings(workspace, tmp_path):
    done = export(workspace, tmp_path / "o")
    found = passages(tmp_path / "o")
    assert (done.rows, done.unit, done.files) == (len(found), "passages", 1)
    assert len({one["id"] for one in found}) == len(found)
    assert [one["index"] for one in found] == list(range(len(found)))
    assert all(len(one["text"]) == one["characters"] <= 2000 and one["tokens"] is None for one in found)
    routine = next(one for one in found if "Chalk the result" in one["text"])
    assert routine["heading_path"][1:] == ["3 Method", "3.2 The Daily Routine"]
    assert (routine["page_first"], routine["page_last"], routine["kinds"]) == (2, 2, ["heading", "text", "list_item"])
    assert all(0 <= box["x0"] < box["x1"] <= 1 and box["page"] == 2 for box in routine["boxes"])
    assert all(one["source"].endswith("paper.pdf") for one in found)


def test_figures_keep_captions_and_have_files_in_workspace(workspace, tmp_path):
    export(workspace, tmp_path / "o")
    shown = [one for one in passages(tmp_path / "o") if one["figures"]]
    figures = [figure for one in shown for figure in one["figures"]]
    assert len(figures) == 4
    assert all((workspace / figure["image"]).is_file() and not figure["description"] for figure in figures)
    captions = [caption for one in shown for caption in re.findall(r"Figure \d: ", one["text"])]
    assert sorted(captions) == [f"Figure {number}: " for number in range(1, 5)]  # each once
    assert not any("Upper Tarn; Mill Weir" in one["text"] or "Text inside" in one["text"] for one in shown)


def letters(text: str) -> str:
    return re.sub(r"\W+", "", text)


@pytest.mark.parametrize("size", [150, 600, 2000])
def test_the_text_of_every_block_is_in_the_passages(workspace, tmp_path, size):
    export(workspace, tmp_path / "o", chunk_size=size, chunk_overlap=0)
    whole = letters("".join(one["text"] for one in passages(tmp_path / "o")))
    for row in llm_ocr.open(workspace).pages():
        for block in row.blocks:
            if block.kind not in FURNITURE and block.kind != "table":
                assert letters(block.text) in whole


def test_a_limit_in_tokens_is_kept_and_told(workspace, tokenizer, tmp_path):
    from tokenizers import Tokenizer

    export(workspace, tmp_path / "o", tokenizer=str(tokenizer), chunk_size=300, chunk_overlap=60)
    counting = Tokenizer.from_file(str(tokenizer))
    counting.no_truncation()
    counting.no_padding()
    found = passages(tmp_path / "o")
    assert [one["tokens"] for one in found] == [len(counting.encode(one["text"]).ids) for one in found]
    assert max(one["tokens"] for one in found) <= 300
    assert any(one["overlap"] for one in found)


def test_parquet_holds_the_same_rows(workspace, tmp_path, monkeypatch):
    import datasets
    import pandas

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    lines = export(workspace, tmp_path / "lines")
    done = export(workspace, tmp_path / "o", chunk_format="parquet")
    wanted = passages(tmp_path / "lines")
    assert done.rows == len(wanted)
    assert eval(done.load, {"load_dataset": datasets.load_dataset}).to_list() == wanted
    assert eval(lines.load, {"load_dataset": datasets.load_dataset}).to_list() == wanted
    (path,) = (tmp_path / "o/chunks").iterdir()
    assert list(pandas.read_parquet(path)["text"]) == [one["text"] for one in wanted]


def test_new_limits_replace_passages_and_same_ones_write_nothing(workspace, tmp_path):
    export(workspace, tmp_path / "o")
    before = files_of(tmp_path / "o")
    assert export(workspace, tmp_path / "o").written == 0
    assert files_of(tmp_path / "o") == before
    assert export(workspace, tmp_path / "o", chunk_size=300).written == 1
    assert len(list((tmp_path / "o/chunks").iterdir())) == 1
    export(workspace, tmp_path / "o")
    assert files_of(tmp_path / "o") == before


def test_pages_that_failed_have_no_passages(tmp_path):
    workspace = make(str(tmp_path / "w"), 3, fails=frozenset({"0.pdf", "1.pdf", "2.pdf"}))
    done = export(workspace, tmp_path / "o")
    assert (done.rows, done.files) == (0, 0)


def test_what_is_no_tokenizer_is_told(workspace, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="the library tokenizers cannot read"):
        export(workspace, tmp_path / "o", tokenizer=str(tmp_path))
    with pytest.raises(UsageError, match="does not exist"):
        export(workspace, tmp_path / "o", tokenizer=str(tmp_path / "other.json"))
    with pytest.raises(UsageError, match="neither a file nor the name of a model"):
        export(workspace, tmp_path / "o", tokenizer="a/b/c")


def test_without_the_library_the_package_is_named(workspace, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r'pip install "tokenizers'):
        export(workspace, tmp_path / "o", tokenizer=str(tokenizer))


def test_an_overlap_that_leaves_no_room_is_told(workspace, tmp_path):
    with pytest.raises(UsageError, match="`chunk_overlap=60` is more than half"):
        export(workspace, tmp_path / "o", chunk_size=100, chunk_overlap=60)


def test_real_tables_repeat_their_header_in_each_passage(shared_pdfs, tmp_path):
    llm_ocr.run(shared_pdfs / "untable.pdf", workspace=tmp_path / "w", engine="embedded", render_workers=1)
    export(tmp_path / "w", tmp_path / "o", chunk_size=800)
    tables = [one["text"] for one in passages(tmp_path / "o") if one["kinds"] == ["table"]]
    assert len(tables) > 5
    assert len({tuple(text.split("\n")[:2]) for text in tables}) == 1
    assert all(len(text) <= 800 for text in tables)
