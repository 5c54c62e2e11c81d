"""Documents that filters have left out of the plan: counted in the generation's marker, listed beside its units."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

#: Documents named in a marker.
EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Filtered:
    """What the marker of a generation says of them.

    `counts` and `readmitted` are by cause: the filter's name, and behind a space what it found where there are kinds
    (`language de`). `readmitted` are documents in the lists of older generations that this one plans all the same,
    because other filters were on. `filters` says which are on.
    """

    filters: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    readmitted: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Mapping[str, str], ...] = ()  # source, reason, detail
    object: str = ""  # the list; "" where it is empty
    sha256: str = ""
    size: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON values; `filtered_from_json` is the inverse."""
        return asdict(self)


class Marked(Protocol):
    """A generation."""

    @property
    def filtered(self) -> Filtered | None:
        """None where nothing is to be said."""


def filtered_from_json(value: Mapping[str, Any]) -> Filtered:
    """Raises KeyError or TypeError for anything but what `to_json` made."""
    return Filtered(**{**value, "examples": tuple(value["examples"])})


def cause_of(reason: str, kind: str) -> str:
    """What documents are counted by."""
    return f"{reason} {kind}" if kind else reason


def counts_of(found: Iterable[Marked]) -> dict[str, int]:
    """How many documents are left out now, by cause, the most frequent first."""
    counts: Counter[str] = Counter()
    for generation in found:
        if generation.filtered is not None:
            counts.update(generation.filtered.counts)
            counts.subtract(generation.filtered.readmitted)
    return {cause: count for cause, count in sorted(counts.items(), key=_most_first) if count > 0}


def examples_of(found: Iterable[Marked]) -> tuple[Mapping[str, str], ...]:
    """Some documents that were left out, the first ones of the first generations."""
    every = (example for one in found if one.filtered is not None for example in one.filtered.examples)
    return tuple(example for example, _ in zip(every, range(EXAMPLES), strict=False))


def filtered_text(counts: Mapping[str, int]) -> str:
    """`12 filtered: 9 language (de 7, fr 2), 3 forms`, from counts by cause; empty for none."""
    if not counts:
        return ""
    by_reason: dict[str, dict[str, int]] = {}
    for cause, count in sorted(counts.items(), key=_most_first):
        reason, _, kind = cause.partition(" ")
        by_reason.setdefault(reason, {})[kind] = count
    sums = sorted(((reason, sum(kinds.values())) for reason, kinds in by_reason.items()), key=_most_first)
    parts = (f"{count} {reason}{_kinds_text(by_reason[reason])}" for reason, count in sums)
    return f"{sum(counts.values())} filtered: {', '.join(parts)}"


def filtered_to_json(counts: Mapping[str, int], examples: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """As `status --json` tells it."""
    reasons: Counter[str] = Counter()
    languages: dict[str, int] = {}
    for cause, count in counts.items():
        reason, _, kind = cause.partition(" ")
        reasons[reason] += count
        if kind:
            languages[kind] = count
    return {
        "documents": reasons.total(),
        "reasons": dict(reasons),
        "languages": languages,
        "examples": [dict(example) for example in examples],
    }


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _kinds_text(kinds: Mapping[str, int]) -> str:
    named = {kind: count for kind, count in kinds.items() if kind}
    shown = named if len(named) == 1 else [f"{kind} {count}" for kind, count in named.items()]
    return f" ({', '.join(shown)})" if named else ""
