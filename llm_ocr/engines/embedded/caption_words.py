"""How captions begin, in the languages that the engine knows."""

import re

_NUMBER = r"(?:[A-Z]{0,2}[\s.\-]?\d+(?:[.\-–]\d+)*[a-z]?|[IVXL]+\b|[A-Z]\b)"
TABLE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:table|tab\.|tabelle|tableau|tabla|tabela|tabella|表|표)\s*{_NUMBER}", re.IGNORECASE
)

FIGURE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:(?:figure|fig\.?|figura|abbildung|abb\.?|chart|exhibit|plate|scheme|diagram|photo|graph|illustration|map|bild)"
    rf"\s*{_NUMBER}|[图圖図그림]{{1,2}}\s*[\d一二三四五六七八九十]+)\s*(?:[.:|,)–—-]|\s|$)",
    re.IGNORECASE,
)
