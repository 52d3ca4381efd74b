"""Several models in one job (Purandare et al., "mu-TWO", MLSys 2023): one stream of batches, one exchange, one lookup.

Without torch: settings.py holds the settings, members.py the members' runs and how they may differ, gains.py predicts
the gain, and parts.py says what an array refuses. weighing.py decides whether an array pays, model.py is the model of
all members, sharding.py puts it on ranks and presents each member as a job of its own, loop.py trains, and
describing.py makes the dry run.
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

COPIES = 4  # copies of its pooled numbers that the update of an array needs at once
NUMBER_BYTES = 4


class Arrays(System):
    """The system that trains several models in one job."""

    key = "array"
    settings = RunArray
    about = "models that are trained in one job on the same batches, each by settings of its own (docs/array.md)"

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Allow only sharding types under which all members are placed alike."""
        return () if run.array is None else (TableRule(tables="*", sharding_types=WHOLE_ROWS),)

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """Bytes that the update of all members needs in addition."""
        if run.array is None:
            return 0
        workload = plan.workload
        columns = sum(
            table.embedding_dim * (1 if table.pooled else each.pooling_factor * each.num_poolings)
            for table in workload.tables for each in table.features
        )  # fmt: skip
        return round(NUMBER_BYTES * COPIES * workload.batch_size * columns)

    def trained_runs(self, run: "Run") -> "Sequence[Run] | None":
        """The runs of the members; None if the run has no array."""
        from recsmith.training.systems.arrays.members import members_of

        return None if run.array is None else list(members_of(run).values())

    def describe(self, run: "Run") -> Any:
        """The dry run of all members together, or of the first member if they are trained in turn."""
        if run.array is None:
            return None
        from recsmith.training.systems.arrays.describing import described_array

        return described_array(run)

    def train(
        self, run: "Run", agreement: "Agreement", ending: "Ending", train_one: Any, train_prepared: Any
    ) -> Raw | None:
        """Train the members together or in turn, and return the result; None if the run has no array."""
        if run.array is None:
            return None
        from recsmith.training.systems.arrays.loop import train_array

        return train_array(run, agreement, ending, train_one, train_prepared)


SYSTEM = Arrays()
