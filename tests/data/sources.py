"""A source for tests: blocks of any sizes, whose samples hold only their number."""

import numpy as np

from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds
from recsmith.data.source import SampleBlock


class NumberedSource:
    """Sample n has n as its id; every `corrupt`-th sample is corrupt; `reads` tells the blocks read."""

    schema = DataSchema(features=(DataFeature(name="number"),), dense=(), labels=("label",))
    digest = "numbers"

    def __init__(
        self, sizes: list[int], files: tuple[tuple[int, int], ...] = (), corrupt: int = 0, max_corrupt: int = 0
    ) -> None:
        self._sizes, self.files, self.corrupt, self.max_corrupt = np.array(sizes, np.int64), files, corrupt, max_corrupt
        self.reads: list[int] = []

    @property
    def num_samples(self) -> int:
        return int(self._sizes.sum())

    def sizes(self) -> np.ndarray:
        return self._sizes

    def read(self, block: int) -> SampleBlock:
        self.reads.append(block)
        first = int(self._sizes[:block].sum())
        numbers = first + np.arange(self._sizes[block])
        bags = JaggedIds(values=numbers, lengths=np.ones(len(numbers), np.int32))
        samples = Batch(
            dense=np.zeros((len(numbers), 0), np.float32),
            ids={"number": bags},
            labels=np.zeros((len(numbers), 1), np.float32),
            label_names=("label",),
            sample_ids=numbers,
        )
        valid = numbers % self.corrupt != 0 if self.corrupt else None
        return SampleBlock(samples=samples, valid=valid, first_corrupt="line 1 is garbage")
