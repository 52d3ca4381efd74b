"""Shared by all tests: where the public data lies, and small nouns to test with."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


def find_data() -> Path | None:
    """The folder of real table lists beside the checkout, if there is one."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "data"
        if folder.is_dir():
            return folder
    return None


@pytest.fixture(scope="session")
def data() -> Path:
    folder = find_data()
    if folder is None:
        pytest.skip("the folder of real table lists is absent")
    return folder
