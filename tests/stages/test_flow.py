"""Items of many units: bounded, whole, in order, and without a pause between units."""

import asyncio
from collections import Counter

import pytest

from llm_ocr.results.quality.scoring import rated
from llm_ocr.results.schema import Images, pages_from_parquet, pages_to_parquet
from llm_ocr.stages import Silent
from llm_ocr.stages.extract import UNITS_AT_ONCE, Extract, _images, _with_images, finished_page
from llm_ocr.stages.flow import FIRST_GUESS, Admission, Caps, Flow, Spool
from llm_ocr.stages.readers import Reading
from llm_ocr.types import (
    Attempt,
    Block,
    BlockKind,
    Box,
    DocumentPart,
    EncodedImage,
    Figure,
    Page,
    PageRecord,
    Reason,
    Status,
    Unit,
    page_id,
)


def run(units, work, *, publish=None, admission=None, caps=None, spool=None, **again):
    """Process the units, a list or an asynchronous iterator of them; return what was published, in this order."""
    published = []

    async def listed():
        for unit in units:
            yield unit

    async def keep(unit, rows):
        published.append((unit, list(rows)))
        if publish is not None:
            await publish(unit, rows)

    async def main():
        flow = Flow(
            work, keep, admission or Admission(3), spool or Spool(), caps or Caps(), lambda item: str(item)[0], **again
        )
        await asyncio.wait_for(flow.run(listed() if isinstance(units, list) else units), 30)

    asyncio.run(main())
    return published


async def unchanged(item, ticket):
    """The work of tests that look at units."""
    return item


async def rounds():
    """Long enough for others to come in, however loaded the machine is: so many rounds of the event loop."""
    for _ in range(100):
        await asyncio.sleep(0)


def test_every_unit_is_published_once_with_its_rows_in_order():
    async def work(item, ticket):
        await asyncio.sleep((item * 7 % 5) / 1000)
        return item * 10

    published = run([("a", [1, 2, 3, 4, 5]), ("b", []), ("c", [6])], work)
    assert sorted(published) == [("a", [10, 20, 30, 40, 50]), ("b", []), ("c", [60])]


def most_under_way(units, admission) -> int:
    """Process items that are their own weight; return the most that were prepared at a time."""
    under_way, most = 0, 0

    async def work(item, ticket):
        nonlocal under_way, most
        ticket.weigh(item)
        under_way += 1
        most = max(most, under_way)
        await rounds()
        under_way -= 1
        return item

    assert sorted(run(units, work, admission=admission)) == units
    return most


def test_no_more_items_than_allowed_are_under_way():
    assert most_under_way([("a", list(range(20))), ("b", list(range(20)))], Admission(4)) == 4


def test_item_taken_up_by_the_engine_lets_the_next_be_prepared():
    preparing, most, taken_up = 0, 0, 0
    all_are = asyncio.Event()

    async def work(item, ticket):
        nonlocal preparing, most, taken_up
        preparing += 1
        most = max(most, preparing)
        await rounds()
        preparing, taken_up = preparing - 1, taken_up + 1
        ticket.release()
        if taken_up == 30:
            all_are.set()
        await all_are.wait()
        return item

    run([("a", list(range(30)))], work, admission=Admission(2))
    assert most == 2


def test_preparation_is_bounded_in_bytes_but_admits_a_heavy_item():
    assert most_under_way([("a", [FIRST_GUESS] * 40)], Admission(1000, 4 * FIRST_GUESS)) == 4
    most_under_way([("a", [9_000_000] * 5)], Admission(9, 4 << 20))  # each is admitted in the end


def test_a_stuck_item_holds_no_other_unit():
    released = asyncio.Event()

    async def work(item, ticket):
        if item == "stuck":
            await released.wait()
        return item

    async def publish(unit, rows):
        released.set()

    published = run([("a", ["stuck"]), ("b", ["quick"])], work, publish=publish, admission=Admission(2))
    assert published == [("b", ["quick"]), ("a", ["stuck"])]


def test_an_error_that_is_not_a_row_ends_the_flow():
    async def work(item, ticket):
        raise OSError("disk full")

    with pytest.raises(ExceptionGroup) as group:
        run([("a", [1])], work)
    assert group.value.subgroup(OSError)


@pytest.mark.parametrize("items", [[1, 2], []], ids=["whole", "empty"])
def test_a_unit_that_cannot_be_published_ends_the_flow(items):
    async def publish(unit, rows):
        raise OSError("disk full")

    with pytest.raises(ExceptionGroup) as group:
        run([("a", items)], unchanged, publish=publish)
    assert group.value.subgroup(OSError)


def counted(caps):
    """Runs documents a, b and c of 9 pages in 3 units; the most pages, documents and units that were under way."""
    pages, most = Counter(), Counter()

    async def work(item, ticket):
        ticket.release()
        pages[item[0]] += 1
        most["pages"] = max(most["pages"], *pages.values())
        most["documents"] = max(most["documents"], sum(count > 0 for count in pages.values()))
        await rounds()
        pages[item[0]] -= 1
        return item

    units = [(name, [f"{name}{page}" for page in range(9)]) for name in "abc"]
    published = run(units, work, admission=Admission(100), caps=caps)
    assert sorted(published) == units
    return most


@pytest.mark.parametrize(
    ("caps", "most"),
    [
        (Caps(pages=2), {"pages": 2, "documents": 3}),
        (Caps(documents=1), {"documents": 1}),
        (Caps(units=1), {"documents": 1}),
    ],
    ids=["pages of a document", "documents", "units"],
)
def test_work_is_capped_while_other_documents_go_on(caps, most):
    assert most.items() <= counted(caps).items()


@pytest.mark.parametrize(
    ("caps", "waits"), [(Caps(), 0), (Caps(units=1), 1), (Caps(documents=1), 1), (Caps(pages=1), 1)], ids=str
)
def test_pages_that_wait_for_the_users_limits_are_reported(caps, waits):
    admission, most = Admission(100), []

    async def work(item, ticket):
        ticket.release()
        await rounds()
        most.append(admission.capped)
        return item

    run([("a", ["a1", "a2"]), ("b", ["b1", "b2"])], work, admission=admission, caps=caps)
    assert max(most) == waits
    assert admission.capped == 0


def test_rows_beyond_memory_wait_in_files_and_return_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    most = 0

    async def work(item, ticket):
        nonlocal most
        while item == 0 and most < 5:  # the first waits for the others
            await asyncio.sleep(0.001)
            most = len(list(tmp_path.glob("*/*")))
        return bytes([item]) * 10

    spool = Spool(lambda row: [row], lambda row, parts: parts[0], limit=25)
    published = run([("a", list(range(8)))], work, admission=Admission(8), spool=spool)
    assert published == [("a", [bytes([item]) * 10 for item in range(8)])]
    assert most >= 5
    assert list(tmp_path.iterdir()) == []


def test_capped_items_go_on_while_the_next_unit_is_waited_for():
    done, all_done = [], asyncio.Event()

    async def units():
        yield "a", ["a1", "a2", "a3"]
        await all_done.wait()
        yield "b", ["b1"]

    async def work(item, ticket):
        done.append(item)
        if len(done) == 3:
            all_done.set()
        await asyncio.sleep(0)
        return item

    async def publish(unit, rows):
        done.append(unit)

    run(units(), work, publish=publish, admission=Admission(5), caps=Caps(pages=1))
    assert done == ["a1", "a2", "a3", "a", "b1", "b"]


def test_empty_units_wait_for_a_store_together_and_block_none():
    """A store that gathers several units in one commit sees several at a time."""
    begun, together = [], asyncio.Event()

    async def publish(unit, rows):
        begun.append(unit)
        if len(begun) == 3:
            together.set()
        await asyncio.wait_for(together.wait(), 30)

    published = run([("a", []), ("b", []), ("c", [1])], unchanged, publish=publish)
    assert sorted(published) == [("a", []), ("b", []), ("c", [1])]


UNITS = 5 * UNITS_AT_ONCE


class Reader:
    """Finds nothing on any page."""

    name = "none"

    async def read(self, page, on_dispatched):
        return Attempt("none", "model", Status.OK)


class Renderer:
    """Blank pages."""

    async def count(self, part):
        return len(part.pages)

    async def page(self, part, number):
        image = EncodedImage(b"image", "image/png", 1, 1)
        return Page(page_id(part.document_id, number), part.document_id, number, image, None, part.source)

    async def rated(self, page, attempt, limits, *, transcribed=False):
        return rated(page, attempt, limits, transcribed=transcribed)


def test_few_units_are_in_memory_while_the_store_is_slow():
    handed: list[str] = []
    most = 0

    async def units():
        for number in range(UNITS):
            part = DocumentPart(f"d{number}", "a.pdf", "a.pdf", "v", (1, 2), 2, 2 * number)
            yield Unit(f"0001-{number:06d}", 1, number, (part,))

    async def main():
        all_read, full = asyncio.Event(), asyncio.Event()
        progress = Silent()
        left = 2 * UNITS

        def count(status):
            nonlocal left
            left -= 1
            if not left:
                all_read.set()

        progress.count = count
        under_way = 0

        async def publish(unit, pages):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if under_way == UNITS_AT_ONCE:
                full.set()
            await full.wait()
            await all_read.wait()
            handed.append(unit.id)
            under_way -= 1

        stage = Extract(Renderer(), Reading(Reader(), Admission(4)), publish, progress)
        await asyncio.wait_for(stage.run(units()), 30)

    asyncio.run(main())
    assert most == UNITS_AT_ONCE
    assert sorted(handed) == [f"0001-{number:06d}" for number in range(UNITS)]


@pytest.mark.parametrize("error", [IndexError, TypeError, ValueError, RecursionError])
def test_unexpected_error_fails_only_its_page(error):
    rows: list[PageRecord] = []

    class Faulty(Reader):
        async def read(self, page, on_dispatched):
            if page.number == 2:
                raise error("text of the page")
            return await super().read(page, on_dispatched)

    async def units():
        yield Unit("0001-000000", 1, 0, (DocumentPart("d", "a.pdf", "a.pdf", "v", (1, 2, 3), 3, 0),))

    async def publish(unit, pages):
        rows.extend(pages)

    asyncio.run(Extract(Renderer(), Reading(Faulty(), Admission(4)), publish, Silent()).run(units()))
    assert [row.status for row in rows] == [Status.OK, Status.FAILED, Status.OK]
    assert rows[1].reason is Reason.ENGINE_ERROR
    assert rows[1].detail.startswith(f"unexpected {error.__name__} at test_flow.py:")
    assert "text of the page" not in rows[1].detail


def test_pictures_come_back_as_they_were():
    bare = PageRecord("p", "d", "s", 1, 0, Status.FAILED)
    assert _with_images(bare, _images(bare)) == bare
    picture = EncodedImage(b"\n1 2\n\x00page", "image/png", 3, 4)
    figures = tuple(
        Figure(f"f{n}", "image", Box(0, 0, 1, 1), EncodedImage(bytes([n]) * n, "image/png", 1, 1)) for n in (0, 3, 5)
    )
    for image in (picture, None):
        record = PageRecord("p", "d", "s", 1, 0, Status.OK, image=image, markdown="text", figures=figures)
        data = _images(record)
        light = _with_images(record, [b""] * len(data))
        assert not any(_images(light))
        assert light.markdown == "text"
        assert _with_images(light, data) == record


IMAGE = EncodedImage(b"pixels", "image/png", 100, 200)


PART = DocumentPart("d", "/in/a.pdf", "a.pdf", "v", (1,), 1, 0)


BOX = Box(0.1, 0.1, 0.9, 0.4)


BLOCKS = (
    Block(BlockKind.HEADER, Box(0.1, 0.0, 0.9, 0.05), "The Arlen"),
    Block(BlockKind.FIGURE, BOX, label="chart", caption="Figure 1", described="A chart of levels."),
    Block(BlockKind.TEXT, Box(0.1, 0.5, 0.9, 0.6), "Text."),
)


class Cropper(Renderer):
    async def crop(self, image, boxes):
        return tuple(EncodedImage(b"crop", "image/png", 80, 60) for _ in boxes)


def finished(**options) -> PageRecord:
    attempt = Attempt("olmocr-2", "model", Status.OK, BLOCKS, notes={"primary_language": "de"})
    page = Page("d-p00001", "d", 1, IMAGE)
    return asyncio.run(finished_page(PART, 0, page, attempt, Cropper(), **options))


def test_model_answer_is_stored_with_the_row_and_its_figures():
    record = finished()
    (figure,) = record.figures
    assert (figure.described, figure.caption, record.notes) == (
        "A chart of levels.",
        "Figure 1",
        {"primary_language": "de"},
    )
    assert pages_from_parquet(pages_to_parquet([record]), images=Images.ALL) == [record]


def test_the_markdown_of_a_figure_is_its_link_alone():
    assert finished().markdown == "![d-p00001-f01](figure:d-p00001-f01)\n\nText."


def test_running_heads_are_optional_in_markdown_not_in_layout():
    assert finished(furniture=True).markdown.startswith("The Arlen\n\n![")
    assert [block.kind for block in finished().blocks] == [block.kind for block in BLOCKS]


@pytest.mark.parametrize("caps", [Caps(), Caps(units=1), Caps(documents=1, pages=1), Caps(pages=1)], ids=str)
def test_chosen_items_are_worked_on_again_before_publishing(caps):
    begun = []

    async def work(item, ticket):
        begun.append(item)
        await rounds()
        return f"{item} first"

    async def rework(item, row, ticket):
        begun.append(item)
        await rounds()
        return f"{row}, second"

    def again(unit, rows):
        assert rows == [f"{unit}{number} first" for number in range(4)]
        return [] if unit == "b" else [2, 0]

    units = [(unit, [f"{unit}{number}" for number in range(4)]) for unit in "abc"]
    published = run(units, work, admission=Admission(2), caps=caps, again=again, rework=rework)
    assert {unit: [row.count("second") for row in rows] for unit, rows in published} == {
        "a": [1, 0, 1, 0],
        "b": [0, 0, 0, 0],
        "c": [1, 0, 1, 0],
    }
    assert sorted(published)[0][1][0] == "a0 first, second"
    assert Counter(begun) == {
        f"{unit}{number}": 1 + (number in (0, 2) and unit != "b") for unit in "abc" for number in range(4)
    }
