"""Assertions of the shared contract explain themselves, as those of test modules do."""

import pytest

pytest.register_assert_rewrite("recsmith.testing")
