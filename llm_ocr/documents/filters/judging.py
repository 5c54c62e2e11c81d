"""The filters over one opened document, in the renderer's process."""

from collections.abc import Callable, Mapping
from typing import Any

from llm_ocr.documents.filters import BLANK, FORMS, SPAM, DocumentView, LeftOut, enough_text
from llm_ocr.documents.filters.spam import spam

Rule = Callable[[DocumentView], LeftOut | None]


def judged(view: DocumentView, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the filters say, as JSON values; `options` are the fields of `FilterOptions`.

    `left_out`: reason and detail, or None. `text`: what the language is to be judged by, empty where it is not.
    `trouble`: what a filter met that could not look; its document stays.
    """
    trouble: list[str] = []
    for name, rule in _RULES.items():
        if options[name] and (found := _tried(name, rule, view, trouble)):
            return {"left_out": [found.reason, found.detail], "text": "", "trouble": ""}
    return {"left_out": None, "text": _text(view, options, trouble), "trouble": "; ".join(trouble)}


def _forms(view: DocumentView) -> LeftOut | None:
    form = view.form()
    return LeftOut(FORMS, form) if form else None


def _blank(view: DocumentView) -> LeftOut | None:
    return LeftOut(BLANK, "no text and no ink on any page") if view.blank() else None


def _tried(name: str, rule: Rule, view: DocumentView, trouble: list[str]) -> LeftOut | None:
    try:
        return rule(view)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a damaged file leads to, a filter must not cost the document
        trouble.append(f"{name}: {type(error).__name__} {error}")
        return None


def _text(view: DocumentView, options: Mapping[str, Any], trouble: list[str]) -> str:
    if not options["languages"]:
        return ""
    try:
        text = view.text()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        trouble.append(f"language: {type(error).__name__} {error}")
        return ""
    return text if enough_text(text) else ""


#: The cheapest first; one that is only asked when no other has spoken stands last.
_RULES: Mapping[str, Rule] = {FORMS: _forms, SPAM: spam, BLANK: _blank}
