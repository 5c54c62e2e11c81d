"""Values that the words of a quote state, and values that they do not."""

import pytest

from llm_ocr.results.field_values import states


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Total in pounds 1.234,50", 1234.5),
        ("CHF 1'234.50", 1234.5),
        ("Population 1\u202f234\u00a0567", 1234567),
        ("Rs 12,34,567.00", 1234567),
        ("المجموع ١٢٣٫٥", 123.5),
        ("G-20 114.00 212.00", 212),
        ("114 212 300", 212),
        ("Balance -12.00", -12),
        ("Balance (12.00)", -12),
        ("Saldo 12,00-", -12),
        ("VAT 19 %", 0.19),
        ("VAT 19 %", 19),
        ("on 03.04.2024", 2024),
        ("10–20 kg", 20),
        ("1.5e3", 1500),
        ("12345678901234567890123456789012", 12345678901234567890123456789012),
        ("Total 1.234,50", "1234.5"),
        ("Seller: Quarrel &amp; Sons", "Quarrel & Sons"),
        ("Seller: Quarrel & Sons", "Sons, Quarrel"),
        ("The confer-\nence", "conference"),
        ("Oﬃce: Graﬀ", "Graff"),
        ("会社名：東京電機株式会社", "東京電機株式会社"),
        ("3 March 2024", "2024-03-03"),
        ("March 3rd, 2024", "2024-03-03"),
        ("3-Mar-24", "2024-03-03T00:00:00"),
        ("den 3. März 2024", "2024-03-03"),
        ("2024年3月3日", "2024-03-03"),
        ("due 03/11/24", "2024-11-03"),
        ("€ 12", "€"),
        ("12", True),
        ("invoice 1847 of Finch", {"number": "1847", "names": ["Finch"]}),
    ],
)
def test_values_are_stated_in_any_usual_form(text, value):
    assert states(text, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Total 1.234,50", 1324.5),
        ("Total 1.234,50", 123450),
        ("Total 1.234,50", -1234.5),
        ("Total 1234", 12.34),
        ("Total", 212),
        ("twelve", 12),
        ("9" * 400, 1),
        ("9" * 400, "sNaN"),
        ("1, " * 20_000 + "a" * 20_000, "2024-03-01"),
        ("Invoice number 1847", "1848"),
        ("Invoice number 1847", "not stated"),
        ("3 March 2024", "2024-03-13"),
        ("3 March 2024", "2023-03-03"),
        ("due 03/11/24", "2024-12-03"),
        ("invoice 1847 of Finch", {"number": "1847", "names": ["Quarrel"]}),
    ],
)
def test_other_values_are_not_stated(text, value):
    assert not states(text, value)
