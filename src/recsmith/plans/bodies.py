"""The fields of plan files, with and without their price."""

from dataclasses import field

from recsmith._types import noun
from recsmith.files import Raw
from recsmith.plans.cost import Bound, StepCost
from recsmith.plans.plan import Placement
from recsmith.sharding import Shard

PRICE = ("planner", "cost_model", "constraints", "cost", "bound", "gap")  # what a plan written by hand may leave out


@noun
class PricedBody:
    """The part of a plan file that is read by its types alone."""

    placements: tuple[Placement, ...]
    constraints: Raw
    planner: str
    cost_model: str
    cost: StepCost
    bound: Bound
    gap: float | None
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])
    digest: str = ""
    shards: tuple[Shard, ...] | None = None


@noun
class Body:
    """The same of a plan without a price, or with a part of one, which is then worked out again."""

    placements: tuple[Placement, ...]
    constraints: Raw | None = None
    planner: str = ""
    cost_model: str | None = None
    cost: StepCost | None = None
    bound: Bound | None = None
    gap: float | None = None
    extrapolated: dict[str, float] = field(default_factory=dict[str, float])
    digest: str = ""
    shards: tuple[Shard, ...] | None = None
