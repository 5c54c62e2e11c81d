"""Items of many units: bounded, whole, in order, and without a pause between units."""

import asyncio

import pytest

from llm_ocr.stages.flow import flow


def run(units, work, *, in_flight=3):
    published = []

    async def source():
        for unit in units:
            yield unit

    async def publish(unit, rows):
        published.append((unit, list(rows)))

    asyncio.run(flow(source(), work, publish, in_flight=in_flight))
    return published


def test_every_unit_is_published_once_with_its_rows_in_order():
    async def work(item):
        await asyncio.sleep((item * 7 % 5) / 1000)
        return item * 10

    published = run([("a", [1, 2, 3, 4, 5]), ("b", []), ("c", [6])], work)
    assert sorted(published) == [("a", [10, 20, 30, 40, 50]), ("b", []), ("c", [60])]


def test_no_more_items_than_allowed_are_under_way():
    under_way, most = 0, 0

    async def work(item):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return item

    run([("a", list(range(20))), ("b", list(range(20)))], work, in_flight=4)
    assert most == 4


def test_a_stuck_item_holds_no_other_unit():
    released = asyncio.Event()
    order = []

    async def work(item):
        if item == "stuck":
            await released.wait()
        return item

    async def main():
        async def source():
            yield "a", ["stuck"]
            yield "b", ["quick"]

        async def publish(unit, rows):
            order.append(unit)
            released.set()

        await flow(source(), work, publish, in_flight=2)

    asyncio.run(main())
    assert order == ["b", "a"]


def test_an_error_that_is_not_a_row_ends_the_flow():
    async def work(item):
        raise OSError("disk full")

    with pytest.raises(ExceptionGroup) as group:
        run([("a", [1])], work)
    assert group.value.subgroup(OSError)
