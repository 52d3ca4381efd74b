"""What parts of a run refuse that say how rows are kept: data types of tables, and stores; without torch."""

import math
from dataclasses import dataclass, replace
from typing import Any

from recsmith._components import parsed
from recsmith.errors import check_rules
from recsmith.plans import Cache, Placement, Plan
from recsmith.problems.cached_lookups import CachedTable, cached_tables_of, hit_share
from recsmith.sharding import KEY_VALUE
from recsmith.training.parts.run import (
    BACKGROUND,
    COPIED,
    CPU,
    GPU,
    Deduplicated,
    Part,
    PlannedTables,
    Sequences,
    TableOptimizer,
)
from recsmith.training.run import Run
from recsmith.workloads import Table
from recsmith.workloads.optimizers import SPLIT_OPTIMIZERS

PROFILE = 1000  # batches whose reads are counted, of policy static
BATCHES = 2  # whose rows a cache holds at least: the one that trains, and the one that is fetched ahead of it
SPREAD = 1.25  # times the mean ids of a batch, of features whose bags differ in length


@dataclass(frozen=True)
class NarrowTables:
    """Tables whose weights are narrower than fp32: the name of the first, and its data type."""

    table: str
    data_type: str = "bf16"

    @property
    def label(self) -> str:
        """Its key and value."""
        return f"data_type: {self.data_type}"

    def refuses(self, other: Any, /) -> str | None:
        """bf16, whose rows no training kernel of FBGEMM looks up: fp32, fp16 and bytes are what they take."""
        if other not in (CPU, GPU) or self.data_type != "bf16":
            return None
        halves = "leave it out and write rows: split, whose lookups read bf16, or use fp16"
        return (
            f"table '{self.table}' has data_type bf16, in which FBGEMM trains no tables; "
            f"{f'on CPU {halves}' if other is CPU else 'on GPUs use fp16'}"
        )


@dataclass(frozen=True)
class SplitHalves:
    """Tables whose weights lie in two halves of 16 bits."""

    label: str = "rows: split"

    def refuses(self, other: Any, /) -> str | None:
        """Optimizers and tables that are not looked up and updated in halves, and what keeps no fp32 weights."""
        if isinstance(other, TableOptimizer) and other.name not in SPLIT_OPTIMIZERS:
            return f"rows: split has no form of {other.name}; use {' or '.join(SPLIT_OPTIMIZERS)}, or leave rows out"
        if isinstance(other, NarrowTables):
            return (
                f"rows: split keeps weights in fp32, and table '{other.table}' has data_type {other.data_type}; leave "
                "its data_type out, and lookups read bf16"
            )
        if isinstance(other, Sequences):
            return f"table '{other.table}' has pooling none, which rows: split does not have yet; leave rows out"
        if isinstance(other, Deduplicated):
            return "rows: split does not take deduplicated features yet; drop data.deduplicate, or leave rows out"
        if other is GPU:
            return "rows: split is for CPUs; on GPUs leave rows out and give tables data_type fp16"
        if isinstance(other, PlannedTables) and other.copied:
            return (
                f"rows: split has no copies, and the plan copies table {other.copied} to every rank; use a plan "
                "without data_parallel, or leave rows out"
            )
        return None


@dataclass(frozen=True)
class OnDisk:
    """Tables that the plan keeps on disk, by the name of the first, or none; and a run's rows."""

    table: str | None
    rows: Any

    @property
    def label(self) -> str:
        """The kernel, where a table has it."""
        return "plan: key_value" if self.table is not None else "plan: fused"

    def refuses(self, other: Any, /) -> str | None:
        """A CPU, where nobody is told in which folder the tables are, or a folder is given and no table goes there."""
        name, settings = parsed(self.rows, "rows")
        if other is not CPU or (name == "tiered" and "cache" in settings):
            return None
        if self.table is not None and name != "tiered":
            return (
                f"table '{self.table}' is on disk in the plan (key_value), and rows is {name}; write rows: {{name: "
                "tiered, folder: FOLDER}"
            )
        if self.table is None and name == "tiered":
            return (
                "rows is tiered, and the plan keeps no table on disk (key_value); give rows.cache a share, and all "
                "pooled tables are, or plan with --kernels fused,dense,key_value"
            )
        return None


@dataclass(frozen=True)
class TablesInFile:
    """Tables that are kept in a file: all of them, or those that the plan says."""

    all_of_them: bool = True
    label: str = "rows: tiered"

    def refuses(self, other: Any, /) -> str | None:
        """Copies of whole tables in memory, and tables and devices without a cache in front of a file."""
        if other is BACKGROUND:
            return "checkpoint.background copies whole tables to memory, which rows: tiered keeps out of it; drop it"
        if isinstance(other, Sequences) and self.all_of_them:
            return (
                f"table '{other.table}' has pooling none, which rows: tiered keeps in memory; drop rows.cache, and let "
                "a plan with --kernels fused,dense,key_value say which tables are on disk"
            )
        if isinstance(other, NarrowTables):
            return f"rows: tiered keeps tables in fp32, and table '{other.table}' has {other.data_type}; give it fp32"
        if isinstance(other, Deduplicated):
            return "rows: tiered does not take deduplicated features yet; drop data.deduplicate, or leave rows out"
        if isinstance(other, PlannedTables) and (odd := self._split_by_columns(other.plan)) is not None:
            return (
                f"table '{odd}' is split by columns in the plan, and rows: tiered keeps whole rows; use a plan of "
                "table_wise and row_wise"
            )
        if other is GPU:
            return "rows: tiered is for CPUs; on GPUs leave rows out; plan with --kernels fused,dense,fused_uvm_caching"
        return None

    def _split_by_columns(self, plan: Plan) -> str | None:
        """The first table in a file whose columns are on several ranks."""
        dims = {table.name: table.embedding_dim for table in plan.workload.tables if table.pooled}
        cut = [each for each in plan.placements if each.widths and each.widths != (dims.get(each.table),)]
        stored = [each.table for each in cut if self.all_of_them or each.compute_kernel == KEY_VALUE.name]
        return min((name for name in stored if name in dims), default=None)


def check_caches(cache: float | None = None, policy: str | None = None, profile: int = PROFILE) -> None:
    """Refuse settings of the caches of `rows: tiered` that mean nothing (UsageError)."""
    fits, alone = cache is None or 0 < cache <= 1, policy is not None and cache is None
    check_rules(
        None if fits else f"rows.cache is {cache}; it is a share of rows, above 0 and at most 1",
        "rows.policy goes with rows.cache; without it the plan says both: plan with --cache-policy static"
        if alone else None,
        None if alone or profile >= 1 else f"rows.profile is {profile}; it is a number of batches, at least 1",
    )  # fmt: skip


def cached_tables(run: Run, plan: Plan) -> list[CachedTable]:
    """The tables that a run on CPU keeps in files, each with the share of its rows that is in memory."""
    name, settings = parsed(run.rows, "rows")
    if name != "tiered":
        return []
    check_caches(**{each: settings[each] for each in ("cache", "policy", "profile") if each in settings})
    tables = {table.name: table for table in plan.workload.tables if table.pooled}
    placed = [each for each in plan.placements if each.table in tables and each.sharding_type != COPIED]
    if "cache" in settings:
        static = settings.get("policy") == "static"
        wanted = [CachedTable(tables[each.table], settings["cache"], static) for each in placed]
    else:
        stored = {each.table for each in placed if each.compute_kernel == KEY_VALUE.name}
        wanted = [each for each in cached_tables_of(plan) if each.table.name in stored]
    least = least_slots(run, plan)
    return [each._replace(share=share_of(each, least[each.table.name])) for each in wanted]


def share_of(cached: CachedTable, least: int) -> float:
    """The share of a table's rows that its cache holds: what is asked for, and never fewer rows than `least`."""
    return min(1.0, max(cached.share, least / cached.table.num_embeddings))


def least_slots(run: Run, plan: Plan) -> dict[str, int]:
    """Rows that the cache of each table holds at least: those that two batches of all ranks may read."""
    ranks = plan.cluster.world_size
    mixed = 1 if run.data.periods is None else run.data.periods.mixed
    samples = run.data.local_batch_size(ranks) * ranks * mixed
    return {table.name: min(table.num_embeddings, BATCHES * _ids(table, samples)) for table in plan.workload.tables}


def _ids(table: Table, samples: int) -> int:
    ids = sum(
        each.pooling_factor * each.num_poolings * (1.0 if each.pooling_factor == 1 else SPREAD)
        for each in table.features
    )
    return math.ceil(samples * ids)


def facts_of_kernels(run: Run, plan: Plan) -> dict[str, Any]:
    """What the kernels of a run's row store are told beside its settings."""
    return {"least": least_slots(run, plan)} if parsed(run.rows, "rows")[0] == "tiered" else {}


def stored_plan(run: Run, plan: Plan) -> Plan:
    """The plan as the run keeps its rows: tables that are in files say so, with what is in memory of each."""
    cached = {each.table.name: each for each in cached_tables(run, plan)}
    return replace(plan, digest="", placements=tuple(_stored(each, cached.get(each.table)) for each in plan.placements))


def _stored(placement: Placement, cached: CachedTable | None) -> Placement:
    if cached is None:
        return placement
    cache = Cache(load_factor=cached.share, policy="static" if cached.static else "lru")
    return replace(placement, compute_kernel=KEY_VALUE.name, cache=cache)


def predicted_hits(run: Run, plan: Plan) -> float | None:
    """The share of the lookups of these tables that is predicted to find its row in memory; None without any."""
    cached = cached_tables(run, plan)
    return hit_share(plan.workload, cached, plan.cluster.world_size) if cached else None


def row_parts(run: Run) -> list[Part]:
    """Who holds the rows of a run, where that refuses anything."""
    name, settings = parsed(run.rows, "rows")
    known: dict[str, Part] = {"tiered": TablesInFile("cache" in settings), "split": SplitHalves()}
    return [known[name]] if name in known else []
