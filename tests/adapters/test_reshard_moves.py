"""Resharding without a job: every type to every type, row-wise state, tables added and removed; read by PyTorch."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.build import table
from support.exactness import cpu_cluster
from support.resharding import DIM, ROWS, TYPES, contents, hand_made, hashes, turned, whole, write_whole

from recsmith import Placement, Plan

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]

SHAPES = ((1, 2), (2, 2), (1, 3))  # local ranks, hosts
TURNS = (0, 1, 3, 6, 3, 1, 0)  # modulo 7 they differ by 1, 2, 3, -3, -2, -1: each type becomes each other type


def reshard(*words: Any, **more: Any) -> Any:
    from recsmith.adapters.reshard.reshard import reshard as run

    return run(*words, **more)


def placed(kind: str, ranks: tuple[int, ...], widths: tuple[int, ...] = (), rows: int = 16, world: int = 2) -> Plan:
    placement = Placement(table="t0", sharding_type=kind, compute_kernel="fused", ranks=ranks, widths=widths)
    return hand_made([table("t0", rows, DIM)], [placement], cpu_cluster(world, 1), "rowwise_adagrad")


def test_weights_and_element_wise_state_are_the_same_bytes_from_every_type_to_every_type(tmp_path: Path):
    saved = write_whole(tmp_path / "0")
    before, expected = whole(), hashes(tmp_path / "0")
    assert len(expected) == 2 * len(TYPES)
    seen: set[tuple[str, str]] = set()
    for number, turn in enumerate(TURNS):
        after = turned(cpu_cluster(*SHAPES[number % len(SHAPES)]), turn)
        report = reshard(tmp_path / str(number), before, after, tmp_path / str(number + 1), strict=True)
        assert hashes(tmp_path / str(number + 1)) == expected
        seen |= {(each.before, each.after) for each in report.tables}
        before = after
    assert len({pair for pair in seen if pair[0] != pair[1]}) == len(TYPES) * (len(TYPES) - 1)
    last = contents(tmp_path / str(len(TURNS)))
    over = saved["model"]["over.weight"]
    assert last["model.over.weight"].dtype == over.dtype
    assert last["model.over.weight"].equal(over)
    assert last["optimizer.state.over.weight.sum"].equal(saved["optimizer"]["state"]["over.weight"]["sum"])
    assert (last["job.step"], last["job.lr"]) == (9, [0.1, "cosine"])


def test_chunks_are_the_shards_of_the_new_plan(tmp_path: Path):
    from recsmith.adapters.checkpoints import read_checkpoint

    write_whole(tmp_path / "old")
    after = turned(cpu_cluster(2, 2), 0)
    reshard(tmp_path / "old", whole(), after, tmp_path / "new")
    entries = read_checkpoint(tmp_path / "new").entries
    for name in ("t1", "t2", "t5"):
        chunks = entries[f"model.collections.0.embedding_bags.{name}.weight"].chunks
        shards = [shard for shard in after.shards() if shard.table == name]
        assert len(chunks) > 1
        assert [(c.offsets, c.sizes, c.file) for c in chunks] == [
            ((s.rows[0], s.columns[0]), (s.rows[1] - s.rows[0], s.columns[1] - s.columns[0]), f"__{s.rank}_0.distcp")
            for s in shards
        ]


def test_row_wise_state_is_replicated_where_columns_split_and_averaged_by_width_where_they_merge(tmp_path: Path):
    import torch

    write_one(tmp_path / "whole", torch.arange(16.0))
    split = placed("column_wise", (0, 1, 0), (8, 16, 8))
    report = reshard(tmp_path / "whole", placed("table_wise", (1,)), split, tmp_path / "split")
    state = "optimizer.state.collections.0.embedding_bags.t0.weight.t0.momentum1"
    assert [each.change for each in report.tables[0].states] == ["replicated"]
    assert contents(tmp_path / "split")[state].equal(torch.arange(16.0).repeat(3))

    rows = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    overwrite(tmp_path / "split", state, rows.view(-1))
    merged = reshard(tmp_path / "split", split, placed("row_wise", (0, 1)), tmp_path / "merged")
    mean = (8 * rows[0].double() + 16 * rows[1].double() + 8 * rows[2].double()) / 32
    assert [each.change for each in merged.tables[0].states] == ["averaged"]
    assert contents(tmp_path / "merged")[state].equal(mean.float())

    other = placed("column_wise", (2, 0), (20, 12), world=3)
    cut = reshard(tmp_path / "split", split, other, tmp_path / "cut")  # 8+12 columns, then 4+8
    want = torch.cat([(8 * rows[0].double() + 12 * rows[1]) / 20, (4 * rows[1].double() + 8 * rows[2]) / 12]).float()
    assert [each.change for each in cut.tables[0].states] == ["averaged"]
    assert torch.allclose(contents(tmp_path / "cut")[state], want, rtol=1e-7, atol=0)


def test_row_wise_state_is_the_same_bytes_where_columns_stay(tmp_path: Path):
    import torch

    values = torch.rand(32, generator=torch.Generator().manual_seed(2))
    write_one(tmp_path / "whole", torch.zeros(16))
    first = placed("column_wise", (0, 1), (16, 16))
    reshard(tmp_path / "whole", placed("table_wise", (1,)), first, tmp_path / "0")
    state = "optimizer.state.collections.0.embedding_bags.t0.weight.t0.momentum1"
    overwrite(tmp_path / "0", state, values)
    grid = placed("grid_shard", (0, 1, 2, 3), (16, 16))
    grid = replace(grid, cluster=cpu_cluster(2, 2))
    steps = [first, grid, placed("table_column_wise", (1, 0), (16, 16)), first]
    for number, (before, after) in enumerate(pairwise(steps)):
        report = reshard(tmp_path / str(number), before, after, tmp_path / str(number + 1), strict=True)
        assert report.inexact == ()
        assert contents(tmp_path / str(number + 1))[state].equal(values)


def test_a_dense_optimizer_goes_on_with_what_fused_kernels_kept_and_back(tmp_path: Path):
    saved = write_whole(tmp_path / "0")
    after = turned(cpu_cluster(1, 2), 0)  # t6 becomes data_parallel
    reshard(tmp_path / "0", whole(), after, tmp_path / "1")
    name = "collections.0.embedding_bags.t6.weight"
    found = contents(tmp_path / "1")
    assert f"optimizer.state.{name}.t6.momentum1" not in found
    assert found[f"optimizer.state.{name}.sum"].equal(saved["optimizer"]["state"][name]["t6.momentum1"])
    assert found[f"optimizer.state.{name}.step"] == 9  # as the dense optimizer's other parameters
    reshard(tmp_path / "1", after, whole(), tmp_path / "2")
    assert contents(tmp_path / "2").keys() == contents(tmp_path / "0").keys()


def test_another_kind_of_dense_optimizer_begins_anew_and_the_report_says_so(tmp_path: Path):
    write_whole(tmp_path / "0", "rowwise_adagrad")  # whose dense optimizer keeps nothing of other parameters
    saved = contents(tmp_path / "0")
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save

    state = {"model": {}, "optimizer": {"state": {"over.weight": {"exp_avg": torch.ones(3, 5)}}}}
    for key, value in saved.items():
        words = key.split(".", 1) if key.startswith("model") else ["", ""]
        if words[0]:
            state["model"][words[1]] = value
        elif key.startswith("optimizer.state."):
            name, own = key.removeprefix("optimizer.state.").split(".weight.")
            state["optimizer"]["state"][f"{name}.weight"] = {own: value}
    save(state, checkpoint_id=tmp_path / "adam", no_dist=True)
    plans = whole("rowwise_adagrad"), turned(cpu_cluster(1, 2), 0, "rowwise_adagrad")
    report = reshard(tmp_path / "adam", *plans, tmp_path / "out")
    change = next(each for each in report.tables if each.table == "t6")
    assert [(each.name, each.change) for each in change.states] == [("exp_avg", "reset")]
    assert contents(tmp_path / "out")["optimizer.state.collections.0.embedding_bags.t6.weight.exp_avg"].eq(0).all()


def test_tables_are_added_as_told_whatever_their_shards_and_removed(tmp_path: Path):
    import torch

    write_whole(tmp_path / "old")
    extra = [table("fresh", 1000, 16), *(table(f"t{i}", ROWS, DIM) for i in range(2))]
    drawn: list[torch.Tensor] = []
    for number, (kind, ranks, widths) in enumerate([("row_wise", (0, 1), ()), ("column_wise", (1, 0), (12, 4))]):
        placements = [
            Placement(table="fresh", sharding_type=kind, compute_kernel="fused", ranks=ranks, widths=widths),
            *(Placement(table=f"t{i}", sharding_type="table_wise", compute_kernel="fused", ranks=(1,)) for i in (0, 1)),
        ]
        after = hand_made(extra, placements, cpu_cluster(2, 1), "adagrad")
        out = tmp_path / f"new{number}"
        report = reshard(tmp_path / "old", whole(), after, out, init="uniform", seed=3, strict=True)
        assert {each.table for each in report.tables if each.before is None} == {"fresh"}
        assert {each.table for each in report.tables if each.after is None} == {f"t{i}" for i in range(2, 7)}
        found = contents(out)
        assert not any(".t6." in key for key in found)
        assert found["optimizer.state.collections.0.embedding_bags.fresh.weight.fresh.momentum1"].eq(0).all()
        drawn.append(found["model.collections.0.embedding_bags.fresh.weight"])
    limit = (1 / 1000) ** 0.5  # BaseEmbeddingConfig.get_weight_init_max of torchrec
    assert drawn[0].equal(drawn[1])
    assert drawn[0].abs().max() <= limit
    assert drawn[0].std() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert abs(float(drawn[0].mean())) < 0.02 * limit
    assert drawn[0].unique().numel() > 15_000


def write_one(folder: Path, rows: Any) -> None:
    """A checkpoint of one table of 16 rows on one rank, with this row-wise state."""
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save

    name = "collections.0.embedding_bags.t0.weight"
    fused = {name: {"t0.momentum1": rows}}
    save({"model": {name: torch.rand(16, DIM)}, "optimizer": {"state": fused}}, checkpoint_id=folder, no_dist=True)


def overwrite(folder: Path, key: str, values: Any) -> None:
    """Other numbers in an entry of a checkpoint, chunk by chunk: one-dimensional float32."""
    import io

    import torch

    from recsmith.adapters.checkpoints import read_checkpoint

    for chunk in read_checkpoint(folder).entries[key].chunks:
        archive = io.BytesIO()
        begin = chunk.offsets[0]
        torch.save(values[begin : begin + chunk.sizes[0]].clone(), archive)
        assert archive.tell() == chunk.length
        with (folder / chunk.file).open("r+b") as file:
            file.seek(chunk.start)
            file.write(archive.getvalue())


def test_a_checkpoint_of_training_is_named_by_its_folder_whose_state_is_read(tmp_path: Path):
    """recsmith train keeps tensors in checkpoints/step-N/state, and its own facts beside them."""
    checkpoint = tmp_path / "checkpoints" / "step-00000003"
    checkpoint.mkdir(parents=True)
    before = write_whole(checkpoint / "state")
    reshard(checkpoint, whole(), turned(cpu_cluster(1, 2), 1), tmp_path / "new")
    reshard(checkpoint / "state", whole(), turned(cpu_cluster(1, 2), 1), tmp_path / "same")
    assert before
    assert hashes(tmp_path / "new") == hashes(tmp_path / "same") == hashes(checkpoint / "state") != {}
