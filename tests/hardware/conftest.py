"""FBGEMM imports with warnings that are not ours: import it once, quietly, where it is there."""

import warnings
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def fbgemm() -> None:
    if find_spec("fbgemm_gpu") is None:
        pytest.skip("FBGEMM is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import recsmith.hardware.fused  # noqa: F401
