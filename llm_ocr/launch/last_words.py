"""Why a stage ended, from the end of its log."""

from collections.abc import Iterable

#: So many lines are enough: the command says its error last, with a hint below it.
ENOUGH = 12
_OURS = "llm-ocr: "


def last_words(lines: Iterable[str]) -> str:
    """The command's last message with its hint, as one line; of other programs the last line; "" of an empty log."""
    kept = [line.strip() for line in lines if line.strip()][-ENOUGH:]
    start = max((place for place, line in enumerate(kept) if line.startswith(_OURS)), default=len(kept) - 1)
    return " ".join(kept[max(start, 0) :]).removeprefix(_OURS)
