"""Where a text that was found on a page stands in a model's answer: by runs of letters that both have. Pure, linear."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

#: Letters and digits of a run: so many in a row are not the same by chance.
RUN = 12
#: A block holds a part of a text with this share of the text's runs, or with this share of its own.
_SHARE, _OWN_SHARE = 0.15, 0.5
_TAG = re.compile(r"<[^<>]*>")
_TWICE = -1


class Places:
    """The blocks of an answer by their texts; what stands in two of them is in none."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._runs: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._sizes: list[int] = []
        for index, text in enumerate(texts):
            letters = letters_of(text)
            runs = _runs(letters)
            self._sizes.append(len(runs))
            for run in runs:
                if self._runs.setdefault(run, index) != index:
                    self._runs[run] = _TWICE
            if letters:
                self._whole[letters] = _TWICE if letters in self._whole else index

    def find(self, text: str) -> tuple[int, int] | None:
        """The first and the last block in which the text stands; None where that is not known.

        Parts far from each other are no parts of one text: then it stands in the block that holds most of it.
        """
        letters = letters_of(text)
        whole = self._whole.get(letters, _TWICE)
        if whole != _TWICE:
            return whole, whole
        runs = _runs(letters)
        votes = Counter(self._runs.get(run, _TWICE) for run in runs)
        del votes[_TWICE]
        if not votes:
            return None
        held = [
            index
            for index, count in votes.items()
            if count >= _SHARE * len(runs) or count >= _OWN_SHARE * self._sizes[index]
        ]
        if not held:
            return None
        first, last = min(held), max(held)
        if last - first >= 2 * len(held):
            first = last = votes.most_common(1)[0][0]
        return first, last

    def share(self, text: str, indices: frozenset[int]) -> float:
        """Which share, 0..1, of the text's runs stands in these blocks; 0 for a text that is too short for one."""
        runs = _runs(letters_of(text))
        return sum(self._runs.get(run) in indices for run in runs) / len(runs) if runs else 0.0


def letters_of(text: str) -> str:
    """Its letters and digits, without case, marks of Markdown and tags."""
    plain = unicodedata.normalize("NFKC", _TAG.sub("", text)).casefold()
    return "".join(filter(str.isalnum, plain))


def _runs(letters: str) -> list[str]:
    return [letters[start : start + RUN] for start in range(len(letters) - RUN + 1)]
