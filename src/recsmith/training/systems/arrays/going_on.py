"""Prepares an array like any run, and continues it from the newest step that all its members have saved."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import torch.distributed as dist

from recsmith.errors import UsageError
from recsmith.files import by_number
from recsmith.plans import Plan
from recsmith.training.job.agreement import Agreement
from recsmith.training.job.checkpoints import Checkpoints
from recsmith.training.job.going_on import check_goes_on
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan import plan_to_go_on
from recsmith.training.job.preparing import PlanMaker, PreparedRun, prepare
from recsmith.training.job.resuming import CHECKPOINTS, Saved, checkpoint_folders, step_name
from recsmith.training.run import Checkpointing, Run
from recsmith.training.systems.arrays.model import Member, UnshardedArray
from recsmith.training.systems.arrays.sharding import member_plan, wide_tables, with_members


def prepared_array(
    array: UnshardedArray, saved: Sequence[Saved], ranks: int, plan_by: PlanMaker = plan_to_go_on, *,
    together: bool = False,
) -> PreparedRun:  # fmt: skip
    """The array, prepared as one run: its plan is made for the tables of one member, as wide as those of all members.

    saved: the checkpoint of each member from which training continues; empty if it begins anew.

    Raises what `prepare` raises.
    """

    def plan(_: Unsharded, __: Plan | None, holders: int) -> Plan:
        before = saved[0].plan if saved else None  # all members are placed alike
        return with_members(plan_by(wide_tables(array), before, holders), array.members)

    made = prepare(array.parts.run, ranks, parts=array.parts, plan_by=plan, together=together)
    for member, each in zip(array.members, saved, strict=False):
        alone = Unsharded(member.run, array.parts.source, member.task, array.parts.features)
        check_goes_on(alone, each, member_plan(made.plan, member), ranks)
    return made


def newest_of_members(runs: Mapping[str, Run]) -> list[Saved]:
    """Each member's checkpoint of the newest step that all members have saved; empty if there is none.

    Raises:
        UsageError: members were trained apart, and have no step in common.
    """
    folders = {name: Path(run.output) / CHECKPOINTS for name, run in runs.items() if run.checkpoint}
    if not folders:
        return []
    newest = newest_in_common(
        {name: {each.name for each in checkpoint_folders(folder)} for name, folder in folders.items()}
    )
    return [Saved(folder / newest) for folder in folders.values()] if newest else []


def newest_in_common(found: Mapping[str, Set[str]]) -> str | None:
    """The folder name of the newest checkpoint that every member has; None if there is none yet.

    found: the names of each member's checkpoint folders.

    Raises:
        UsageError: members were trained apart, and have no step in common.
    """
    common = set.intersection(*map(set, found.values()))
    without = next((name for name, steps in found.items() if not steps), None)
    most = max(found, key=lambda name: len(found[name]))
    if not common and (without is None or len(found[most]) > 1):
        lacks = f"'{without}' has none" if without else "each has others"
        raise UsageError(
            f"the members of the array have no checkpoint of one step in common: {lacks}, and '{most}' has "
            f"{len(found[most]):,} up to {max(found[most], key=by_number)}; train that one as a run of its own, or "
            "give another output"
        )
    return max(common, key=by_number, default=None)


def checkpoints_of(member: Member, agreement: Agreement) -> Checkpoints:
    """The checkpoints of a member; none is removed before every member has a newer one."""
    folder = Path(member.run.output) / CHECKPOINTS
    return Checkpoints(folder, member.run.checkpoint or Checkpointing(), agreement, alone=False)


def newest_of_all(checkpoints: Mapping[str, Checkpoints]) -> tuple[list[Saved], list[str]]:
    """Each member's checkpoint of the newest step that all members have saved, and lines on what was removed.

    Checkpoints of later steps are left by a job that ended between the checkpoints of two members. They are removed,
    because the array trains these steps again.

    Raises:
        UsageError: members were trained apart, and have no step in common.
    """
    newest = newest_in_common({name: {path.name for path in each.all()} for name, each in checkpoints.items()})
    step = int((newest or step_name(0)).removeprefix("step-"))
    dist.barrier()  # all ranks have read the folders
    gone = [name for name, each in checkpoints.items() if dist.get_rank() == 0 and each.drop(step)]
    dist.barrier()
    text = f"{', '.join(gone)}: checkpoints after step {step:,} were removed, which not all members have"
    lines = [text] if gone else []
    return [Saved(each.folder / newest) for each in checkpoints.values()] if newest else [], lines
