"""Assertions of the shared contract explain themselves, as those of test modules do; its problems are built once."""

import pytest
from support.shared_problems import BuiltOnce

pytest.register_assert_rewrite("recsmith.testing")


@pytest.fixture(scope="module")
def built_once() -> BuiltOnce:
    return BuiltOnce()


@pytest.fixture
def shared_problems(built_once: BuiltOnce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal questions share their problem, evaluator and bound, whichever planner is asked and however often."""
    built_once.use(monkeypatch)
