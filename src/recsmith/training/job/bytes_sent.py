"""Bytes that a rank hands to collectives: counted where PyTorch calls them, in the step as it really runs."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class BytesSent(TorchDispatchMode):
    """Counts the bytes of the tensors that are given to c10d's collectives within, by the name of the collective.

    What a collective really puts on the wire depends on its algorithm and on the number of ranks; the bytes that it is
    given do not. Those of the backward pass are counted on every device: autograd takes the mode along to its threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a collective, and run it."""
        name = str(getattr(func, "name", lambda: "")())
        if name.startswith("c10d::"):
            word = name.removeprefix("c10d::").partition(".")[0].rstrip("_")
            given = args[1] if word in _INPUT_SECOND else args[0]
            self.bytes[word] = self.bytes.get(word, 0) + _size(given)
        return func(*args, **(kwargs or {}))


_INPUT_SECOND = ("alltoall_base", "alltoall", "allgather", "_allgather_base", "reduce_scatter", "_reduce_scatter_base")


def _size(tensors: Any) -> int:
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    return sum(map(_size, tensors)) if isinstance(tensors, list | tuple) else 0
