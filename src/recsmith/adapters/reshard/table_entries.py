"""Which entries of a checkpoint are a table's: its weights, and its state by fused kernels or by a dense optimizer.

A path ends with the name of the weights, as in ('model', 'sparse.embedding_bags.t0.weight'). State follows them:
    of fused kernels     (..., 'state', 'sparse.embedding_bags.t0.weight', 't0.momentum1')
    of dense optimizers  (..., 'state', 'sparse.embedding_bags.t0.weight', 'sum')
"""

from collections.abc import Iterable

from recsmith._types import record
from recsmith.adapters.reshard.layout import Layout
from recsmith.adapters.reshard.stored import Chunk, Entry
from recsmith.errors import PlanMismatch

STATE = "state"
COLLECTIONS = ("embedding_bags", "embeddings")  # attributes of TorchRec's collections that hold their tables


@record
class TableEntries:
    """The entries of one table; states by the name that optimizers give them ('momentum1', 'sum')."""

    weight: Entry
    states: dict[str, Entry]

    @property
    def all(self) -> tuple[Entry, ...]:
        """Weights and states."""
        return (self.weight, *self.states.values())


class EntriesByName:
    """Entries of a checkpoint, found by the names of tables and parameters."""

    def __init__(self, entries: Iterable[Entry], source: str) -> None:
        self.source = source
        self.weights: dict[str, list[Entry]] = {}  # by the last word of the parameter
        self.states: dict[str, list[Entry]] = {}  # by the whole name of the parameter
        for entry in entries:
            if is_state(entry):
                self.states.setdefault(str(entry.path[-2]), []).append(entry)
            elif entry.dtype is not None and len(entry.sizes) == 2 and _parameter(entry).endswith(".weight"):
                self.weights.setdefault(_table_word(_parameter(entry)), []).append(entry)

    def find(self, layout: Layout) -> TableEntries:
        """The entries of a table of the plan; PlanMismatch where the checkpoint has none, or several, of its name."""
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

    def _by_name(self, states: list[Entry], layout: Layout) -> dict[str, Entry]:
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
        """Refuse tables that the checkpoint holds in shards and the plan does not place."""
        known = {entry.key for each in planned for entry in each.all}
        for word, entries in self.weights.items():
            for entry in entries:
                fused = any(str(s.path[-1]).startswith(f"{word}.") for s in self.states.get(_parameter(entry), []))
                if entry.key not in known and _parameter(entry).split(".")[-3:-2] and (fused or _sharded_table(entry)):
                    raise PlanMismatch(
                        f"'{self.source}' holds table '{word}' ('{entry.key}'), which the old plan does not place; "
                        "give the plan that the job ran"
                    )


def is_state(entry: Entry) -> bool:
    """Whether an entry is an optimizer's state of a named parameter."""
    return len(entry.path) >= 3 and entry.path[-3] == STATE and isinstance(entry.path[-2], str)


def _sharded_table(entry: Entry) -> bool:
    return len(entry.chunks) > 1 and _parameter(entry).split(".")[-3:-2][0] in COLLECTIONS


def _parameter(entry: Entry) -> str:
    return str(entry.path[-2] if is_state(entry) else entry.path[-1])


def _table_word(parameter: str) -> str:
    return parameter.removesuffix(".weight").rpartition(".")[2]


def weight_path(sibling: Entry, own: str, name: str) -> tuple[str | int, ...]:
    """The path of the weights of table `name`, in the collection of the table `own` whose weights are given."""
    return (*sibling.path[:-1], f"{_parameter(sibling).removesuffix(f'{own}.weight')}{name}.weight")


def state_path(prefix: tuple[str | int, ...], weight: tuple[str | int, ...], name: str) -> tuple[str | int, ...]:
    """The path of a state of the parameter whose weights have this path; prefix ends with 'state'."""
    return (*prefix, str(weight[-1]), name)


def chunks_by_place(entry: Entry) -> dict[tuple[tuple[int, ...], tuple[int, ...]], Chunk]:
    """Chunks by offsets and sizes."""
    return {(chunk.offsets, chunk.sizes): chunk for chunk in entry.chunks}
