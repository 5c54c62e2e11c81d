"""Folders of bad files under names good and bad. A file follows from the seed and its number alone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hostile_names import file_name
from mutated_images import image_case
from mutated_pdfs import pdf_case


@dataclass(frozen=True, slots=True)
class Pools:
    """Whole files to spoil: `pdfs` and `images`."""

    pdfs: Sequence[bytes]
    images: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Case:
    """A file: its `number`, what was done to it, its name and its bytes."""

    number: int
    kind: str
    name: str
    data: bytes


def case(seed: int, number: int, pools: Pools) -> Case:
    """Three of five are PDFs, the others images; one of ten has a hostile name."""
    chance = random.Random(f"{seed} {number}")
    if chance.random() < 0.6:
        kind, data = pdf_case(chance, pools.pdfs)
        suffix = "pdf"
    else:
        kind, suffix, data = image_case(chance, pools.images)
    name = file_name(chance) if chance.random() < 0.1 else f"{number} {kind}.{suffix}"
    return Case(number, kind, name, data)


def put(cases: Sequence[Case], documents: Path) -> dict[str, int]:
    """Write the files; the numbers by their names. Of two with one name the second gets its number before it."""
    numbers: dict[str, int] = {}
    for one in cases:
        path = documents / one.name
        if path.exists() or path.name in numbers:
            path = documents / f"{one.number}.pdf"
        path.write_bytes(one.data)
        numbers[path.name] = one.number
    return numbers
