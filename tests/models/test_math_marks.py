"""Formulas have one pair of delimiters, and sums of money and code stay."""

import pytest

from llm_ocr.models.parsers.latex import with_dollar_math
from llm_ocr.types import Block, BlockKind, Box


def changed(text: str, kind: BlockKind = BlockKind.TEXT) -> str:
    return with_dollar_math(Block(kind, Box(0, 0, 1, 1), text)).text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"For \( l > 0 \) and \(x\).", "For $l > 0$ and $x$."),
        (r"\[ F = m g \]", "$$\nF = m g\n$$"),
        ("Let $ s = v t $ be, $ v $ is the speed.", "Let $s = v t$ be, $v$ is the speed."),
    ],
)
def test_formulas_are_set_between_dollars(text: str, shown: str):
    assert changed(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Tickets cost $ 5 in winter and $ 9 in summer; a dog travels for $ 2.",
        "A seat costs $ 10 / month or $ 12 / month.",
        r"As shown \(see below\).",
        r"\[12, 14\]",
        "```\n\\(\\d+\\)\n```",
        "The pattern `\\(a\\)` and $x$.",
    ],
)
def test_money_references_and_code_stay(text: str):
    assert changed(text) == text


def test_a_code_block_stays():
    assert changed(r"\(x\)", BlockKind.CODE) == r"\(x\)"
