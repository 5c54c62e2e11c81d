"""Where the long words of the examples may be divided at a line's end.

A list rather than a pattern file: it is short, it is ours, and it makes the line ends the same wherever the
examples are remade.
"""

import re
from itertools import pairwise

_DIVIDED = """
ab-so-lute ab-stract ad-van-tage af-ter-wards al-ready al-ter-nat-ing an-nounced an-other an-swer-ing ar-chive
arith-metic ar-riv-ing at-ten-dance be-cause be-tween black-board car-ry-ing cen-ti-metre cen-ti-metres com-pares
com-puter con-clu-sion coun-cil cov-ered de-scribe de-scribed dif-fer-ence dis-cus-sion di-vided doc-u-ment
drain-ing drift-ing drift-wood ear-lier elec-tric-ity en-ter-ing equa-tion every-thing ex-am-ple ex-ceeds ex-pected
fail-ures fall-ing farm-ers find-ing fol-lows fore-cast fore-cast-ing fore-casts frag-ile gar-den gen-er-a-tions
greater high-est hol-i-days in-stead in-stru-ment in-stru-ments in-tro-duc-tion in-vented kilo-metres larg-est
lev-elled long-est look-ing mat-ters mea-dows me-an-ders mea-sured meet-ing mill-ers mil-li-metres min-utes miss-ing
moor-land morn-ing mul-ti-plied mul-ti-ply near-est note-book note-books noth-ing num-bers of-fices painted pas-ture
pos-si-ble printed quar-ter ques-tion quickly reach-es read-ers read-ing read-ings re-port re-ports re-quire-ment
re-quire-ments re-turned rounded rou-tine sec-ond shal-low sim-pler some-one suc-ces-sive sup-plied tele-phone
tem-per-a-ture there-fore thresh-old to-gether to-mor-row to-night to-wards train-ing un-der-stood up-stream
vil-lage vol-un-teers warn-ing warn-ings weather wel-come whether with-out work-ing writ-ten yard-stick
"""
_BY_WORD = {divided.replace("-", ""): divided.split("-") for divided in _DIVIDED.split()}


def soften(words: str) -> str:
    """The same words with soft hyphens in those of the list; markup in angle brackets is left alone."""
    return re.sub(r"<[^>]*>|&\w+;|[A-Za-z]+", _divide, words)


def _divide(match: re.Match[str]) -> str:
    word = match.group()
    parts = _BY_WORD.get(word.lower())
    if parts is None:
        return word
    ends = [sum(len(part) for part in parts[:n]) for n in range(len(parts) + 1)]
    return "\u00ad".join(word[a:b] for a, b in pairwise(ends))
