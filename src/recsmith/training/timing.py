"""Where the time of a step goes: waiting for data, and the forward pass."""

import time
from collections.abc import Generator, Iterator

from torch import nn

from recsmith.training.batches import TrainingBatch
from recsmith.training.telling import StepTimes


def timed(source: Iterator[TrainingBatch], times: StepTimes) -> Generator[TrainingBatch]:
    """The batches, and how long the loop waited for them."""
    while True:
        begun = time.perf_counter()
        batch = next(source, None)
        times.add("data", time.perf_counter() - begun)
        if batch is None:
            return
        yield batch


def time_forward(model: nn.Module, times: StepTimes) -> None:
    """Count the seconds of forward passes (of their launch, on a GPU)."""
    begun = [0.0]

    def before(*_: object) -> None:
        begun[0] = time.perf_counter()

    def after(*_: object) -> None:
        times.add("forward", time.perf_counter() - begun[0])

    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)
