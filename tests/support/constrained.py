"""Random constraints on small cases, and a brute force that says whether any plan keeps them.

What a constraint asks is written down a second time here, on placements and their ranks; no legality of the sources is
asked. Placements of a table that weigh the same on every rank and put as many shards there count once.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from recsmith.costs import step_seconds
from recsmith.plans import Placement
from recsmith.problems import Apart, Constraints, PerRank, Pin, Space, TableRule, Together, footprint_of
from recsmith.sharding import TYPE_NAMES
from recsmith.workloads import Table
from support.cases import Case, Pick, all_placements, cluster, fits, make_workload, shards_of, slow_memory

SHAPES = ((2, 1), (3, 1), (4, 1), (2, 2), (1, 3), (2, 2))
MOST_PLACEMENTS = 900  # of a table, so that all plans of three tables can be followed


def constrained_case(pick: Pick) -> Case:
    """Two to four tables on two to four ranks, with one to four constraints; many of them contradict each other."""
    local, hosts = pick(SHAPES)
    work = make_workload(pick, pick((2, 3, 3, 4)), (4, 8, 8, 12))
    names = [table.name for table in work.tables]
    types = pick(
        (TYPE_NAMES, ("table_wise", "column_wise"), ("table_wise",), ("table_wise", "row_wise", "data_parallel"))
    )
    roomy = Case(work, cluster(local, hosts, ddr_bytes_per_host=2**40), Space(types=types))
    placements = all_placements(roomy)
    need = sum(max(max(slow_memory(roomy, (each,))[0]) for each in some[:1]) for some in placements.values())
    hbm = max(1, int(need * pick((0.3, 0.5, 0.7, 1.0, 2.0, 50.0, 50.0))))
    made = replace(roomy, cluster=cluster(local, hosts, hbm, ddr_bytes_per_host=2**40))
    fields: dict[str, Any] = {"rules": (), "together": (), "apart": (), "per_rank": ()}
    for _ in range(pick((1, 2, 2, 3, 4))):
        name, each = _constraint(pick, names, made, placements)
        fields[name] = (*fields[name], each)
    return replace(made, constraints=Constraints(**fields))


def _constraint(
    pick: Pick, names: Sequence[str], case: Case, placements: dict[str, list[Placement]]
) -> tuple[str, TableRule | Together | Apart | PerRank]:
    ranks, hosts = range(case.cluster.world_size), range(case.cluster.hosts)
    tables, one = tuple(name for name in names if pick((True, True, False))) or ("t*",), pick((*names, "t*"))
    kinds = ("ranks", "not_ranks", "hosts", "not_hosts", "pin", "max_shards", "widths", "types", "together", "apart")
    match pick((*kinds, "together", "apart", "tables", "shards")):
        case "ranks":
            return "rules", TableRule(tables=one, ranks=tuple({pick(ranks), pick(ranks)}))
        case "not_ranks":
            return "rules", TableRule(tables=one, not_ranks=tuple({pick(ranks), pick(ranks)}))
        case "hosts":
            return "rules", TableRule(tables=one, hosts=(pick(hosts),))
        case "not_hosts":
            return "rules", TableRule(tables=one, not_hosts=(pick(hosts),))
        case "pin":
            name = pick(names)
            return "rules", TableRule(tables=name, pin=Pin.of(pick(placements[name])))
        case "max_shards":
            return "rules", TableRule(tables=one, max_shards=pick((1, 1, 2, 3)))
        case "widths":
            return "rules", TableRule(tables=one, widths=pick(((4,), (8,), (4, 8), (8, 12), (12,))))
        case "types":
            return "rules", TableRule(tables=one, sharding_types=pick((("table_wise",), ("column_wise", "row_wise"))))
        case "together":
            return "together", Together(tables=tables, per=pick(("rank", "rank", "host")))
        case "apart":
            return "apart", Apart(tables=tables, per=pick(("rank", "rank", "host")))
        case "tables":
            return "per_rank", PerRank(tables=pick((("*",), tables)), max_tables=pick((1, 1, 2)))
        case _:
            return "per_rank", PerRank(tables=pick((("*",), tables)), max_shards=pick((1, 2, 3)))


# --- what constraints ask, slowly ---------------------------------------------------------------------------------


def least_s(case: Case) -> float:
    """Seconds of the best plan that keeps the constraints and fits, by brute force; infinite without one."""
    plans = itertools.product(*all_placements(replace(case, constraints=Constraints())).values())
    kept = [each for each in plans if keeps(case, each) and fits(case, each)]
    return min((step_seconds(case.evaluator, footprint_of(case.problem, each)) for each in kept), default=math.inf)


def keeps(case: Case, placements: Sequence[Placement]) -> bool:
    """Whether placements of all tables keep all constraints; memory is not asked."""
    tables = {table.name: table for table in case.workload.tables}
    alone = all(_keeps_rules(case, tables[each.table], each) for each in placements)
    return alone and _keeps_groups(case, {each.table: Counter(each.ranks) for each in placements})


def _keeps_rules(case: Case, table: Table, placed: Placement) -> bool:
    ranks = [shard.rank for shard in shards_of(case, table, placed)]
    local, widths = case.cluster.local_world_size, placed.widths_of(table.embedding_dim)
    for rule in case.constraints.rules:
        if not fnmatchcase(table.name, rule.tables):
            continue
        legal = [
            rule.sharding_types is None or placed.sharding_type in rule.sharding_types,
            rule.compute_kernels is None or placed.compute_kernel in rule.compute_kernels,
            rule.widths is None or set(widths) <= set(rule.widths),
            rule.max_shards is None or len(ranks) <= rule.max_shards,
            rule.ranks is None or set(ranks) <= set(rule.ranks),
            not set(ranks) & set(rule.not_ranks or ()),
            rule.hosts is None or {rank // local for rank in ranks} <= set(rule.hosts),
            not {rank // local for rank in ranks} & set(rule.not_hosts or ()),
            rule.pin is None or _is_pinned(case, table, rule.pin, placed),
        ]
        if not all(legal):
            return False
    return True


def _is_pinned(case: Case, table: Table, pin: Pin, placed: Placement) -> bool:
    """Whether a table has the pinned shards: the same rows and columns on the same ranks."""
    wanted = pin.placement(table.name)
    same = (placed.sharding_type, placed.compute_kernel) == (wanted.sharding_type, wanted.compute_kernel)
    return same and shards_of(case, table, placed) == shards_of(case, table, wanted)


def _keeps_groups(case: Case, shards: dict[str, Counter[int]]) -> bool:
    """shards: of each table, how many are on each rank."""
    local, world = case.cluster.local_world_size, case.cluster.world_size
    constraints = case.constraints

    def units(table: str, per: str) -> set[int]:
        return {rank // local if per == "host" else rank for rank in shards[table]}

    def named(patterns: tuple[str, ...]) -> list[str]:
        return [table for table in shards if any(fnmatchcase(table, pattern) for pattern in patterns)]

    for together in constraints.together:
        if len({frozenset(units(table, together.per)) for table in named(together.tables)}) > 1:
            return False
    for apart in constraints.apart:
        held = Counter(unit for table in named(apart.tables) for unit in units(table, apart.per))
        if max(held.values(), default=0) > 1:
            return False
    for limit in constraints.per_rank:
        for rank in range(world):
            counts = [shards[table][rank] for table in named(limit.tables)]
            if limit.max_tables is not None and sum(count > 0 for count in counts) > limit.max_tables:
                return False
            if limit.max_shards is not None and sum(counts) > limit.max_shards:
                return False
    return True


# --- brute force --------------------------------------------------------------------------------------------------


def is_small(case: Case) -> bool:
    """Whether every plan can be followed."""
    counts = [len(each) for each in all_placements(_without_rules(case)).values()]
    return max(counts) <= MOST_PLACEMENTS


def _without_rules(case: Case) -> Case:
    return replace(case, constraints=replace(case.constraints, rules=()))


def some_plan(case: Case) -> bool:
    """Whether any plan keeps the constraints and fits the memory: every one is followed until one does."""
    found = [list(_distinct(case, table)) for table in case.workload.tables]
    room, host_room = np.array(case.cluster.capacities), case.cluster.ddr_bytes_per_host or 0

    def follow(depth: int, device: Any, host: Any, shards: dict[str, Counter[int]], widths: dict[str, int]) -> bool:
        if (device > room).any() or (host > host_room).any():
            return False
        if depth == len(found):
            return _keeps_groups(case, shards)
        table = case.workload.tables[depth]
        for size, on_host, on, width in found[depth]:
            if width and widths.get(table.collection, width) != width:
                continue
            wide = {**widths, table.collection: width} if width else widths
            if follow(depth + 1, device + size, host + on_host, {**shards, table.name: on}, wide):
                return True
        return False

    return follow(0, np.zeros_like(room), np.zeros(case.cluster.hosts, dtype=np.int64), {}, {})


def _distinct(case: Case, table: Table) -> Iterator[tuple[Any, Any, Counter[int], int]]:
    """(device bytes, host bytes, shards on each rank, width of a split sequence) of placements within the rules."""
    seen: set[Any] = set()
    for placed in all_placements(_without_rules(case))[table.name]:
        if not _keeps_rules(case, table, placed):
            continue
        device, host = slow_memory(case, (placed,))
        sequence = not table.pooled and placed.sharding_type == "column_wise"
        width = placed.widths_of(table.embedding_dim)[0] if sequence else 0
        on = Counter(shard.rank for shard in shards_of(case, table, placed))
        key = (tuple(device), tuple(host), tuple(sorted(on.items())), width)
        if key not in seen:
            seen.add(key)
            yield np.array(device), np.array(host), on, width
