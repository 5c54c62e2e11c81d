"""The page of a report: every name is text, every picture says what it shows, nothing is loaded."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from llm_ocr_outputs.report import page
from llm_ocr_outputs.report.charts import (
    Bar,
    BarChart,
    Histogram,
    Layer,
    Report,
    Section,
    Tile,
    TimeChart,
    plain,
    short,
    span,
    svg,
    ticks,
)

EVIL = '</title></style><script>window.hit=1</script><img src=x onerror="window.hit=1">\'" \u202egpj.\x00\ud800'
CHARTS = [
    TimeChart(EVIL, EVIL, EVIL, 90.0, [Layer(EVIL, [1.0, 2.0]), Layer("b", [0.0, 1.0])], [Layer(EVIL, [3.0, 0.0])]),
    TimeChart("t", "nothing happened", "pages/s", 0.0, [Layer("a", [0.0])], (), [(0.0, EVIL)]),
    BarChart(EVIL, EVIL, EVIL, [Bar(EVIL, [1.0, 2.0], EVIL, EVIL)], [EVIL, EVIL]),
    BarChart("t", "w", "share", [Bar("a", [0.0, 0.0], "")], ["x", "y"], ["ok", "left"], whole=True),
    Histogram(EVIL, EVIL, EVIL, EVIL, [0, 5], [EVIL, "", ""]),
    Histogram("t", "w", "pages", "score", [0, 0], ["0", "", "1"]),
]


class Elements(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attributes)


def _whole():
    section = Section(EVIL, [EVIL], CHARTS, [EVIL], EVIL)
    return page(Report(EVIL, [(EVIL, EVIL)], [Tile(EVIL, EVIL)], [section], EVIL))


def test_names_are_text_wherever_they_stand():
    found = Elements(_whole())
    assert not found.tags & {"script", "img", "link", "iframe", "object", "a"}
    assert not [name for name in found.attributes if name.startswith("on") or name in ("src", "href", "style")]
    _whole().encode()  # surrogates are gone, too


@pytest.mark.parametrize("chart", CHARTS)
def test_every_picture_is_sound_and_says_what_it_shows(chart):
    root = ElementTree.fromstring(svg(chart, "n"))
    words = {child.tag: child.text for child in root if child.tag in ("title", "desc")}
    assert words == {"title": plain(chart.title), "desc": plain(chart.words)}
    assert root.attrib["aria-labelledby"] == "n-t n-d"
    units = [one.text for one in root.iter("text") if one.get("class", "").startswith("axis")]
    assert plain(chart.unit) in units
    numbers = re.findall(r"-?\d+\.\d+", svg(chart, "n"))
    assert all(-100 < float(one) < 2000 for one in numbers)
    assert "nan" not in svg(chart, "n").lower().replace("finance", "")


def test_nothing_is_loaded_from_anywhere():
    text = _whole()
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "http://" not in text and "https://" not in text


@pytest.mark.parametrize("high", [0.0, 0.003, 0.9, 1.0, 7.0, 99.9, 1234.0, 8e9])
def test_axes_have_round_values_that_reach_the_highest(high):
    marks = ticks(high)
    assert marks[0] == 0 and marks[-1] >= high * 0.999
    assert 2 <= len(marks) <= 7


def test_counts_have_no_fractions_on_their_axis():
    assert list(ticks(1, counts=True)) == [0, 1]
    assert all(mark == int(mark) for mark in ticks(7, counts=True))


def test_numbers_and_times_are_short():
    assert [short(value) for value in (0, 0.25, 7.5, 120, 999.9, 1234, 3.4e6)] == [
        "0", "0.25", "7.5", "120", "1k", "1.23k", "3.4M",
    ]  # fmt: skip
    assert [span(value) for value in (0.84, 42, 200, 7500, 273_600)] == [
        "0.8 s", "42 s", "3 min 20 s", "2 h 5 min", "3 d 4 h",
    ]  # fmt: skip
