"""`report`: one HTML page about a workspace, from markers and metrics."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llm_ocr.config.models import ReportSettings
from llm_ocr.costs.report import cost_report, spent
from llm_ocr.errors import UsageError
from llm_ocr.stages import Progress
from llm_ocr.storage.local import replacing, translated
from llm_ocr.storage.names import split_scheme
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.keys import EXTRACT, stage_keys
from llm_ocr.workspace.metrics import Series, all_series
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.stored import workspace_options
from llm_ocr_outputs.report.charts import BarChart, Chart, Report, Section, TimeChart, colour, escaped, plain, svg
from llm_ocr_outputs.report.sections import (
    cost_section,
    failure_sections,
    ledger_section,
    money_tile,
    outcome_section,
    outcome_tiles,
    quality_section,
    repair_section,
    time_sections,
    time_tiles,
)

# Style of the page: light and dark by the reader's preference, black on white on paper. The colors are those of Okabe
# and Ito (Color Universal Design, 2008), which are distinguishable with red-green color blindness; in the dark, some
# are lighter.


STYLE = """
:root{color-scheme:light dark;--back:#fff;--card:#f6f7f9;--ink:#1a1d21;--soft:#5b636d;--rule:#d9dde2;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#56b4e9;--c5:#d55e00;--c6:#b7a900;--c7:#7a5bb5;--c8:#9aa2ab;
--ok:#009e73;--degraded:#e69f00;--failed:#c8371b;--left:#c4cad1}
@media (prefers-color-scheme:dark){:root{--back:#14171a;--card:#1d2125;--ink:#e8eaed;--soft:#9fa8b2;--rule:#343a41;
--c0:#4aa3df;--c1:#f0b840;--c2:#2fc195;--c3:#dd94ba;--c4:#8accf2;--c5:#f08246;--c6:#d8cc4a;--c7:#a78be0;--c8:#7d8791;
--ok:#2fc195;--degraded:#f0b840;--failed:#f0664b;--left:#4a525b}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.5rem 1.25rem 3rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .75rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 .5rem}
dl{display:flex;flex-wrap:wrap;gap:.25rem 1.75rem;margin:0 0 1.25rem}
dl div{min-width:0}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;overflow-wrap:anywhere}
ul{list-style:none;margin:0;padding:0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.2rem,1fr));gap:.6rem;margin-bottom:1.75rem}
.tiles li{background:var(--card);border-radius:.5rem;padding:.6rem .8rem;border-left:4px solid var(--rule)}
.tiles b{display:block;font-size:1.4rem;white-space:nowrap;line-height:1.25;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:.85rem}
section{margin:0 0 2rem;padding-top:1.1rem;border-top:1px solid var(--rule)}
p{margin:.25rem 0 .5rem;max-width:46rem}
figure{margin:1rem 0 1.4rem;break-inside:avoid}
figcaption{font-size:.92rem;color:var(--soft);margin-bottom:.35rem;max-width:46rem;overflow-wrap:anywhere}
figcaption b{color:var(--ink);display:block}
.picture{overflow-x:auto}
svg{display:block;width:100%;min-width:34rem;height:auto;overflow:visible}
svg text{fill:var(--ink);font-size:11px;font-variant-numeric:tabular-nums}
svg .mark,svg .axis{fill:var(--soft)}
.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:var(--rule);stroke-width:1;fill:none}
.tick{stroke:var(--soft);fill:none}
.pause{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:3 4;fill:none}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}
.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c8{--c:var(--c8)}
.ok{--c:var(--ok)}.degraded{--c:var(--degraded)}.failed{--c:var(--failed)}.left{--c:var(--left)}
svg rect,svg .area{fill:var(--c)}
svg .area{fill-opacity:.85}
svg .line{fill:none;stroke:var(--c);stroke-width:2}
.tiles li[class]{border-left-color:var(--c)}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;font-size:.85rem;color:var(--soft);margin-top:.3rem}
.legend li{display:flex;align-items:center;gap:.4rem;min-width:0;overflow-wrap:anywhere}
.legend i{flex:none;width:.8rem;height:.8rem;border-radius:.15rem;background:var(--c)}
.legend .stroke i{height:.2rem}
.examples li{padding:.2rem 0 .2rem .9rem;border-left:3px solid var(--rule);margin-bottom:.25rem;
overflow-wrap:anywhere;font-size:.92rem}
pre{background:var(--card);padding:.6rem .8rem;border-radius:.4rem;white-space:pre-wrap;overflow-wrap:anywhere}
code{font:.9rem/1.4 ui-monospace,"Cascadia Code",Menlo,Consolas,monospace}
footer{color:var(--soft);font-size:.85rem;border-top:1px solid var(--rule);padding-top:.8rem;overflow-wrap:anywhere}
@page{size:A4;margin:14mm}
@media print{:root{color-scheme:light;--back:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#56b4e9;--c5:#d55e00;--c6:#b7a900;--c7:#7a5bb5;--c8:#9aa2ab;
--ok:#009e73;--degraded:#e69f00;--failed:#c8371b;--left:#c4cad1}
body{max-width:none;padding:0;font-size:11pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.picture{overflow:visible}svg{min-width:0}h2{break-after:avoid}
.tiles{grid-template-columns:repeat(4,1fr)}.tiles li{border:1px solid var(--rule);border-left-width:4px}}
"""


#: Forbids loading resources and running scripts, whatever the page's text contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(report: Report) -> str:
    """Return the whole file. All content of `report` is text."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{escaped(report.title)}</h1>\n<dl>"
    ]
    for name, value in report.facts:
        parts.append(f"<div><dt>{escaped(name)}</dt><dd><bdi>{escaped(value)}</bdi></dd></div>")
    parts.append('</dl>\n</header>\n<main>\n<ul class="tiles">')
    for tile in report.tiles:
        kind = f' class="{tile.colour}"' if tile.colour else ""
        parts.append(f"<li{kind}><b>{escaped(tile.value)}</b><span>{escaped(tile.label)}</span></li>")
    parts.append("</ul>\n")
    for number, section in enumerate(report.sections):
        parts += _section(section, f"s{number}")
    parts.append(f"</main>\n<footer>{escaped(report.footer)}</footer>\n</body>\n</html>\n")
    return "".join(parts)


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
    """Yield class of the color, and name; nothing for a chart of one color."""
    if isinstance(chart, TimeChart):
        names = [layer.name for layer in (*chart.layers, *chart.lines)]
        for place, name in enumerate(names if len(names) > 1 else []):
            yield colour(place) + (" stroke" if place >= len(chart.layers) else ""), name
    elif isinstance(chart, BarChart):
        for place, name in enumerate(chart.names):
            yield chart.colours[place] if chart.colours else colour(place), name


_ENGINES = {"embedded": "embedded: text layer and OCR on the CPU", "model": "a model behind a server"}


@dataclass(frozen=True, slots=True)
class Written:
    """Written report: its path, and its size in bytes."""

    path: Path
    size: int

    def __str__(self) -> str:
        return f"Report: {self.path} ({self.size / 1e3:,.0f} kB; open it in a browser)"


def report(settings: ReportSettings, progress: Progress | None, workspace: Workspace | None = None) -> Written:
    """Write the page, replacing an older one. The run may be empty, in progress, or finished, and have failures.

    Args:
        settings: the workspace, and the file.
        progress: without effect: no row is read.
        workspace: the workspace if it is open, as in `Run.report`.

    Raises:
        UsageError: the path is a folder or a URL.
        WorkspaceError: there is no workspace.
        StorageError: the file cannot be written, or the store cannot be read.
    """
    if workspace is None:
        with Workspace.open(settings.workspace, options=workspace_options(settings)) as opened:
            return report(settings, progress, opened)
    path = settings.output
    scheme, rest = split_scheme(path.as_posix())
    if scheme:
        raise UsageError(
            f"{scheme}:/{rest} is a URL, and a report is a file on this machine",
            hint="Write it to a file, and copy it there: `output=report.html`",
        )
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"Name a file: `output={path / 'report.html'}`")
    data = page(report_of(workspace)).encode()
    with translated("write", str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, "the report") as temporary:
            temporary.write_bytes(data)
    return Written(path, len(data))


def report_of(workspace: Workspace) -> Report:
    """Return the content of the page. Raises the errors of `workspace.status.run_status`."""
    status = run_status(workspace)
    found = all_series(workspace)
    jobs = spent(workspace)
    costs = cost_report(status, jobs, found)
    sections: list[Section | None] = [
        outcome_section(status),
        *failure_sections(status),
        quality_section(status),
        ledger_section(status),
        repair_section(status),
        *time_sections(found),
        cost_section(costs, jobs, found),
    ]
    name = next((part for part in reversed(workspace.url.split("/")) if part), workspace.url)
    return Report(
        title=f"OCR run: {name}",
        facts=list(_facts(workspace, found)),
        tiles=[*outcome_tiles(status), *time_tiles(status, found), *money_tile(costs)],
        sections=[section for section in sections if section is not None],
        footer=f"Created {_moment(datetime.now(UTC))} by llm-ocr {library_version()} from markers and metrics of "
        f"{workspace.url}. Times are UTC.",
    )


def _facts(workspace: Workspace, found: list[Series]) -> Iterator[tuple[str, str]]:
    keys = stage_keys(workspace, EXTRACT)
    about: Any = keys[-1].settings if keys else {}
    reader = about.get("reader", {}) if isinstance(about, dict) else {}
    reader = reader if isinstance(reader, dict) else {}
    yield "workspace", workspace.url
    engine = str(reader.get("engine") or "")
    yield "engine", _ENGINES.get(engine, engine) or "not begun"
    if model := reader.get("model"):
        yield "model", plain(model)
        yield "revision", plain(reader.get("revision") or "not recorded")
    if found:
        begun = min(one.began for one in found)
        ended = max(one.began + one.seconds for one in found)
        yield "first page requested", _moment(_datetime(begun))
        yield "last activity", _moment(_datetime(ended))
    yield "made with", f"llm-ocr {plain(workspace.run.get('created_by', 'unknown'))}"
    if batches := sorted({one.batch_id for one in found if one.batch_id}):
        yield "batch", ", ".join(batches[:5]) + (" …" if len(batches) > 5 else "")


def _datetime(seconds: float) -> datetime:
    """Return the time of a number in a file; 1970 for an invalid one."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.fromtimestamp(0, UTC)


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
