"""A source of batches of one's own: a stream without an end. Run: python examples/own_source.py.

A run names it as `train: {source: own_source:Clicks, seed: 1}`; nothing else of RecSmith knows of it.
"""

import tempfile

import numpy as np

from recsmith.data import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.training import Checkpointing, Run, RunData, train

ITEMS = 100


class Clicks:
    """Clicks 0, 1, 2, ... of a stream; every rank takes its own of each step. A state is how many all have taken."""

    schema = DataSchema(features=(DataFeature(name="item", num_embeddings=ITEMS),), dense=(), labels=("click",))
    length = None

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def batches(self, rank, world, size, state):
        """From a state on, for as long as somebody asks."""
        taken = state["taken"] if state else 0
        while True:
            first, taken = taken + rank * size, taken + world * size
            yield self.clicks(np.arange(first, first + size)), {"taken": taken}

    def steps(self, sizes, world):
        """Nobody knows: it does not end."""

    def notes(self, sizes, world, state):
        """What people read when training begins."""
        return [f"clicks from {state['taken'] if state else 0:,} on"]

    def clicks(self, numbers) -> Batch:
        """The clicks of some numbers: items below 30 are liked."""
        items = (numbers * 2654435761 + self.seed >> 8) % ITEMS
        return Batch(
            dense=np.zeros((len(numbers), 0), np.float32),
            ids={"item": JaggedIds(values=items, lengths=np.ones(len(numbers), np.int32))},
            labels=(items < 30).astype(np.float32)[:, None],
            label_names=self.schema.labels,
            sample_ids=numbers,
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(train={"source": "own_source:Clicks", "seed": 1}, batch_size=256)
        train(Run(data=data, output=f"{folder}/run", steps=40, checkpoint=Checkpointing(every=20)))
