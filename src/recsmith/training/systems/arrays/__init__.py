"""Several models in one job (Purandare et al., "mu-TWO", MLSys 2023): one stream of batches, one exchange, one lookup.

settings.py says what a run names, members.py which runs these are and what they may not be, gains.py what it brings,
parts.py what does not go with it: none of them needs torch. weighing.py decides whether it pays, model.py is the model
of all members, sharding.py puts it on ranks and shows a member of it as a job of its own, loop.py trains, and
describing.py is its dry run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.training.seams.system import System
from recsmith.training.systems.arrays.settings import WHOLE_ROWS, RunArray

if TYPE_CHECKING:
    from recsmith.training.job.agreement import Agreement, Ending
    from recsmith.training.run.run import Run

COPIES = 4  # times its pooled numbers that the update of an array has at once
NUMBER_BYTES = 4


class Arrays(System):
    """Several models in one job."""

    key = "array"
    settings = RunArray
    about = "models that are trained in one job on the same batches, each by settings of its own (docs/array.md)"

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Types under which members lie alike."""
        return () if run.array is None else (TableRule(tables="*", sharding_types=WHOLE_ROWS),)

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """What the update of all members has at once."""
        if run.array is None:
            return 0
        workload = plan.workload
        columns = sum(
            table.embedding_dim * (1 if table.pooled else each.pooling_factor * each.num_poolings)
            for table in workload.tables for each in table.features
        )  # fmt: skip
        return round(NUMBER_BYTES * COPIES * workload.batch_size * columns)

    def trained_runs(self, run: "Run") -> "Sequence[Run] | None":
        """The members."""
        from recsmith.training.systems.arrays.members import members_of

        return None if run.array is None else list(members_of(run).values())

    def describe(self, run: "Run") -> Any:
        """Together, or as the first of the members does."""
        if run.array is None:
            return None
        from recsmith.training.systems.arrays.describing import described_array

        return described_array(run)

    def train(
        self, run: "Run", agreement: "Agreement", ending: "Ending", train_one: Any, train_prepared: Any
    ) -> Raw | None:
        """Together, or one after the other."""
        if run.array is None:
            return None
        from recsmith.training.systems.arrays.loop import train_array

        return train_array(run, agreement, ending, train_one, train_prepared)


SYSTEM = Arrays()
