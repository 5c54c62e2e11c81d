"""One map from the labels of all models to kinds of blocks.

Labels as seen in the answers of DeepSeek-OCR, dots.ocr, LightOnOCR, MinerU, PaddleOCR-VL, Granite-Docling, Chandra and
Surya. Case and the choice of `-`, `_` or space make no difference.
"""

from llm_ocr.types import BlockKind

_LABELS: dict[BlockKind, str] = {
    BlockKind.FIGURE: (
        "image figure picture photo diagram chart image_block header_image footer_image seal stamp logo chemical_block"
    ),
    BlockKind.TABLE: "table",
    BlockKind.FORMULA: "formula equation equation_block display_formula inline_formula isolate_formula",
    BlockKind.TITLE: "title doc_title",
    BlockKind.HEADING: "heading section section_header sub_title subtitle paragraph_title",
    BlockKind.CAPTION: "caption figure_title table_title chart_title",
    BlockKind.HEADER: "header page_header",
    BlockKind.FOOTER: "footer page_footer",
    BlockKind.PAGE_NUMBER: "page_number number",
    BlockKind.FOOTNOTE: "footnote",
    BlockKind.CODE: "code code_block algorithm",
    BlockKind.LIST_ITEM: "list list_item list_group bibliography table_of_contents reference_content",
    BlockKind.TEXT: "text paragraph plain_text other abstract aside_text reference formula_number handwriting",
}
_KINDS = {label: kind for kind, labels in _LABELS.items() for label in labels.split()}
#: Labels of figures, for profiles whose models may use any of them.
FIGURE_LABELS = frozenset(_LABELS[BlockKind.FIGURE].split())
_SPACES = str.maketrans("- ", "__")
_SECTION_LEVEL = "section_header_level_"
_ENDINGS = {"_caption": BlockKind.CAPTION, "_footnote": BlockKind.FOOTNOTE}


def normal(label: str) -> str:
    """The label as this map spells it: lower case, words joined by `_`."""
    return label.strip().casefold().translate(_SPACES)


def known_kind(label: str) -> BlockKind | None:
    """What a label means; None for one that no known model uses."""
    name = normal(label)
    if name.startswith(_SECTION_LEVEL):
        return BlockKind.HEADING
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    return _KINDS.get(name)


def kind_of(label: str) -> BlockKind:
    """What a label means; TEXT for one that is not known, so that its text stays on the page."""
    return known_kind(label) or BlockKind.TEXT


def level_of(label: str) -> int:
    """The heading level that a label names (`section_header_level_2`); 0 for one that names none."""
    digits = normal(label).removeprefix(_SECTION_LEVEL)
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) == 1 else 0
