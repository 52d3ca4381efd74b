"""Servers and trainers are forked from the process that forks ranks: each would import PyTorch and TorchRec anew."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from support.ranks import Forks

from recsmith.training.systems.remote import hosting


@pytest.fixture(scope="package", autouse=True)
def quick_processes(forks: Forks) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosting, "subprocess", SimpleNamespace(Popen=forks.popen))
        yield
