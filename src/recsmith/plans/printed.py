"""Reads a printed ShardingPlan: what `print(model.plan)` writes, alone or in the log of a job.

    module: sparse.ebc

    param | sharding type | compute kernel | ranks
    ----- | ------------- | -------------- | ------
    users | column_wise   | fused          | [0, 1]

    param | shard offsets | shard sizes | placement
    ----- | ------------- | ----------- | -------------
    users | [0, 0]        | [1000, 32]  | rank:0/cuda:0
    users | [0, 32]       | [1000, 32]  | rank:1/cuda:1

(torchrec 1.8, ShardingPlan.__str__ of distributed/types.py.) What a launcher writes before every line is passed over if
it is as long on each line of a table.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recsmith.errors import CorruptFile
from recsmith.plans.dumped import Rectangle, RunningPlan, RunningTable, plan_of, rectangle, table_of
from recsmith.units import counted

_HEADER = re.compile(r"param +\| +sharding type +\| +compute kernel +\| +ranks")
_MODULE = re.compile(r"(?:^|[\s:\]])module: (\S*)\s*$")
_RULER = re.compile(r"-+(?: \| -+){3}\s*$")
_REPR = re.compile(r"\bParameterSharding\(\s*sharding_type=")
_GAP = " | "  # between the columns of a table
_LOST = "a line among its rows breaks the layout or is missing: give the output of print(plan) as it was written"
UNSHARDED = "data_parallel"  # the sharding type whose copies are not listed as shards

Row = tuple[str, str, str, str]


class _Grid(NamedTuple):
    """One printed table: the module above it, whether it holds shards (or parameters), and its rows."""

    module: str
    is_shards: bool
    rows: list[Row]


def is_printed(text: str) -> bool:
    """Whether a text holds a printed ShardingPlan."""
    return _HEADER.search(text) is not None


def refuse_repr(text: str, source: str) -> None:
    """Refuse what `print(plan.plan)` writes, and say which forms of a plan are read (CorruptFile)."""
    if _REPR.search(text):
        raise CorruptFile(
            f"'{source}' is what print(plan.plan) writes; give the output of print(plan), or of "
            "json.dump(plan._serialize(), file), or the text that TorchRec's planner logs"
        )


def read_printed(text: str, source: str) -> RunningPlan:
    """The plan of a text; of a module that is printed several times, the last.

    Raises:
        CorruptFile: a cell cannot be read, a table has neither shards nor ranks, or rows of shards are missing.
    """
    parameters: dict[str, list[Row]] = {}
    shards: dict[str, list[Row]] = {}
    for grid in _grids(text.splitlines()):
        (shards if grid.is_shards else parameters)[grid.module] = grid.rows
    return plan_of(
        [
            table
            for module, rows in parameters.items()
            for table in _tables(module, rows, _rectangles(shards.get(module, ()), source), source)
        ]
    )


def _tables(
    module: str, rows: Sequence[Row], shards: dict[str, list[Rectangle]], source: str
) -> Iterator[RunningTable]:
    _check_rows(module, rows, shards, source)
    for name, kind, kernel, ranks in rows:
        places = None if ranks == "None" else _numbers(name, ranks, source)
        yield table_of(module, name, kind, kernel, places, shards.get(name, ()), source)


def _check_rows(module: str, rows: Sequence[Row], shards: dict[str, list[Rectangle]], source: str) -> None:
    """Refuse tables and shards that do not go together: a line broke the layout, and the rows after it are lost."""
    unknown = shards.keys() - {name for name, *_ in rows}
    if unknown:
        raise CorruptFile(
            f"'{source}': the printed plan has shards of table '{min(unknown)}' and not the table, in module "
            f"'{module}'; {_LOST}"
        )
    for name, kind, _, ranks in rows:
        found, wanted = len(shards.get(name, ())), 1 if ranks == "None" else ranks.count(",") + 1
        if kind != UNSHARDED and (found < wanted or (found > wanted and ranks != "None")):
            raise CorruptFile(
                f"'{source}': the printed plan has {counted(found, 'shard')} of table '{name}' in module '{module}', "
                f"wanted {wanted}; {_LOST}"
            )


def _rectangles(rows: Sequence[Row], source: str) -> dict[str, list[Rectangle]]:
    """The shards of a module's tables, by table."""
    found: dict[str, list[Rectangle]] = {}
    for name, offsets, sizes, placement in rows:
        corner, size = _numbers(name, offsets, source, 2), _numbers(name, sizes, source, 2)
        found.setdefault(name, []).append(rectangle(name, corner, size, placement, source))
    return found


def _numbers(table: str, cell: str, source: str, count: int | None = None) -> list[int]:
    """The whole numbers of a cell such as '[0, 32]'; CorruptFile where it holds something else."""
    if not re.fullmatch(r"\[[0-9]{1,16}(?:, [0-9]{1,16})*\]", cell):
        raise CorruptFile(
            f"'{source}': the printed plan has '{cell[:80]}' for table '{table}'; wanted numbers: [0, 32]"
        )
    numbers = [int(word) for word in cell[1:-1].split(", ")]
    if count not in (None, len(numbers)):
        raise CorruptFile(f"'{source}': the printed plan has '{cell}' for table '{table}'; wanted {count} numbers")
    return numbers


def _grids(lines: Sequence[str]) -> Iterator[_Grid]:
    """The printed tables of a text, in order."""
    module = ""
    for at, line in enumerate(lines):
        found = _MODULE.search(line)
        module = found[1] if found else module
        ruler = _RULER.search(line)
        header = lines[at - 1] if ruler and at else ""
        if ruler and (_HEADER.search(header) or "shard offsets" in header):
            yield _Grid(module, "shard offsets" in header, list(_rows(lines, at + 1, ruler)))


def _rows(lines: Sequence[str], at: int, ruler: re.Match[str]) -> Iterator[Row]:
    """The rows under a ruler, cut where its columns are, up to the first line that is none."""
    widths = [len(dashes) for dashes in ruler[0].strip().split(_GAP)]
    first, second, third = (ruler.start() + sum(widths[:i]) + len(_GAP) * (i - 1) for i in (1, 2, 3))
    for line in lines[at:]:
        if any(line[end : end + len(_GAP)] != _GAP for end in (first, second, third)):
            return
        ends = (ruler.start(), first, second, third, len(line))
        yield (
            line[ends[0] : ends[1]].strip(),
            line[ends[1] + 3 : ends[2]].strip(),
            line[ends[2] + 3 : ends[3]].strip(),
            line[ends[3] + 3 :].strip(),
        )
