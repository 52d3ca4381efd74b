"""Random plans under random constraints, and a check of what they keep, written from docs/constraints.md alone.

The check reads plans and constraints as plain data, as their files hold them, and asks nothing of the sources.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

import recsmith
from recsmith import Cluster, Feature, Plan, Table, Workload
from recsmith.errors import PlanMismatch
from recsmith.plans import Placement, plan_to_raw
from recsmith.plans.check import check_placement
from support.cases import cluster

Raw = dict[str, Any]
SHAPES = ((2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (1, 3))
TYPES = ("table_wise", "column_wise", "column_wise", "column_wise", "table_column_wise", "row_wise", "table_row_wise",
         "grid_shard", "data_parallel")  # fmt: skip
DRAWS = 60  # of a placement, until one can be run

# --- what a plan keeps, from its file ---------------------------------------------------------------------------------


def broken(plan: Raw, limits: Raw, pinned_to: Raw | None = None) -> str | None:
    """What a plan breaks of a file of constraints, whose `pin_to` names the plan `pinned_to`; None where nothing."""
    local = plan["cluster"]["local_world_size"]
    dims = {table["name"]: table["embedding_dim"] for table in plan["workload"]["tables"]}
    placed = {each["table"]: each for each in plan["placements"]}
    shards: dict[str, list[Raw]] = {name: [] for name in dims}
    for shard in plan["shards"]:
        shards[shard["table"]].append(shard)
    for rule in limits.get("rules", ()):
        for name in (name for name in dims if fnmatchcase(name, rule["tables"])):
            for what, kept in _rule(rule, placed[name], shards[name], dims[name], local):
                if not kept:
                    return f"{name}: {what} of {rule}"
    for each in limits.get("pin_to", ()):
        assert pinned_to is not None
        for old in pinned_to["placements"]:
            name, but = old["table"], each.get("but", [])
            pinned = name in placed and _named(name, each.get("tables", ["*"])) and not _named(name, but)
            if pinned and not _same(placed[name], old, dims[name]):
                return f"{name} is not where the plan has it"
    for what, kept in _between(limits, shards, local):
        if not kept:
            return what
    return None


def _rule(rule: Raw, placed: Raw, shards: list[Raw], dim: int, local: int) -> list[tuple[str, bool]]:
    ranks = {shard["rank"] for shard in shards}
    hosts = {rank // local for rank in ranks}
    pieces = {shard["columns"][1] - shard["columns"][0] for shard in shards}
    factor = placed.get("cache", {}).get("load_factor")
    return [
        ("sharding_types", placed["sharding_type"] in rule.get("sharding_types", [placed["sharding_type"]])),
        ("compute_kernels", placed["compute_kernel"] in rule.get("compute_kernels", [placed["compute_kernel"]])),
        ("cache_factors", factor is None or factor in rule.get("cache_factors", [factor])),
        ("min_width", min(pieces) >= min(rule.get("min_width", 0), dim)),
        ("widths", pieces <= set(rule.get("widths", pieces))),
        ("max_shards", len(shards) <= rule.get("max_shards", len(shards))),
        ("ranks", ranks <= set(rule.get("ranks", ranks))),
        ("not_ranks", not ranks & set(rule.get("not_ranks", ()))),
        ("hosts", hosts <= set(rule.get("hosts", hosts))),
        ("not_hosts", not hosts & set(rule.get("not_hosts", ()))),
        ("pin", "pin" not in rule or _same(placed, rule["pin"], dim)),
    ]


def _same(placed: Raw, pin: Raw, dim: int) -> bool:
    """Exactly this placement: type, kernel, cache, and which columns are on which ranks."""
    kernels = placed["compute_kernel"] == pin.get("compute_kernel", "fused")
    if not kernels or placed["sharding_type"] != pin["sharding_type"] or placed.get("cache") != pin.get("cache"):
        return False
    return placed["ranks"] == pin["ranks"] and placed.get("widths", [dim]) == pin.get("widths", [dim])


def _between(limits: Raw, shards: dict[str, list[Raw]], local: int) -> list[tuple[str, bool]]:
    asked: list[tuple[str, bool]] = []
    for kind in ("together", "apart"):
        for each in limits.get(kind, ()):
            size = local if each.get("per") == "host" else 1
            units = [{s["rank"] // size for s in shards[name]} for name in shards if _named(name, each["tables"])]
            held = Counter(unit for some in units for unit in some)
            kept = len(set(map(frozenset, units))) <= 1 if kind == "together" else max(held.values(), default=0) <= 1
            asked.append((f"{kind} of {each}", kept))
    for each in limits.get("per_rank", ()):
        own = [[s["rank"] for s in some] for name, some in shards.items() if _named(name, each.get("tables", ["*"]))]
        tables = Counter(rank for some in own for rank in set(some))
        number = Counter(rank for some in own for rank in some)
        for key, counted in (("max_tables", tables), ("max_shards", number)):
            most = max(counted.values(), default=0)
            asked.append((f"{key} of {each}", most <= each.get(key, most)))
    return asked


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def moved_bytes(old: Raw, new: Raw) -> int:
    """Bytes that devices receive of tables that stay as they were: what they hold now and did not hold before."""
    size = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
    before = {table["name"]: table for table in old["workload"]["tables"]}
    held: dict[tuple[str, int], list[Raw]] = {}
    for shard in old["shards"]:
        held.setdefault((shard["table"], shard["rank"]), []).append(shard)
    total = 0
    for table in new["workload"]["tables"]:
        was = before.get(table["name"])
        shape = ("num_embeddings", "embedding_dim", "data_type")
        if was is None or any(was.get(key) != table.get(key) for key in shape):
            continue
        for shard in (each for each in new["shards"] if each["table"] == table["name"]):
            here = held.get((table["name"], shard["rank"]), [])
            kept = sum(_both(shard["rows"], each["rows"]) * _both(shard["columns"], each["columns"]) for each in here)
            cells = (shard["rows"][1] - shard["rows"][0]) * (shard["columns"][1] - shard["columns"][0])
            total += (cells - kept) * size[table.get("data_type", "fp32")]
    return total


def _both(one: list[int], other: list[int]) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


# --- random problems, plans of them, and constraints that those plans keep ------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A plan drawn at random, pieces in any order; and constraints that it keeps, so that there is a plan."""

    plan: Plan
    limits: Raw

    @property
    def raw(self) -> Raw:
        """The plan as its file has it."""
        return plan_to_raw(self.plan)


def drawn_plan(seed: int, *, pins: bool = True) -> Drawn:
    """Three to eight tables on two to eight ranks; pins: whether constraints pin tables."""
    random = np.random.default_rng(seed)
    local, hosts = SHAPES[random.integers(len(SHAPES))]
    where = cluster(local, hosts)
    tables = tuple(_table(random, f"t{i}") for i in range(int(random.integers(3, 9))))
    work = Workload(batch_size=64, optimizer="sgd", tables=tables)
    placements = tuple(_placement(random, table, where) for table in work.tables)
    plan = recsmith.price(work, where, placements, cost_model="torchrec")
    return Drawn(plan, _limits(random, plan_to_raw(plan), pins=pins))


def with_other_tables(drawn: Drawn, seed: int) -> Workload:
    """The plan's workload without some tables, with new ones, and one that is looked up more often."""
    random, work = np.random.default_rng(seed), drawn.plan.workload
    kept = [table for table in work.tables if random.random() < 0.8] or [work.tables[0]]
    features = tuple(replace(each, pooling_factor=3 * each.pooling_factor) for each in kept[0].features)
    new = [_table(random, f"new{i}") for i in range(int(random.integers(0, 3)))]
    return replace(work, tables=(replace(kept[0], features=features), *kept[1:], *new))


def _table(random: np.random.Generator, name: str) -> Table:
    feature = Feature(name=name, pooling_factor=float(random.integers(1, 30)))
    rows, dim = int(10 ** random.uniform(2, 4)), int(random.choice([8, 16, 24, 32, 64]))
    return Table(name=name, num_embeddings=rows, embedding_dim=dim, features=(feature,))


def _placement(random: np.random.Generator, table: Table, where: Cluster) -> Placement:
    """A placement that can be run; its pieces are in any order, and several may be equally wide."""
    for _ in range(DRAWS):
        kind, dim = str(random.choice(TYPES)), table.embedding_dim
        world, local = where.world_size, where.local_world_size
        ranks, widths = [int(random.integers(world))], list[int]()
        if kind in ("column_wise", "table_column_wise", "grid_shard"):
            cuts = sorted(random.choice(range(4, dim, 4), int(random.integers(0, min(4, dim // 4 - 1) + 1)), False))
            even = [dim // n] * n if (n := int(random.choice([1, 2, 4]))) and dim % (4 * n) == 0 else [dim]
            widths = even if random.random() < 0.6 else [b - a for a, b in zip([0, *cuts], [*cuts, dim], strict=True)]
            hosts = random.integers(where.hosts, size=len(widths))
            if kind == "column_wise":
                ranks = random.integers(world, size=len(widths)).tolist()
            elif kind == "table_column_wise":
                ranks = (hosts[0] * local + random.integers(local, size=len(widths))).tolist()
            else:
                ranks = [int(rank) for host in hosts for rank in range(host * local, (host + 1) * local)]
        elif kind in ("row_wise", "data_parallel"):
            ranks = list(range(world))
        elif kind == "table_row_wise":
            host = int(random.integers(where.hosts))
            ranks = list(range(host * local, (host + 1) * local))
        kernel = "dense" if kind == "data_parallel" else "fused"
        made = Placement(
            table=table.name, sharding_type=kind, compute_kernel=kernel, ranks=tuple(map(int, ranks)),
            widths=tuple(map(int, widths)) if len(widths) > 1 else (),
        )  # fmt: skip
        try:
            check_placement(made, table, where)
        except PlanMismatch:
            continue
        return made
    return Placement(table=table.name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,))


def _limits(random: np.random.Generator, plan: Raw, *, pins: bool) -> Raw:
    """Up to five constraints that the plan keeps; about half of them pin tables."""
    made: Raw = {"schema": "recsmith/constraints/1"}
    makers: list[Callable[[np.random.Generator, Raw], tuple[str, Raw]]] = [_rule_for, _group, _count]
    for _ in range(int(random.integers(1, 6))):
        maker = _pin if pins and random.random() < 0.5 else makers[random.integers(len(makers))]
        name, each = maker(random, plan)
        trial = {**made, name: [*made.get(name, []), each]}
        made = trial if broken(plan, trial) is None else made
    return made if len(made) > 1 else {**made, "per_rank": [{"max_tables": len(plan["placements"])}]}


def _pin(random: np.random.Generator, plan: Raw) -> tuple[str, Raw]:
    placed = plan["placements"][random.integers(len(plan["placements"]))]
    return "rules", {"tables": placed["table"], "pin": {key: placed[key] for key in placed if key != "table"}}


def _rule_for(random: np.random.Generator, plan: Raw) -> tuple[str, Raw]:
    placed = plan["placements"][random.integers(len(plan["placements"]))]
    name, ranks = str(random.choice([placed["table"], placed["table"], "t*"])), sorted(set(placed["ranks"]))
    local, closed = plan["cluster"]["local_world_size"], int(random.integers(plan["cluster"]["local_world_size"]))
    each = [
        {"ranks": ranks}, {"not_ranks": [closed]}, {"hosts": sorted({rank // local for rank in ranks})},
        {"not_hosts": [0]}, {"max_shards": len(placed["ranks"])}, {"sharding_types": [placed["sharding_type"]]},
        {"min_width": 8}, {"widths": sorted(set(placed.get("widths", [8, 16, 32, 64])))},
    ]  # fmt: skip
    return "rules", {"tables": name, **each[random.integers(len(each))]}


def _group(random: np.random.Generator, plan: Raw) -> tuple[str, Raw]:
    names = [each["table"] for each in plan["placements"]]
    some = random.choice(names, int(random.integers(2, 4)), replace=False).tolist()
    kind, per = str(random.choice(["together", "apart"])), str(random.choice(["rank", "host"]))
    return kind, {"tables": some, "per": per}


def _count(random: np.random.Generator, plan: Raw) -> tuple[str, Raw]:
    held = Counter(rank for each in plan["placements"] for rank in set(each["ranks"]))
    shards = Counter(rank for each in plan["placements"] for rank in each["ranks"])
    key, most = [("max_tables", held), ("max_shards", shards)][random.integers(2)]
    return "per_rank", {"tables": ["t*"], key: max(most.values()) + int(random.integers(0, 2))}
