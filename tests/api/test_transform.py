"""A stage of the user's own: its rows are what Describe and Assemble take, page for page."""

import runpy
from dataclasses import replace

import pytest
from running import FRUGALLY, cli

import llm_ocr
from llm_ocr.errors import PageFailure, StageError, StageMissing, UsageError
from llm_ocr.types import Reason, Status

EMBEDDED = {"engine": "embedded"}


def shouted(page):
    return replace(page, markdown=page.markdown.upper())


def assembled(workspace):
    llm_ocr.describe(workspace=workspace, pages_from="shout", **EMBEDDED)
    return llm_ocr.assemble(workspace=workspace, pages_from="shout")


@pytest.mark.slow
def test_the_stages_behind_take_the_new_rows(extracted):
    llm_ocr.transform(shouted, workspace=extracted, stage="shout")
    before = [page.markdown for page in llm_ocr.open(extracted).pages()]
    rows = assembled(extracted).to_dataset()
    assert [row["document_markdown"] for row in rows] == [text.upper() for text in before]
    plain = llm_ocr.run(workspace=extracted, **FRUGALLY).to_dataset()
    # Assemble keeps each running header once.
    assert all(text.strip() in row["document_markdown"] for row, text in zip(plain, before, strict=True))


def test_each_stage_has_descriptions_of_its_own(extracted):
    figures = sum(len(page.figures) for page in llm_ocr.open(extracted).pages())
    described = {}
    for stage, change in {"bare": lambda page: replace(page, figures=()), "whole": lambda page: page}.items():
        llm_ocr.transform(change, workspace=extracted, stage=stage)
        llm_ocr.describe(workspace=extracted, pages_from=stage, **EMBEDDED)
        described[stage] = llm_ocr.assemble(workspace=extracted, pages_from=stage).status.figures.expected
    assert described == {"bare": 0, "whole": figures}
    assert figures


def test_it_is_done_once_and_again_for_another_version(extracted):
    calls = []

    def counting(page):
        calls.append(page.page_id)
        return page

    for version in ("1", "1", "2"):
        llm_ocr.transform(counting, workspace=extracted, stage="count", version=version)
    assert sorted(calls) == sorted(2 * [page.page_id for page in llm_ocr.open(extracted).pages()])


def test_shards_of_it_cover_every_page_once(extracted):
    seen = []
    for index in range(3):
        llm_ocr.transform(
            lambda page: seen.append(page.page_id) or page,
            workspace=extracted,
            stage="look",
            shard_index=index,
            shard_count=3,
        )
    assert sorted(seen) == sorted(page.page_id for page in llm_ocr.open(extracted).pages())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"page_id": "other"}, "the row of another page"),
        ({"page_number": 9}, "the row of another page"),
        ({"markdown": None}, "a row with markdown of type NoneType"),
        ({"status": "done"}, "a row with status='done'"),
        ({"status": Status.FAILED}, "a row with status=failed and reason=None"),
        (None, "an object of type NoneType"),
    ],
)
def test_rows_that_cannot_be_stored_end_the_call(extracted, changes, message):
    """Also after the first page."""

    def change(page):
        if page.page_number != 3:
            return page
        return None if changes is None else replace(page, **changes)

    with pytest.raises(StageError, match=rf"returned {message}.* \(.*paper\.pdf, page 3\)"):
        llm_ocr.transform(change, workspace=extracted, stage="shout")


def test_function_that_always_raises_ends_the_call(extracted):
    def broken(page):
        return page.no_such_field

    with pytest.raises(StageError, match=r"test_transform\.py") as caught:
        llm_ocr.transform(broken, workspace=extracted, stage="shout")
    assert isinstance(caught.value.__cause__, AttributeError)
    llm_ocr.transform(shouted, workspace=extracted, stage="shout")
    assert assembled(extracted).status.pages.failed == 0


@pytest.mark.slow
def test_a_page_for_which_it_fails_is_failed_where_it_was_used(extracted):
    def picky(page):
        if page.page_number == 3:
            raise ValueError("confidential")
        return shouted(page)

    llm_ocr.transform(picky, workspace=extracted, stage="shout")
    run = assembled(extracted)
    assert (run.status.pages.ok, run.status.pages.failed) == (3, 1)
    assert run.status.reasons == {"stage error": 1}
    [failed] = run.failures()
    assert failed.reason is Reason.STAGE_ERROR
    assert failed.detail.startswith("shout: ValueError at test_transform.py:")
    rows = list(run.to_dataset())
    shown = [(row["page_number"], row["document_markdown"], row["source_image"]) for row in rows if row["reason"]]
    assert shown == [(3, "", None)] and "confidential" not in str(rows)
    done = cli("assemble", "-w", extracted, "--pages-from", "shout", cwd=extracted)
    assert done.returncode == 3
    assert "1 failed (stage error: paper.pdf page 3). Correct the function" in done.stdout
    plain = llm_ocr.run(workspace=extracted, **FRUGALLY)
    assert (plain.status.pages.ok, list(plain.failures())) == (4, [])
    assert assembled(extracted).status.pages.failed == 1


def test_stage_fails_a_page_on_purpose(extracted):
    def refusing(page):
        raise PageFailure(Reason.LOW_QUALITY, "not wanted")

    llm_ocr.transform(refusing, workspace=extracted, stage="shout")
    failures = list(assembled(extracted).failures())
    assert {(page.reason, page.detail) for page in failures} == {("low quality", "not wanted")}
    assert {(page.quality, page.ledger) for page in failures} == {(None, None)}  # as of any failed page


def test_failure_with_another_text_keeps_it(extracted):
    def refusing(page):
        raise PageFailure("a letter to a patient")

    llm_ocr.transform(refusing, workspace=extracted, stage="shout")
    failed = {(page.reason, page.detail) for page in assembled(extracted).failures()}
    assert failed == {("stage error", "a letter to a patient")}


@pytest.mark.parametrize("stage", ["extract", "plan", "dataset", "Loud", "a/b", ""])
def test_names_that_are_taken_or_none(extracted, stage):
    with pytest.raises(UsageError, match="not a valid name"):
        llm_ocr.transform(shouted, workspace=extracted, stage=stage)


def test_a_stage_that_was_not_run_is_missing(extracted):
    with pytest.raises(StageMissing, match="redact has not started"):
        llm_ocr.describe(workspace=extracted, pages_from="redact", **EMBEDDED)


def test_the_example_blacks_out_what_is_private(repository, extracted):
    example = runpy.run_path(str(repository / "examples" / "custom_stage.py"))
    assert example["redacted"]("Ask ann@example.org or +44 (0)20 7946 0958.") == "Ask █████ or █████."
    llm_ocr.transform(example["redact"], workspace=extracted, stage="redact")
    llm_ocr.describe(workspace=extracted, pages_from="redact", **EMBEDDED)
    run = llm_ocr.assemble(workspace=extracted, pages_from="redact")
    assert run.status.pages.ok == run.status.pages.expected
    assert all(page["source_image"] is None for page in run.to_dataset())
