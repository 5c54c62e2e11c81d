"""Made-up pages as the models would write them."""

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence

from agreement_pages import Cell, Piece, Run

_DOTS = {
    "title": "Title", "heading": "Section-header", "text": "Text", "list": "List-item", "table": "Table",
    "formula": "Formula", "figure": "Picture", "caption": "Caption", "footnote": "Footnote", "code": "Text",
    "header": "Page-header", "footer": "Page-footer",
}  # fmt: skip
_CHANDRA = {
    "title": "Section-Header", "heading": "Section-Header", "text": "Text", "list": "List-Group", "table": "Table",
    "formula": "Equation-Block", "figure": "Image", "caption": "Caption", "footnote": "Footnote", "code": "Code-Block",
    "header": "Page-Header", "footer": "Page-Footer",
}  # fmt: skip
_DEEPSEEK = {
    "title": "title", "heading": "sub_title", "text": "text", "list": "text", "table": "table", "formula": "equation",
    "figure": "image", "caption": "image_caption", "footnote": "text", "code": "text", "header": "header",
    "footer": "footer",
}  # fmt: skip
_MINERU = {
    "title": "title", "heading": "title", "text": "text", "list": "list", "table": "table", "formula": "equation",
    "figure": "image", "caption": "image_caption", "footnote": "page_footnote", "code": "code", "header": "header",
    "footer": "footer",
}  # fmt: skip
_REGIONS = {
    "title": "doc_title", "heading": "paragraph_title", "text": "text", "list": "text", "table": "table",
    "formula": "display_formula", "figure": "image", "caption": "figure_title", "footnote": "vision_footnote",
    "code": "text",
}  # fmt: skip
_DOCTAGS = {
    "title": "title", "heading": "section_header_level_1", "text": "text", "formula": "formula", "caption": "caption",
    "footnote": "footnote", "code": "code", "header": "page_header", "footer": "page_footer", "figure": "picture",
}  # fmt: skip
_TAGS = {"bold": "b", "italic": "i", "math": "math"}
_MARKS = {"bold": "**", "italic": "*", "math": "$", "plain": ""}


def dots(pieces: Sequence[Piece]) -> str:
    """dots.ocr: JSON, boxes in pixels of an image of 1036 by 1036."""
    found = []
    for piece in pieces:
        item: dict[str, object] = {
            "bbox": [round(side * 1.036) for side in piece.box],
            "category": _DOTS[piece.kind],
        }
        if piece.kind != "figure":
            item["text"] = {"table": table_html(piece), "list": "- " + _inline(piece)}.get(piece.kind, _markdown(piece))
        found.append(item)
    return json.dumps(found, ensure_ascii=False)


def deepseek(pieces: Sequence[Piece]) -> str:
    """DeepSeek-OCR: tags, boxes in 0 to 999."""
    return "\n\n".join(
        f"<|ref|>{_DEEPSEEK[piece.kind]}<|/ref|><|det|>[[{', '.join(map(str, piece.box))}]]<|/det|>\n{_body(piece)}"
        for piece in pieces
    )


def unlimited(pieces: Sequence[Piece]) -> str:
    """Unlimited-OCR: tags, boxes in 0 to 1000."""
    return "\n".join(f"<|det|>{_DEEPSEEK[piece.kind]} {list(piece.box)}<|/det|>{_body(piece)}" for piece in pieces)


def chandra(pieces: Sequence[Piece]) -> str:
    """Chandra 2 and Surya: HTML, boxes in 0 to 1000."""
    return "".join(
        f'<div data-bbox="{" ".join(map(str, piece.box))}" data-label="{_CHANDRA[piece.kind]}">{_html(piece)}</div>'
        for piece in pieces
    )


def surya_layout(pieces: Sequence[Piece]) -> str:
    """Surya's layout: JSON without text."""
    return json.dumps(
        [{"label": _CHANDRA[one.kind], "bbox": " ".join(map(str, one.box)), "count": 50} for one in pieces]
    )


def olmocr(pieces: Sequence[Piece]) -> str:
    """olmOCR: front matter and Markdown; figures in pixels of an image of 1000 by 1000."""
    draw = sum(pieces[0].box)  # from the seed too
    turn = 90 * (draw % 7) if draw % 7 < 4 else 0
    flags = {"is_table": any(one.kind == "table" for one in pieces), "is_diagram": draw % 5 == 0}
    language = ("en", "de", "null")[draw % 3]
    head = {"primary_language": language, "is_rotation_valid": not turn, "rotation_correction": turn, **flags}
    lines = "".join(f"{name}: {value}\n" for name, value in head.items())
    return f"---\n{lines}---\n{_whole(pieces)}"


def glm(pieces: Sequence[Piece]) -> str:
    """GLM-OCR: Markdown."""
    return _whole([piece for piece in pieces if piece.kind != "figure"])


def glm_regions(pieces: Sequence[Piece]) -> str:
    """GLM-OCR behind its detector: regions in JSON with what was read of each, numbers of formulas apart."""
    found = []
    for piece in pieces:
        if piece.kind in ("header", "footer"):
            continue  # such regions are not read
        x0, y0, x1, y1 = piece.box
        numbered = piece.kind == "formula" and x0 % 2 == 0
        said = _inline(piece) if piece.kind in ("title", "heading") else _markdown(piece)
        box = [x0, y0, x1 - 60 if numbered else x1, y1]
        found.append({"label": _REGIONS[piece.kind], "bbox_2d": box, "content": "" if piece.kind == "figure" else said})
        if numbered:
            found.append({"label": "formula_number", "bbox_2d": [x1 - 50, y0, x1, y1], "content": f"({y0 % 9})"})
    return json.dumps(found, ensure_ascii=False)


def mineru(pieces: Sequence[Piece]) -> str:
    """MinerU's layout: tags without text."""
    return "\n".join(
        f"<|box_start|>{' '.join(f'{side:03}' for side in piece.box)}<|box_end|><|ref_start|>{_MINERU[piece.kind]}"
        f"<|ref_end|><|rotate_{'right' if piece.box[0] % 7 == 0 else 'up'}|>"
        f"{'txt_contd_tgt' if number and piece.kind == 'text' and piece.box[0] % 3 == 0 else ''}"
        for number, piece in enumerate(pieces)
    )


def otsl(pieces: Sequence[Piece]) -> str:
    """A table in OTSL, as PaddleOCR-VL and MinerU write it; the first one of the page."""
    return next((table_otsl(piece) for piece in pieces if piece.kind == "table"), "")


def doctags(pieces: Sequence[Piece]) -> str:
    """DocTags: boxes in 0 to 500."""
    return f"<doctag>{''.join(map(_doctag, pieces))}</doctag>"


FORMATS: dict[str, Callable[[Sequence[Piece]], str]] = {
    "dots": dots,
    "deepseek": deepseek,
    "unlimited": unlimited,
    "chandra": chandra,
    "surya": chandra,
    "surya-layout": surya_layout,
    "olmocr": olmocr,
    "glm": glm,
    "glm-regions": glm_regions,
    "mineru-layout": mineru,
    "otsl-mineru": otsl,
    "otsl-paddle": otsl,
    "doctags": doctags,
}


def table_html(piece: Piece) -> str:
    rows = ("".join(map(_td, row)) for row in piece.rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def table_otsl(piece: Piece) -> str:
    """The cells by their places: what a cell covers is marked by where it comes from."""
    grid = [[""] * piece.width for _ in piece.rows]
    for y, row in enumerate(piece.rows):
        for cell in row:
            x = grid[y].index("")
            for down in range(cell.rows):
                for across in range(cell.columns):
                    name = ("fcel" if cell.text else "ecel", "lcel", "ucel", "xcel")[2 * bool(down) + bool(across)]
                    grid[y + down][x + across] = f"<{name}>{'' if down or across else cell.text}"
    return "".join(f"{''.join(row)}<nl>" for row in grid)


def _td(cell: Cell) -> str:
    name = "th" if cell.header else "td"
    spans = f' colspan="{cell.columns}"' if cell.columns > 1 else ""
    spans += f' rowspan="{cell.rows}"' if cell.rows > 1 else ""
    return f"<{name}{spans}>{html.escape(cell.text)}</{name}>"


def _runs(runs: Sequence[Run]) -> str:
    return " ".join(f"{_MARKS[run.style]}{run.text}{_MARKS[run.style]}" for run in runs)


def _inline(piece: Piece) -> str:
    return " ".join(map(_runs, piece.lines))


def _markdown(piece: Piece) -> str:
    match piece.kind:
        case "title":
            return f"# {_inline(piece)}"
        case "heading":
            return f"## {_inline(piece)}"
        case "list":
            return "\n".join(f"- {_runs(line)}" for line in piece.lines)
        case "table":
            return table_html(piece)
        case "formula":
            return f"$$\n{piece.raw}\n$$"
        case "code":
            return f"```\n{piece.raw}\n```"
        case _:
            return "\n\n".join(map(_runs, piece.lines))


def _body(piece: Piece) -> str:
    """As DeepSeek-OCR writes it: a figure has no words, a caption stands in the middle."""
    match piece.kind:
        case "figure":
            return ""
        case "caption":
            return f"<center>{_inline(piece)}</center>"
        case "formula":
            return f"\\[\n{piece.raw}\n\\]"
        case _:
            return _markdown(piece)


def _whole(pieces: Sequence[Piece]) -> str:
    parts = []
    for piece in pieces:
        x0, y0, x1, y1 = piece.box
        words = re.sub(r"[\[\]()]", "", _inline(piece))
        figure = f"![{words}](page_{x0}_{y0}_{x1 - x0}_{y1 - y0}.png)"
        parts.append(figure if piece.kind == "figure" else _markdown(piece))
    return "\n\n".join(parts)


def _html_runs(runs: Sequence[Run]) -> str:
    parts = []
    for run in runs:
        said = html.escape(run.text, quote=False)
        parts.append(f"<{_TAGS[run.style]}>{said}</{_TAGS[run.style]}>" if run.style in _TAGS else said)
    return " ".join(parts)


def _html(piece: Piece) -> str:
    said = [_html_runs(line) for line in piece.lines]
    match piece.kind:
        case "title":
            return f"<h1>{said[0]}</h1>"
        case "heading":
            return f"<h2>{said[0]}</h2>"
        case "list":
            return f"<ul>{''.join(f'<li>{line}</li>' for line in said)}</ul>"
        case "table":
            return table_html(piece)
        case "formula":
            return f'<math display="block">{html.escape(piece.raw, quote=False)}</math>'
        case "code":
            return f"<pre><code>{html.escape(piece.raw, quote=False)}</code></pre>"
        case "figure":
            return f'<img alt="{html.escape(_inline(piece))}"/>'
        case _:
            return "".join(f"<p>{line}</p>" for line in said)


def _doctag(piece: Piece) -> str:
    place = "".join(f"<loc_{side // 2}>" for side in piece.box)
    match piece.kind:
        case "table":
            return f"<otsl>{place}{table_otsl(piece)}</otsl>"
        case "list":
            return f"<unordered_list>{''.join(_doctag_items(piece))}</unordered_list>"
        case "figure":
            return f"<picture>{place}</picture>"
        case "formula":
            said = piece.raw
        case "code":
            said = f"<_Python_>{piece.raw}"
        case _:
            said = "\n".join(map(_runs, piece.lines))
    name = _DOCTAGS[piece.kind]
    return f"<{name}>{place}{said}</{name}>"


def _doctag_items(piece: Piece) -> Iterator[str]:
    x0, top, x1, _ = (side // 2 for side in piece.box)
    for y0, line in zip(range(top, 500, 3), piece.lines, strict=False):
        yield f"<list_item><loc_{x0}><loc_{y0}><loc_{x1}><loc_{y0 + 2}>{_runs(line)}</list_item>"
