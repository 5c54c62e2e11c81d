"""Plans: the same input gives the same units, every page is in one of them, nothing is planned twice."""

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from llm_ocr.errors import StageMissing, UsageError, WorkspaceError
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages.clean import clean
from llm_ocr.types import Reason
from llm_ocr.workspace import codec
from llm_ocr.workspace.generations import filtered_text, generations, read_units, totals_of
from llm_ocr.workspace.items import items
from llm_ocr.workspace.plan import KnownFiltered, Planner, PlanResult
from llm_ocr.workspace.publish import settle
from llm_ocr.workspace.status import run_status


def pages_of(units):
    return [(part.document_id, page) for unit in units for part in unit.parts for page in (part.pages or (None,))]


def indices_of(units):
    return [part.first_index + place for unit in units for part in unit.parts for place in range(part.expected)]


def plan_bytes(made):
    return [path.read_bytes() for path in sorted(made.root.glob("plan/*/*/*.jsonl"))]


def test_short_documents_share_units_and_long_ones_split_evenly(made, workspace):
    documents = [made.document("a", 2), made.document("b", 2), made.document("c", 3), made.document("long", 10)]
    made.plan(workspace, [*documents, made.document("z", 1)], pages_per_unit=4)
    units = list(read_units(workspace))
    shape = [[(part.relative, len(part.pages)) for part in unit.parts] for unit in units]
    assert shape == [[("a", 2), ("b", 2)], [("c", 3)], [("long", 3)], [("long", 3)], [("long", 4)], [("z", 1)]]
    assert [unit.id for unit in units] == [f"0001-{number:06d}" for number in range(6)]
    assert indices_of(units) == list(range(18))
    assert pages_of(units)[7:17] == [(documents[3].id, page) for page in range(1, 11)]
    assert all(unit.expected <= 4 for unit in units)


def test_the_same_input_gives_the_same_bytes(made, tmp_path):
    documents = [made.document(f"日本 [{number}],x", number % 9, version=f"{number}") for number in range(1, 1200)]
    stored = []
    for name in ("one", "two"):
        made.root = tmp_path / name
        made.plan(made.workspace(), documents)
        stored.append(plan_bytes(made))
    assert stored[0] == stored[1]
    assert len(stored[0]) > 1
    assert all(part.count(b"\n") <= 1000 for part in stored[0])


def test_plan_stores_documents_as_given(made, workspace):
    given = made.document("a\udcff.pdf", (2, 3, 7), page_total=9)
    made.plan(workspace, [given, made.unopened("b.pdf")])
    (unit,) = read_units(workspace)
    first, second = unit.parts
    assert (first.source, first.relative, first.version) == (given.source, given.relative, given.version)
    assert (first.pages, first.page_total, first.first_index) == ((2, 3, 7), 9, 0)
    assert (second.pages, second.reason, second.detail) == ((), Reason.ENCRYPTED, "cannot be opened")
    assert (unit.expected, second.first_index) == (4, 3)


def test_totals_come_from_the_markers(made, workspace):
    with Planner(workspace, pages_per_unit=4) as planner:
        for document in (made.document("a", 10), made.document("b", 1), made.unopened("c")):
            planner.add(document)
        planner.finish({".docx": 2, ".bin": 1})
    totals = totals_of(generations(workspace))
    assert (totals.documents, totals.units, totals.items, totals.expected) == (3, 4, 2, 12)
    assert totals.skipped == {".docx": 2, ".bin": 1}
    assert totals_of(generations(workspace)).next_index == 12


@pytest.mark.parametrize("read", [read_units, items, PlannedUnits])
def test_reading_without_a_plan_raises_at_once(workspace, read):
    with pytest.raises(StageMissing, match="no plan"):
        read(workspace)
    assert totals_of(generations(workspace)).units == 0


def test_copies_are_read_once_and_known_by_all_their_paths(made, workspace):
    original = made.document("a.pdf", 3)
    copies = [made.document(name, 3, version=original.version) for name in ("b/a.pdf", "c.pdf")]
    other_pages = made.document("d.pdf", 2, version=original.version)
    result = made.plan(workspace, [original, made.document("x", 1), *copies, other_pages])
    parts = [part for unit in read_units(workspace) for part in unit.parts]
    assert [(part.relative, part.aliases) for part in parts] == [
        ("a.pdf", ("b/a.pdf", "c.pdf")),
        ("x", ()),
        ("d.pdf", ()),
    ]
    assert (result.copies, totals_of(generations(workspace)).expected) == (2, 6)


def test_a_document_given_twice_is_read_once(made, workspace):
    made.plan(workspace, [made.document("a", 2), made.document("b", 2), made.document("a", 2)])
    assert len(pages_of(read_units(workspace))) == 4


def test_unopenable_documents_stay_separate(made, workspace):
    missing = [
        made.document("a.pdf", 0, version="", source=f"/{folder}/a.pdf", reason=Reason.NOT_FOUND) for folder in "xy"
    ]
    made.plan(workspace, [*missing, made.unopened("b", Reason.UNREADABLE)])
    assert totals_of(generations(workspace)).expected == 3
    assert len({document for document, _ in pages_of(read_units(workspace))}) == 3


def test_a_selection_without_pages_is_one_failed_page(made, workspace):
    made.plan(workspace, [made.document("a", (), page_total=5)])
    (unit,) = read_units(workspace)
    assert (unit.expected, unit.parts[0].reason) == (1, Reason.NO_SUCH_PAGE)


def test_an_id_for_two_documents_is_wrong_usage(made, workspace):
    with pytest.raises(UsageError, match=r"two documents have the id mine[^\n]*\n.*`id_column`"):
        made.plan(workspace, [made.document("a", 1, document_id="mine"), made.document("b", 1, document_id="mine")])
    with pytest.raises(UsageError, match="given twice with different pages"):
        made.plan(workspace, [made.document("a", (1, 2)), made.document("a", (5,))])
    assert generations(workspace) == []


def test_ids_come_from_the_manifest_or_path_and_content(made):
    assert made.document("a", 1, document_id="10.1000/xyz: ü").id == "10.1000/xyz: ü"
    plain = made.document("a")
    assert len(plain.id) == 16 and plain.id == made.document("a", 5, source="/elsewhere/a").id
    assert len({plain.id, made.document("b").id, made.document("a", version="2").id}) == 3


def test_unstorable_ids_are_changed_and_stay_distinct(made):
    ids = [made.document("a", document_id=given).id for given in ("x\ny", "x\0y", "x\ud800y", "a" * 300, "a" * 301)]
    assert len(set(ids)) == 5
    assert all(given.isprintable() and len(given) <= 200 for given in ids)


def test_no_workspace_key_contains_a_document_id(made, workspace):
    made.plan(workspace, [made.document("a", 1, document_id="../../outside")])
    (unit,) = read_units(workspace)
    made.extract(workspace, unit)
    assert not any("outside" in info.key for info in workspace.store.list())


def test_new_sources_continue_the_indices_of_the_plan(made, workspace):
    first = [made.document("a", 2), made.document("b", 9), made.unopened("locked")]
    made.plan(workspace, first)
    before = plan_bytes(made)
    result = made.plan(workspace, [made.document("0", 1), *first, made.document("c", 5)])
    assert (result.known, result.differing, result.generation.number) == (3, 0, 2)
    assert plan_bytes(made)[: len(before)] == before
    units = list(read_units(workspace))
    assert [unit.id for unit in units][-3:] == ["0002-000000", "0002-000001", "0002-000002"]
    assert indices_of(units) == list(range(18))
    assert len(set(pages_of(units))) == 18
    assert totals_of(generations(workspace)).documents == 5


def test_nothing_new_writes_no_generation(made, workspace):
    documents = [made.document("a", 9), made.document("copy", 9, version="sha of a"), made.unopened("b")]
    made.plan(workspace, documents)
    result = made.plan(workspace, documents)
    assert (result.generation, result.known) == (None, 3)
    assert made.plan(workspace, []).generation is None
    assert len(generations(workspace)) == 1


def test_a_new_copy_of_a_known_document_gets_its_own_markdown(made, workspace):
    original = made.document("a", 2)
    made.plan(workspace, [original])
    made.plan(workspace, [original, *(made.document(name, 2, version=original.version) for name in "bc")])
    parts = [part for unit in read_units(workspace) for part in unit.parts]
    assert [(part.relative, part.aliases) for part in parts] == [("a", ()), ("b", ("c",))]


def test_fewer_pages_of_a_known_document_are_reported(made, workspace):
    made.plan(workspace, [made.document("a", 3)])
    result = made.plan(workspace, [made.document("a", 2)])
    assert (result.generation, result.differing, result.examples) == (None, 1, ["/data/a"])


def test_unplanned_pages_of_known_document_are_wrong_usage(made, workspace):
    made.plan(workspace, [made.document("a", [1, 2]), made.document("b", 9)], pages_per_unit=2)
    before = [info.key for info in workspace.store.list()]
    asked = made.document("a", [2, 3])
    with pytest.raises(UsageError, match="/data/a is in the plan with pages 1-2, without 3") as refused:
        made.plan(workspace, [asked, made.document("b", [8])])
    assert "another `workspace`" in refused.value.hint
    assert [info.key for info in workspace.store.list()] == before
    with pytest.raises(UsageError, match="without 3"):  # beside a new document: no generation either
        made.plan(workspace, [made.document("new", 1), asked])
    assert len(generations(workspace)) == 1


def test_first_of_two_planners_wins_and_other_leaves_nothing(made, workspace):
    documents = [made.document(f"{number}", 3) for number in range(50)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: made.plan(made.workspace(), documents), range(8)))
    assert Counter(result.generation is not None for result in results)[True] == 1
    assert len(generations(workspace)) == 1
    assert len(plan_bytes(made)) == 1
    assert len(pages_of(read_units(workspace))) == 150


def test_concurrent_planners_both_add_their_documents(made, workspace):
    with ThreadPoolExecutor(6) as pool:
        list(
            pool.map(lambda name: made.plan(made.workspace(), [made.document(name, 2), made.document("all")]), "abcdef")
        )
    units = list(read_units(workspace))
    assert sorted(part.relative for unit in units for part in unit.parts) == [*"a", "all", *"bcdef"]
    assert indices_of(units) == list(range(13))


def test_a_changed_or_missing_part_is_an_error(made, workspace):
    made.plan(workspace, [made.document("a", 2)])
    (path,) = made.root.glob("plan/*/*/*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"1-2", b"1-3"))
    with pytest.raises(WorkspaceError, match="changed"):
        list(read_units(workspace))
    path.unlink()
    with pytest.raises(WorkspaceError, match="missing"):
        list(read_units(workspace))


def test_an_empty_or_torn_marker_is_never_taken_for_a_plan(made, workspace):
    made.plan(workspace, [made.document("a", 2)])
    marker = made.root / "plan" / "0001.done"
    assert json.loads(marker.read_text())["expected"] == 2
    other = marker.read_bytes().replace(b'"number":1', b'"number":2')
    assert b'"number":2' in other
    for torn in (b"", marker.read_bytes()[:50], b"{}", other):
        marker.write_bytes(torn)
        with pytest.raises(WorkspaceError, match=r"0001\.done is damaged"):
            generations(workspace)


@pytest.mark.parametrize("pages", [(), (1,), (1, 2, 3), (2, 4, 5, 9), tuple(range(5, 900))])
def test_page_lists_round_trip_as_ranges(pages):
    assert codec.pages_from_text(codec.pages_to_text(pages)) == pages


@pytest.mark.parametrize(("pages", "per_unit"), [(1, 16), (252, 16), (512, 16), (1000, 31), (2048, 64), (9000, 64)])
def test_small_plan_has_smaller_units_if_no_size_is_set(made, workspace, pages, per_unit):
    with Planner(workspace, pages_per_unit=64, least_per_unit=16) as planner:
        planner.add(made.document("long", pages))
        generation = planner.finish().generation
    assert generation.pages_per_unit == per_unit
    assert max(unit.expected for unit in read_units(workspace)) == min(pages, per_unit)


def test_pages_per_unit_must_be_positive(made, workspace):
    with pytest.raises(UsageError):
        made.plan(workspace, [], pages_per_unit=0)


@pytest.mark.parametrize("asleep", ["before the look", "before the marker"])
def test_suspended_planner_writes_removed_parts_again(made, workspace, monkeypatch, asleep):
    sleeps = iter([asleep])

    def sleep(now):
        if now == asleep and next(sleeps, ""):
            for info in list(workspace.store.list("plan/")):
                workspace.store.delete(info.key)

    def put_and_sleep(*data):
        put(*data)
        sleep("before the look")

    def settle_late(*marker):
        assert list(workspace.store.list("plan/")), "the marker would name what is not there"
        sleep("before the marker")
        return settle(*marker)

    monkeypatch.setattr("llm_ocr.workspace.generations.settle", settle_late)
    monkeypatch.setattr("llm_ocr.workspace.generations.slept_since", lambda begun: True)
    put = workspace.store.put
    monkeypatch.setattr(workspace.store, "put", put_and_sleep)
    made.plan(workspace, [made.document("a", 4), made.document("b", 4)])
    assert [part.relative for unit in read_units(workspace) for part in unit.parts] == ["a", "b"]


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


def test_filtered_documents_are_listed_and_not_expected(made, workspace):
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


def test_replanning_lists_no_filtered_document_twice(made, workspace):
    documents = [made.document("a", 2), out(made, "b"), out(made, "b"), out(made, "c")]
    planned(workspace, documents, GERMAN_OUT)
    assert planned(workspace, documents, GERMAN_OUT).generation is None
    assert planned(workspace, documents, FORMS_OUT).generation is None
    more = planned(workspace, [*documents, out(made, "d")], GERMAN_OUT)
    assert [line["relative"] for line in listed(made, 2)] == ["d"] and more.generation.units == 0
    assert run_status(workspace).filtered == {"language de": 3}
    assert totals_of(generations(workspace)).expected == 2


def test_documents_passing_new_filters_are_planned_not_filtered(made, workspace):
    planned(workspace, [made.document("a"), out(made, "b"), out(made, "c", "forms")], GERMAN_OUT)
    planned(workspace, [made.document("a"), made.document("b", 2), out(made, "c", "forms")], FORMS_OUT)
    status = run_status(workspace)
    assert (status.filtered, status.documents, status.pages.expected) == ({"forms": 1}, 2, 3)
    planned(workspace, [made.document("c")])
    status = run_status(workspace)
    assert (status.filtered, status.documents, status.to_json()["filtered"]["documents"]) == ({}, 3, 0)


def test_planned_documents_are_not_filtered_later(made, workspace):
    planned(workspace, [made.document("a"), made.document("b")])
    assert planned(workspace, [made.document("a"), out(made, "b")], GERMAN_OUT).generation is None
    assert run_status(workspace).filtered == {}


def test_only_lists_of_the_same_filters_are_reused(made, workspace):
    planned(workspace, [out(made, "b")], GERMAN_OUT)
    document = made.document("b")
    for filters, cause in ((GERMAN_OUT, "language de"), (FORMS_OUT, ""), (None, "language de")):
        with KnownFiltered.of(workspace, generations(workspace), filters) as known:
            assert known.cause(document.id, document.version) == cause
            assert known.cause(document.id, "changed since") == ""


def test_clean_keeps_only_the_filter_list_that_a_marker_names(made, workspace):
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


def test_plan_without_filters_has_no_filter_record(made, workspace):
    planned(workspace, [made.document("a")])
    assert "filtered" not in json.loads((made.root / "plan/0001.done").read_text())


def test_filtered_counts_as_text():
    assert filtered_text({"language de": 7, "forms": 3, "language fr": 2}) == (
        "12 filtered: 9 language (de 7, fr 2), 3 forms"
    )
    assert filtered_text({"forms": 3, "language de": 9}) == "12 filtered: 9 language (de), 3 forms"
    assert filtered_text({}) == ""
