"""Models beside each other: what each is worth, and what it takes."""

from recsmith._types import noun


@noun
class CompressionPoint:
    """A method at a factor: mean AUC over seeds, and half its 95 % interval by Student's t; None for one seed."""

    method: str
    factor: float
    weight_bytes: int
    map_bytes: int
    auc: float
    auc_within: float | None
    seeds: int

    @property
    def bytes(self) -> int:
        """Weights and maps together."""
        return self.weight_bytes + self.map_bytes


@noun
class SearchedPoint:
    """A variant of the run. price: planned anew. auc_within: half of its 95 % interval over seeds; None for one."""

    kind: str
    name: str
    settings: tuple[str, ...]
    price: float
    auc: float | None = None
    auc_within: float | None = None
