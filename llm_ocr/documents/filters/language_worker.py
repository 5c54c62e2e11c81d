"""Identify languages in a worker process: `python -m llm_ocr.documents.filters.language_worker`."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from llm_ocr.sandbox.worker import serve

#: Label for text in no language: tables of numbers, program code.
NONE = "zxx"
#: A document is excluded only if the total probability of the wanted languages is below this ...
WANTED_BELOW = 0.01
#: ... and the total of the three most probable languages is at least this. Text that is not prose (lists of names,
#: code, wrong text layers) spreads over many languages. Measured on manual pages in 10 languages and English PDFs, in
#: 14,006 stretches of 100 to 8,000 characters. None was excluded wrongly. The excluded shares in other languages: 75 %
#: with 100 characters, 86 % with 200, 92 % with 800, nearly all with 8,000. Manual pages contain untranslated parts:
#: those taken for English are not counted. The numbers were chosen on the same texts.
SURE, FIRST = 0.95, 3


@cache
def _identifier() -> Any:
    """Load the model that is part of the package: 0.8 s, 110 MB."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _known(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the codes of the known languages in alphabetical order."""
    return {"codes": sorted(label for label in _identifier().labels if label != NONE)}


def _judge(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the language of a text and its probability if it is certainly not a wanted one; otherwise no code."""
    ranked: Sequence[tuple[str, float]] = _identifier().rank(payload["text"])
    chosen = frozenset(payload["wanted"])
    code, sure = ranked[0]
    doubtful = sum(share for _, share in ranked[:FIRST]) < SURE
    hoped = sum(share for label, share in ranked if label in chosen)
    if code == NONE or code in chosen or doubtful or hoped >= WANTED_BELOW:
        return {"code": "", "sure": 0.0}
    return {"code": code, "sure": sure}


if __name__ == "__main__":
    serve({"known": _known, "judge": _judge}, prepare=_identifier)  # the model is unpacked into a temporary file
