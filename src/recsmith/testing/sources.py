"""The contract of batch sources: for your own (write `make`), and for RecSmith's."""

import itertools
import json
from pathlib import Path
from typing import Any

from recsmith.data import Batch
from recsmith.training.run.data import BatchSizes
from recsmith.training.sources.protocol import State

STEPS = 5  # steps that are read: fewer than any source has
SIZE = 16


class BatchSourceContract:
    """The contract of batch sources. Subclass it as a test class; `make` returns a source of at least 400 samples.

    tmp_path: an empty folder, as pytest passes it.
    """

    def make(self, folder: Path) -> Any:
        """A new source, with the same samples each time."""
        raise NotImplementedError

    def test_batches_are_of_the_schema(self, tmp_path: Path) -> None:
        """Batches have the features, labels and dense columns of the schema."""
        source = self.make(tmp_path)
        schema = source.schema
        for batch, _ in read(source, 0, 2, SIZE):
            assert len(batch) == SIZE
            assert set(batch.ids) == set(schema.feature_names)
            assert batch.label_names == schema.labels
            assert batch.dense.shape[1] == len(schema.dense)

    def test_ranks_share_the_samples_of_a_step_and_their_states(self, tmp_path: Path) -> None:
        """Ranks share the samples of a step without overlap, and have equal states."""
        source = self.make(tmp_path)
        ranks = [read(source, rank, 2, SIZE) for rank in range(2)]
        used = [number for each in ranks for batch, _ in each for number in numbers(batch)]
        assert len(used) == len(set(used)) == 2 * STEPS * SIZE
        assert [state for _, state in ranks[0]] == [state for _, state in ranks[1]]

    def test_any_state_goes_on_as_if_nothing_had_happened(self, tmp_path: Path) -> None:
        """From any saved state, a source continues with the same batches."""
        source = self.make(tmp_path)
        whole = read(source, 1, 2, SIZE)
        for step, (_, state) in enumerate(whole[:-1]):
            kept = json.loads(json.dumps(state, allow_nan=False))
            rest = read(self.make(tmp_path), 1, 2, SIZE, kept, STEPS - step - 1)
            assert [numbers(batch) for batch, _ in rest] == [numbers(batch) for batch, _ in whole[step + 1 :]]

    def test_other_ranks_and_sizes_take_the_samples_that_are_left(self, tmp_path: Path) -> None:
        """Another number of ranks, or batch size, continues with samples that were not read yet."""
        source = self.make(tmp_path)
        before = {number for rank in range(2) for batch, _ in read(source, rank, 2, SIZE) for number in numbers(batch)}
        state = read(source, 0, 2, SIZE)[-1][1]
        after = [
            number for rank in range(3) for batch, _ in read(source, rank, 3, 7, state) for number in numbers(batch)
        ]
        assert len(after) == len(set(after)) == 3 * STEPS * 7
        assert not before & set(after)

    def test_its_steps_are_the_steps_that_there_are(self, tmp_path: Path) -> None:
        """`steps`, if it is known, is the number of batches that a rank gets."""
        source = self.make(tmp_path)
        sizes = BatchSizes(((0, SIZE),))
        steps = source.steps(sizes, 2)
        if steps is not None:
            assert steps == len(read(source, 0, 2, SIZE, steps=steps + 1))
        assert all(isinstance(line, str) for line in source.notes(sizes, 2, None))


def read(
    source: Any, rank: int, world: int, size: int, state: State | None = None, steps: int = STEPS
) -> list[tuple[Batch, State]]:
    """The first batches of a rank after a state."""
    batches = source.batches(rank, world, size, state)
    try:
        return list(itertools.islice(batches, steps))
    finally:
        batches.close()


def numbers(batch: Batch) -> list[int]:
    """The ids of a batch's samples."""
    return batch.sample_ids.tolist()
