"""Tables in a file with a cache train as tables in memory do, to the bit; what does not fit is said in a sentence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.two_table_jobs import ROWS, a_plan, a_run

from recsmith.clusters import Disk
from recsmith.errors import UsageError
from recsmith.planning.simulate import price
from recsmith.plans import Cache, load_plan, save_plan
from recsmith.training.systems.tiers import cache
from recsmith.training.systems.tiers.cache import EMPTY, RowCache, ScratchFile


@given(st.lists(st.lists(st.integers(0, 29), max_size=5, unique=True), max_size=40))
def test_a_cache_is_a_map_from_rows_to_slots(batches: list[list[int]]) -> None:
    own, held = RowCache("t", rows=30, slots=10), dict[int, int]()
    before = np.zeros(0, np.int64)
    for batch in batches:
        rows = np.array(sorted(batch), np.int64)
        moves = own.place(rows, [before])
        own.changed[moves.slots] = True
        assert not set(moves.left_slots) & set(before)
        assert not set(moves.left_rows) & set(batch)
        for row, slot in zip(moves.left_rows, moves.left_slots, strict=True):
            assert held.pop(int(row)) == slot
        for row, slot in zip(moves.read_rows, moves.read_slots, strict=True):
            assert slot not in held.values()
            held[int(row)] = int(slot)
        assert [held[int(row)] for row in rows] == moves.slots.tolist()
        before = moves.slots
    assert {int(row): slot for slot, row in enumerate(own.row_of) if row != EMPTY} == held
    rows, slots = own.settled()
    assert dict(zip(rows.tolist(), slots.tolist(), strict=True)) == held
    assert not len(own.settled()[0])


def test_the_row_used_longest_ago_leaves() -> None:
    own = RowCache("t", rows=9, slots=3)
    for row in (0, 1, 2, 0):
        own.place(np.array([row]), [])
    own.place(np.array([5]), [])
    assert own.slot_of[1] == EMPTY
    assert own.slot_of[0] != EMPTY


def test_the_rows_that_are_read_most_stay_once_they_were_counted() -> None:
    own = RowCache("t", rows=9, slots=3, profile=3)
    for row, reads in ((0, 5), (1, 2), (2, 4)):
        own.place(np.array([row]), [], np.array([reads]))
    for row in (5, 6, 7, 6):  # each takes the place of the one before
        own.place(np.array([row]), [], np.array([9]))
    assert own.reads.tolist() == [5, 2, 4, 0, 0, 0, 0, 0, 0]
    assert (own.slot_of[[0, 2]] != EMPTY).all()
    assert own.row_of[own.slot_of[6]] == 6


def test_rows_of_two_batches_that_do_not_fit_are_named() -> None:
    own = RowCache("t", rows=9, slots=3)
    busy = own.place(np.array([0, 1]), []).slots
    with pytest.raises(UsageError, match=r"table 't': a batch needs 2 of its rows, .* have more of its rows in memory"):
        own.place(np.array([2, 3]), [busy])


def test_a_disk_without_room_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rows.folder '.*' cannot hold .* of rows: .*; name a folder on a disk"):
        ScratchFile(str(tmp_path), [(2**40, 2**10)])
    assert not list(tmp_path.iterdir())


def test_a_file_has_no_name(tmp_path: Path) -> None:
    file = ScratchFile(str(tmp_path), [(3, 2), (4,)])
    file.arrays[1][:] = 5
    assert (file.arrays[0] == 0).all()
    assert not list(tmp_path.iterdir())


def weights(run: Any) -> dict[str, Any]:
    """What a run has exported."""
    from recsmith.training import load_model

    model = load_model(Path(run.output) / "model")
    return {name: np.asarray(model.table(name)) for name in ROWS}


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize(
    ("ranks", "optimizer", "more"),
    [(1, "rowwise_adagrad", {}), (2, "rowwise_adagrad", {}), (1, "sgd", {"policy": "static", "profile": 3})],
)
def test_it_trains_as_tables_in_memory_do(tmp_path: Path, ranks: int, optimizer: str, more: dict[str, Any]) -> None:
    from recsmith.training import train

    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.1, **more}
    plain = a_run(tmp_path / "plain", ranks=ranks, optimizer=optimizer)
    tiered = a_run(tmp_path / "own", ranks=ranks, optimizer=optimizer, rows=rows, pipeline="prefetch_sparse_dist")
    first = replace(tiered, steps=7)
    train(plain)
    train(first)  # and goes on from its checkpoint
    result = train(tiered)
    assert result["step"] == 12
    assert 0 <= result["hit_share"] < 1
    assert f"{result['hit_share']:.1%} of lookups found a row in memory; " in result["brought"]["rows"]
    expected, found = weights(plain), weights(tiered)
    for name in ROWS:
        assert np.isfinite(expected[name]).all()
        assert (expected[name] == found[name]).all(), name
    assert not list((tmp_path / "rows").iterdir())
    log = [json.loads(line) for line in (Path(tiered.output) / "log.jsonl").read_text().splitlines()]
    assert all(0 < line["predicted_hit_share"] < 1 for line in log if line["event"] == "start")
    assert all(line["predicted_step_s"] > 0 for line in log if line["event"] == "start")
    shares = [line["hit_share"] for line in log if line["event"] == "train"]
    assert shares
    assert all(0 <= share < 1 for share in shares)
    assert all(line["rows_wait_s"] >= 0 for line in log if line["event"] == "train")


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("zipf", [None, 1.3])
def test_hits_are_predicted_from_the_ids_of_the_data(tmp_path: Path, zipf: float | None) -> None:
    """A plan that a job makes has the law by which its data reads rows, and a cache finds what that lets expect."""
    from recsmith.data import open_dataset, spec_from_raw
    from recsmith.training.launch.dry_run import described
    from recsmith.training.systems.tiers.shares import predicted_hits

    features = [{"name": "a", "num_embeddings": 20_000, "pooling_factor": 5, "zipf": zipf}]
    data = {"format": "generator", "num_samples": 64 * 200, "dense": 2, "features": features}
    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.2}
    run = a_run(tmp_path, rows=rows, plan="auto")
    run = replace(run, data=replace(run.data, train=data))
    told = predicted_hits(run, described(run).plan)
    own, found = RowCache("a", rows=20_000, slots=4_000), list[float]()
    with open_dataset(spec_from_raw(data, "a test")).batches(rank=0, world_size=1, batch_size=64, seed=0) as batches:
        for batch in batches:
            ids = batch.ids["a"].values
            found.append(1 - np.isin(ids, own.place(np.unique(ids), []).read_rows).mean())
    assert told == pytest.approx(np.mean(found[100:]), abs=0.05)


@pytest.mark.usefixtures("torchrec")
def test_a_small_cache_holds_the_rows_of_two_batches_and_says_so(tmp_path: Path) -> None:
    """A share of a table that a batch does not fit into is raised; what a dry run takes trains."""
    from recsmith.training import train
    from recsmith.training.launch.dry_run import described

    run = a_run(tmp_path, rows={"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.01})
    told = described(run)
    [rows] = [each for each in told.systems if each.key == "rows"]
    assert "with the rows of two batches" in rows.said
    plain = described(replace(run, rows="device"))
    assert told.step is not None
    assert plain.step is not None
    assert told.step.rows_s > plain.step.rows_s == 0
    assert [each.tables for each in told.memory] != [each.tables for each in plain.memory]
    assert all(each.file > 0 for each in told.memory)
    assert train(run)["complete"]


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"policy": "static"}, "rows.policy goes with rows.cache; without it the plan says both"),
        ({"cache": 0.1, "policy": "static", "profile": 0}, "rows.profile is 0; it is a number of batches, at least 1"),
        ({"cache": 1.5}, "rows.cache is 1.5; it is a share of rows"),
    ],
)
def test_settings_that_nothing_means_are_named(settings: dict[str, Any], said: str) -> None:
    import torch

    from recsmith.training.systems.tiers.rows import TieredRows

    config: Any = None
    with pytest.raises(UsageError, match=said):
        TieredRows.kernel(config, True, torch.device("cpu"), folder="rows", **settings)


def test_caches_beyond_the_memory_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "memory_held", lambda: 2**20)  # of all processes: other tests may hold gigabytes
    monkeypatch.setattr(cache, "memory_limit", lambda: 2**30)
    cache.check_memory(2**10)
    with pytest.raises(
        UsageError,
        match=r"needs 1 GiB for its caches .* the 1 MiB .* \(launcher, agent, ranks\), and the limit is 1 GiB; raise",
    ):
        cache.check_memory(2**30)
    monkeypatch.setattr(cache, "memory_limit", lambda: None)
    cache.check_memory(2**60)


def test_checkpoints_in_the_background_are_refused(tmp_path: Path) -> None:
    from recsmith.plans import load_plan
    from recsmith.training import Checkpointing
    from recsmith.training.run.refusals import check_together, placed_parts

    run = a_run(tmp_path, rows={"name": "tiered", "folder": "rows"})
    run = replace(run, checkpoint=Checkpointing(background=True))
    with pytest.raises(UsageError, match="background changes when whole tables are copied"):
        check_together(placed_parts(run, load_plan(str(run.plan)), "cpu"))


def planned(folder: Path, ranks: int) -> str:
    """As `a_plan`, with both tables on disk behind caches of other sizes."""
    plan = load_plan(Path(a_plan(folder, ranks, "rowwise_adagrad")))
    shares = {"a": 0.25, "b": 0.1}
    placed = [
        replace(each, compute_kernel="key_value", cache=Cache(load_factor=shares[each.table], policy="static"))
        for each in plan.placements
    ]
    cluster = replace(plan.cluster, ssd_bytes_per_host=2**40, disk=Disk(bandwidth=1e9, reads_per_s=1e5))
    save_plan(price(plan.workload, cluster, placed), folder / "disk.json")
    return str(folder / "disk.json")


@pytest.mark.usefixtures("torchrec")
def test_a_plan_says_which_tables_are_on_disk(tmp_path: Path) -> None:
    from recsmith.training import evaluate, train

    plain = a_run(tmp_path / "plain", ranks=2)
    rows = {"name": "tiered", "folder": str(tmp_path / "rows")}
    tiered = a_run(tmp_path / "own", ranks=2, rows=rows, pipeline="prefetch_sparse_dist")
    tiered = replace(tiered, plan=planned(tmp_path, 2))
    train(plain)
    data = {**tiered.data.train, "first_sample": 64 * 12, "num_samples": 128}
    result = train(replace(tiered, data=replace(tiered.data, test=data)))
    expected, found = weights(plain), weights(tiered)
    for name in ROWS:
        assert np.isfinite(expected[name]).all()
        assert (expected[name] == found[name]).all(), name
    assert evaluate(tiered.output).logloss == pytest.approx(result["test"]["logloss"], rel=1e-6)


def looked_up(run: dict[str, Any]) -> int:
    """On a rank: lookups that a job has counted when it ends."""
    from recsmith.training.job.agreement import Agreement, Ending
    from recsmith.training.job.starting import prepared
    from recsmith.training.loop import train_prepared
    from recsmith.training.rank import OneModel
    from recsmith.training.run import run_from_raw
    from recsmith.training.watchers import Watchers

    made = run_from_raw(run, "the run")
    job, batches = prepared(made, Agreement())
    with Watchers(()) as watchers:
        train_prepared(OneModel(job), batches, watchers, Ending())
    return job.sharded.rows.lookups()[0]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("pipeline", ["base", "prefetch_sparse_dist"])
def test_lookups_are_counted_of_training_steps_alone(tmp_path: Path, pipeline: str) -> None:
    """Not of evaluations, and not of the pass that settles sums before the first step."""
    from recsmith.jobs.launch import launch
    from recsmith.training import RunMetrics, run_to_raw

    rows = {"name": "tiered", "folder": str(tmp_path / "rows"), "cache": 0.1}
    run = a_run(tmp_path / "own", rows=rows, pipeline=pipeline)
    run = replace(run, data=replace(run.data, test=run.data.train), metrics=RunMetrics(every=2, evaluate_every=3))
    (counted,) = launch(
        "training.systems.tiers.test_tiered:looked_up", {"run": run_to_raw(run)}, ranks=1, names_modules=True
    )
    assert counted == 12 * 64 * len(ROWS)
