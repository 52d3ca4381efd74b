"""The plan that runs today: read from a planner's report, a dumped ShardingPlan and a plan file, or refused."""

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import CorruptFile, PlanMismatch, RecSmithError
from recsmith.plans import Cache, Placement, save_plan
from recsmith.plans.running import load_placements
from recsmith.workloads import Workload, load_workload

MACHINES = cluster(hosts=2, local=2)
WORK = workload(
    *(table(f"t{i}", rows=100 * (i + 1), dim=32, collection="m.ebc") for i in range(7)),
    table("s", rows=50, dim=8, pooling="none", collection="m.ec"),
)
WANTED = (  # what both texts below say
    placed("s", "table_wise", [1]),
    placed("t0", "table_wise", [0]),
    placed("t1", "column_wise", [2, 2, 3, 3], [8, 8, 8, 8]),
    placed("t2", "row_wise", [0, 1, 2, 3]),
    placed("t3", "table_row_wise", [2, 3]),
    placed("t4", "grid_shard", [0, 1, 2, 3], [16, 16]),
    placed("t5", "data_parallel", [0, 1, 2, 3], kernel="dense"),
    placed("t6", "table_column_wise", [0, 1], [16, 16]),
)


def read(folder: Path, text: str, work: Workload = WORK, machines: Cluster = MACHINES) -> tuple[Placement, ...]:
    (folder / "running").write_text(text)
    return load_placements(str(folder / "running"), work, machines)


# --- the report ---------------------------------------------------------------------------------------------------

COLUMNS = ["FQN", "Sharding", "Compute Kernel", "Cache Load Factor", "Sum Pooling Factor", "Sum Num Poolings",
           "Num Indices", "Output", "Weighted", "Features", "Emb Dim (CW Dim)", "Hash Size", "Ranks"]  # fmt: skip


def row(
    name: str, sharding: str, dim: str, rows: str, ranks: str, kernel: str = "fused", cache: str = "None"
) -> list[str]:
    return [name, sharding, kernel, cache, "1.0", "1.0", "1.0", "pooled", "unweighted", "1", dim, rows, ranks]


ROWS = [
    row("m.ec.s", "TW", "8", "50", "1"),
    row("m.ebc.t0", "TW", "32", "100", "0"),
    row("m.ebc.t1", "CW", "32 (8)", "200", "2,2,3,3"),
    row("m.ebc.t2", "RW", "32", "300", "0-3"),
    row("m.ebc.t3", "TWRW", "32", "400", "2-3"),
    row("m.ebc.t4", "GS", "32 (16)", "500", "0-3"),
    row("m.ebc.t5", "DP", "32", "600", "0-3", kernel="dense"),
    row("m.ebc.t6", "TWCW", "32 (16)", "700", "0-1"),
]


def report(rows: Sequence[Sequence[str]] = ROWS, columns: Sequence[str] = COLUMNS, ranks: int = 4) -> str:
    """A planner report as TorchRec lays it out: cells right-aligned, three blanks apart."""
    cells = [list(columns), ["---"] * len(columns), *map(list, rows)]
    lines = ["--- Planner Statistics ---", "  Rank   HBM (GB)   DDR (GB)   Perf (ms)"]
    lines += [f"  {rank}   99.7 (72%)   0.0 (0%)   0.009 (7e-05,0.002,0.0001,0.008,0)" for rank in range(ranks)]
    lines += [
        "",
        "Parameter Info:",
        *("".join(f"   {cell:>24}" for cell in each) for each in cells),
        "",
        "Batch Size: 16",
    ]
    width = max(map(len, lines))
    return "#" * (width + 4) + "\n" + "".join(f"# {line:<{width}} #\n" for line in lines)


def test_a_report_gives_types_kernels_widths_and_ranks(tmp_path: Path):
    assert read(tmp_path, report()) == WANTED


def test_a_report_keeps_the_load_factor_of_caches(tmp_path: Path):
    rows = [row("m.t", "TW", "32", "100", "0", "fused_uvm_caching", factor) for factor in ("0.5", "None")]
    work = workload(table("t"))
    found = [read(tmp_path, report([each]), work)[0].cache for each in rows]
    assert found == [Cache(load_factor=0.5), Cache(load_factor=0.2)]


def test_grid_pieces_of_one_report_row_are_whole_hosts_in_any_order(tmp_path: Path):
    big = cluster(hosts=3, local=2)
    work = workload(table("t", dim=32))
    assert read(tmp_path, report([row("t", "GS", "32 (16)", "100", "0,1,4,5")], ranks=6), work, big) == (
        placed("t", "grid_shard", [0, 1, 4, 5], [16, 16]),
    )
    with pytest.raises(PlanMismatch, match=r"table 't' \(grid_shard\): ranks \[0, 1, 3, 4\] must be"):
        read(tmp_path, report([row("t", "GS", "32 (16)", "100", "0,1,3,4")], ranks=6), work, big)


def test_twins_are_told_by_module_then_by_shape_then_by_order(tmp_path: Path):
    twins = workload(
        table("t", rows=100, collection="a"), table("t#2", rows=200, collection="b"),
        table("t#3", rows=100, collection="b"), table("t#4", rows=100, collection="b"),
    )  # fmt: skip
    rows = [row("b.t", "TW", "32", "100", "1"), row("b.t", "TW", "32", "200", "2"), row("a.t", "TW", "32", "100", "0"),
            row("b.t", "TW", "32", "100", "3")]  # fmt: skip
    found = {placement.table: placement.ranks for placement in read(tmp_path, report(rows), twins)}
    assert found == {"t": (0,), "t#2": (2,), "t#3": (1,), "t#4": (3,)}


def test_names_with_their_module_and_workloads_without_modules_are_found(tmp_path: Path):
    rows = [row("a.t", "TW", "32", "100", "0"), row("b.t", "TW", "32", "100", "1")]
    named = workload(table("a.t", collection="a"), table("b.t", collection="b"))
    assert [each.ranks for each in read(tmp_path, report(rows), named)] == [(0,), (1,)]
    assert [each.ranks for each in read(tmp_path, report(rows[1:]), workload(table("t")))] == [(1,)]


def changed(name: str, column: str, value: str) -> list[list[str]]:
    """The rows with one cell changed."""
    at = COLUMNS.index(column)
    return [[*each[:at], value, *each[at + 1 :]] if each[0] == name else each for each in ROWS]


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (report(ROWS[1:]), PlanMismatch, "1 table without a place, the first is 's'"),
        (report([*ROWS, row("m.x", "TW", "32", "9", "0")]), PlanMismatch, "places table 'x', which the workload"),
        (report([*ROWS, ROWS[0]]), PlanMismatch, "places table 's' 2 times; the workload has it 1 times"),
        (report(ranks=8), PlanMismatch, "runs on 8 ranks, the cluster has 4 devices; name the cluster"),
        (report(changed("m.ebc.t0", "Ranks", "4")), PlanMismatch, "rank 4 is not one of the cluster's 0 .. 3"),
        (report(changed("m.ebc.t0", "Sharding", "XW")), PlanMismatch, "has sharding 'XW'; known: TW, CW"),
        (report(changed("m.ebc.t0", "Compute Kernel", "quant")), PlanMismatch, "has compute_kernel 'quant'"),
        (report(changed("m.ebc.t0", "Hash Size", "99")), PlanMismatch, "has 99 x 32 weights there and 100 x 32"),
        (report(changed("m.ebc.t1", "Ranks", "2,3")), PlanMismatch, "must be 4, one per column piece"),
        (report(changed("m.ebc.t1", "Emb Dim (CW Dim)", "32 (5)")), CorruptFile, "32 columns are no multiple of"),
        (report(changed("m.ebc.t1", "Emb Dim (CW Dim)", "32 (0)")), CorruptFile, "row of 'm.ebc.t1' cannot be read"),
        (report(changed("m.ebc.t1", "Emb Dim (CW Dim)", "wide")), CorruptFile, "row of 'm.ebc.t1' cannot be read"),
        (report(changed("m.ebc.t0", "Ranks", "None")), CorruptFile, "row of 'm.ebc.t0' cannot be read"),
        (report(changed("m.ebc.t5", "Ranks", "3-0")), CorruptFile, "ranks '3-0' run backwards"),
        (report(changed("m.ebc.t0", "Ranks", "0-300000000")), CorruptFile, "are more than those of the largest"),
        (report(changed("m.ebc.t0", "Ranks", ",".join(["0-60000"] * 99))), CorruptFile, "are more than those of the"),
        (report(changed("m.ebc.t1", "Emb Dim (CW Dim)", "4000000000 (1)")), CorruptFile, "row of 'm.ebc.t1' cannot be"),
        (report(changed("m.ebc.t0", "Hash Size", "many")), CorruptFile, "row of 'm.ebc.t0' cannot be read"),
        (report([]), CorruptFile, "a planner report without tables; keep its 'Parameter Info'"),
        (report([each[:-1] for each in ROWS], COLUMNS[:-1]), CorruptFile, "without the column 'Ranks'"),
    ],
)  # fmt: skip
def test_a_report_that_is_not_of_this_job_is_refused(tmp_path: Path, text: str, kind: type[RecSmithError], words: str):
    with pytest.raises(kind, match=re.escape(words)) as caught:
        read(tmp_path, text)
    assert "running" in str(caught.value)


def test_the_production_report_is_read_whole(data: Path):
    source = str(data / "torchrec_prod1935" / "sharding_stats_example.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = load_workload(source)
    found = {each.table: each for each in load_placements(source, work, load_cluster("h100:8x12"))}
    assert len(found) == 1935
    assert found["table_1705"] == placed("table_1705", "row_wise", range(96))
    assert found["table_1750"] == placed("table_1750", "column_wise", [21])
    assert found["table_1750#2"] == placed("table_1750#2", "column_wise", [80])
    wide = found["table_1659"]
    assert wide.ranks == (5, 6, 12, 13, 29, 36, 38, 39, 39, 61, 69, 82, 87, 89)
    assert wide.widths == (128,) * 14
    with pytest.raises(PlanMismatch, match="runs on 96 ranks, the cluster has 8 devices"):
        load_placements(source, work, load_cluster("h100:8"))


# --- the dump -----------------------------------------------------------------------------------------------------


def shards(*rows: tuple[int, int, int, int, int]) -> list[dict[str, Any]]:
    """Shards of (rank, first row, first column, rows, columns), as TorchRec serializes them."""
    return [
        {"shard_offsets": [top, left], "shard_sizes": [height, width], "placement": f"rank:{rank}/cuda:{rank % 2}"}
        for rank, top, left, height, width in rows
    ]


def parameter(kind: str, *rows: tuple[int, int, int, int, int]) -> dict[str, Any]:
    found = shards(*rows)
    return {"sharding_type": kind, "compute_kernel": "fused", "ranks": [each[0] for each in rows], "shards": found}


def dump() -> dict[str, Any]:
    """What ShardingPlan._serialize of torchrec 1.8 gives for WANTED."""
    ebc = {
        "t0": parameter("table_wise", (0, 0, 0, 100, 32)),
        "t1": parameter("column_wise", *((rank, 0, 8 * i, 200, 8) for i, rank in enumerate((2, 2, 3, 3)))),
        "t2": parameter("row_wise", *((rank, 75 * rank, 0, 75, 32) for rank in range(4))),
        "t3": parameter("table_row_wise", (2, 0, 0, 200, 32), (3, 200, 0, 200, 32)),
        "t4": parameter("grid_shard", *((rank, 250 * (rank % 2), 16 * (rank // 2), 250, 16) for rank in range(4))),
        "t5": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1, 2, 3]},
        "t6": parameter("table_column_wise", (0, 0, 0, 700, 16), (1, 0, 16, 700, 16)),
    }
    return {"plan": {"m.ec": {"s": parameter("table_wise", (1, 0, 0, 50, 8))}, "m.ebc": ebc}}


def test_a_dump_gives_the_same_as_the_report(tmp_path: Path):
    assert read(tmp_path, json.dumps(dump())) == WANTED


def test_a_dump_may_lack_shards_and_the_ranks_of_the_whole_world(tmp_path: Path):
    short = dump()
    for each in short["plan"]["m.ebc"].values():
        each.pop("shards", None)
    short["plan"]["m.ebc"]["t2"]["ranks"] = short["plan"]["m.ebc"]["t5"]["ranks"] = None
    assert read(tmp_path, json.dumps(short)) == WANTED


def test_ranks_come_from_the_shards_where_both_are_given(tmp_path: Path):
    other = dump()
    other["plan"]["m.ebc"]["t3"]["ranks"] = [2]  # some writers give only the first
    assert read(tmp_path, json.dumps(other)) == WANTED


def test_uneven_widths_are_kept(tmp_path: Path):
    text = json.dumps({"plan": {"": {"t": parameter("column_wise", (3, 0, 0, 100, 20), (0, 0, 20, 100, 12))}}})
    assert read(tmp_path, text, workload(table("t"))) == (placed("t", "column_wise", [3, 0], [20, 12]),)


def odd(name: str, **fields: object) -> str:
    """The dump with fields of a table of m.ebc changed."""
    raw = dump()
    raw["plan"]["m.ebc"][name] |= fields
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (odd("t0", sharding_type="diagonal"), PlanMismatch, "has sharding_type 'diagonal'; known: table_wise"),
        (odd("t0", shards=shards((5, 0, 0, 100, 32))), PlanMismatch, "rank 5 is not one of the cluster's 0 .. 3"),
        (odd("t0", shards=shards((0, 0, 0, 99, 32))), PlanMismatch, "has 99 x 32 weights there and 100 x 32"),
        (odd("t1", shards=shards((0, 0, 0, 200, 16), (1, 0, 8, 200, 24))), PlanMismatch,
         "table 't1' (column_wise) has a shard on rank 1 of rows [0, 200] and columns [8, 32], which its type does"),
        (odd("t2", shards=shards(*((r, 0, 0, 300, 32) for r in range(4)))), PlanMismatch,
         "table 't2' (row_wise) has a shard on rank 0 of rows [0, 300] and columns [0, 32], which its type does not"),
        (odd("t2", shards=shards(*((r, 60 * r, 0, 60, 32) for r in range(5)))), PlanMismatch, "runs on 5 ranks"),
        (odd("t0", shards=[{"shard_offsets": [0, 0], "shard_sizes": [1, 1], "placement": "cuda:0"}]), CorruptFile,
         "placement 'cuda:0'; wanted 'rank:0/...'"),
        (odd("t0", shards=None, ranks=None), CorruptFile, "table 't0' (table_wise) has neither shards nor ranks"),
        (odd("t0", compute_kernel=3), CorruptFile, "compute_kernel is 3"),
        (odd("t0", color="red"), CorruptFile, "color is not a known field"),
        (json.dumps({"plan": []}), CorruptFile, "plan is []"),
        (json.dumps({"tables": 1}), CorruptFile, "holds tables; a running plan is a file of schema recsmith/plan/1"),
        (json.dumps({"schema": "recsmith/result/1"}), CorruptFile, "has schema 'recsmith/result/1'; a running plan is"),
    ],
)  # fmt: skip
def test_a_dump_that_is_not_of_this_job_is_refused(tmp_path: Path, text: str, kind: type[RecSmithError], words: str):
    with pytest.raises(kind, match=re.escape(words)) as caught:
        read(tmp_path, text)
    assert "running" in str(caught.value)


# --- a plan file --------------------------------------------------------------------------------------------------


def test_a_plan_file_gives_its_placements(tmp_path: Path):
    save_plan(plan_of(WORK, MACHINES, *WANTED), str(tmp_path / "plan.json"))
    assert load_placements(str(tmp_path / "plan.json"), WORK, MACHINES) == WANTED


def test_a_plan_file_may_be_of_other_devices_but_not_of_other_ranks_or_tables(tmp_path: Path):
    path = str(tmp_path / "plan.json")
    save_plan(plan_of(WORK, MACHINES, *WANTED), path)
    assert load_placements(path, WORK, replace(MACHINES, hbm_bytes=2**20)) == WANTED
    with pytest.raises(PlanMismatch, match="is for 2 hosts of 2 devices, the cluster has 1 of 4"):
        load_placements(path, WORK, cluster(hosts=1, local=4))
    with pytest.raises(PlanMismatch, match="'t0' has 100 x 32 weights there and 101 x 32 in the workload"):
        load_placements(path, replace(WORK, tables=(table("t0", rows=101), *WORK.tables[1:])), MACHINES)
    with pytest.raises(PlanMismatch, match="table 's' is placed but not in the workload"):
        load_placements(path, replace(WORK, tables=WORK.tables[:-1]), MACHINES)


@pytest.mark.parametrize("kernel", ["dram_ssd_virtual_table", "ssd_virtual_table", "dram_virtual_table"])
def test_a_table_that_keeps_rows_by_key_is_left_out_with_a_note(tmp_path: Path, kernel: str):
    text = report([*ROWS[:2], row("m.ebc.kv", "RW", "32", "100", "0-3", kernel), *ROWS[2:]])
    with pytest.warns(UserWarning, match=r"1 table of virtual kernels \(kv\) left out"):
        assert read(tmp_path, text) == WANTED
    with pytest.raises(CorruptFile, match="reports nothing but 1 table of virtual kernels"):
        read(tmp_path, report([row("m.ebc.kv", "RW", "32", "100", "0-3", kernel)]))


def test_a_log_that_is_read_as_workload_and_as_plan_notes_it_once(tmp_path: Path):
    log = report([*ROWS, row("m.ebc.kv", "RW", "32", "100", "0-3", "ssd_virtual_table")])
    (tmp_path / "job.log").write_text(log)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("default")
        work = load_workload(str(tmp_path / "job.log"))
        assert read(tmp_path, log, work) == WANTED
    assert len({str(each.message).partition(":")[2] for each in noted}) == len({each.lineno for each in noted}) == 1
