"""Data as scripts: `llmOcr("rows/0", [...]);`. A page opened from disk may load scripts, but fetch nothing."""

import json
from pathlib import Path
from typing import Any

from llm_ocr.results.text import clean

#: What could end a script or begin a comment where one is read as HTML, and the line ends of old JavaScript.
_ESCAPED = {"</": "<\\/", "<!--": "\\u003c!--", "<script": "\\u003cscript", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script(name: str, value: Any) -> str:
    """The text of one data file. Lists only or objects with our own keys: `__proto__` is no key of a literal."""
    text = clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    for mark, escaped in _ESCAPED.items():
        text = text.replace(mark, escaped)
    return f'llmOcr("{name}",{text});\n'


class DataFiles:
    """The folder of data files; their names are made of our words and numbers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, value: Any) -> None:
        """One file, `<name>.js`."""
        path = self._folder / f"{name}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(name, value), encoding="utf-8", newline="\n")
