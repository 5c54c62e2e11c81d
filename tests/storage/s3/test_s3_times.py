"""Times are read as they are written: in listings, in headers, and as some other services write them."""

import pytest

from llm_ocr.storage.s3.client import _time


@pytest.mark.parametrize(
    "written",
    [
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:00:00Z",
        "2026-01-01T02:00:00+02:00",
        "Thu, 01 Jan 2026 00:00:00 GMT",
        "20260101T000000Z",
        "2026-01-01T00:00:00",
        1767225600,
        "1767225600",
    ],
)
def test_all_forms_of_one_time_are_the_same(written):
    assert _time(written).timestamp() == 1767225600


def test_what_is_no_time_is_an_error():
    with pytest.raises(ValueError, match="no time"):
        _time("no time")
