"""Reads a printed ShardingPlan: the output of `print(model.plan)`, alone or in the log of a job.

    module: sparse.ebc

    param | sharding type | compute kernel | ranks
    ----- | ------------- | -------------- | ------
    users | column_wise   | fused          | [0, 1]

    param | shard offsets | shard sizes | placement
    ----- | ------------- | ----------- | -------------
    users | [0, 0]        | [1000, 32]  | rank:0/cuda:0
    users | [0, 32]       | [1000, 32]  | rank:1/cuda:1

(torchrec 1.8, ShardingPlan.__str__ of distributed/types.py.) A launcher's prefix is ignored if it has the same length
on every line of a table. `print(model.plan.plan)` prints the objects themselves, on one line:

    {'sparse.ebc': {'users': ParameterSharding(sharding_type='column_wise', compute_kernel='fused', ranks=[0, 1],
    sharding_spec=EnumerableShardingSpec(shards=[ShardMetadata(shard_offsets=[0, 0], shard_sizes=[1000, 32],
    placement=rank:0/cuda:0), ...]), cache_params=None, ...)}}
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from recsmith.errors import CorruptFile
from recsmith.plans.dumped import Rectangle, RunningPlan, RunningTable, plan_of, rectangle, table_of
from recsmith.units import counted

_HEADER = re.compile(r"param +\| +sharding type +\| +compute kernel +\| +ranks")
_MODULE = re.compile(r"(?:^|[\s:\]])module: (\S*)\s*$")
_RULER = re.compile(r"-+(?: \| -+){3}\s*$")
_GAP = " | "  # column separator
_LOST = "a line among its rows breaks the layout or is missing: give the output of print(plan) as it was written"
UNSHARDED = "data_parallel"  # the sharding type whose copies are not listed as shards

_OBJECT = "ParameterSharding(sharding_type="
_NAME = r"""(?:'([^'\n]*)'|"([^"\n]*)")"""  # a string as Python prints it
# name of a module, before its first table, and name of a table
_NAMES = re.compile(rf"(?:{_NAME}:\s*\{{\s*)?{_NAME}:\s*$")
_FIELDS = re.compile(
    r"ParameterSharding\(sharding_type='(\w+)',\s*compute_kernel='(\w+)',\s*ranks=(None|\[[\d,\s]*\]),\s*"
    r"sharding_spec=(None|EnumerableShardingSpec)"
)
_SHARD = re.compile(
    r"ShardMetadata\(shard_offsets=(\[[\d,\s]*\]),\s*shard_sizes=(\[[\d,\s]*\]),\s*placement=([\w:/.-]+)\)"
)
_LOAD_FACTOR = re.compile(
    r"cache_params=CacheParams\([^()]*load_factor=([0-9]{1,9}(?:\.[0-9]{1,20})?(?:e-[0-9]{1,3})?)"
)
_LONGEST_NAMES = 2000  # most characters of the names of a module and a table; bounds the work on damaged text

Row = tuple[str, str, str, str]


class _Grid(NamedTuple):
    """One printed table: the module above it, whether it lists shards (or parameters), and its rows."""

    module: str
    is_shards: bool
    rows: list[Row]


def is_printed(text: str) -> bool:
    """Whether a text contains a printed ShardingPlan."""
    return _HEADER.search(text) is not None or _OBJECT in text


def read_printed(text: str, source: str) -> RunningPlan:
    """The plan in a text; if a module is printed several times, its last print.

    Raises:
        CorruptFile: a cell cannot be read, a table has neither shards nor ranks, or rows of shards are missing.
    """
    if _HEADER.search(text) is None:
        return plan_of(_last_printed(_tables_of_objects(text, source)))
    parameters: dict[str, list[Row]] = {}
    shards: dict[str, list[Row]] = {}
    for grid in _grids(text.splitlines()):
        (shards if grid.is_shards else parameters)[grid.module] = grid.rows
    if not any(parameters.values()):
        raise CorruptFile(
            f"'{source}': of the printed plan, no table under its header lines up: give the output of print(plan) as "
            "it was written, with all spaces and dashes"
        )
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
    """Refuse tables and shards that do not match: a line broke the layout, and the rows after it are lost."""
    unknown = shards.keys() - {name for name, *_ in rows}
    if unknown:
        raise CorruptFile(
            f"'{source}': the printed plan has shards of table '{min(unknown)}' and not the table, in module "
            f"'{module}'; {_LOST}"
        )
    for name, kind, _, ranks in rows:
        _check_count(
            module, name, kind, len(shards.get(name, ())), None if ranks == "None" else ranks.count(",") + 1, source
        )


def _check_count(module: str, table: str, kind: str, found: int, ranks: int | None, source: str) -> None:
    """Refuse a table with fewer or more shards than ranks."""
    wanted = ranks or 1
    if kind != UNSHARDED and (found < wanted or (found > wanted and ranks is not None)):
        raise CorruptFile(
            f"'{source}': the printed plan has {counted(found, 'shard')} of table '{table}' in module '{module}', "
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
    """The whole numbers in a cell such as '[0, 32]'; CorruptFile if it contains anything else."""
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
    """The rows under a ruler, split at its columns, up to the first line that is not a row."""
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


# --- print(plan.plan) ------------------------------------------------------------------------------------------------


def _last_printed(tables: Iterable[RunningTable]) -> list[RunningTable]:
    """The tables of the last print of each module, because every rank of a job may print the plan."""
    found: dict[str, dict[str, RunningTable]] = {}
    for table in tables:
        module = found.setdefault(table.module, {})
        if table.table in module:
            module.clear()
        module[table.table] = table
    return [table for module in found.values() for table in module.values()]


def _tables_of_objects(text: str, source: str) -> Iterator[RunningTable]:
    """The tables of printed objects, in order."""
    starts = [found.start() for found in re.finditer(re.escape(_OBJECT), text)]
    module = ""
    for at, end in zip(starts, [*starts[1:], len(text)], strict=True):
        names = _NAMES.search(text, max(0, at - _LONGEST_NAMES), at)
        printed = re.sub(r",\s+", ", ", text[at:end])  # a terminal may have folded the text
        fields = _FIELDS.match(printed)
        if names is None or fields is None:
            raise CorruptFile(f"'{source}': the printed plan cannot be read at '{printed[:80]}'; {_LOST}")
        module = names[1] or names[2] or module
        table, (kind, kernel, ranks, spec) = names[3] or names[4], fields.groups()
        shards = [
            rectangle(table, _numbers(table, offsets, source, 2), _numbers(table, sizes, source, 2), placement, source)
            for offsets, sizes, placement in _SHARD.findall(printed)
        ]
        places = None if ranks == "None" else _numbers(table, ranks, source)
        if printed.count("ShardMetadata(") != len(shards) or (spec != "None" and not shards):
            raise CorruptFile(f"'{source}': shards of table '{table}' in the printed plan cannot be read; {_LOST}")
        _check_count(module, table, kind, len(shards), None if places is None else len(places), source)
        factor = _LOAD_FACTOR.search(printed)
        made = table_of(module, table, kind, kernel, places, shards, source)
        yield made._replace(load_factor=float(factor[1]) if factor else None)
