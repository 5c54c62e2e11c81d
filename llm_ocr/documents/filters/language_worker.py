"""The process that identifies languages: `python -m llm_ocr.documents.filters.language_worker`."""

from collections.abc import Mapping
from typing import Any

from llm_ocr.documents.filters.language import known_languages, other_language
from llm_ocr.processes.worker import serve


def _known(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"codes": known_languages()}


def _judge(payload: Mapping[str, Any]) -> dict[str, Any]:
    found = other_language(payload["text"], payload["wanted"])
    return {"code": found[0], "sure": found[1]} if found else {"code": "", "sure": 0.0}


if __name__ == "__main__":
    serve({"known": _known, "judge": _judge}, prepare=known_languages)  # its model is unpacked in a temporary file
