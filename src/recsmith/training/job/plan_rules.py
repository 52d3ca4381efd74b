"""Which plans a run can train under: with its codecs, on this device, and from the state of its checkpoint.

A checkpoint of one plan is loaded under another shard by shard, in its stored layout: torch.distributed.checkpoint
reads any rectangle of a tensor that was saved under the same name and size. Weights always are. State of optimizers is,
unless a table changes between copied and sharded (another optimizer holds it), or its columns are split differently
under an optimizer that keeps one number for each row (each column shard has its own numbers).
"""

from collections.abc import Sequence

from recsmith.errors import UsageError
from recsmith.plans import Placement, Plan
from recsmith.problems import Constraints, TableRule
from recsmith.problems.constraints import RulesByTable
from recsmith.training.collectives import collectives_of
from recsmith.training.run import Run
from recsmith.training.run.parts import COPIED, SEQUENCES_ON_CPU
from recsmith.training.seams.predicting import NO_COPIES
from recsmith.training.seams.registry import systems
from recsmith.workloads.optimizers import OPTIMIZERS


def check_loadable(saved: Plan, plan: Plan) -> None:
    """UsageError if the saved plan's state would have to be rearranged to continue under this plan."""
    before = {placement.table: placement for placement in saved.placements}
    tables = {table.name: table for table in plan.workload.tables}
    for placement in plan.placements:
        old = before.get(placement.table)
        if old is None:
            continue  # another model, which a check of weight names reports better
        table = tables[placement.table]
        reason = why_not_loadable(old, placement, table.embedding_dim, plan.workload.optimizer_of(table))
        if reason:
            raise UsageError(
                f"the checkpoint was saved under another plan, and table '{placement.table}' {reason}; reshard the "
                "checkpoint for the new plan, or give the run a plan that keeps this table as it was (plan: FILE)"
            )


def loadable_rules(saved: Plan) -> tuple[TableRule, ...]:
    """Rules under which every plan that splits columns exactly can load the state of the saved plan."""
    copied = [placement.table for placement in saved.placements if placement.sharding_type == COPIED]
    sharded = [placement.table for placement in saved.placements if placement.sharding_type != COPIED]
    return tuple(
        TableRule(tables=table, sharding_types=types)
        for tables, types in ((copied, (COPIED,)), (sharded, NO_COPIES.sharding_types))
        for table in tables
    )


def why_not_loadable(old: Placement, new: Placement, dim: int, optimizer: str) -> str | None:
    """Why a table's optimizer state cannot be loaded under another placement; None if it can. dim: columns."""
    if (old.sharding_type == COPIED) != (new.sharding_type == COPIED):
        return f"changes from {old.sharding_type} to {new.sharding_type}"
    if OPTIMIZERS[optimizer].is_row_wise and old.widths_of(dim) != new.widths_of(dim):
        return f"has columns cut as {old.widths_of(dim)} there and {new.widths_of(dim)} here, under {optimizer}"
    return None


def plan_limits(run: Run, before: Plan | None, *, sequences: Sequence[str], device: str, hosts: int = 1) -> Constraints:
    """Constraints on a plan: equal training results, messages that codecs can carry, and a loadable state of `before`.

    sequences: names of the tables that are not pooled. hosts: number of hosts of the job.
    """
    carried = collectives_of(run.comms).sharding_types()
    rules = [TableRule(tables="*", sharding_types=carried)] if carried else []
    if not all(OPTIMIZERS[name].copies for name in run.optimizers.sparse.names):
        rules.append(NO_COPIES)
    rules += [rule for system in systems() for rule in system.plan_rules(run, hosts)]
    if device == "cpu":
        rules += [TableRule(tables=name, sharding_types=SEQUENCES_ON_CPU) for name in sequences]
    needed = RulesByTable(tuple(rule for rule in rules if not rule.optional))
    kept = [rule for rule in rules if not rule.optional or _can_be_kept(rule, needed)]
    as_before = loadable_rules(before) if before else ()
    for rule in as_before:
        if not _can_be_kept(rule, needed):
            there, here = _listed(rule), _listed(*_of_table(rule.tables, needed))
            raise UsageError(
                f"the checkpoint has table '{rule.tables}' as {there}, and the run needs {here}; go on as it was "
                "trained, or give another output and begin with its weights (start_from)"
            )
    return Constraints(keep_exact=True, rules=(*kept, *as_before))


def _of_table(table: str, rules: RulesByTable) -> list[TableRule]:
    return [rule for rule in rules.of(table) if rule.sharding_types]


def _can_be_kept(rule: TableRule, needed: RulesByTable) -> bool:
    """Whether a rule about a table's stored state leaves it a sharding type that the run also allows.

    If not, a run that starts from another run's weights starts with fresh state, as it does under a plan file.
    """
    if rule.sharding_types is None:
        return True
    left = set(rule.sharding_types)
    for other in _of_table(rule.tables, needed):
        left &= set(other.sharding_types or ())
    return bool(left)


def _listed(*rules: TableRule) -> str:
    """The sharding types that all of these rules allow, in words."""
    sets = [rule.sharding_types or () for rule in rules]
    return " or ".join(each for each in sets[0] if all(each in others for others in sets)) or "none"
