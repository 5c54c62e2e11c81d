"""The trace of decisions changes no result, and is complete only while somebody collects it."""

import logging

from llm_ocr.engines.embedded.page import laid_out
from llm_ocr.engines.embedded.trace import TIME, collected, decisions_to_wire, log_from_wire, note, tracing
from llm_ocr.types import Box, Line, PageContent, Path

LOGGER = logging.getLogger("llm_ocr.engines.embedded.trace")


def page_with_a_table():
    words = [("Item", "Count"), ("Nails", "40"), ("Screws", "250"), ("Hooks", "7")]
    lines = [
        Line(text, Box(110 + 200 * column, 105 + 30 * row, 170 + 200 * column, 117 + 30 * row), 12.0)
        for row, texts in enumerate(words)
        for column, text in enumerate(texts)
    ]
    rules = [Box(100, 95 + 30 * row, 500, 96 + 30 * row) for row in range(5)]
    rules += [Box(100 + 200 * column, 95, 101 + 200 * column, 216) for column in range(3)]
    page_number = Line("7", Box(296, 780, 304, 792), 12.0)
    paths = tuple(Path(box, None, (0, 0, 0), 1) for box in rules)
    return PageContent(600, 800, (*lines, page_number), (), paths)


def test_the_result_is_the_same_with_a_trace():
    content = page_with_a_table()
    before = laid_out(content)
    with collected() as decisions:
        assert tracing()
        assert laid_out(content) == before
    by_step = {one.step: one for one in decisions}
    assert by_step["table"].message == "ruled, 4 x 2"
    assert by_step["table"].facts["box"] == [0.1675, 0.1194, 0.8342, 0.2694], "the middles of the outer rules"
    assert by_step["furniture"].facts == {"text": "7"}
    assert [one.facts["name"] for one in decisions if one.step == TIME] == ["tables", "figures", "layout"]
    count = len(decisions)
    laid_out(content)
    assert len(decisions) == count
    assert not tracing()


def test_what_was_collected_is_logged_nowhere_else_and_the_logger_is_as_before(caplog):
    before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
    with caplog.at_level(logging.DEBUG, logger="llm_ocr"):
        with collected() as decisions:
            note("table", "ruled", rows=2)
        assert not caplog.records
        assert (LOGGER.level, LOGGER.propagate, LOGGER.handlers) == before
        note("table", "plain")
    assert [one.facts for one in decisions] == [{"rows": 2}]
    assert [record.getMessage() for record in caplog.records] == ["table: plain"]


def test_the_decisions_of_a_worker_are_logged_with_the_page():
    with collected() as there:
        note("furniture", "header", text="Confidential")
    with collected() as here:
        log_from_wire(decisions_to_wire(there), "a.pdf page 3")
    assert [str(one) for one in here] == ["a.pdf page 3: furniture: header"]
    assert here[0].facts == {"text": "Confidential"}
