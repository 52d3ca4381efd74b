"""Which weights of an earlier training a run's model takes, and which are new, larger, drawn anew or left out.

In names, `there` and `before` stand for the earlier training, `here` for the run's model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recsmith._types import Ints
from recsmith.errors import UsageError
from recsmith.training.job.sharded import table_of

Shape = tuple[int, ...]
SHOWN = 8  # most names in a line


@dataclass(frozen=True)
class NewInputs:
    """A layer whose inputs changed. moves: (dimension, positions now, positions before) for each changed dimension."""

    moves: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True)
class Match:
    """The weights that are loaded, by their names in the run's model.

    whole: names of weights that are loaded unchanged. grown: for each table that is larger now, its former number of
    rows. moved: layers whose inputs moved. elsewhere: by table, the former row of each row, -1 for new rows; only for
    tables whose rows moved. lines: lines to print.
    """

    whole: frozenset[str]
    grown: Mapping[str, int]
    moved: Mapping[str, NewInputs]
    lines: list[str] = field(default_factory=list[str])
    elsewhere: Mapping[str, Ints] = field(default_factory=dict[str, Ints])

    def rows_there(self, there: Mapping[str, Shape]) -> dict[str, int]:
        """The former number of rows of each table that is loaded. there: shapes in the earlier training, by name."""
        names = {name: table for name in (*self.whole, *self.grown) if (table := table_of(name))}
        return {table: there[name][0] for name, table in sorted(names.items())}

    def takes(self, name: str) -> bool:
        """Whether any part of a weight is loaded."""
        return name in self.whole or name in self.grown or name in self.moved


def match_weights(
    here: Mapping[str, Shape], there: Mapping[str, Shape], inputs: Sequence[tuple[list[str], list[str]]], path: str
) -> Match:
    """Decide which weights of an earlier training a model takes.

    Args:
        here: shapes of the model's weights by name.
        there: shapes in the earlier training by name.
        inputs: (here, there) names of the inputs of layers (layers.py).
        path: of the training, for errors.

    Raises:
        UsageError: a table has a different number of columns, or fewer rows than before; or no table is loaded.
    """
    whole = {name for name, shape in here.items() if there.get(name) == shape}
    grown, moved, anew = dict[str, int](), dict[str, NewInputs](), list[str]()
    for name, shape in here.items():
        before = there.get(name)
        if before is None or before == shape:
            continue
        if table := table_of(name):
            _check_table(table, before, shape, path)
            grown[name] = before[0]
        elif (found := _moved(before, shape, inputs)) is not None:
            moved[name] = found
        else:
            anew.append(f"{name} ({_said(before)} there, {_said(shape)} here)")
    _check_any(here, there, whole | set(grown), path)
    lines = [*_table_lines(here, there, grown), *_layer_lines(here, there, moved, anew)]
    return Match(frozenset(whole), grown, moved, lines)


def apart_line(tables: Sequence[str], module: str | None) -> list[str]:
    """A line on tables that were in another module, read by other layers. module: the name of that module."""
    if not tables:
        return []
    said = f" (model.table_module: {module} there)" if module else ""
    return [f"rows of {_listed(sorted(tables))} come from tables in another module{said}, which other layers read"]


def _check_table(table: str, before: Shape, shape: Shape, path: str) -> None:
    if before[1:] != shape[1:]:
        raise UsageError(
            f"table '{table}' has {before[-1]} columns in '{path}' and {shape[-1]} here, so its rows cannot come "
            f"along; give it {before[-1]} columns, or another name, under which it is drawn anew"
        )
    if before[0] > shape[0]:
        raise UsageError(
            f"table '{table}' has {before[0]:,} rows in '{path}' and {shape[0]:,} here, so rows that were learned "
            f"would be lost; give it at least {before[0]:,} rows, or another name, under which it is drawn anew"
        )


def _check_any(here: Mapping[str, Shape], there: Mapping[str, Shape], taken: set[str], path: str) -> None:
    tables = [name for name in here if table_of(name)]
    if tables and not any(name in taken for name in tables):
        known = sorted(table for name in there if (table := table_of(name)))
        raise UsageError(
            f"start_from: '{path}' has none of this model's tables: it has {_listed(known)}, and the model has "
            f"{_listed([table_of(name) or name for name in tables])}; give a run of this model"
        )


def _moved(before: Shape, shape: Shape, inputs: Sequence[tuple[list[str], list[str]]]) -> NewInputs | None:
    """The moved inputs of a layer; None if its shapes do not match known inputs."""
    if len(before) != len(shape):
        return None
    moves = list[tuple[int, tuple[int, ...], tuple[int, ...]]]()
    for dimension, (old, new) in enumerate(zip(before, shape, strict=True)):
        if old == new:
            continue
        known = next((each for each in inputs if (len(each[0]), len(each[1])) == (new, old)), None)
        if known is None:
            return None
        place = {name: at for at, name in enumerate(known[1])}
        both = [(at, place[name]) for at, name in enumerate(known[0]) if name in place]
        moves.append((dimension, tuple(at for at, _ in both), tuple(at for _, at in both)))
    return NewInputs(tuple(moves))


def _table_lines(here: Mapping[str, Shape], there: Mapping[str, Shape], grown: Mapping[str, int]) -> Iterator[str]:
    for name, rows in grown.items():
        yield f"table {table_of(name)} grows from {rows:,} to {here[name][0]:,} rows; the new ones are drawn"
    for said, some, others in (("new, and drawn", here, there), ("left out", there, here)):
        tables = [table for name in some if name not in others and (table := table_of(name))]
        if tables:
            yield f"{'table' if len(tables) == 1 else 'tables'} {_listed(tables)} {_is(tables)} {said}"


def _layer_lines(
    here: Mapping[str, Shape], there: Mapping[str, Shape], moved: Mapping[str, NewInputs], anew: Sequence[str]
) -> Iterator[str]:
    for name, inputs in moved.items():
        new = [here[name][dimension] - len(places) for dimension, places, _ in inputs.moves]
        gone = [there[name][dimension] - len(places) for dimension, places, _ in inputs.moves]
        said = [f"{max(new)} new inputs, which begin at zero"] if max(new) else []
        said += [f"{max(gone)} inputs fewer"] if max(gone) else []
        yield f"layer {name} has {' and '.join(said)}"
    made = [name for name in here if name not in there and not table_of(name)]
    if made or anew:
        listed = _listed([*anew, *made])
        yield f"layers drawn anew, for they are not there or have another shape: {listed}"


def _said(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
