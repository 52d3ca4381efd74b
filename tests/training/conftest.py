"""Servers and trainers are forked from the process that forks ranks: each would import PyTorch and TorchRec anew."""

from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace

import pytest
from support.ranks import Forks
from support.systems import is_here


@pytest.fixture(scope="package", autouse=True)
def quick_processes(forks: Forks) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if is_here("remote"):
            hosting = import_module("recsmith.training.systems.remote.hosting")
            patch.setattr(hosting, "subprocess", SimpleNamespace(Popen=forks.popen))
        yield
