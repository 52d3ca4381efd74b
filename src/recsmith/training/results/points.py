"""Points in comparisons of models: the quality of each, and its cost."""

from recsmith._types import noun


@noun
class CompressionPoint:
    """A compression method at a factor: mean AUC over seeds, half its 95 % interval (Student's t, None for one)."""

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
    """A variant of the run. price: of its own plan. auc_within: half of the 95 % interval over seeds; None for one."""

    kind: str
    name: str
    settings: tuple[str, ...]
    price: float
    auc: float | None = None
    auc_within: float | None = None
