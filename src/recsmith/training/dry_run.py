"""A dry run: what a run would do, told before anything is trained, by the preparation that training begins with.

Data is opened and a batch of it read; nothing is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recsmith._components import parsed
from recsmith._process import memory_limit
from recsmith.adapters.installed import require_torchrec
from recsmith.costs.fetches import AHEAD, disk_fetches
from recsmith.errors import UsageError
from recsmith.files import Raw, Source, encode
from recsmith.plans import Plan, plan_to_raw
from recsmith.prediction.job_step import ERROR, JobStep
from recsmith.prediction.servers import remote_cost, remote_lines
from recsmith.training.arrays.members import members_of, read_ended
from recsmith.training.log import starting_lines
from recsmith.training.parts.servers import check_servers, listening_line, run_of_servers, shares_line
from recsmith.training.prerequisites import PROGRAM_BYTES, check_run, lines_told, own_modules
from recsmith.training.ranks import launcher_environment, local_ranks
from recsmith.training.run import Run, load_run
from recsmith.training.run_step import RankMemory, checkpoint_bytes, memory_of
from recsmith.training.settings.watch import watch_settings
from recsmith.training.told import SystemTold, told_of
from recsmith.training.watchers.alarm_log import slow_trainer_of_run
from recsmith.units import format_size, format_time

SCHEMA = "recsmith/dry-run/1"


@dataclass(frozen=True)
class DryRun:
    """What a run would do.

    run: with all that was decided. plan: of its tables. memory: of each rank. step: predicted; None where it is not.
    systems: that it asks for, and whether they are on. checkpoint_bytes: of one; None where it saves none. about: of
    model, data and plan. notes: of the data and of what watches.
    """

    run: Run
    plan: Plan
    memory: Sequence[RankMemory]
    step: JobStep | None
    systems: Sequence[SystemTold]
    checkpoint_bytes: int | None
    about: Sequence[str]
    notes: Sequence[str]
    folders: str = ""

    @property
    def lines(self) -> list[str]:
        """For people."""
        totals = ", ".join(format_size(each.total) for each in self.memory)
        parts = max(self.memory, key=lambda each: each.total)
        saved = "no checkpoints" if self.checkpoint_bytes is None or self.run.checkpoint is None else (
            f"checkpoints of {format_size(self.checkpoint_bytes)} each ({self.run.checkpoint.keep} kept)")  # fmt: skip
        return [
            *self.about,
            *(each.said for each in self.systems),
            f"memory at the peak of a step, by rank: {totals} (of the most, {format_size(parts.tables)} for tables and "
            f"their state, {format_size(parts.batch)} for ids and outputs of a step, {format_size(parts.layers)} for "
            "dense layers; on CPU; not counted: the program itself and what readers hold)",
            self._step_line(),
            *_from_disk(self.run, self.plan),
            f"written to {self.folders or repr(self.run.output)}: run.json, plan.json, log.jsonl, {saved}, model; "
            "nothing is downloaded",
            *self.notes,
        ]

    def _step_line(self) -> str:
        if self.step is not None:
            return f"a step takes {self.step}"
        cost = self.plan.cost.total_s
        return (
            f"embeddings take {format_time(cost)} of a step under the plan's cost model ({self.plan.cost_model}), on "
            f"{self.plan.cluster.device.name} and its links as the plan knows them; the rest was not measured on GPUs"
        )

    def to_raw(self) -> Raw:
        """Plain data, for programs."""
        return {
            "schema": SCHEMA,
            "output": self.run.output,
            "plan": plan_to_raw(self.plan),
            "memory": [
                {"rank": rank, "total_bytes": each.total, "tables_bytes": each.tables, "batch_bytes": each.batch,
                 "layers_bytes": each.layers, "file_bytes": each.file}
                for rank, each in enumerate(self.memory)
            ],
            "step": None if self.step is None else {
                "step_s": self.step.step_s, "error": ERROR, **encode(self.step)},
            "systems": [encode(each) for each in self.systems],
            "checkpoint_bytes": self.checkpoint_bytes,
            "lines": self.lines,
        }  # fmt: skip


def described(run: Run | Source, settings: tuple[str, ...] = ()) -> DryRun:
    """What a run would do that is not started.

    Raises what `train` would raise before its first step.
    """
    made = load_run(run, settings)
    require_torchrec()
    with lines_told(run, settings), own_modules(made, run):
        return _described(made) if made.array is None else _described_array(made)


def _ranks(run: Run) -> tuple[int, int]:
    """Ranks of the job, and of this machine as far as it is known."""
    environment = launcher_environment()
    if environment is None:
        return (ranks := local_ranks(run)), ranks
    return int(environment["WORLD_SIZE"]), int(environment["LOCAL_RANK"]) + 1


def _described(made: Run) -> DryRun:
    """What a run would do, when its modules are found."""
    from recsmith.training.going_on import check_goes_on, check_job, newest_of
    from recsmith.training.logits_asked import check_logits
    from recsmith.training.models import unsharded
    from recsmith.training.optimizers.building import state_bytes
    from recsmith.training.plan import plan_to_go_on
    from recsmith.training.preparing import decided_run
    from recsmith.training.sources import open_data, total_steps

    ranks, here = _ranks(made)
    check_run(made, here)
    parts = unsharded(made)
    check_logits(parts)
    if made.data.test is not None:
        open_data(made.data.test, "data.test")
    planned, holders = parts, ranks
    if made.remote is not None:
        holders = made.remote.servers
        planned = replace(parts, run=run_of_servers(parts.run, ranks, holders))
    saved = newest_of(parts.run)
    plan = plan_to_go_on(planned, saved and saved.plan, holders, holders)
    if saved is not None:
        check_goes_on(parts, saved, plan, ranks)
    found = decided_run(parts, plan, saved and saved.run, priced=True)
    state = state_bytes(found.run.optimizers.dense)
    if saved is not None:
        check_job(found.run, saved, parts)
    memory = memory_of(found.run, found.priced, found.shapes, state)
    check_limit(memory, here)
    steps = total_steps(made, parts.source, ranks)
    size = None if made.checkpoint is None else checkpoint_bytes(found.priced, found.shapes, state)
    return DryRun(
        run=found.run, plan=found.priced, memory=memory, step=_served(made, found.priced, ranks, found.step),
        systems=[
            *told_of(found.run, found.priced, found.step, memory, found.shapes, [*parts.told, *found.told]),
            *(SystemTold(key="remote", on=made.remote is not None, said=line)
              for line in _of_servers(made, found.priced, ranks, found.step)),
        ],
        checkpoint_bytes=size,
        about=starting_lines(found.run, plan, parameters=parts.parameters, samples=parts.source.length, ranks=ranks),
        notes=[*parts.source.notes(made.data.batch_sizes(ranks), ranks, saved and saved.progress["position"]),
               *([] if saved is None else saved.told(found.run, ranks)),
               *_watched(made, parts.source.schema.feature_names, steps)],
    )  # fmt: skip


def _described_array(made: Run) -> DryRun:
    """What a run with an array would do: together, or as the first of its members does."""
    import torch

    from recsmith.adapters.topology import device_type
    from recsmith.training.arrays.model import unsharded_array, weighed
    from recsmith.training.arrays.sharding import member_plan, wide_tables, with_members
    from recsmith.training.going_on import newest_of_members
    from recsmith.training.optimizers.building import state_bytes
    from recsmith.training.plan import plan_to_go_on
    from recsmith.training.run_step import planned_as_run
    from recsmith.training.sharded import dense_shapes
    from recsmith.training.sources import check_state, open_source

    source, members = open_source(made), members_of(made)
    ranks, here = _ranks(made)
    gain, lines = weighed(made, source, ranks, torch.device(device_type()))
    told = SystemTold(key="array", on=gain.together, said="; ".join(lines))
    if not gain.together:
        first = next(iter(members))
        one = _described(members[first])
        return replace(one, about=[f"of each member, such as '{first}':", *one.about], systems=[told, *one.systems])
    for each in members.values():
        check_run(each, here)
    array = unsharded_array(made, source, without=list(read_ended(Path(made.output), made).ended))
    saved = newest_of_members({each.name: each.run for each in array.members})
    position = saved and saved.progress["position"]
    wide = plan_to_go_on(wide_tables(array), saved and saved.plan, ranks, ranks)
    plan = planned_as_run(made, with_members(wide, array.members))
    check_state(source, position, ranks, made.data.local_batch_size(ranks))
    shapes = [shape for member in array.members for shape in dense_shapes(member.task)]
    state = state_bytes(made.optimizers.dense)
    memory = memory_of(made, plan, shapes, state)
    check_limit(memory, here)
    one = shapes[: len(shapes) // len(array.members)]
    size = checkpoint_bytes(planned_as_run(made, member_plan(plan, array.members[0])), one, state)
    return DryRun(
        run=made, plan=plan, memory=memory, step=None if gain.on_gpu else gain.step,
        systems=[told], checkpoint_bytes=None if made.checkpoint is None else size,
        about=starting_lines(made, plan, parameters=array.parts.parameters, samples=source.length),
        notes=source.notes(made.data.batch_sizes(ranks), ranks, position),
        folders=f"'{made.output}/MEMBER' of each ({', '.join(members)})",
    )  # fmt: skip


def check_limit(memory: Sequence[RankMemory], here: int) -> None:
    """UsageError where ranks of this machine hold more than its cgroup allows. here: how many they are."""
    limit, most = memory_limit(), sum(sorted((each.total for each in memory), reverse=True)[:here])
    needed = most + (1 + here) * PROGRAM_BYTES
    if limit is not None and limit < needed:
        raise UsageError(
            f"the memory limit of this process is {format_size(limit)}, and its ranks hold {format_size(most)} at the "
            f"peak of a step, beside {1 + here} processes of at least {format_size(PROGRAM_BYTES)}; raise the limit, "
            "use more machines, or keep rows on disk (rows: tiered)"
        )


def _of_servers(made: Run, plan: Plan, trainers: int, step: JobStep | None) -> list[str]:
    """What servers of tables would hold and cost, and would have brought the run before."""
    stale = made.remote is not None and made.remote.staleness > 0
    slow = None if stale else slow_trainer_of_run(made.output)
    told = [] if slow is None else [f"in the run before, {slow}"]
    if made.remote is None:
        return told
    check_servers(plan)
    embeddings, whole = plan.cost.total_s, plan.cost.total_s if step is None else step.step_s
    batch = made.data.local_batch_size(trainers)
    lines = remote_lines(plan, batch, trainers, embeddings_s=embeddings, step_s=whole)
    return [*listening_line(made), *lines, *([] if stale else shares_line(made, trainers)), *told]


def _served(made: Run, plan: Plan, trainers: int, step: JobStep | None) -> JobStep | None:
    """The step of trainers, who wait for servers in place of ranks."""
    if made.remote is None or step is None:
        return step
    seconds = remote_cost(plan, made.data.local_batch_size(trainers), trainers).seconds
    return replace(step, embeddings_s=step.embeddings_s + seconds)


def _from_disk(made: Run, plan: Plan) -> list[str]:
    """What the rows of tables that the plan keeps on disk take of a step, and whether the run's pipeline hides it."""
    found = disk_fetches(plan)
    if found is None:
        return []
    taken = f"rows come from disk for {format_time(found.longest_s)} of it"
    if made.pipeline != "auto" and parsed(made.pipeline, "pipeline")[0] == AHEAD:
        return [f"{taken}, beside the step before (pipeline {AHEAD}): {format_time(found.ahead_s)} in place of it"]
    return [f"{taken}; pipeline: {AHEAD} would fetch them beside the step before: {format_time(found.ahead_s)}"]


def _watched(made: Run, features: Sequence[str], steps: int | None) -> list[str]:
    """From when on `watch` could tell something."""
    settings = watch_settings(made.watch)
    if settings is None:
        return []
    settings.check_features(features)
    return [f"watch: {settings.told_from(steps)}"]
