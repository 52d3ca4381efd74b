"""A dry run: what a run would do, reported by the same preparation that training begins with.

Data is opened and one batch of it is read; nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsmith.adapters.installed import require_torchrec
from recsmith.costs.fetches import disk_fetches
from recsmith.files import Raw, Source, encode
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, plan_to_raw
from recsmith.prediction.dense_shapes import NUMBER_BYTES, numbers_of
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.speeds import bf16_line
from recsmith.training.collectives import RunComms, collectives_of
from recsmith.training.job.run_step import RankMemory, check_memory, checkpoint_bytes, memory_of
from recsmith.training.launch.prerequisites import check_run, lines_told, own_modules
from recsmith.training.launch.ranks import launcher_environment, local_ranks, stand_in_note
from recsmith.training.run import Run, load_run
from recsmith.training.run.parts import COPIED
from recsmith.training.seams.predicting import RunFacts, SystemLine
from recsmith.training.seams.registry import first_of, systems, trains_layers
from recsmith.units import format_size, format_time
from recsmith.workloads.workload import AHEAD

SCHEMA = "recsmith/dry-run/1"


@dataclass(frozen=True)
class DryRun:
    """What a run would do.

    run: the run with everything that was decided. plan: of its tables. memory: of each rank. step: the predicted step;
    None if it is not predicted. systems: the systems that the run asks for, and whether they are on. checkpoint_bytes:
    size of one checkpoint; None if the run saves none. about: lines about model, data and plan. notes: lines about the
    data, the checkpoint and what systems add.
    """

    run: Run
    plan: Plan
    memory: Sequence[RankMemory]
    step: JobStep | None
    systems: Sequence[SystemLine]
    checkpoint_bytes: int | None
    about: Sequence[str]
    notes: Sequence[str]
    folders: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines that are printed."""
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
            return f"{'the first' if trains_layers(self.run) else 'a'} step takes {self.step}"
        cost = self.plan.cost.step_s
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
                "step_s": self.step.step_s, "error": self.step.error, **encode(self.step)},
            "systems": [encode(each) for each in self.systems],
            "checkpoint_bytes": self.checkpoint_bytes,
            "lines": self.lines,
        }  # fmt: skip


def described(run: Run | Source, settings: tuple[str, ...] = ()) -> DryRun:
    """What a run would do, without starting it; raises what `train` would raise before its first step."""
    made = load_run(run, settings)
    require_torchrec()
    with lines_told(run, settings), own_modules(made, run):
        otherwise = first_of(system.describe(made) for system in systems())
        return described_run(made) if otherwise is None else otherwise


def ranks_of(run: Run) -> tuple[int, int]:
    """(ranks of the job, ranks on this machine as far as it is known)."""
    environment = launcher_environment()
    if environment is None:
        return (ranks := local_ranks(run)), ranks
    return int(environment["WORLD_SIZE"]), int(environment["LOCAL_RANK"]) + 1


def described_run(made: Run) -> DryRun:
    """What a run would do, once its modules can be imported."""
    from recsmith.adapters.topology import device_type
    from recsmith.training.job.going_on import newest_of
    from recsmith.training.job.logits_asked import check_logits
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.preparing import as_saved, predicted_step, prepare
    from recsmith.training.job.publishing import published_note
    from recsmith.training.optimizers.building import dense_state
    from recsmith.training.sources import total_steps

    ranks, here = ranks_of(made)
    check_run(made, here)
    saved = newest_of(made)
    parts = unsharded(as_saved(made, saved))
    check_logits(parts)
    found = prepare(made, ranks, saved=saved, parts=parts, priced=True)
    state = dense_state(found.run, found.shapes, found.priced.cluster.job_world_size)
    done = found.saved.progress if found.saved else {}
    steps = total_steps(made, parts.source, ranks, done.get("step", 0), done.get("position"))
    memory = memory_of(found.run, found.priced, found.shapes, state, found.lengths)
    check_memory(memory, here, device_type())
    size = None if made.checkpoint is None else checkpoint_bytes(found.priced, found.shapes, state)
    batches = None if made.steps is not None else parts.source.steps(made.data.batch_sizes(ranks), ranks)
    facts = RunFacts(found.priced, found.step, memory, numbers_of(found.shapes), ranks, batches,
                     sum(len(shape) > 1 for shape in found.shapes))  # fmt: skip
    return DryRun(
        run=found.run, plan=found.priced, memory=memory, step=predicted_step(found),
        systems=lines_of(found.run, facts, found.lines), checkpoint_bytes=size, about=found.about,
        notes=[*stand_in_note(made), *filter(None, [state.note]), *published_note(made),
               *found.notes(found.saved and found.saved.progress["position"]),
               *(line for each in systems() for line in each.notes(made, parts.source, steps))],
    )  # fmt: skip


def _from_disk(made: Run, plan: Plan) -> list[str]:
    """Time of a step to read table rows from disk, and whether the pipeline hides it; empty if no rows are on disk."""
    found = disk_fetches(plan)
    if found is None:
        return []
    taken = f"rows come from disk for {format_time(found.longest_s)} of it"
    if made.step_named[0] == AHEAD:
        return [f"{taken}, beside the step before (pipeline {AHEAD}): {format_time(found.ahead_s)} in place of it"]
    return [f"{taken}; pipeline: {AHEAD} would fetch them beside the step before: {format_time(found.ahead_s)}"]


def lines_of(run: Run, facts: RunFacts, decided: Sequence[SystemLine]) -> list[SystemLine]:
    """All systems that a run asks for, and the effect of each on bytes, memory and step. decided: already reported."""
    said = {each.key for each in decided}
    of_systems = [each for system in systems() for each in system.summary(run, facts) if each.key not in said]
    said |= {each.key for each in of_systems}
    of_core = [SystemLine(key=key, on=True, said=line) for key, line in _of_core(run, facts)]
    others = [*of_systems, *(each for each in of_core if each.key not in said)]
    encoded = _encoded(run) and facts.plan.cluster.world_size > 1
    shown = encoded or (run.comms != RunComms() and "comms" not in said)
    crossing = [SystemLine(key="comms", on=True, said=_comms(run, facts.plan))] if shown else []
    return [*decided, *crossing, *others]


def _of_core(run: Run, facts: RunFacts) -> Iterator[tuple[str, str]]:
    """(key, line) of the row store, precision and pipeline of a run, if they are not the defaults."""
    rows, pipeline = run.rows_named[0], run.step_named[0]
    if ":" in rows:
        yield "rows", f"rows: {rows}: a store of yours, whose memory and time are not predicted"
    if (kind := run.model.precision) != "fp32":
        step = facts.step
        time = f"; {bf16_line(step.layers_s, facts.matrices)}" if step else ""
        yield "model.precision", f"model.precision: {kind}: products of dense layers are of bf16, by autocast{time}"
    if pipeline not in ("auto", "base"):
        yield "pipeline", f"pipeline: {pipeline}"


def _encoded(run: Run) -> bool:
    """Whether embeddings or their gradients are sent between ranks in another encoding than the default."""
    comms: Any = collectives_of(run.comms)
    return comms.bytes_per_value() != collectives_of(RunComms()).bytes_per_value()


def _comms(run: Run, plan: Plan) -> str:
    """A line about the encoding of pooled embeddings; `decided` reports that of dense gradients."""
    comms: Any = collectives_of(run.comms)
    ranks, batch = plan.cluster.world_size, plan.workload.batch_size
    if ranks == 1:
        return "comms: one rank trains and nothing crosses, so it has no effect here"
    placed = {each.table: each.sharding_type for each in plan.placements}
    crossing = [table for table in plan.workload.tables if placed[table.name] != COPIED]
    columns = sum(table.embedding_dim * len(table.features) for table in crossing)
    numbers = batch * columns * (ranks - 1) / ranks
    forward, backward = (NUMBER_BYTES if each is None else each for each in comms.bytes_per_value())
    whole = replace(plan.workload, comm_dtype=None, backward_comm_dtype=None, comm_bytes=None)
    as_they_are = simulate(replace(plan, workload=whole, digest=""), bound=False)
    about = "" if isinstance(comms, RunComms) else "about "  # bytes of places are those of prices
    return (
        f"comms: of pooled embeddings a rank sends {about}{format_size(round(numbers * forward))} forward and "
        f"{format_size(round(numbers * backward))} backward in a step, instead of "
        f"{format_size(round(numbers * NUMBER_BYTES))} each; tables take {format_time(plan.cost.step_s)} of a step "
        f"so, and {format_time(as_they_are.cost.step_s)} where all cross as they are, by the plan's cost model"
    )
