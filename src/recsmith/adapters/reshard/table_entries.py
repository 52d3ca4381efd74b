"""Finds the entries of a checkpoint that belong to a table, and the names and shapes of its optimizer states.

The path of weights ends with their name, as in ('model', 'sparse.embedding_bags.t0.weight'), which paths of state hold:
    of fused kernels     (..., 'state', 'sparse.embedding_bags.t0.weight', 't0.momentum1')
    of dense optimizers  (..., 'state', 'sparse.embedding_bags.t0.weight', 'sum')
Fused kernels of sharded tables and dense optimizers of data_parallel tables store the same numbers under different
names. The names of a job are read from the states of other tables in the checkpoint; if it has none, from OPTIMIZERS.
Sources: torchrec 1.8 (EmbeddingFusedOptimizer; optim/rowwise_adagrad.py), torch 2.13 (Adagrad, Adam).
"""

from collections.abc import Iterable, Mapping

from recsmith._types import record
from recsmith.adapters.checkpoints import Entry
from recsmith.adapters.reshard.layout import StoredLayout
from recsmith.errors import PlanMismatch
from recsmith.workloads import Workload
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName, StateShape

STATE = "state"
COLLECTIONS = ("embedding_bags", "embeddings")  # attributes of TorchRec's collections that hold their tables


@record
class TableEntries:
    """The entries of one table; states by the optimizer's name for them ('momentum1', 'sum')."""

    weight: Entry
    states: dict[str, Entry]

    @property
    def all(self) -> tuple[Entry, ...]:
        """Weights and states."""
        return (self.weight, *self.states.values())


class EntriesByName:
    """Finds entries of a checkpoint by the names of tables and parameters."""

    def __init__(self, entries: Iterable[Entry], source: str) -> None:
        self.source = source
        self.weights: dict[str, list[Entry]] = {}  # by the last part of the parameter's name
        self.states: dict[str, list[Entry]] = {}  # by the whole name of the parameter
        for entry in entries:
            if is_state(entry):
                self.states.setdefault(str(entry.path[-2]), []).append(entry)
            elif entry.dtype is not None and len(entry.sizes) == 2 and _parameter(entry).endswith(".weight"):
                self.weights.setdefault(_parameter(entry).removesuffix(".weight").rpartition(".")[2], []).append(entry)

    def find(self, layout: StoredLayout) -> TableEntries:
        """The entries of a table of the plan; PlanMismatch unless the checkpoint has exactly one table of its name."""
        found = self.weights.get(layout.name.rpartition(".")[2], [])
        found = [entry for entry in found if f".{_parameter(entry)}".endswith(f".{layout.name}.weight")]
        if len(found) > 1 and layout.table.collection:
            found = [entry for entry in found if f".{layout.table.collection}." in f".{_parameter(entry)}"]
        if not found:
            known = ", ".join(sorted(self.weights)[:8])
            raise PlanMismatch(
                f"the old plan places table '{layout.table.name}', which '{self.source}' does not hold; "
                f"its tables are such as {known or 'none'}"
            )
        if len(found) > 1:
            keys = " and ".join(f"'{entry.key}'" for entry in found[:2])
            raise PlanMismatch(
                f"'{self.source}' holds {keys}, and table '{layout.table.name}' of the old plan may be either; "
                "name the module of the table in the plan (`collection`)"
            )
        states = self.states.get(_parameter(found[0]), [])
        return TableEntries(weight=found[0], states=self._by_name(states, layout))

    def _by_name(self, states: list[Entry], layout: StoredLayout) -> dict[str, Entry]:
        named: dict[str, Entry] = {}
        for entry in states:
            fused = str(entry.path[-1]).startswith(f"{layout.name}.")
            if fused == layout.dense:
                kind = "fused kernels" if fused else "a dense optimizer"
                raise PlanMismatch(
                    f"table '{layout.table.name}' is {layout.placement.sharding_type} in the old plan, and "
                    f"'{self.source}' holds state of it by {kind} ('{entry.key}'); give the plan that the job ran"
                )
            name = str(entry.path[-1]).removeprefix(f"{layout.name}.") if fused else str(entry.path[-1])
            if name in named:
                raise PlanMismatch(
                    f"'{self.source}' holds the state '{name}' of table '{layout.table.name}' twice: '{entry.key}' "
                    f"and '{named[name].key}'; save one of them"
                )
            named[name] = entry
        return named

    def check_unplanned(self, planned: Iterable[TableEntries]) -> None:
        """Refuse a checkpoint with sharded tables that the plan does not place."""
        known = {entry.key for each in planned for entry in each.all}
        for table, entries in self.weights.items():
            for entry in entries:
                fused = any(str(s.path[-1]).startswith(f"{table}.") for s in self.states.get(_parameter(entry), []))
                if entry.key not in known and _parameter(entry).split(".")[-3:-2] and (fused or _sharded_table(entry)):
                    raise PlanMismatch(
                        f"'{self.source}' holds table '{table}' ('{entry.key}'), which the old plan does not place; "
                        "give the plan that the job ran"
                    )


def is_state(entry: Entry) -> bool:
    """Whether an entry is an optimizer state of a parameter that is stored by name."""
    return len(entry.path) >= 3 and entry.path[-3] == STATE and isinstance(entry.path[-2], str)


def _sharded_table(entry: Entry) -> bool:
    return len(entry.chunks) > 1 and _parameter(entry).split(".")[-3:-2][0] in COLLECTIONS


def _parameter(entry: Entry) -> str:
    return str(entry.path[-2] if is_state(entry) else entry.path[-1])


def weight_path(sibling: Entry, own: str, name: str) -> tuple[str | int, ...]:
    """The path of the weights of table `name`, in the collection of table `own`, whose weights are `sibling`."""
    return (*sibling.path[:-1], f"{_parameter(sibling).removesuffix(f'{own}.weight')}{name}.weight")


def state_path(prefix: tuple[str | int, ...], weight: tuple[str | int, ...], name: str) -> tuple[str | int, ...]:
    """The path of state `name` of the parameter whose weights have the path `weight`; prefix ends with 'state'."""
    return (*prefix, str(weight[-1]), name)


@record
class State:
    """An optimizer state: one number per weight, per row (of a column piece), or a scalar. like: an existing entry."""

    name: str
    shape: StateShape
    dtype: str = "float32"
    like: Entry | None = None


@record
class Kept:
    """The states that fused kernels, or a dense optimizer, store for each table, and their path up to 'state'."""

    prefix: tuple[str | int, ...]
    states: tuple[State, ...]


_FIRST = "first"
MEANING = {"momentum1": _FIRST, "sum": _FIRST, "exp_avg": _FIRST, "exp_avg_sq": "second", "momentum2": "second"}


def _states(shapes: Mapping[str, StateShape]) -> tuple[State, ...]:
    return tuple(State(name=name, shape=shape) for name, shape in shapes.items())


def state_of(entry: Entry, name: str, layout: StoredLayout) -> State:
    """The state of a table that an entry holds; PlanMismatch if its sizes fit neither weights nor rows nor a scalar."""
    rows, columns = layout.table.num_embeddings, layout.table.embedding_dim
    row_wise = (rows, 1) if layout.dense else (rows * len(layout.pieces),)
    if entry.sizes == (rows, columns):
        shape: StateShape = "element-wise"
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


def states_of(found: TableEntries, layout: StoredLayout) -> tuple[State, ...]:
    """All states of a table."""
    return tuple(state_of(entry, name, layout) for name, entry in found.states.items())


def kept_by(
    dense: bool, tables: Mapping[str, TableEntries], old: Mapping[str, StoredLayout], entries: Mapping[str, Entry],
    workload: Workload, optimizer: OptimizerName,
) -> Kept | None:  # fmt: skip
    """The states that an optimizer stores for each of its tables; None if the checkpoint has no state of any table.

    Args:
        dense: whether it is a dense optimizer, which updates data_parallel tables.
        tables: entries of the old plan's tables, by table name.
        old: layouts of the old plan's tables, by table name.
        entries: all entries of the checkpoint, by key.
        workload: the workload of the old plan.
        optimizer: the optimizer's name.
    """
    others: Kept | None = None
    for name, found in tables.items():
        if found.states:
            prefix = next(iter(found.states.values())).path[:-2]
            if old[name].dense == dense and workload.optimizer_of(old[name].table) == optimizer:
                return Kept(prefix=prefix, states=states_of(found, old[name]))
            others = others or Kept(prefix=prefix, states=())
    if others is None or not dense:
        return others and Kept(prefix=others.prefix, states=_states(OPTIMIZERS[optimizer].fused_states))
    return _of_parameters(tables, entries) or Kept(
        prefix=others.prefix, states=_states(OPTIMIZERS[optimizer].copied_states)
    )


def _of_parameters(tables: Mapping[str, TableEntries], entries: Mapping[str, Entry]) -> Kept | None:
    """The dense optimizer's states of its first parameter that is no table: scalars, and numbers per weight."""
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
    """For each new state (key) the old state that it continues (value); empty unless both are of one optimizer."""
    was, becomes = _meanings(before), _meanings(after)
    if was.keys() != becomes.keys():
        return {}
    return {becomes[meaning]: was[meaning] for meaning in becomes}


def _meanings(states: tuple[State, ...]) -> dict[tuple[str, StateShape], str]:
    """Names of states by their meaning and shape, without scalars, which count steps."""
    return {
        (MEANING.get(state.name, state.name), state.shape): state.name for state in states if state.shape != "scalar"
    }


def is_keyed_by_number(entry: Entry) -> bool:
    """Whether an entry is the state of a parameter that is stored by number only, as plain torch optimizers do."""
    return len(entry.path) >= 3 and entry.path[-3] == STATE and isinstance(entry.path[-2], int)
