"""The dataset card: front matter that readers understand, and what an export may replace."""

import json

import pytest
import yaml
from markdown_it import MarkdownIt

from llm_ocr.results.dataset import named_files, read_card, with_configs
from llm_ocr_outputs.exports.card import CardFacts, card


def facts(**changes) -> CardFacts:
    values = {
        "workspace": "0123456789abcdef",
        "title": "scans",
        "version": "1.0",
        "rows": 5,
        "documents": 2,
        "counts": (("Pages", 3, 1, 1),),
    }
    return CardFacts(**(values | changes))


def front_of(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


@pytest.mark.parametrize(
    ("rows", "category"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (999_999, "100K<n<1M"), (10_000_000, "10M<n<100M"),
     (10**9, "1B<n<10B"), (10**12, "n>1T"), (10**15, "n>1T")],
)  # fmt: skip
def test_sizes_are_called_as_on_the_hub(rows, category):
    assert front_of(card(facts(rows=rows), {}))["size_categories"] == [category]


def test_a_card_of_ours_is_known_again_with_its_workspace():
    standing = read_card(card(facts(), {"license": "mit"}))
    assert standing.free
    assert standing.workspace == "0123456789abcdef"
    assert card(facts(), standing.front) == card(facts(), {"license": "mit"})


def test_a_card_before_the_files_says_so_and_is_ours():
    text = card(facts(), {}, whole=False)
    assert "An export is in progress" in text
    assert "Pages" not in text
    assert read_card(text).workspace == "0123456789abcdef"


@pytest.mark.parametrize("text", ["", "---\nlicense: mit\n---\n", "---\r\nlicense: mit\r\n---\r\n\r\n", "---\n{}\n---"])
def test_what_says_nothing_but_front_matter_may_be_replaced(text):
    assert read_card(text).free
    assert read_card(text).workspace == ""


@pytest.mark.parametrize(
    "text",
    [
        *("# Mine", "---\nlicense: mit\n---\n# Mine", "---\n[broken\n---\n", "---\n- a list\n---\n", "---\nno end"),
        *("---\ndataset_info: {}\n---\n", "---\nconfigs: []\n---\n"),
    ],
)
def test_what_others_wrote_may_not(text):
    assert not read_card(text).free


def test_what_is_said_of_older_files_does_not_stay():
    front = front_of(card(facts(), {"dataset_info": {"splits": []}, "configs": [], "license": "mit"}))
    assert "dataset_info" not in front
    assert front["configs"][0]["config_name"] == "default"
    assert front["license"] == "mit"


def test_a_reader_of_markdown_and_yaml_is_not_confused_by_names():
    text = card(
        facts(title="a | b", engine="x | y\nz", settings={"prompt": "```\n---\n| a |"}), {"pretty_name": "ä: b"}
    )
    assert front_of(text)["pretty_name"] == "ä: b"
    assert "| Engine | x \\| y z |" in text
    (fence,) = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]
    assert json.loads(fence.content) == {"prompt": "```\n---\n| a |"}


def test_the_notice_of_a_licence_is_shown():
    assert "Not for use in X." in card(facts(model="m", licence="L", notice="Not for use in X."), {})


def test_user_card_gets_the_data_files_and_keeps_everything_else():
    ours = "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: dataset/*.parquet\n"
    assert with_configs("", "dataset/*.parquet") == f"---\n{ours}---\n"
    mine = "---\nlicense: mit  # mine\n---\n# My scans\n"
    assert with_configs(mine, "dataset/*.parquet") == f"---\nlicense: mit  # mine\n{ours}---\n# My scans\n"
    assert with_configs("# My scans\n", "dataset/*.parquet") == f"---\n{ours}---\n# My scans\n"
    for own in (f"---\n{ours}---\n", "---\nconfigs: []\n---\n", "---\na: [\n---\n"):
        assert with_configs(own, "dataset/*.parquet") == own


def test_only_our_own_configuration_gets_other_files():
    preview = "preview/train-0123456789ab-*.parquet"
    card = with_configs("---\nlicense: mit  # mine\n---\n# My scans\n", preview)
    assert (named_files(card), named_files("# My scans\n"), named_files("---\na: [\n---\n")) == (preview, "", None)
    after = with_configs(card, "dataset/*.parquet")
    assert after == card.replace(preview, "dataset/*.parquet")
    for old, new in (("split: train", "split: test"), ("preview/train", "mine/train"), ("default", "pages")):
        own = card.replace(old, new)
        assert named_files(own) is None
        assert with_configs(own, "dataset/*.parquet") == own
