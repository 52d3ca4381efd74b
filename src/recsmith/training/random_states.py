"""The states of random number generators of a rank, as plain data and back."""

import base64
import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """States of Python's, NumPy's and PyTorch's generators (JSON data)."""
    version, words, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    cuda = [_text(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else []
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), place, has_gauss, cached],
        "torch": _text(torch.get_rng_state()),
        "cuda": cuda,
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Put the generators of this process back into these states."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    torch.set_rng_state(_tensor(states["torch"]))
    if torch.cuda.is_available() and states["cuda"]:
        torch.cuda.set_rng_state_all([_tensor(state) for state in states["cuda"]])


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
