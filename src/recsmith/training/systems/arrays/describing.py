"""The dry run of several models in one job."""

from dataclasses import replace
from pathlib import Path

import torch

from recsmith.adapters.topology import device_type
from recsmith.training.job.preparing import done_here, made_here
from recsmith.training.job.run_step import check_memory, checkpoint_bytes, memory_of, planned_as_run
from recsmith.training.job.sharded import dense_shapes
from recsmith.training.launch.dry_run import DryRun, described_run, ranks_of
from recsmith.training.launch.prerequisites import check_run
from recsmith.training.optimizers.building import state_bytes
from recsmith.training.run import Run
from recsmith.training.seams.system import SystemTold
from recsmith.training.sources import open_source
from recsmith.training.systems.arrays.going_on import newest_of_members, prepared_array
from recsmith.training.systems.arrays.members import members_of, read_ended
from recsmith.training.systems.arrays.model import unsharded_array
from recsmith.training.systems.arrays.sharding import member_plan
from recsmith.training.systems.arrays.weighing import step_here, weighed


def described_array(made: Run) -> DryRun:
    """What a run with an array would do: together, or as the first of its members does."""
    source, members = open_source(made), members_of(made)
    ranks, here = ranks_of(made)
    gain, lines = weighed(made, source, ranks, torch.device(device_type()), step_here)
    told = SystemTold(key="array", on=gain.together, said="; ".join(lines))
    if not gain.together:
        first = next(iter(members))
        one = described_run(members[first])
        return replace(one, about=[f"of each member, such as '{first}':", *one.about], systems=[told, *one.systems])
    for each in members.values():
        check_run(each, here)
    array = unsharded_array(made, source, without=list(read_ended(Path(made.output), made).ended))
    saved = newest_of_members({each.name: each.run for each in array.members})
    prepared = prepared_array(array, saved, ranks, plan_by=made_here, check_by=done_here)
    plan = planned_as_run(made, prepared.plan)
    shapes = [shape for member in array.members for shape in dense_shapes(member.task)]
    state = state_bytes(made.optimizers.dense)
    memory = memory_of(made, plan, shapes, state)
    check_memory(memory, here, device_type())
    one = shapes[: len(shapes) // len(array.members)]
    size = checkpoint_bytes(planned_as_run(made, member_plan(plan, array.members[0])), one, state)
    return DryRun(
        run=made, plan=plan, memory=memory, step=gain.step,
        systems=[told], checkpoint_bytes=None if made.checkpoint is None else size,
        about=prepared.about, notes=prepared.notes(saved[0].progress["position"] if saved else None),
        folders=f"'{made.output}/MEMBER' of each ({', '.join(members)})",
    )  # fmt: skip
