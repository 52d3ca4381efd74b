"""What `print(plan)` writes, read as it is, within a log, and refused where a cell cannot be read."""

import re
from pathlib import Path

import pytest
from support.build import cluster, placed, table, workload

from recsmith.clusters import sharding_group
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.plans import Placement, load_plan
from recsmith.plans.running import load_placements

MACHINES = cluster(hosts=2, local=2)
WORK = workload(
    *(table(f"t{i}", rows=100 * (i + 1), dim=32, collection="m.ebc") for i in range(3)),
    table("s", rows=50, dim=8, pooling="none", collection="m.ec"),
)
WANTED = (
    placed("s", "table_wise", [1]),
    placed("t0", "data_parallel", [0, 1, 2, 3], kernel="dense"),
    placed("t1", "column_wise", [2, 3], [8, 24]),
    placed("t2", "row_wise", [0, 1, 2, 3]),
)
PRINTED = """\
module: m.ebc

param | sharding type | compute kernel |    ranks    
----- | ------------- | -------------- | ------------
t0    | data_parallel | dense          | [0, 1, 2, 3]
t1    | column_wise   | fused          | [2, 3]      
t2    | row_wise      | fused          | [0, 1, 2, 3]

param | shard offsets | shard sizes | placement
----- | ------------- | ----------- | -------------
t1    | [0, 0]        | [200, 8]    | rank:2/cuda:0
t1    | [0, 8]        | [200, 24]   | rank:3/cuda:1
t2    | [0, 0]        | [75, 32]    | rank:0/cuda:0
t2    | [75, 0]       | [75, 32]    | rank:1/cuda:1
t2    | [150, 0]      | [75, 32]    | rank:2/cuda:0
t2    | [225, 0]      | [75, 32]    | rank:3/cuda:1

module: m.ec

param | sharding type | compute kernel | ranks
----- | ------------- | -------------- | -----
s     | table_wise    | fused          | [1]  

param | shard offsets | shard sizes | placement
----- | ------------- | ----------- | -------------
s     | [0, 0]        | [50, 8]     | rank:1/cuda:1
"""  # noqa: W291 (TorchRec pads its cells)


def read(folder: Path, text: str) -> tuple[Placement, ...]:
    (folder / "printed.log").write_text(text)
    return load_placements(str(folder / "printed.log"), WORK, MACHINES)


def test_the_plan_of_a_2d_job_is_read_as_it_was_before_its_ranks_were_renamed(tmp_path: Path):
    """DMPCollection renames the ranks of group 1 of two from 0, 1, 2, 3 to 1, 3, 5, 7, in the plan itself."""
    group = sharding_group(cluster(hosts=2, local=4), 4)
    file = tmp_path / "printed.log"
    file.write_text(PRINTED)
    assert load_placements(str(file), WORK, group) == WANTED
    ranks = re.compile(r"(?<=rank:)\d|(?<=\[)\d(?:, \d)*(?=\] *$)", re.MULTILINE)
    file.write_text(ranks.sub(lambda found: re.sub(r"\d", lambda rank: str(2 * int(rank[0]) + 1), found[0]), PRINTED))
    with pytest.raises(PlanMismatch, match=r"names rank 7, .* ranks 0 \.\. 3: DMPCollection has renamed them"):
        load_placements(str(file), WORK, group)


def test_a_printed_plan_gives_its_placements(tmp_path: Path):
    assert read(tmp_path, PRINTED) == WANTED


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"starting\nplan: 2 modules\n{PRINTED}\nstep 0 loss 0.69\n", id="within a log"),
        pytest.param("".join(f"[rank0]: {line}\n" for line in PRINTED.splitlines()), id="a launcher's prefix"),
        pytest.param("\n".join(line.rstrip() for line in PRINTED.splitlines()), id="blanks at the end cut"),
        pytest.param(PRINTED.replace("[2, 3]", "[0, 1]").replace("rank:2/", "rank:0/") + PRINTED, id="the last holds"),
        pytest.param(PRINTED.replace("\n", "\r\n"), id="lines of Windows"),
    ],
)
def test_it_is_read_out_of_logs(tmp_path: Path, text: str):
    assert read(tmp_path, text) == WANTED


@pytest.mark.parametrize(
    ("old", "new", "error", "why"),
    [
        ("[200, 8] ", "[007, \u0663] ", CorruptFile, "for table 't1'; wanted numbers"),
        ("rank:3/cuda:1\nt2", f"rank:{'9' * 5000}/cuda:1\nt2", CorruptFile, "wanted 'rank:0/...'"),
        ("[200, 8] ", "[200, x] ", CorruptFile, r"'\[200, x\]' for table 't1'; wanted numbers"),
        ("[0, 0]        | [50, 8] ", "[0, 0, 0]     | [50, 8] ", CorruptFile, "wanted 2 numbers"),
        ("rank:1/cuda:1\n", "cuda:1       \n", CorruptFile, "placement 'cuda:1'"),
        (
            "t2    | row_wise      | fused          | [0, 1, 2, 3]\n",
            "",
            CorruptFile,
            "shards of table 't2' and not the",
        ),
        (
            "t2    | [0, 0] ",
            "loss 0.69\nt2    | [0, 0] ",
            CorruptFile,
            "0 shards of table 't2' in module 'm.ebc', wanted 4",
        ),
        ("t2    | [150, 0]", "t2 [150, 0]  ", CorruptFile, "2 shards of table 't2' in module 'm.ebc', wanted 4"),
        ("t1    | [0, 0]", "t1    |[0, 0] ", CorruptFile, "0 shards of table 't1' in module 'm.ebc', wanted 2"),
        ("t1    | column_wise  ", "t1    |column_wise   ", CorruptFile, "shards of table 't1' and not the table"),
        ("[75, 32]    | rank:1/cuda:1", "[75, 32]    | rank:0/cuda:1", PlanMismatch, "must be all ranks 0"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, old: str, new: str, error: type[Exception], why: str):
    assert old in PRINTED
    with pytest.raises(error, match=why):
        read(tmp_path, PRINTED.replace(old, new))


def test_a_printed_plan_whose_spaces_were_lost_is_refused(tmp_path: Path):
    squeezed = re.sub("-+", "-", re.sub(" +", " ", PRINTED))
    with pytest.raises(CorruptFile, match="no table under its header lines up"):
        read(tmp_path, squeezed)


Rectangle = tuple[int, list[int], list[int]]  # rank, corner, size
FOUR = [0, 1, 2, 3]


def sharded(name: str, kind: str, kernel: str, ranks: list[int], *shards: Rectangle, cache: str = "None") -> str:
    """A table as Python prints its ParameterSharding."""
    each = [
        f"ShardMetadata(shard_offsets={corner}, shard_sizes={size}, placement=rank:{rank}/cuda:{rank % 2})"
        for rank, corner, size in shards
    ]
    spec = f"EnumerableShardingSpec(shards=[{', '.join(each)}])" if shards else "None"
    return (
        f"{name!r}: ParameterSharding(sharding_type={kind!r}, compute_kernel={kernel!r}, ranks={ranks}, "
        f"sharding_spec={spec}, cache_params={cache}, enforce_hbm=None, stochastic_rounding=None, "
        "bounds_check_mode=None, output_dtype=None, key_value_params=None)"
    )


def objects(*more: str, kernel: str = "fused", cache: str = "None") -> str:
    """What `print(model.plan.plan)` writes of the same plan. more: tables besides."""
    bags = [
        sharded("t0", "data_parallel", "dense", FOUR),
        sharded("t1", "column_wise", kernel, [2, 3], (2, [0, 0], [200, 8]), (3, [0, 8], [200, 24]), cache=cache),
        sharded("t2", "row_wise", kernel, FOUR, *((rank, [75 * rank, 0], [75, 32]) for rank in FOUR), cache=cache),
        *more,
    ]
    sequences = sharded("s", "table_wise", kernel, [1], (1, [0, 0], [50, 8]), cache=cache)
    return f"{{'m.ebc': {{{', '.join(bags)}}}, 'm.ec': {{{sequences}}}}}\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(objects(), id="alone"),
        pytest.param(f"INFO:job: step 0\n[rank0]: {objects()}INFO:job: step 1\n", id="within a log"),
        pytest.param(objects().replace(", ", ",\n "), id="folded"),
        pytest.param(objects().replace("'t2'", "'old'") + objects(), id="the last holds"),
    ],
)
def test_printed_objects_give_the_same_placements(tmp_path: Path, text: str):
    assert read(tmp_path, text) == WANTED


def test_printed_objects_tell_the_load_factors_of_caches(tmp_path: Path):
    cache = "CacheParams(algorithm=None, load_factor=0.3, reserved_memory=None)"
    text = objects(kernel="fused_uvm_caching", cache=cache)
    found = {placement.table: placement for placement in read(tmp_path, text)}
    assert (found["t1"].compute_kernel, found["t1"].load_factor) == ("fused_uvm_caching", 0.3)
    assert found["t0"].cache is None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ranks=[2, 3]", "ranks=[2, x]", "cannot be read at 'ParameterSharding"),
        ("'t2': ", "", "cannot be read at 'ParameterSharding"),
        ("[200, 8]", "[200]", "has '\\[200\\]' for table 't1'; wanted 2 numbers"),
        ("rank:3/cuda:1)", "rank:3/cuda:1", "shards of table 't[12]' in the printed plan cannot be read"),
        ("placement=rank:1/", "placement=", "placement 'cuda:1'"),
    ],
)
def test_damaged_objects_are_refused(tmp_path: Path, old: str, new: str, why: str):
    assert old in objects()
    with pytest.raises(CorruptFile, match=why):
        read(tmp_path, objects().replace(old, new))


def test_objects_that_were_cut_are_refused_or_lack_tables(tmp_path: Path):
    text = objects()
    for end in range(len(text) // 4, len(text) - 250, 97):
        with pytest.raises((CorruptFile, PlanMismatch)):
            read(tmp_path, text[:end])


def test_virtual_tables_of_a_printed_plan_are_left_out(tmp_path: Path):
    virtual = sharded("kv", "row_wise", "ssd_virtual_table", FOUR, *((rank, [rank, 0], [1, 32]) for rank in FOUR))
    with pytest.warns(UserWarning, match=r"1 table of virtual kernels \(kv\) left out"):
        assert read(tmp_path, objects(virtual)) == WANTED


@pytest.mark.parametrize(
    ("name", "text"), [("plan.txt", PRINTED), ("plan.log", objects()), ("plan.json", '{"plan": {}}')]
)
def test_a_plan_of_torchrec_in_the_place_of_a_plan_file_is_told(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(CorruptFile, match="recsmith import"):
        load_plan(str(tmp_path / name))
