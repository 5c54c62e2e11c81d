"""The loop of random kills, for a moment: `make test-faults` runs it on every store with fifty."""

import pytest
from kill_loop import loop


@pytest.mark.slow
def test_real_commands_that_are_killed_at_random_lose_and_double_nothing(tmp_path):
    result = loop("hub-bucket", kills=2, units=6, seed=1, folder=tmp_path, workers=1)
    assert (result.problems, result.kills) == ([], 2)
