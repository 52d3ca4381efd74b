"""Load an earlier training into a rank's shards: each rank reads the rows that it holds, under any plan."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

from recsmith._components import parsed
from recsmith._types import Ints
from recsmith.data import DataSchema
from recsmith.data.order import Position
from recsmith.data.same_data import check_same_data
from recsmith.jobs.sharded_model import held_of
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.training.job.export import WEIGHTS, check_together, opened_file
from recsmith.training.job.models import Unsharded
from recsmith.training.job.plan_rules import loadable_rules, why_not_loadable
from recsmith.training.job.preparing import PreparedRun
from recsmith.training.job.resuming import OPTIMIZERS
from recsmith.training.job.sharded import ShardedJob, set_steps, table_of
from recsmith.training.optimizers.building import set_schedule
from recsmith.training.run import Run
from recsmith.training.seams.registry import systems, trains_layers
from recsmith.training.sources import data_digest
from recsmith.training.systems.warm_start.layers import inputs_of
from recsmith.training.systems.warm_start.matching import Match, Shape, apart_line, match_weights
from recsmith.training.systems.warm_start.reads import Reads, put, read_rows, stretches
from recsmith.training.systems.warm_start.settings import start_of
from recsmith.training.systems.warm_start.trained import WEIGHT, Trained, open_trained
from recsmith.training.tables.plain import exported_names

UNLIKE = 1.5  # ratio of samples now to samples before, or its inverse, from which a line warns
STATE_OF = "optimizer.{group}.state."  # prefix of the name of a weight and of its state, in a checkpoint


def plan_rules(run: Run) -> tuple[TableRule, ...]:
    """Rules under which a new plan can load the saved optimizer state of tables."""
    trained = open_trained(start_of(run.start_from).path)
    if trained.saved is None or "sparse" not in same_optimizers(run, trained):
        return ()
    return tuple(replace(rule, optional=True) for rule in loadable_rules(trained.saved.plan))


def matched(run: Run, parts: Unsharded, plan: Plan) -> Match:
    """Decide what a run takes from an earlier training, and refuse what `load_start` would refuse. plan: of its tables.

    Raises:
        UsageError: there is nothing at the path, or it is of another model or of other data.
        CorruptFile: it is damaged.
    """
    task = parts.task
    here = {name: tuple(each.shape) for name, each in task.state_dict().items()}
    trained = open_trained(start_of(run.start_from).path)
    match = _matched(run, parts.source.schema, here, trained, exported_names(task, here))
    anew = [f"the state of table {table} begins anew, for it {why}" for table, why in _rearranged(run, trained, plan)]
    more = [*_much_or_little(run, parts.source.length, trained), *_again(parts.source, trained)]
    return replace(match, lines=[*match.lines, *anew, *more])


def load_start(made: PreparedRun, job: ShardedJob) -> None:
    """Load weights, and optimizer state if it fits, over what was drawn. Every rank must call this.

    Raises what `matched` raises.
    """
    run = made.run
    trained, whole = open_trained(start_of(run.start_from).path), job.rows.whole()
    exported = exported_names(job.model, whole)
    names = trained.names_of(exported)
    here = {name: each.shape for name, each in whole.items()}
    match = _with_rows(_matched(run, made.parts.source.schema, here, trained, exported), run, job, trained, names)
    with torch.no_grad():
        if trained.saved is None:
            _copy_model(job, match, trained, names)
        else:
            _load_weights(job, match, trained, names)
        job.rows.flush()
        if groups := same_optimizers(run, trained):
            _load_states(
                job, match, trained, names, groups, {table for table, _ in _rearranged(run, trained, made.plan)}
            )


def _with_rows(match: Match, run: Run, job: ShardedJob, trained: Trained, names: Mapping[str, str]) -> Match:
    """The match with the former row of each row, for tables whose rows moved, as systems define them."""
    rows, elsewhere = match.rows_there(_weights(trained, names)), dict[str, Ints]()
    for system in systems():
        elsewhere |= system.begin_rows(run, job, trained, rows)
    return replace(match, elsewhere=elsewhere)


def _matched(
    run: Run, schema: DataSchema, here: Mapping[str, Shape], trained: Trained, exported: Mapping[str, str]
) -> Match:
    """Match the run's weights with the earlier training. exported: names of the run's weights in an exported model."""
    there = _weights(trained, trained.names_of(exported))
    inputs: list[tuple[list[str], list[str]]] = []
    if trained.card is not None:
        _check_meaning(schema, trained.card.data, trained.path)
        inputs = list(zip(inputs_of(run.model, schema), inputs_of(trained.card.model, trained.card.data), strict=False))
    match, before = match_weights(here, there, inputs, trained.path), trained.run_model
    tables = sorted(match.rows_there(there))
    more = [line for each in systems() if before for line in each.begins_with(before, run.model, tables, trained.path)]
    apart = [table for name in trained.apart(exported) if (table := table_of(name))]
    named = before and before.table_module
    text = apart_line(apart, parsed(named, "table module")[0] if named else None)
    return replace(match, lines=[_first_line(run, trained), *_not_ended(trained), *match.lines, *text, *more])


def _not_ended(trained: Trained) -> list[str]:
    """A line if the training has not exported what the checkpoint holds: it was stopped, or is still running."""
    there = None if trained.card is None else trained.card.step
    if trained.saved is None or (trained.card is not None and (there is None or there >= (trained.step or 0))):
        return []
    unknown = "" if trained.card is not None else "; what its features mean is not compared, for no model says it"
    return [f"the run of '{trained.path}' has not ended, and its own command trains what is left of it{unknown}"]


def _much_or_little(run: Run, samples: int | None, trained: Trained) -> list[str]:
    """A line if the data is much more or less than that of the training, as for a day with missing files."""
    if trained.saved is None or run.steps or trained.saved.run.steps or _not_ended(trained):
        return []
    position = trained.saved.progress["position"] or {}
    used = position.get("used") if position.keys() <= {each.name for each in fields(Position)} else None
    if not used or not samples or max(samples / used, used / samples) < UNLIKE:
        return []
    return [
        f"data.train has {samples:,} samples, {samples / used:.2g} times the {used:,} of '{trained.path}'; see whether "
        "files are missing, or there twice"
    ]


def _again(source: Any, trained: Trained) -> list[str]:
    """A line if the data is the same as that of the training, as for a day that was given twice."""
    digest = data_digest(source)
    if digest is None or trained.card is None or trained.card.trained_on != digest:
        return []
    return [f"data.train is what '{trained.path}' was trained on; give the next data, or see whether this is meant"]


def _weights(trained: Trained, names: Mapping[str, str]) -> dict[str, Shape]:
    """Shapes of the training's weights, by their names in the run's model."""
    own = {there: name for name, there in names.items()}
    return {own.get(there, there): shape for there, shape in trained.weights.items()}


def _check_meaning(here: DataSchema, there: DataSchema, path: str) -> None:
    """Refuse data in which a common feature has another meaning. A vocabulary may have more values."""
    both = set(here.feature_names) & set(there.feature_names)
    if here.values is not None and there.values is not None:
        old, new = there.values.vocabularies, here.values.vocabularies
        same = {name: each for name, each in new.items() if each.continues(old.get(name))}
        there = replace(there, values=replace(there.values, vocabularies=old | same))

    def common(schema: DataSchema) -> DataSchema:
        kept = [replace(each, num_embeddings=None) for each in schema.features if each.name in both]
        return replace(schema, features=tuple(sorted(kept, key=lambda each: each.name)), dense=here.dense)

    check_same_data(common(there), common(here), f"the data of a run that begins with '{path}'")


def _first_line(run: Run, trained: Trained) -> str:
    rest = any(system.tables_rest(run) for system in systems())
    used = {*OPTIMIZERS.values()} - ({"sparse"} if rest else set()) - ({"dense"} if trains_layers(run) else set())
    groups = same_optimizers(run, trained) & used
    after = "" if trained.step is None else f" after step {trained.step:,}"
    said = f"begins with the weights of '{trained.path}'{after}"
    if not used:
        return f"{said}; no optimizer has a part in this run, so the state of none comes along"
    if not groups:
        return f"{said}; optimizers begin anew"
    others = sorted(used - groups)
    but = "" if not others else f"; optimizers.{others[0]} begins anew, for the run names another one"
    return f"{said}, and with the state of its optimizers{but}"


def same_optimizers(run: Run, trained: Trained) -> set[str]:
    """The optimizers, sparse and dense, whose state is loaded: those of the same kind as in the training."""
    before = trained.optimizers
    if before is None or not start_of(run.start_from).optimizer:
        return set()
    return {group for group in OPTIMIZERS.values()
            if getattr(before, group).name == getattr(run.optimizers, group).name}  # fmt: skip


def _rearranged(run: Run, trained: Trained, plan: Plan) -> list[tuple[str, str]]:
    """(table, why) for tables whose state would have to be rearranged under the plan."""
    if trained.saved is None or "sparse" not in same_optimizers(run, trained):
        return []
    before = {each.table: each for each in trained.saved.plan.placements}
    dims = {table.name: table.embedding_dim for table in plan.workload.tables}
    was, now = trained.saved.run.optimizers.sparse, run.optimizers.sparse
    reasons = [(each.table, why_not_loadable(before[each.table], each, dims[each.table], now.of(each.table).name))
               for each in plan.placements if each.table in before]  # fmt: skip
    others = [(each.table, f"has optimizer {now.of(each.table).name}, and had {was.of(each.table).name}")
              for each in plan.placements if now.of(each.table).name != was.of(each.table).name]  # fmt: skip
    return [*((table, why) for table, why in reasons if why is not None), *others]


def _copy_model(job: ShardedJob, match: Match, trained: Trained, names: Mapping[str, str]) -> None:
    """Copy weights from an exported model."""
    assert trained.model is not None
    check_together(trained.model)
    with opened_file(trained.model / WEIGHTS) as opened:
        for name, corner, tensor, _ in job.rows.shards():
            if name in match.moved:
                put(tensor, opened.get_tensor(names[name]), match.moved[name])
            elif not tensor.dim() and name in match.whole:
                tensor.copy_(opened.get_tensor(names[name]))
            elif (rows := _elsewhere(match, name, corner, tensor)) is not None:
                there, columns = opened.get_slice(names[name]), slice(corner[1], corner[1] + tensor.shape[1])
                for first, last, own in stretches(rows):
                    tensor[torch.from_numpy(own)] = there[first:last, columns][torch.from_numpy(rows[own] - first)]
            elif (target := _known_rows(match, name, corner, tensor)) is not None:
                there = opened.get_slice(names[name])
                window = tuple(slice(at, at + size) for at, size in zip(corner, target.shape, strict=True))
                target.copy_(there[window])


def _load_weights(job: ShardedJob, match: Match, trained: Trained, names: Mapping[str, str]) -> None:
    """Load weights from a checkpoint."""
    reads = Reads(trained.state)
    for name, corner, tensor, _ in job.rows.shards():
        key = f"{WEIGHT}{names[name]}"
        if name in match.moved:
            reads.add_moved(key, trained.tensors[key].shape, tensor, match.moved[name])
        elif (rows := _elsewhere(match, name, corner, tensor)) is not None:
            read_rows(trained.state, key, corner, tensor, rows)
        elif (target := _known_rows(match, name, corner, tensor)) is not None:
            reads.add(key, corner, target)
    reads.run()


def _load_states(
    job: ShardedJob, match: Match, trained: Trained, names: Mapping[str, str], groups: set[str], without: set[str]
) -> None:  # fmt: skip
    """Load optimizer state for loaded weights. Other weights, and tables in `without`, keep their initial state."""
    state, reads = job.rows.state_to_load(), Reads(trained.state)
    prefixes = [STATE_OF.format(group=part) for part, group in OPTIMIZERS.items() if group in groups]
    for key, value in flatten_state_dict(state)[0].items():
        name = next((name for each in prefixes if (name := _weight_of(key, each, match)) is not None), None)
        if name is None or table_of(name) in without or not hasattr(value, "size"):
            continue
        key = key.replace(name, names[name], 1)
        if key not in trained.tensors:
            continue
        before, shape = tuple(trained.tensors[key].shape), tuple(value.size())
        for corner, tensor, _ in held_of(value):
            if before == shape:
                reads.add(key, corner, tensor)
            elif name in match.grown and before[:1] == (match.grown[name],) and before[1:] == shape[1:]:
                if (rows := _elsewhere(match, name, corner, tensor)) is not None:
                    read_rows(trained.state, key, corner, tensor, rows)
                elif (target := _known_rows(match, name, corner, tensor)) is not None:
                    reads.add(key, corner, target)
            elif name in match.moved and before == tuple(trained.tensors[f"{WEIGHT}{names[name]}"].shape):
                reads.add_moved(key, before, tensor, match.moved[name])
    reads.run()
    job.rows.load_state_dict(state)
    set_schedule(job.optimizer, 0)  # asking for the state has counted a step
    set_steps(job, 0)


def _weight_of(key: str, before: str, match: Match) -> str | None:
    """The loaded weight whose state a key of a checkpoint names; None if there is none. before: prefix of the key."""
    name = key.removeprefix(before) if key.startswith(before) else ""
    while name and not match.takes(name):
        name = name.rpartition(".")[0]
    return name or None


def _elsewhere(match: Match, name: str, corner: Shape, tensor: torch.Tensor) -> Ints | None:
    """The former row of each row of a shard; None if the table's rows did not move."""
    table = table_of(name)
    there = None if table is None else match.elsewhere.get(table)
    return None if there is None else there[corner[0] : corner[0] + len(tensor)]


def _known_rows(match: Match, name: str, corner: Shape, tensor: torch.Tensor) -> torch.Tensor | None:
    """The rows of a shard that are loaded; None if there are none."""
    if name in match.whole:
        return tensor
    rows = match.grown.get(name, 0) - (corner[0] if corner else 0)
    return tensor[:rows] if rows > 0 else None
