"""Words of a text layer have letters of one script, although some fonts name letters of another one."""

import pytest

from llm_ocr.documents.text_layer import without_lookalikes

A, ES, SMALL_O, RHO = "\u0430", "\u0441", "\u043e", "\u03a1"


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        (f"The c{A}ptain can open {A} b{SMALL_O}x", "The captain can open a box"),
        ("\u0421OMPACT HEAT", "COMPACT HEAT"),
        (f"cт\u0440\u0430\u043d{A}", f"{ES}т\u0440\u0430\u043d{A}"),
        (f"{RHO}OPE", "POPE"),
        (
            "\u0410 \u0421\u041e\u041c\u0420\u0410\u0421\u0422 \u0415\u0425\u0421\u041d\u0410NG\u0415R",
            "A COMPACT EXCHANGER",
        ),
        ("Я\u043d\u0434\u0435\u043aс WhatsApp-\u0433\u0440\u0443\u043f\u043f\u0430", None),
        ("\u0394x and \u03bcm of \u0394ABC", None),
        ("\u0410. \u0421. Petrov", None),
        ("Яndex", None),
    ],
)
def test_letters_that_look_alike_get_the_script_of_their_word(named, shown):
    found = without_lookalikes(named)
    assert (found, len(found)) == (named if shown is None else shown, len(named))
