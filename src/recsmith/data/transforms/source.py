"""A dataset whose samples are transformed as they are read."""

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

from recsmith._types import Ints
from recsmith.data.deduplication import with_runs_once
from recsmith.data.schema import DataSchema
from recsmith.data.source import Block, BlockSource
from recsmith.data.transforms.declared import Transform, transform_to_raw
from recsmith.data.transforms.graph import TransformGraph
from recsmith.errors import CorruptFile


class TransformedSource:
    """The blocks of another source, transformed.

    wrong: `skip` counts samples without an outcome as corrupt ones, and lets a rank pass over max_wrong more of them an
    epoch; `stop` raises CorruptFile, which names transform and sample.
    """

    def __init__(
        self, source: BlockSource, transforms: Sequence[Transform], wrong: Literal["skip", "stop"] = "stop",
        max_wrong: int = 0,
    ) -> None:  # fmt: skip
        self.source, self.wrong, self.max_wrong = source, wrong, max_wrong
        self.graph = TransformGraph(source.schema, transforms)

    @property
    def schema(self) -> DataSchema:
        """What a sample holds once it is transformed."""
        return self.graph.schema

    @property
    def num_samples(self) -> int | None:
        """How many samples there are; None where nobody has counted them yet."""
        return self.source.num_samples

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Blocks that can only be read one after the other."""
        return self.source.files

    @property
    def max_corrupt(self) -> int:
        """Corrupt rows, and samples without an outcome, that a rank passes over."""
        return self.source.max_corrupt + (self.max_wrong if self.wrong == "skip" else 0)

    @property
    def digest(self) -> str:
        """A word that changes with data and transforms."""
        said = json.dumps([transform_to_raw(each) for each in self.graph.transforms], sort_keys=True)
        return hashlib.sha256(f"{self.source.digest} {self.wrong} {said}".encode()).hexdigest()[:16]

    def sizes(self) -> Ints:
        """Samples of each block."""
        return self.source.sizes()

    def read(self, block: int) -> Block:
        """The samples of a block, transformed; of bags that are those of the sample before, only the first is."""
        found = self.source.read(block)
        samples, wrong, first = self.graph.apply(with_runs_once(found.samples, self.graph.read_features))
        if wrong is None or first is None:
            return Block(samples=samples, valid=found.valid, first_corrupt=found.first_corrupt)
        if self.wrong == "stop":
            raise CorruptFile(f"{first.words}; mend it, or pass over such samples with `wrong: skip`")
        valid = ~wrong if found.valid is None else found.valid & ~wrong
        return Block(samples=samples, valid=valid, first_corrupt=found.first_corrupt or first.words)
