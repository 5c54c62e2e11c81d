"""Keys: results of different settings never stand together."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_ocr.cli.output import with_flags
from llm_ocr.errors import StageMissing, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.types import Counts
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import (
    ASSEMBLE,
    DESCRIBE,
    EXTRACT,
    VIEW_NOTES,
    Claim,
    Origin,
    assembled_key,
    claim_key,
    key_of,
    need_same_version,
    newest_key,
    required_key,
)
from llm_ocr.workspace.keys import stage_keys as keys
from llm_ocr.workspace.publish import publish
from llm_ocr.workspace.summaries import Summary


def test_a_key_is_12_hex_of_the_settings_whatever_their_order():
    assert key_of({"a": 1, "b": {"c": [1, 2], "d": "é"}}) == key_of({"b": {"d": "é", "c": [1, 2]}, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert len(key_of({})) == 12
    assert set(key_of({})) <= set("0123456789abcdef")


def test_keys_do_not_change_between_versions():
    assert key_of({"engine": "embedded", "image_size": 1540}) == "2c8447186eb2"


def test_settings_that_are_not_json_have_no_key():
    for value in (object(), float("nan")):
        with pytest.raises((TypeError, ValueError)):
            key_of({"a": value})


def test_another_extract_key_is_refused_and_the_difference_shown(workspace):
    settings = {"image_size": 1540, "engine": {"name": "embedded", "version": 1}}
    key = claim_key(workspace, EXTRACT, settings)
    assert claim_key(workspace, EXTRACT, settings) == key
    with pytest.raises(WorkspaceMismatch) as caught:
        claim_key(workspace, EXTRACT, {"image_size": 1024, "engine": {"name": "embedded", "version": 2}, "new": "x"})
    shown = str(caught.value)
    for line in ("`image_size`: 1540 -> 1024", "engine.version: 1 -> 2", "`new`: not set -> 'x'"):
        assert line in shown
    assert "engine.name" not in shown
    assert [one.key for one in keys(workspace, EXTRACT)] == [key]


def test_a_refusal_names_the_settings_of_the_user(workspace):
    render = {"image_size": 1540, "scan_size": 2560}
    Claim(workspace, EXTRACT, {"render": render}, Origin({"pages_per_unit": 5}, "run")).take()
    other = Claim(workspace, EXTRACT, {"render": {"image_size": 400}}, Origin({"image_size": 400}, "run"))
    with pytest.raises(WorkspaceMismatch) as caught:
        other.take()
    assert with_flags(str(caught.value.args[0])).endswith("UTC: --image-size: not set -> 400")
    filtered = Claim(workspace, EXTRACT, {"render": render, "headers": "keep"}, Origin({"filter_blank": True}, "run"))
    with pytest.raises(WorkspaceMismatch) as caught:
        filtered.take()
    assert with_flags(str(caught.value.args[0])).endswith("UTC: --headers: not set -> 'keep'")


def test_one_of_workers_with_other_settings_gets_the_workspace(made):
    def claimed(number):
        try:
            return claim_key(made.workspace(), EXTRACT, {"image_size": number})
        except WorkspaceMismatch:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [key for key in pool.map(claimed, range(8)) if key]
    assert len(won) == 1
    assert [one.key for one in keys(made.workspace(), EXTRACT)] == won


def test_a_command_that_publishes_nothing_leaves_no_key(workspace):
    Claim(workspace, EXTRACT, {"model": "wrong"}).check()
    Claim(workspace, DESCRIBE, {"model": "wrong"}).check()
    assert (keys(workspace, EXTRACT), keys(workspace, DESCRIBE)) == ([], [])
    assert Claim(workspace, EXTRACT, {"model": "right"}).check() == key_of({"model": "right"})


def test_first_of_simultaneous_workers_to_publish_decides(workspace):
    first, second = (Claim(workspace, EXTRACT, {"n": n}, Origin({}, f"run {n}")) for n in (1, 2))
    first.check(), second.check()
    assert (first.take(), first.take()) == (first.key, first.key)
    with pytest.raises(WorkspaceMismatch, match=r"by llm-ocr run 1 on \d{4}-\d\d-\d\d at \d\d:\d\d UTC: `n`: 1 -> 2"):
        second.take()
    assert newest_key(workspace, EXTRACT) == first.key


def test_claim_of_a_worker_dead_before_its_first_unit_gives_way(workspace):
    dead, next_one = (Claim(workspace, EXTRACT, {"n": n}) for n in (1, 2))
    dead.take()
    assert (next_one.check(), next_one.take()) == (next_one.key, next_one.key)
    assert newest_key(workspace, EXTRACT) == next_one.key
    with pytest.raises(WorkspaceMismatch):  # it was only stopped, and goes on
        dead.confirm()


@pytest.mark.parametrize("when", ["before", "since"])
def test_a_claim_with_a_unit_never_gives_way(workspace, when):
    holder, other = (Claim(workspace, EXTRACT, {"n": n}) for n in (1, 2))
    holder.take()
    if when == "since":
        other.check()
    publish(workspace, EXTRACT, holder.key, "unit", b"", Summary(Counts()))
    with pytest.raises(WorkspaceMismatch):
        other.check() if when == "before" else other.take()
    holder.confirm()


def test_an_import_keeps_its_key_before_its_first_page(workspace):
    claim_key(workspace, EXTRACT, {"imported": {"from": "s3://bucket/old"}})
    with pytest.raises(WorkspaceMismatch):
        Claim(workspace, EXTRACT, {"n": 2}).check()


def test_describe_keys_coexist_and_the_newest_is_used(workspace):
    made = [claim_key(workspace, DESCRIBE, {"mode": mode}) for mode in ("describe", "parse", "classify")]
    assert [one.key for one in keys(workspace, DESCRIBE)] == made
    assert keys(workspace, DESCRIBE)[1].settings == {"mode": "parse"}
    assert newest_key(workspace, DESCRIBE) == made[-1]
    assert newest_key(workspace, DESCRIBE, made[0]) == made[0]
    claim_key(workspace, DESCRIBE, {"mode": "describe"})
    assert newest_key(workspace, DESCRIBE) == made[-1]


def test_an_unknown_key_is_wrong_usage_and_lists_known_keys(workspace):
    key = claim_key(workspace, DESCRIBE, {"mode": "describe"})
    with pytest.raises(UsageError, match=key):
        newest_key(workspace, DESCRIBE, "000000000000")


def test_a_stage_without_a_key_is_an_error(workspace):
    assert newest_key(workspace, ASSEMBLE) is None
    with pytest.raises(StageMissing, match="llm-ocr extract"):
        required_key(workspace, EXTRACT)


def test_listing_keys_does_not_list_their_units(made, workspace):
    key = claim_key(workspace, DESCRIBE, {"mode": "describe"})
    for number in range(50):
        workspace.store.put(f"describe/{key}/{number:02x}/u.done", b"damaged")
    workspace.store.put("describe/notes.txt", b"")
    assert [one.key for one in keys(workspace, DESCRIBE)] == [key]


@pytest.mark.parametrize("other", [{"key": "other"}, {"settings": None}, {"number": "1"}])
def test_damaged_settings_of_a_key_are_an_error(workspace, other):
    key = claim_key(workspace, DESCRIBE, {"mode": "describe"})
    name = f"describe/{key}/settings.json"
    workspace.store.put(name, json.dumps(workspace.get_json(name) | other).encode())
    with pytest.raises(WorkspaceError, match=f"damaged(?s:.*)Remove {name}"):
        newest_key(workspace, DESCRIBE)
    workspace.store.delete(name)
    assert claim_key(workspace, DESCRIBE, {"mode": "describe"}) == newest_key(workspace, DESCRIBE) == key


def test_settings_of_assemble_without_its_sources_are_damaged(workspace):
    claim_key(workspace, ASSEMBLE, {"extract": "e"})
    with pytest.raises(WorkspaceError, match="names no keys"):
        newest_key(workspace, ASSEMBLE)


@pytest.mark.parametrize("content", [b'{"generation": 1}', b"{"])
def test_damaged_note_on_views_names_no_key(workspace, content):
    key = claim_key(workspace, ASSEMBLE, {"extract": "e", "describe": "d"})
    workspace.store.put(f"{VIEW_NOTES}item.json", content)
    assert assembled_key(workspace) == key


@pytest.mark.parametrize(
    ("old", "new", "of_versions"),
    [
        ({"reader": {"engine": "m", "result_version": 1}}, {"reader": {"engine": "m", "result_version": 2}}, True),
        ({"reader": {"fallback": {"result_version": 1}}}, {"reader": {"fallback": {"result_version": 2}}}, True),
        ({"render": {"revision": 1, "image_size": 1}}, {"render": {"revision": 2, "image_size": 2}}, True),
        ({"reader": {"revision": "a"}}, {"reader": {"revision": "b"}}, False),  # the model's commit
        ({"reader": {"detector": {"model": "a", "result_version": 1}}},
         {"reader": {"detector": {"model": "b", "result_version": 2}}}, False),
        ({"reader": {"engine": "m", "result_version": 1}}, {"reader": {"engine": "e", "result_version": 2}}, False),
    ],
)  # fmt: skip
def test_a_refusal_tells_versions_of_llm_ocr_from_settings(made, workspace, old, new, of_versions):
    claim_key(workspace, EXTRACT, old)
    with pytest.raises(WorkspaceMismatch) as caught:
        claim_key(workspace, EXTRACT, new)
    assert ("another version of llm-ocr" in str(caught.value)) is of_versions
    assert ("settings of the workspace" in str(caught.value)) is not of_versions
    assert "\n" not in caught.value.args[0]


def test_units_of_another_version_block_plans_but_claims_do_not(made, workspace):
    made.plan(workspace, [made.document("a", 4)])
    claim_key(workspace, EXTRACT, {"reader": {"engine": "m", "fallback": {"engine": "e", "result_version": 1}}})
    need_same_version(workspace, {"m": 1, "e": 2})
    key = newest_key(workspace, EXTRACT)
    (unit,) = read_units(workspace)
    publish(workspace, EXTRACT, key, unit.id, b"rows", Summary(Counts(4, 4)))
    need_same_version(workspace, {"m": 1, "e": 1})
    with pytest.raises(WorkspaceMismatch, match=r"\(reader.fallback.result_version: 1 -> 2\)"):
        need_same_version(workspace, {"m": 1, "e": 2})
