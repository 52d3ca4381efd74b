"""A plan in terms of the modules of a run's model."""

from dataclasses import replace

from torch import nn

from recsmith.adapters.workload import read_workload
from recsmith.errors import PlanMismatch
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of, sharders_of
from recsmith.training.run import Run


def with_collections(plan: Plan, run: Run, model: nn.Module) -> Plan:
    """The plan with the paths of this model's modules, which files made for a list of tables do not know.

    Raises:
        PlanMismatch: plan and model do not have the same tables.
    """
    found = read_workload(
        model,
        sharders_of(collectives_of(run.comms)),
        batch_size=plan.workload.batch_size,
        optimizer=plan.workload.optimizer,
    )
    paths = {table.name: table.collection for table in found.tables}
    pooled = {table.name: table.pooled for table in found.tables}
    planned = {table.name for table in plan.workload.tables}
    if planned != set(paths):
        odd = min(planned ^ set(paths))
        where = "the plan places and the model lacks" if odd in planned else "the model has and the plan does not place"
        raise PlanMismatch(f"table '{odd}' is one that {where}; plan again for this run")
    for table in plan.workload.tables:
        if table.pooled != pooled[table.name]:
            kinds = ("a sequence table", "a pooled one")
            raise PlanMismatch(
                f"table '{table.name}' is {kinds[table.pooled]} in the plan and {kinds[pooled[table.name]]} in the "
                "model; plan again for this run"
            )
    tables = tuple(replace(table, collection=paths[table.name]) for table in plan.workload.tables)
    return replace(plan, workload=replace(plan.workload, tables=tables))
