"""How optimizers name and shape what they keep of a table, and what becomes of it when another kind keeps it.

Fused kernels of sharded tables and dense optimizers of data_parallel tables keep the same numbers under other names.
What a checkpoint itself holds of other tables says how a job names them; where it holds none, these lists do.
Sources: torchrec 1.8 (EmbeddingFusedOptimizer; optim/rowwise_adagrad.py), torch 2.13 (Adagrad, Adam).
"""

from collections.abc import Mapping
from typing import Literal

from recsmith._types import record
from recsmith.adapters.reshard.layout import Layout
from recsmith.adapters.reshard.stored import Entry
from recsmith.adapters.reshard.table_entries import STATE, TableEntries, is_state
from recsmith.errors import PlanMismatch

Shape = Literal["element-wise", "row-wise", "scalar"]


@record
class State:
    """A state by its name: one number per weight, per row (of a column piece), or one in all. like: an example."""

    name: str
    shape: Shape
    dtype: str = "float32"
    like: Entry | None = None


@record
class Kept:
    """What fused kernels, or a dense optimizer, keep of each table, and the path of it up to 'state'."""

    prefix: tuple[str | int, ...]
    states: tuple[State, ...]


def _states(**shapes: Shape) -> tuple[State, ...]:
    return tuple(State(name=name, shape=shape) for name, shape in shapes.items())


FUSED: Mapping[str, tuple[State, ...]] = {  # by the optimizer of a workload
    "sgd": (),
    "adagrad": _states(momentum1="element-wise"),
    "rowwise_adagrad": _states(momentum1="row-wise"),
    "adam": _states(momentum1="element-wise", exp_avg_sq="element-wise"),
    "partial_rowwise_adam": _states(momentum1="element-wise", exp_avg_sq="row-wise"),
    "lamb": _states(momentum1="element-wise", exp_avg_sq="element-wise"),
}
DENSE: Mapping[str, tuple[State, ...]] = {
    "sgd": (),
    "adagrad": _states(step="scalar", sum="element-wise"),
    "rowwise_adagrad": _states(step="scalar", sum="row-wise"),
    "adam": _states(step="scalar", exp_avg="element-wise", exp_avg_sq="element-wise"),
    "partial_rowwise_adam": _states(step="scalar", exp_avg="element-wise", exp_avg_sq="row-wise"),
    "lamb": _states(step="scalar", exp_avg="element-wise", exp_avg_sq="element-wise"),
}
_FIRST = "first"
MEANING = {"momentum1": _FIRST, "sum": _FIRST, "exp_avg": _FIRST, "exp_avg_sq": "second", "momentum2": "second"}


def state_of(entry: Entry, name: str, layout: Layout) -> State:
    """What an entry keeps of a table; PlanMismatch where its sizes fit neither weights nor rows."""
    rows, columns = layout.table.num_embeddings, layout.table.embedding_dim
    row_wise = (rows, 1) if layout.dense else (rows * len(layout.pieces),)
    if entry.sizes == (rows, columns):
        shape: Shape = "element-wise"
    elif entry.sizes == row_wise:
        shape = "row-wise"
    elif entry.sizes in ((), (1,)):
        shape = "scalar"
    else:
        pieces = f" in {len(layout.pieces)} column pieces" if len(layout.pieces) > 1 else ""
        raise PlanMismatch(
            f"'{entry.key}' has {list(entry.sizes)} numbers, and table '{layout.table.name}' has {rows} x {columns} "
            f"weights{pieces} in the old plan; give the plan that the job ran"
        )
    return State(name=name, shape=shape, dtype=entry.dtype or "", like=entry)


def states_of(found: TableEntries, layout: Layout) -> tuple[State, ...]:
    """All states of a table."""
    return tuple(state_of(entry, name, layout) for name, entry in found.states.items())


def kept_by(
    dense: bool, tables: Mapping[str, TableEntries], old: Mapping[str, Layout], entries: Mapping[str, Entry],
    optimizer: str,
) -> Kept | None:  # fmt: skip
    """What one kind of optimizer keeps of each table; None where the checkpoint holds no optimizer state at all."""
    others: Kept | None = None
    for name, found in tables.items():
        if found.states:
            prefix = next(iter(found.states.values())).path[:-2]
            if old[name].dense == dense:
                return Kept(prefix=prefix, states=states_of(found, old[name]))
            others = others or Kept(prefix=prefix, states=())
    if others is None or not dense:
        return others and Kept(prefix=others.prefix, states=FUSED[optimizer])
    return _of_parameters(tables, entries) or Kept(prefix=others.prefix, states=DENSE[optimizer])


def _of_parameters(tables: Mapping[str, TableEntries], entries: Mapping[str, Entry]) -> Kept | None:
    """What the dense optimizer keeps of the first parameter that is no table's: numbers per weight, but for scalars."""
    of_tables = {entry.key for found in tables.values() for entry in found.all}
    others = [entry for entry in entries.values() if is_state(entry) and entry.key not in of_tables]
    if not others:
        return None
    first = [entry for entry in others if entry.path[:-1] == others[0].path[:-1]]
    states = tuple(
        State(
            name=str(entry.path[-1]), shape="element-wise" if len(entry.sizes) else "scalar",
            dtype=entry.dtype or "", like=entry,
        )
        for entry in first
    )  # fmt: skip
    return Kept(prefix=others[0].path[:-2], states=states)


def counterparts(before: tuple[State, ...], after: tuple[State, ...]) -> dict[str, str]:
    """Which state before (value) each state after (key) continues; none unless both are of one optimizer."""
    was, becomes = _meanings(before), _meanings(after)
    if was.keys() != becomes.keys():
        return {}
    return {becomes[meaning]: was[meaning] for meaning in becomes}


def _meanings(states: tuple[State, ...]) -> dict[tuple[str, Shape], str]:
    """Names by what is meant by them, scalars aside, which count steps."""
    return {
        (MEANING.get(state.name, state.name), state.shape): state.name for state in states if state.shape != "scalar"
    }


def is_keyed_by_number(entry: Entry) -> bool:
    """Whether an entry is the state of a parameter that is known by its number alone, as plain torch optimizers do."""
    return len(entry.path) >= 3 and entry.path[-3] == STATE and isinstance(entry.path[-2], int)
