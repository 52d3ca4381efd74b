"""States of random number generators: what checkpoints keep of them, and how other work leaves them unchanged.

Dropout, noise and stochastic rounding draw from the generators of a process. Code that saves, evaluates, exports or
checks a step restores them, so that it does not change what is trained.
"""

import base64
import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def random_kept() -> Generator[None]:
    """Restore the generators of Python, NumPy, PyTorch and this rank's GPU after this context."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def random_states() -> dict[str, Any]:
    """States of the generators of Python, NumPy and PyTorch (JSON data)."""
    version, state, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    cuda = [_as_text(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else []
    return {
        "python": [version, list(state), gauss], "numpy": [kind, np.asarray(keys).tolist(), place, has_gauss, cached],
        "torch": _as_text(torch.get_rng_state()), "cuda": cuda,
    }  # fmt: skip


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore the generators of this process to these states."""
    version, state, gauss = states["python"]
    random.setstate((version, tuple(state), gauss))
    kind, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    torch.set_rng_state(_tensor(states["torch"]))
    if torch.cuda.is_available() and states["cuda"]:
        torch.cuda.set_rng_state_all([_tensor(state) for state in states["cuda"]])


def _as_text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
