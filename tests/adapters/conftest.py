"""TorchRec imports with warnings that are not ours, and takes seconds: import it once, quietly, where it is there."""

import logging
import warnings
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def torchrec() -> None:
    if find_spec("torchrec") is None:
        pytest.skip("torchrec is not installed")
    logging.getLogger("torchrec").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import recsmith.torchrec  # noqa: F401
