"""The dry run of several models in one job."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from recsmith.adapters.topology import device_type
from recsmith.plans import Plan
from recsmith.training.job.run_step import (
    RankMemory,
    check_memory,
    checkpoint_bytes,
    dense_bytes,
    memory_of,
    planned_as_run,
)
from recsmith.training.job.sharded import dense_shapes
from recsmith.training.launch.dry_run import DryRun, described_run, ranks_of
from recsmith.training.launch.prerequisites import check_run
from recsmith.training.optimizers.building import dense_state
from recsmith.training.optimizers.settings import DenseState
from recsmith.training.run import Run
from recsmith.training.seams.predicting import SystemLine
from recsmith.training.sources import open_source
from recsmith.training.systems.arrays.going_on import newest_of_members, prepared_array
from recsmith.training.systems.arrays.members import members_of, read_ended
from recsmith.training.systems.arrays.model import UnshardedArray, unsharded_array
from recsmith.training.systems.arrays.sharding import member_plan
from recsmith.training.systems.arrays.weighing import step_here, weighed
from recsmith.units import format_size


def described_array(made: Run) -> DryRun:
    """The dry run of a run with an array: of all members together, or of the first one if they are trained in turn."""
    source, members = open_source(made), members_of(made)
    ranks, here = ranks_of(made)
    gain, lines = weighed(made, source, ranks, torch.device(device_type()), step_here)
    described = SystemLine(key="array", on=gain.together, said="; ".join(lines))
    if not gain.together:
        first, *others = members
        one = described_run(members[first])
        about = f"of member '{first}' alone ({', '.join(others)} may have other layers, memory and steps):"
        return replace(one, about=[about, *one.about], systems=[described, *one.systems])
    for each in members.values():
        check_run(each, here)
    array = unsharded_array(made, source, without=list(read_ended(Path(made.output), made).ended))
    saved = newest_of_members({each.name: each.run for each in array.members})
    prepared = prepared_array(array, saved, ranks)
    plan = planned_as_run(made, prepared.plan)
    shapes = [shape for member in array.members for shape in dense_shapes(member.task)]
    state = dense_state(made, shapes, ranks)
    memory = _within_limit(memory_of(made, plan, shapes, state), array, made, plan, state)
    check_memory(memory, here, device_type())
    sizes = {
        each.name: checkpoint_bytes(
            planned_as_run(made, member_plan(plan, each)), dense_shapes(each.task),
            dense_state(each.run, dense_shapes(each.task), ranks),
        )
        for each in array.members
    }  # fmt: skip
    notes = [*prepared.notes(saved[0].progress["position"] if saved else None), *filter(None, [state.note])]
    if made.checkpoint is not None and len(set(sizes.values())) > 1:
        notes = [*notes, f"checkpoints: {', '.join(f'{name} {format_size(size)}' for name, size in sizes.items())}"]
    return DryRun(
        run=made, plan=plan, memory=memory, step=gain.step,
        systems=[described], checkpoint_bytes=None if made.checkpoint is None else max(sizes.values()),
        about=prepared.about, notes=notes,
        folders=f"'{made.output}/MEMBER' of each ({', '.join(members)})",
    )  # fmt: skip


def _within_limit(
    memory: Sequence[RankMemory], array: UnshardedArray, run: Run, plan: Plan, state: DenseState
) -> list[RankMemory]:  # fmt: skip
    """The memory of ranks if array.layer_memory limits what a step of the layers takes besides weights and state.

    The limit counts stacked copies of weights, gradients and activations.
    """
    schedule = array.schedule(plan.cluster.job_world_size, torch.device(device_type()))
    if schedule is None:
        return list(memory)
    shapes = [shape for member in array.members for shape in dense_shapes(member.task)]
    always = dense_bytes(run, plan, shapes, max(state.ranks), None).fixed
    return [replace(each, layers=min(each.layers, always + schedule.peak_bytes)) for each in memory]
