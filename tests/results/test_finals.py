"""What Assemble stores comes back as it was, whatever is in it."""

from llm_ocr.results.finals import finals_from_parquet, finals_to_parquet


def test_final_markdown_comes_back_by_page():
    rows = [("d-p00001", "# A\n\n![x](figure:f)"), ("d-p00002", ""), ("é/日本-p00003", "a\x00b \U0001f600 ```")]
    assert finals_from_parquet(finals_to_parquet(rows)) == dict(rows)
    assert finals_from_parquet(finals_to_parquet([])) == {}
