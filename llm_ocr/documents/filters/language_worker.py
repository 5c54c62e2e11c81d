"""Worker process that identifies languages: `python -m llm_ocr.documents.filters.language_worker`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from llm_ocr.sandbox.worker import serve

# The language of a text, and whether it is one of those that are wanted. With py3langid, in a process of its own.


#: The label for what is no language: tables of numbers, program code.
NONE = "zxx"
#: A document is left out only when the wanted languages are less probable than this, together ...
WANTED_BELOW = 0.01
#: ... and the three most probable ones at least this, together. Text that is no prose (lists of names, code, a text
#: layer that is wrong) spreads over many. Measured on manual pages in 10 languages and English PDFs, in stretches of
#: 100 to 8,000 characters: of 14,006 none was left out wrongly; of those in another language 75 % with 100 characters
#: were, 86 % with 200, 92 % with 800 and nearly all with 8,000. Manual pages hold untranslated parts: those that were
#: taken for English are not counted. The numbers were chosen on the same texts.
SURE, FIRST = 0.95, 3


@cache
def _identifier() -> Any:
    """Reads the model that comes with the package: 0.8 s, 110 MB."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def known_languages() -> list[str]:
    """The codes that can be told apart, in alphabetical order."""
    return sorted(label for label in _identifier().labels if label != NONE)


def other_language(text: str, wanted: Iterable[str]) -> tuple[str, float] | None:
    """The language and its probability when it surely is none of the wanted ones, else None."""
    ranked: Sequence[tuple[str, float]] = _identifier().rank(text)
    chosen = frozenset(wanted)
    code, sure = ranked[0]
    doubtful = sum(share for _, share in ranked[:FIRST]) < SURE
    hoped = sum(share for label, share in ranked if label in chosen)
    if code == NONE or code in chosen or doubtful or hoped >= WANTED_BELOW:
        return None
    return code, sure


# The process that identifies languages: `python -m llm_ocr.documents.filters.language_worker`.


def _known(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"codes": known_languages()}


def _judge(payload: Mapping[str, Any]) -> dict[str, Any]:
    found = other_language(payload["text"], payload["wanted"])
    return {"code": found[0], "sure": found[1]} if found else {"code": "", "sure": 0.0}


if __name__ == "__main__":
    serve({"known": _known, "judge": _judge}, prepare=known_languages)  # its model is unpacked in a temporary file
