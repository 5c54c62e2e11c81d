"""The HTML of a report."""

from collections.abc import Iterator

from llm_ocr.results.report.charts import BarChart, Chart, Report, Section, TimeChart
from llm_ocr.results.report.drawing import colour, svg
from llm_ocr.results.report.style import STYLE
from llm_ocr.results.report.texts import escaped

#: Nothing may be loaded and no script may run, whatever the page's text holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(report: Report) -> str:
    """The whole file. Everything that `report` holds is text."""
    return "".join(_page(report))


def _page(report: Report) -> Iterator[str]:
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{escaped(report.title)}</h1>\n<dl>"
    )
    for name, value in report.facts:
        yield f"<div><dt>{escaped(name)}</dt><dd><bdi>{escaped(value)}</bdi></dd></div>"
    yield '</dl>\n</header>\n<main>\n<ul class="tiles">'
    for tile in report.tiles:
        kind = f' class="{tile.colour}"' if tile.colour else ""
        yield f"<li{kind}><b>{escaped(tile.value)}</b><span>{escaped(tile.label)}</span></li>"
    yield "</ul>\n"
    for number, section in enumerate(report.sections):
        yield from _section(section, f"s{number}")
    yield f"</main>\n<footer>{escaped(report.footer)}</footer>\n</body>\n</html>\n"


def _section(section: Section, name: str) -> Iterator[str]:
    yield f"<section>\n<h2>{escaped(section.title)}</h2>\n"
    for sentence in section.sentences:
        yield f"<p>{escaped(sentence, 2000)}</p>\n"
    for number, chart in enumerate(section.charts):
        yield from _figure(chart, f"{name}-{number}")
    if section.examples:
        lines = "".join(f"<li><bdi>{escaped(line)}</bdi></li>" for line in section.examples)
        yield f'<ul class="examples">{lines}</ul>\n'
    if section.command:
        yield f"<pre><code>{escaped(section.command, 2000)}</code></pre>\n"
    yield "</section>\n"


def _figure(chart: Chart, name: str) -> Iterator[str]:
    yield f"<figure>\n<figcaption><b>{escaped(chart.title)}</b> {escaped(chart.words, 2000)}</figcaption>\n"
    yield f'<div class="picture">{svg(chart, name)}</div>\n'
    if named := list(_legend(chart)):
        rows = "".join(f'<li class="{kind}"><i></i><bdi>{escaped(text)}</bdi></li>' for kind, text in named)
        yield f'<ul class="legend">{rows}</ul>\n'
    yield "</figure>\n"


def _legend(chart: Chart) -> Iterator[tuple[str, str]]:
    """Class of the colour, and name; nothing for a picture of one colour."""
    if isinstance(chart, TimeChart):
        names = [layer.name for layer in (*chart.layers, *chart.lines)]
        for place, name in enumerate(names if len(names) > 1 else []):
            yield colour(place) + (" stroke" if place >= len(chart.layers) else ""), name
    elif isinstance(chart, BarChart):
        for place, name in enumerate(chart.names):
            yield chart.colours[place] if chart.colours else colour(place), name
