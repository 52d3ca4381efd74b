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


@pytest.mark.parametrize(("name", "text"), [("plan.txt", PRINTED), ("plan.json", '{"plan": {}}')])
def test_a_plan_of_torchrec_in_the_place_of_a_plan_file_is_told(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(CorruptFile, match="recsmith import"):
        load_plan(str(tmp_path / name))


def test_the_plan_of_modules_as_python_shows_it_says_which_forms_are_read(tmp_path: Path):
    text = (
        "{'ebc': {'t0': ParameterSharding(sharding_type='table_wise', compute_kernel='fused', ranks=[0], "
        "sharding_spec=EnumerableShardingSpec(shards=[ShardMetadata(shard_offsets=[0, 0], shard_sizes=[10, 4], "
        "placement=rank:0/cuda:0)]), cache_params=None)}}\n"
    )
    for name in ("plan.txt", "job.log", "plan"):
        (tmp_path / name).write_text(text)
        with pytest.raises(CorruptFile, match=r"print\(plan.plan\) writes; give the output of print\(plan\)"):
            load_plan(str(tmp_path / name))
    with pytest.raises(CorruptFile, match=r"print\(plan.plan\) writes"):
        read(tmp_path, text)
