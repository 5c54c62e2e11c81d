"""What is wrong with a page, in words for people, from the parts of its quality."""

from collections.abc import Mapping

from llm_ocr.results.quality import scales

#: Parts that are worse than this on the common scale are told.
_TOLD = 0.9
_WORDS: Mapping[str, str] = {
    scales.FOUND: "text of the page's layer is missing: {lack}",
    scales.BACKED: "text that the page's layer does not have: {lack}",
    scales.ORDER: "text that is not read down its columns, by the places of the layer: {lack}",
    scales.SEQUENCE: "pieces that are not read down their columns, by their boxes: {lack}",
    scales.COVERED: "ink outside of all boxes: {lack}",
    scales.FILLED: "less text than the ink is good for: {share} of it",
    scales.FITS: "more text than the ink is good for: it holds {share} of it",
    scales.UNREPEATED: "text that repeats itself: {lack}",
    scales.READABLE: "characters that cannot be read: {lack}",
    scales.WHOLE: "the answer was cut off or malformed",
    scales.CONFIDENT: "OCR is not sure of what it read: {share}",
}


def what_is_wrong(parts: Mapping[str, float]) -> str:
    """The parts that are not as they should be, the worst first; "" for none."""
    bad = sorted((scales.on_scale(name, value), name) for name, value in parts.items() if name in _WORDS)
    return "; ".join(_told(name, parts[name]) for scaled, name in bad if scaled < _TOLD)


def _told(name: str, value: float) -> str:
    return _WORDS[name].format(lack=_percent(1 - value), share=_percent(value))


def _percent(share: float) -> str:
    """A small share is not told as none."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share <= 0 else "under 1 %"
