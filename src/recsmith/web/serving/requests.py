"""The bodies of requests. asked.py finds the workloads, clusters and plans that they name.

OpenAPI describes the bodies field by field, in bytes and seconds throughout.
"""

from typing import Literal

from recsmith._types import noun
from recsmith.costs import DEFAULT_COST_MODEL
from recsmith.errors import check_rules
from recsmith.problems import Apart, PerRank, Space, TableRule, Together
from recsmith.web.serving.edits import ProblemChanges

LARGEST_SEED = 2**53  # integers below it are exact in JavaScript


@noun
class SampleRequest:
    """A request for a sample of tables like those of a production model."""

    tables: int
    seed: int = 0
    batch_size: int | None = None
    optimizer: str | None = None


@noun
class ConstraintsBody:
    """The constraints of a plan, as in a constraints file; memory and keep_exact as in `recsmith plan`."""

    rules: tuple[TableRule, ...] = ()
    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()
    per_rank: tuple[PerRank, ...] = ()
    memory: Literal["real", "torchrec"] = "real"
    keep_exact: bool = False


@noun
class SearchRequest:
    """A search to start: a workload on a cluster, or the problem of a plan that is kept here, and how to search.

    workload: a built-in name, or the id of a kept one. cluster: `<device>:<per host>[x<hosts>]`, or an id. plan:
    instead of both, the id of a plan whose problem is solved anew. start: whether the search begins with that plan, and
    so never ends with a worse one. constraints: if absent, those of the plan. time_limit_s: None for a search without
    a time limit. stay: whether the search continues without its client; otherwise it ends if nobody has asked for it
    for a while.
    """

    workload: str | None = None
    cluster: str | None = None
    plan: str | None = None
    start: bool = False
    name: str = ""
    changes: ProblemChanges | None = None
    constraints: ConstraintsBody | None = None
    space: Space | None = None
    planner: str = "auto"
    cost_model: str = DEFAULT_COST_MODEL
    seed: int = 0
    iterations: int | None = None
    time_limit_s: float | None = 30.0
    stay: bool = False

    def __post_init__(self) -> None:
        """Check that exactly one problem is named."""
        named = (self.plan is not None, self.workload is not None and self.cluster is not None)
        check_rules(
            None if any(named) and not (self.plan and (self.workload or self.cluster))
            else "a search needs a workload and a cluster, or a plan alone; name one of the two",
            "start is the plan that a search begins with; name the plan" if self.start and not self.plan else None,
            None if 0 <= self.seed < LARGEST_SEED
            else f"seed is {self.seed}; seeds are whole numbers from 0 to 2^53 - 1",
        )  # fmt: skip


@noun
class AssumedChange:
    """Values for fields that a file did not state about its tables, and that its reader assumed."""

    optimizer: str | None = None
    data_type: str | None = None
    batch_size: int | None = None


@noun
class RunningOn:
    """Where a running plan runs. workload: its tables. cluster: `<device>:<per host>[x<hosts>]`. Or ids of both."""

    workload: str
    cluster: str


@noun
class PlanChange:
    """A plan's new name or note; a field that is None stays unchanged."""

    name: str | None = None
    note: str | None = None


@noun
class PlanCopy:
    """A copy of a plan. name: if empty, the plan's name followed by ", copy"."""

    name: str = ""
