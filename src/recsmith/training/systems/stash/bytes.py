"""How many bytes each rank stashes, how long that takes, and whether a run needs it; without torch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from recsmith._process import memory_limit
from recsmith._types import Ints
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.jobs.machine import PROGRAM_BYTES, memory_bytes
from recsmith.plans import Placement, Plan
from recsmith.problems import footprint_of, problem_holding, problem_of
from recsmith.problems.stashing import stashed_of
from recsmith.sharding import FUSED
from recsmith.training.seams.in_jobs import Attached
from recsmith.training.seams.predicting import OpenRun, RunFacts
from recsmith.training.systems.stash.resting import RestingMemory
from recsmith.units import counted, format_size, format_time

if TYPE_CHECKING:
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run

# Bytes per second past the page cache, of an unshared disk of one machine (dd with direct I/O, 512 MiB, three times).
WRITTEN_PER_S, READ_PER_S = 1.6e9, 1.1e9


class BackBeforeSteps(Attached):
    """Restores all stashed tables of a job before each step."""

    def before_step(self, job: "TrainingJob") -> None:
        """Restore what is stashed."""
        job.sharded.rows.flush()


def check_named(named: Any, tables: Sequence[str]) -> None:
    """Raise UsageError if `rows.tables` names a table that the model does not have. tables: of the model."""
    odd = next((each for each in named or () if each not in tables), None)
    if odd is not None:
        raise UsageError(f"rows.tables names '{odd}', which the model does not have{did_you_mean(odd, list(tables))}")


def resting_plan(run: "Run", plan: Plan) -> Plan:
    """The plan with the tables that the run stashes. Only fused tables can be stashed."""
    _, settings = run.rows_named
    tables, what = settings.get("tables"), settings.get("what", "weights")

    def rests(placed: Placement) -> bool:
        return placed.compute_kernel == FUSED.name and (tables is None or placed.table in tables)

    placements = tuple(replace(each, stash=what if rests(each) else None) for each in plan.placements)
    return replace(plan, placements=placements, digest="")


def resting_bytes(run: "Run", plan: Plan) -> Ints:
    """Bytes (W,) that each rank stashes."""
    placements = resting_plan(run, plan).placements
    problem = problem_holding(problem_of(plan), plan.placements)
    rests = stashed_of(problem, placements, footprint_of(problem, plan.placements))
    if rests is None:
        return np.zeros(plan.cluster.world_size, dtype=np.int64)
    return np.array(rests.weights) + np.array(rests.state)


def copies_s(run: "Run", plan: Plan) -> float:
    """Seconds of copying per step, on the rank with most bytes.

    Nothing overlaps them, since activations wait for the memory.
    """
    most = float(resting_bytes(run, plan).max())
    return most / READ_PER_S + most / WRITTEN_PER_S


def stashed_line(run: "Run", plan: Plan, facts: RunFacts) -> str:
    """Bytes that are stashed and freed, and seconds they take; and a note if all fits without stashing."""
    rests, freed = resting_bytes(run, plan), max(each.freed for each in facts.memory)
    copies = copies_s(run, plan)
    time = "" if facts.step is None else (
        f"; copies take {format_time(copies)}, {copies / facts.step.step_s:.0%} of a step")  # fmt: skip
    folder: Any = run.rows_named[1].get("folder")
    spare = room_left(facts.memory, plan)
    needless = "" if spare is None else f"; it does not pay here, for all fits without: {spare}"
    return (
        f"rows: stashed: {format_size(int(rests.max()))} of the rank with most rest in a file of folder '{folder}' "
        f"from lookup to update, which frees {format_size(freed)} for activations{time}{needless}"
    )


def brought_line(run: "Run", plan: Plan, resting: Sequence[RestingMemory]) -> str:
    """Bytes that this rank stashed and seconds of copying per step, and the prediction for the fullest rank."""
    size, copies = sum(each.bytes for each in resting), sum(each.written.mean_s + each.read.mean_s for each in resting)
    return (
        f"rows: stashed: {format_size(size)} of this rank rested while dense layers worked; copies took "
        f"{format_time(copies)} of a step; {format_size(int(resting_bytes(run, plan).max()))} of the fullest rank and "
        f"{format_time(copies_s(run, plan))} were predicted"
    )


def fits_without(made: OpenRun) -> str | None:
    """Why a run need not stash anything, as the end of a sentence; None if memory would be too small."""
    from recsmith.training.job.run_step import memory_of
    from recsmith.training.optimizers.building import dense_state

    run = replace(made.run, rows="device")
    shapes = [tuple(each) for each in made.shapes]
    state = dense_state(run, shapes, made.priced.cluster.job_world_size)
    return room_left(memory_of(run, made.priced, shapes, state, made.lengths), made.plan)


def room_left(memory: Sequence[Any], plan: Plan) -> str | None:
    """Why ranks of this machine have room for what they stash, as the end of a sentence; None if they do not.

    memory: of each rank. The room is the least of the machine's memory and the cgroup's limit.
    """
    here = min(len(memory), plan.cluster.local_world_size)
    totals = sorted((each.total + each.freed for each in memory), reverse=True)
    most = sum(totals[:here]) + (1 + here) * PROGRAM_BYTES
    room = min(each for each in (memory_limit(), memory_bytes(), 2**62) if each is not None)
    if most > room:
        return None
    return (
        f"{counted(here, 'rank')} and the programs hold {format_size(most)} at the peak of a step, and "
        f"{format_size(room)} are there"
    )
