"""Documents that filters left out: listed once, counted once, not expected; and planned when other filters are on."""

import json
import os
import time

from llm_ocr.stages.clean import clean
from llm_ocr.workspace.generations import filtered_text, generations, totals_of
from llm_ocr.workspace.plan import KnownFiltered, Planner, PlanResult
from llm_ocr.workspace.status import run_status

GERMAN_OUT, FORMS_OUT = {"languages": ["en"]}, {"forms": True}


def out(made, name, cause="language de", **other):
    """A document that a filter left out."""
    return made.document(name, filtered=cause, detail="for a reason", **other)


def planned(workspace, documents, filters=None, *, dry_run=False) -> PlanResult:
    with Planner(workspace, pages_per_unit=4, filters=filters) as planner:
        for document in documents:
            planner.add(document)
        return planner.finish(dry_run=dry_run)


def listed(made, generation: int) -> list[dict]:
    (path,) = made.root.glob(f"plan/{generation:04d}/*/filtered.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_filters_leave_out_is_not_expected_and_stands_in_a_list(made, workspace):
    documents = [made.document("a", 2), out(made, "b"), out(made, "c", "forms"), made.document("d", 3)]
    result = planned(workspace, documents, GERMAN_OUT)
    assert (result.generation.documents, result.generation.expected) == (2, 5)
    assert totals_of(generations(workspace)).next_index == 5
    first, second = listed(made, 1)
    assert first == {
        "id": documents[1].id,
        "source": "/data/b",
        "relative": "b",
        "version": "sha of b",
        "reason": "language",
        "kind": "de",
        "detail": "for a reason",
    }
    assert (second["reason"], second["kind"]) == ("forms", "")
    status = run_status(workspace)
    assert status.filtered == {"forms": 1, "language de": 1}
    assert status.to_json()["filtered"] == {
        "documents": 2,
        "reasons": {"forms": 1, "language": 1},
        "languages": {"de": 1},
        "examples": [
            {"source": "/data/b", "reason": "language", "detail": "for a reason"},
            {"source": "/data/c", "reason": "forms", "detail": "for a reason"},
        ],
    }


def test_planning_again_lists_none_twice_whatever_filters_are_on(made, workspace):
    documents = [made.document("a", 2), out(made, "b"), out(made, "b"), out(made, "c")]
    planned(workspace, documents, GERMAN_OUT)
    assert planned(workspace, documents, GERMAN_OUT).generation is None
    assert planned(workspace, documents, FORMS_OUT).generation is None
    more = planned(workspace, [*documents, out(made, "d")], GERMAN_OUT)
    assert [line["relative"] for line in listed(made, 2)] == ["d"] and more.generation.units == 0
    assert run_status(workspace).filtered == {"language de": 3}
    assert totals_of(generations(workspace)).expected == 2


def test_what_other_filters_let_through_is_planned_and_no_longer_counted(made, workspace):
    planned(workspace, [made.document("a"), out(made, "b"), out(made, "c", "forms")], GERMAN_OUT)
    planned(workspace, [made.document("a"), made.document("b", 2), out(made, "c", "forms")], FORMS_OUT)
    status = run_status(workspace)
    assert (status.filtered, status.documents, status.pages.expected) == ({"forms": 1}, 2, 3)
    planned(workspace, [made.document("c")])
    status = run_status(workspace)
    assert (status.filtered, status.documents, status.to_json()["filtered"]["documents"]) == ({}, 3, 0)


def test_what_is_planned_is_not_left_out_later(made, workspace):
    planned(workspace, [made.document("a"), made.document("b")])
    assert planned(workspace, [made.document("a"), out(made, "b")], GERMAN_OUT).generation is None
    assert run_status(workspace).filtered == {}


def test_only_lists_of_the_same_filters_are_known_beforehand(made, workspace):
    planned(workspace, [out(made, "b")], GERMAN_OUT)
    document = made.document("b")
    for filters, cause in ((GERMAN_OUT, "language de"), (FORMS_OUT, ""), (None, "language de")):
        with KnownFiltered.of(workspace, generations(workspace), filters) as known:
            assert known.cause(document.id, document.version) == cause
            assert known.cause(document.id, "changed since") == ""


def test_the_list_is_kept_by_clean_and_one_that_no_marker_names_is_not(made, workspace):
    planned(workspace, [made.document("a"), out(made, "b")], GERMAN_OUT)
    lost = made.root / "plan/0002/ffffffffffffffff/filtered.jsonl"
    lost.parent.mkdir(parents=True)
    lost.write_text("{}\n")
    old = time.time() - 10
    for path in made.root.rglob("*.jsonl"):
        os.utime(path, (old, old))
    assert [info.key for info in clean(workspace, older_than=5).objects] == [lost.relative_to(made.root).as_posix()]
    assert len(listed(made, 1)) == 1


def test_a_dry_run_counts_and_writes_nothing(made, workspace):
    before = sorted(made.root.rglob("*"))
    result = planned(workspace, [made.document("a", 9), out(made, "b")], GERMAN_OUT, dry_run=True)
    assert (result.generation.expected, result.generation.units, dict(result.filtered.counts)) == (
        9,
        3,
        {"language de": 1},
    )
    assert sorted(made.root.rglob("*")) == before and generations(workspace) == []


def test_a_plan_without_filters_says_nothing_of_them(made, workspace):
    planned(workspace, [made.document("a")])
    assert "filtered" not in json.loads((made.root / "plan/0001.done").read_text())


def test_the_counts_in_words():
    assert filtered_text({"language de": 7, "forms": 3, "language fr": 2}) == (
        "12 filtered: 9 language (de 7, fr 2), 3 forms"
    )
    assert filtered_text({"forms": 3, "language de": 9}) == "12 filtered: 9 language (de), 3 forms"
    assert filtered_text({}) == ""
