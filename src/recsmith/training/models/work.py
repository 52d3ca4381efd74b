"""The work of the layers of history models, from which their step is predicted; without torch.

n positions of a sample: its context, its history and its target
"""

from itertools import pairwise

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.prediction.histories import HistoryWork
from recsmith.training.models.settings import DINSettings, SASRecSettings, SequenceSettings


def layer_work(
    settings: SequenceSettings, width: int, *, lengths: Floats | Ints, others: int, labels: int
) -> HistoryWork:
    """The work of a model's layers for a sample: the mean over samples with histories of these lengths.

    width: columns of its sequence tables. others: columns that `din` also reads.
    """
    events = np.minimum(lengths, settings.longest).astype(np.float64)
    if isinstance(settings, DINSettings):
        n, sizes = float(events.mean()), (4 * width, *settings.attention, 1)
        top = (2 * width + others, *settings.top, labels)
        products = [(n, outward, inward) for inward, outward in pairwise(sizes)]
        return HistoryWork(
            products=(*products, *((1.0, outward, inward) for inward, outward in pairwise(top))),
            positions=n,
            width=width,
        )
    if isinstance(settings, SASRecSettings):
        n, hidden, each = float(events.mean()), settings.hidden or width, width // settings.heads
        block = [*[(n, width, width)] * 4, (n, hidden, width), (n, width, hidden)]
        return HistoryWork(products=tuple(block * settings.blocks), blocks=settings.blocks, heads=settings.heads,
                           keys=each, values=each, positions=n, pairs=float((events**2).mean()),
                           width=width)  # fmt: skip
    events = events + len(settings.context) + (settings.score == "target")
    n, wide, narrow = (
        float(events.mean()),
        settings.heads * settings.linear_dim,
        settings.heads * settings.attention_dim,
    )
    block = [(n, 2 * (wide + narrow), width), (n, width, wide)]
    head = [(1.0, settings.hidden, width), (1.0, labels, settings.hidden)] if settings.score == "target" else []
    return HistoryWork(
        products=(*block * settings.blocks, *head), blocks=settings.blocks, heads=settings.heads,
        keys=settings.attention_dim, values=settings.linear_dim, positions=n, pairs=float((events**2).mean()),
        width=width,
    )  # fmt: skip
