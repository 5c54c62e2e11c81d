"""Assertions of the shared checks say what they compared."""

import pytest

pytest.register_assert_rewrite("checked_runs")
