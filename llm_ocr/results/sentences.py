"""Where text may be cut: between sentences, and between words. Any script; linear in the length; never raises."""

import re
from collections.abc import Iterator

#: An end of a sentence with what closes behind it. Latin marks need white space and no small letter behind them; those
#: of scripts that write no spaces, and of Devanagari, Arabic and Armenian, end one wherever they stand.
_END = re.compile(
    r"""(?:
        (?<![\s.!?…])[.!?…]++["'”’»)\]]*+(?=\s+[^\sa-z])
      | [。！？｡]++[」』”’）】]*+
      | [।॥؟۔։]++
    )""",
    re.VERBOSE,
)
_LOOK_BACK = 16  # characters, more than the longest abbreviation
_ABBREVIATION = re.compile(
    r"""(?:^|[\s(\[“"'])(?:
        [A-ZÀ-ÞΑ-ΩА-Я]                                                        # initials
      | [^\W\d_](?:\.[^\W\d_])+                                               # i.e, e.g, z.B, U.S
      | (?i:figs?|tabs?|eqs?|nos?|vol|secs?|ch|c|pp?|cf|vs|ca|approx|al|eds?|dr|mrs?|ms|prof|st|mt|jr|sr|inc|ltd|corp)
      | (?i:art|abs|bzw|vgl|nr|bd|hrsg|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)
    )\.$""",
    re.VERBOSE,
)
_NUMBERED = re.compile(r"(?:^|\n)[ \t]*\d{1,3}\.$")  # the mark of a list item
_WORD = re.compile(r"\S+\s*")
# Han, kana, Thai, Lao, Burmese, Khmer: no spaces between words, so that a cut between any two characters must do
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\uff00-\uffef]")
_CHARACTER = re.compile(rf"{_NO_SPACES.pattern}\s*|(?:(?!{_NO_SPACES.pattern})\S)+\s*")


def sentences(text: str) -> Iterator[str]:
    """The sentences in order, each with the white space behind it: joined, they are the text."""
    done = 0
    for end in _END.finditer(text):
        at = end.end()
        if end[0][0] == "." and _no_end(text, at, end[0]):
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        yield text[done:at]
        done = at
    if done < len(text):
        yield text[done:]


def _no_end(text: str, at: int, mark: str) -> bool:
    before = text[max(0, at - _LOOK_BACK) : at]
    return mark == "." and bool(_ABBREVIATION.search(before) or _NUMBERED.search(before))


def words(text: str) -> Iterator[str]:
    """The words in order, each with the white space behind it; single characters where a script has no spaces.

    White space before the first word belongs to it: joined, they are the text.
    """
    pattern = _CHARACTER if _NO_SPACES.search(text) else _WORD
    begin = 0
    for word in pattern.finditer(text):
        yield text[begin : word.end()]
        begin = word.end()
    if begin < len(text):
        yield text[begin:]
